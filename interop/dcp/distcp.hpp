// The .distcp files of torch.distributed.checkpoint: archives of torch.save in a row (spec.md). Executes nothing. Pure
// functions.
#pragma once

#include <span>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>

#include "interop/container/contents.hpp"
#include "interop/container/file_bytes.hpp"
#include "interop/dcp/dcp_item.hpp"

namespace bitsnap::interop {

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
