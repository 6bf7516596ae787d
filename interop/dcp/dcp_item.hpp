// One item of a checkpoint of torch.distributed.checkpoint (DCP): a part of a .distcp file that is an archive of
// torch.save.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <bitsnap/tensor.hpp>

namespace bitsnap::interop {

// How the names of the files end.
inline constexpr std::string_view kDcpSuffix = ".distcp";
inline constexpr std::string_view kDcpMetadata = ".metadata";

struct DcpItem {
  std::string name;             // the fully qualified name of the tensor or object
  std::string path;             // of its file, as stated: not checked, and may leave the folder of the checkpoint
  std::uint64_t offset = 0;     // in the file
  std::uint64_t bytes = 0;      // in the file
  bool is_tensor = false;       // one tensor, or else an object that was saved as bytes
  std::optional<ShardBox> box;  // of a tensor: where it lies in the global tensor
};

}  // namespace bitsnap::interop
