#include "interop/dcp/distcp.hpp"

#include <algorithm>
#include <string_view>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "interop/dcp/dcp_metadata.hpp"
#include "interop/torch_tensors/tensor_names.hpp"
#include "interop/torch_tensors/tensor_walk.hpp"
#include "interop/torch_zip/torch_zip.hpp"
#include "interop/zip/zip_directory.hpp"

namespace bitsnap::interop {
namespace {

constexpr std::uint64_t kMaxMetadataBytes = std::uint64_t{1} << 30;

}  // namespace

Result<Contents> DcpFolder::read_file(const std::string& path, const FileBytes& bytes, const DecodeLimits& limits) {
  // With its '/', or empty.
  BITSNAP_ASSIGN(const ItemsByFile* const beside, items_beside(path.substr(0, path.rfind('/') + 1), limits));
  if (const auto found = beside->find(path); found != beside->end()) return read_distcp(bytes, found->second, limits);
  BITSNAP_ASSIGN(const std::vector<DcpItem> items, find_dcp_items(bytes, limits));
  return read_distcp(bytes, items, limits);
}

Result<const DcpFolder::ItemsByFile*> DcpFolder::items_beside(const std::string& directory,
                                                              const DecodeLimits& limits) {
  const auto [found, is_new] = items_.try_emplace(directory);
  if (!is_new) return &found->second;
  BITSNAP_ASSIGN(const std::optional<FileBytes> metadata, open_(directory + std::string(kDcpMetadata)));
  if (!metadata || metadata->size() > kMaxMetadataBytes) return &found->second;
  BITSNAP_ASSIGN(const std::string text, metadata->read_text(0, metadata->size()));
  auto items = read_dcp_metadata(text, limits);
  if (!items && !is_fault_of_bytes(items.error().kind())) return tl::unexpected(std::move(items).error());
  if (!items) return &found->second;
  for (DcpItem& item : *items) {
    const std::string path = directory + item.path;
    found->second[path].push_back(std::move(item));
  }
  return &found->second;
}

namespace {

// Every archive of torch.save is larger. The search for the start of an archive reads up to 64 KiB, so a hostile file
// must not consist of tiny ones.
constexpr std::uint64_t kLeastItemBytes = 256;

// Whether the tensor is a part of the global tensor, and not all of it.
bool is_shard(const std::vector<std::uint64_t>& shape, const ShardBox& box) {
  if (shape.size() != box.global_shape.size() || shape.size() != box.offset.size()) return false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (box.offset[i] > box.global_shape[i] || shape[i] > box.global_shape[i] - box.offset[i]) return false;
  }
  return shape != box.global_shape;
}

class DistcpReader {
 public:
  DistcpReader(const FileBytes& bytes, const DecodeLimits& limits) : bytes_(bytes), limits_(limits) {}

  Result<Contents> run(std::span<const DcpItem> items);

 private:
  Result<void> read_item(const DcpItem& item, const std::string& name);
  Result<void> add(const DcpItem& item, const std::string& name, Contents contents);

