#include "interop/dcp/dcp_folder.hpp"

#include "base/try.hpp"
#include "interop/dcp/dcp_metadata.hpp"
#include "interop/dcp/distcp.hpp"

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

}  // namespace bitsnap::interop
