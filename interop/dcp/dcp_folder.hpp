// The DCP checkpoints of a folder: what the file .metadata of each directory says about the .distcp files beside it.
// One thread at a time.
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

class DcpFolder {
 public:
  // Opens a file of the folder by its path; nullopt if there is none.
  using Open = std::function<Result<std::optional<FileBytes>>(const std::string& path)>;

  explicit DcpFolder(Open open) : open_(std::move(open)) {}

  // The tensors of a .distcp file. Without its metadata, its items are found, but not their names.
  [[nodiscard]] Result<Contents> read_file(const std::string& path, const FileBytes& bytes, const DecodeLimits& limits);

 private:
  using ItemsByFile = std::map<std::string, std::vector<DcpItem>>;  // by path in the folder

  // What the .metadata of a directory says, read once; without items if there is none.
  [[nodiscard]] Result<const ItemsByFile*> items_beside(const std::string& directory, const DecodeLimits& limits);

  Open open_;
  std::map<std::string, ItemsByFile> items_;  // by directory
};

}  // namespace bitsnap::interop