  const FileBytes& bytes_;
  const DecodeLimits& limits_;
  UniqueNames names_;
  Contents contents_;
};

Result<void> DistcpReader::add(const DcpItem& item, const std::string& name, Contents contents) {
  if (contents.tensors.size() > limits_.tensors - contents_.tensors.size()) {
    return fail(ErrorKind::resource_exhausted, fmt::format("more than {} tensors", limits_.tensors));
  }
  // By the names in the item: a view may have that of a tensor.
  std::map<std::string, std::string> named;
  const auto name_in_file = [&](const std::string& inner) -> const std::string& {
    const auto [at, is_new] = named.try_emplace(inner);
    if (is_new) {
      at->second = names_.add(item.is_tensor && inner == kRootTensorName ? name : fmt::format("{}.{}", name, inner));
    }
    return at->second;
  };
  for (FoundTensor& found : contents.tensors) {
    const bool is_root = item.is_tensor && found.info.name == kRootTensorName;
    if (is_root && item.box && is_shard(found.info.shape, *item.box)) found.info.shard = item.box;
    found.info.name = name_in_file(found.info.name);
    found.info.role = guess_role(found.info.name, found.info.dtype);
    found.offset += item.offset;
    contents_.tensors.push_back(std::move(found));
  }
  for (TensorView& view : contents.views) {
    view.name = name_in_file(view.name);
    view.offset += item.offset;
    contents_.views.push_back(std::move(view));
  }
  return {};
}

Result<void> DistcpReader::read_item(const DcpItem& item, const std::string& name) {
  Result<FileBytes> part = bytes_.part(item.offset, item.bytes);
  if (!part) return fail(ErrorKind::corrupt, fmt::format("item {}: {}", quote_name(item.name), part.error().message()));
  Result<Contents> contents = read_torch_zip(*part, limits_);
  if (contents) return add(item, name, std::move(*contents));
  if (is_fault_of_bytes(contents.error().kind())) return {};
  return tl::unexpected(std::move(contents).error().within(quote_name(item.name)));
}

Result<Contents> DistcpReader::run(std::span<const DcpItem> items) {
  BITSNAP_ASSIGN(const std::vector<const DcpItem*> sorted, sort_items(items));
  std::map<std::string_view, std::size_t> counts;
  for (const DcpItem* item : sorted) ++counts[item->name];
  for (const DcpItem* item : sorted) {
    const bool is_part = counts[item->name] > 1 && item->box.has_value();
    BITSNAP_TRY(
        read_item(*item, is_part ? fmt::format("{}[{}]", item->name, fmt::join(item->box->offset, ",")) : item->name));
  }
  return std::move(contents_);
}

}  // namespace

Result<std::vector<const DcpItem*>> sort_items(std::span<const DcpItem> items) {
  std::vector<const DcpItem*> sorted;
  for (const DcpItem& item : items) {
    if (item.bytes > 0) sorted.push_back(&item);
  }
  std::ranges::sort(sorted, {}, [](const DcpItem* item) { return std::tie(item->path, item->offset); });
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    const DcpItem& before = *sorted[i - 1];
    if (before.path == sorted[i]->path && sorted[i]->offset - before.offset < before.bytes) {
      return fail(ErrorKind::corrupt,
                  fmt::format("items {} and {} overlap", quote_name(before.name), quote_name(sorted[i]->name)));
    }
  }
  return sorted;
}

Result<Contents> read_distcp(const FileBytes& bytes, std::span<const DcpItem> items, const DecodeLimits& limits) {
  return DistcpReader(bytes, limits).run(items);
}

Result<std::vector<DcpItem>> find_dcp_items(const FileBytes& bytes, const DecodeLimits& limits) {
  std::vector<DcpItem> items;
  std::uint64_t end = bytes.size();
  while (end > 0) {
    if (items.size() >= limits.tensors) {
      return fail(ErrorKind::resource_exhausted, fmt::format("more than {} items", limits.tensors));
    }
    BITSNAP_ASSIGN(const FileBytes part, bytes.part(0, end));
    const Result<std::uint64_t> start = find_zip_start(part);
    if (!start && !is_fault_of_bytes(start.error().kind())) return tl::unexpected(start.error());
    if (!start || *start > end || end - *start < kLeastItemBytes) break;
    DcpItem& item = items.emplace_back();
    item.offset = *start;
    item.bytes = end - *start;
    item.is_tensor = true;
    end = *start;
  }
  if (items.empty()) return fail(ErrorKind::unsupported, "the file does not end with a ZIP archive");
  std::ranges::reverse(items);
  for (std::size_t i = 0; i < items.size(); ++i) items[i].name = std::to_string(i);
  return items;
}

}  // namespace bitsnap::interop
