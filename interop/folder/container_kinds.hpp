// Tells which container a file is, and takes it apart.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>

#include "interop/container/contents.hpp"
#include "interop/container/file_bytes.hpp"
#include "interop/dcp/dcp_item.hpp"

namespace bitsnap::interop {

// What a file turned out to be.
struct Recognized {
  std::string container;  // "safetensors", "torch-zip", "torch-legacy", "dcp", "npy", "npz"; empty: plain bytes
  Contents contents;
  std::string note;  // why a file that begins like a container is plain bytes
};

// Whether a file is one ZIP archive, whose checksums must follow its contents. The archives in a DCP file keep theirs:
// torch does not look at them.
[[nodiscard]] bool has_zip_checksums(std::string_view container) noexcept;

// Knows the files of one folder, because a DCP file is described by the file .metadata beside it. One thread at a time.
class ContainerKinds {
 public:
  // Opens a file of the folder by its path; nullopt if there is none.
  using Open = std::function<Result<std::optional<FileBytes>>(const std::string& path)>;

  ContainerKinds(Open open, const DecodeLimits& limits) : open_(std::move(open)), limits_(limits) {}

  // Fails only if the file cannot be read.
  [[nodiscard]] Result<Recognized> recognize(const std::string& path, const FileBytes& bytes);

 private:
  using ItemsByFile = std::map<std::string, std::vector<DcpItem>>;  // by path in the folder

  [[nodiscard]] Result<Recognized> take_apart(const std::string& path, const FileBytes& bytes);
  [[nodiscard]] Result<Contents> read_dcp(const std::string& path, const FileBytes& bytes);
  // What the .metadata of a directory says, read once; without items if there is none.
  [[nodiscard]] Result<const ItemsByFile*> items_beside(const std::string& directory);

  Open open_;
  DecodeLimits limits_;
  std::map<std::string, ItemsByFile> items_;  // by directory
};

}  // namespace bitsnap::interop
