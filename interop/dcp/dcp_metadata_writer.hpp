// Writes the file .metadata of a checkpoint of torch.distributed.checkpoint (spec.md). Pure function.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "interop/dcp/dcp_item.hpp"
#include "interop/dcp/dcp_metadata.hpp"

namespace bitsnap::interop {

// An item that is written, and what the metadata says about it.
struct WrittenDcpItem {
  DcpItem item;                      // without a box: a tensor is written whole
  std::string dtype;                 // of a tensor: "float32"
  std::vector<std::uint64_t> shape;  // of a tensor
  DcpKeys path;                      // where it stands in the state
};

[[nodiscard]] std::string write_dcp_metadata(const std::vector<WrittenDcpItem>& items);

}  // namespace bitsnap::interop
