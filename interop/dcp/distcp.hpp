// The .distcp files of torch.distributed.checkpoint: archives of torch.save in a row (spec.md). Executes nothing. Pure
// functions.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>

#include "interop/container/contents.hpp"
#include "interop/container/file_bytes.hpp"
#include "interop/dcp/dcp_item.hpp"

namespace bitsnap::interop {

// The DCP checkpoints of a folder: what the file .metadata of each directory says about the .distcp files beside it.
// One thread at a time.
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

// The items that have bytes, by path and offset. corrupt if two share bytes.
[[nodiscard]] Result<std::vector<const DcpItem*>> sort_items(std::span<const DcpItem> items);

// `items` are those of this file, in any order. An item that is no archive of torch.save, as one that was compressed,
// has no tensors. corrupt if an item exceeds the file or overlaps another one.
[[nodiscard]] Result<Contents> read_distcp(const FileBytes& bytes, std::span<const DcpItem> items,
                                           const DecodeLimits& limits);

// The items of a file without its metadata, named "0", "1", ... in their order, from the archives that the file ends
// with. unsupported if it does not end with one.
[[nodiscard]] Result<std::vector<DcpItem>> find_dcp_items(const FileBytes& bytes, const DecodeLimits& limits);

}  // namespace bitsnap::interop
