#include "interop/folder/container_kinds.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "interop/dcp/dcp_metadata.hpp"
#include "interop/dcp/distcp.hpp"
#include "interop/npy/npy.hpp"
#include "interop/npy/npz.hpp"
#include "interop/safetensors/safetensors_contents.hpp"
#include "interop/safetensors/safetensors_header.hpp"
#include "interop/torch_legacy/torch_legacy.hpp"
#include "interop/torch_zip/torch_zip.hpp"

namespace bitsnap::interop {
namespace {

using std::string_view_literals::operator""sv;

constexpr std::string_view kZipStart = "PK\x03\x04";
constexpr std::string_view kNpyStart = "\x93NUMPY";
// The number 0x1950a86a20f9469cfc6c in a pickle.
constexpr std::string_view kLegacyNumber = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"sv;
constexpr std::string_view kDcpSuffix = ".distcp";
constexpr std::string_view kDcpMetadata = ".metadata";
constexpr std::size_t kStartBytes = 32;
constexpr std::uint64_t kMaxMetadataBytes = std::uint64_t{1} << 30;

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

// A pickle of protocol 2 to 5, which begins with a frame from protocol 4 on.
bool looks_like_torch_legacy(std::string_view start) {
  constexpr std::size_t kFrameBytes = 9;
  if (start.size() < 2 || start[0] != '\x80' || start[1] < 2 || start[1] > 5) return false;
  start.remove_prefix(2);
  if (start.starts_with('\x95')) start.remove_prefix(std::min(kFrameBytes, start.size()));
  return start.starts_with(kLegacyNumber);
}

bool looks_like_safetensors(std::string_view start, std::uint64_t bytes) {
  if (start.size() <= kLengthBytes || start[kLengthBytes] != '{') return false;
  const auto header_bytes = load_le<std::uint64_t>(as_byte_span(start).data());
  return header_bytes <= kMaxHeaderBytes && header_bytes <= bytes - kLengthBytes;
}

// A parser's mistake must not become a wrong file.
Result<void> check_places(const Contents& contents, std::uint64_t bytes) {
  std::uint64_t end = 0;
  for (const FoundTensor& tensor : contents.tensors) {
    const std::uint64_t size = tensor.info.size_bytes;
    if (size == 0 || tensor.offset < end || tensor.offset > bytes || size > bytes - tensor.offset) {
      return fail(ErrorKind::corrupt, fmt::format("tensor {}: its place is wrong", quote_name(tensor.info.name)));
    }
    end = tensor.offset + size;
  }
  return {};
}

}  // namespace

bool has_zip_checksums(std::string_view container) noexcept { return container == "torch-zip" || container == "npz"; }

Result<Recognized> ContainerKinds::recognize(const std::string& path, const FileBytes& bytes) {
  auto recognized = take_apart(path, bytes);
  if (recognized) {
    if (const Result<void> checked = check_places(recognized->contents, bytes.size()); !checked) {
      recognized = tl::unexpected(checked.error());
    }
  }
  if (recognized || !is_fault_of_bytes(recognized.error().kind())) return recognized;
  return Recognized{"", {}, recognized.error().message()};
}

Result<Recognized> ContainerKinds::take_apart(const std::string& path, const FileBytes& bytes) {
  BITSNAP_ASSIGN(const std::string start, bytes.read_text(0, std::min<std::uint64_t>(kStartBytes, bytes.size())));
  const auto as = [](std::string container, Result<Contents> contents) -> Result<Recognized> {
    if (!contents) return tl::unexpected(std::move(contents).error());
    return Recognized{std::move(container), *std::move(contents), ""};
  };
  if (start.starts_with(kZipStart)) {
    if (path.ends_with(kDcpSuffix)) return as("dcp", read_dcp(path, bytes));
    auto torch = read_torch_zip(bytes, limits_);
    // Of an archive of another program, that is no fault.
    if (torch || torch.error().kind() != ErrorKind::unsupported) return as("torch-zip", std::move(torch));
    auto numpy = read_npz(bytes, limits_);
    if (!numpy) return as("npz", std::move(numpy));
    if (!numpy->tensors.empty()) return as("npz", std::move(numpy));
    return Recognized();
  }
  if (start.starts_with(kNpyStart)) return as("npy", read_npy(bytes, limits_));
  if (looks_like_torch_legacy(start)) return as("torch-legacy", read_torch_legacy(bytes, limits_));
  if (looks_like_safetensors(start, bytes.size())) return as("safetensors", read_safetensors(bytes, limits_));
  return Recognized();
}

Result<Contents> ContainerKinds::read_dcp(const std::string& path, const FileBytes& bytes) {
  BITSNAP_ASSIGN(const ItemsByFile* const beside, items_beside(directory_of(path)));
  if (const auto found = beside->find(path); found != beside->end()) {
    return read_distcp(bytes, found->second, limits_);
  }
  BITSNAP_ASSIGN(const std::vector<DcpItem> items, find_dcp_items(bytes, limits_));
  return read_distcp(bytes, items, limits_);
}

Result<const ContainerKinds::ItemsByFile*> ContainerKinds::items_beside(const std::string& directory) {
  const auto [found, is_new] = items_.try_emplace(directory);
  if (!is_new) return &found->second;
  const std::string prefix = directory.empty() ? "" : directory + "/";
  BITSNAP_ASSIGN(const std::optional<FileBytes> metadata, open_(prefix + std::string(kDcpMetadata)));
  if (!metadata || metadata->size() > kMaxMetadataBytes) return &found->second;
  BITSNAP_ASSIGN(const std::string text, metadata->read_text(0, metadata->size()));
  auto items = read_dcp_metadata(text, limits_);
  if (!items && !is_fault_of_bytes(items.error().kind())) return tl::unexpected(std::move(items).error());
  // Without it, the items are found in the files, but not their names.
  if (!items) return &found->second;
  for (DcpItem& item : *items) {
    const std::string path = prefix + item.path;
    found->second[path].push_back(std::move(item));
  }
  return &found->second;
}

}  // namespace bitsnap::interop
