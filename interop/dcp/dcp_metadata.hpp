// Reads and writes the file .metadata of a checkpoint of torch.distributed.checkpoint (spec.md). Executes nothing. Pure
// functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>

#include "interop/dcp/dcp_item.hpp"

namespace bitsnap::interop {

// The items of all files, in the order of the metadata. corrupt if the pickle does not describe a checkpoint, or an
// item has no valid place; resource_exhausted if there are more items than `limits.tensors`, or if their names and
// boxes take more than `limits.index_bytes`.
[[nodiscard]] Result<std::vector<DcpItem>> read_dcp_metadata(std::string_view text, const DecodeLimits& limits);

// Where an item stands in the state that was saved: the keys of dicts, and the numbers in lists.
using DcpKey = std::variant<std::int64_t, std::string>;
using DcpKeys = std::vector<DcpKey>;
using DcpPaths = std::vector<std::pair<std::string, DcpKeys>>;

// The names of all items that the state has, in its order, with their paths; empty if the metadata gives none. Errors
// as above.
[[nodiscard]] Result<DcpPaths> read_dcp_paths(std::string_view text, const DecodeLimits& limits);

// An item that is written, and what the metadata says about it.
struct WrittenDcpItem {
  DcpItem item;                      // without a box: a tensor is written whole
  std::string dtype;                 // of a tensor: "float32"
  std::vector<std::uint64_t> shape;  // of a tensor
  DcpKeys path;                      // where it stands in the state
};

[[nodiscard]] std::string write_dcp_metadata(const std::vector<WrittenDcpItem>& items);

}  // namespace bitsnap::interop
