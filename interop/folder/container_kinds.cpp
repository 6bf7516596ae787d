#include "interop/folder/container_kinds.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "interop/npy/npy.hpp"
#include "interop/safetensors/safetensors_contents.hpp"
#include "interop/safetensors/safetensors_header.hpp"
#include "interop/torch_legacy/torch_legacy.hpp"
#include "interop/torch_zip/torch_zip.hpp"
#include "interop/zip/zip_directory.hpp"

namespace bitsnap::interop {
namespace {

constexpr std::uint64_t kStartBytes = 32;

using MaybeContents = Result<std::optional<Contents>>;

template <Result<Contents> (*kRead)(const FileBytes&, const DecodeLimits&)>
MaybeContents read_with(const ContainerFile& file) {
  return kRead(file.bytes, file.limits);
}

template <auto kRead, auto kMake>
Result<StateParts> state_with(const FileBytes& bytes, const DecodeLimits& limits) {
  BITSNAP_ASSIGN(auto found, kRead(bytes, limits));
  return kMake(bytes, std::move(found), limits);
}

template <bool (*kLooksLike)(std::string_view start) noexcept>
bool starts_like(const ContainerFile& file) {
  return kLooksLike(file.start);
}

bool is_distcp(const ContainerFile& file) { return looks_like_zip(file.start) && file.path.ends_with(kDcpSuffix); }

MaybeContents read_distcp_file(const ContainerFile& file) {
  return file.dcp.read_file(file.path, file.bytes, file.limits);
}

// An archive of another program is no fault.
MaybeContents read_torch_archive(const ContainerFile& file) {
  Result<Contents> contents = read_torch_zip(file.bytes, file.limits);
  if (!contents && contents.error().kind() == ErrorKind::unsupported) return std::nullopt;
  return contents;
}

MaybeContents read_npz_archive(const ContainerFile& file) {
  Result<Contents> contents = read_npz(file.bytes, file.limits);
  if (contents && contents->tensors.empty()) return std::nullopt;
  return contents;
}

bool is_safetensors(const ContainerFile& file) { return looks_like_safetensors(file.start, file.bytes.size()); }

constexpr std::array kContainerKinds{
    // The archives in a DCP file keep their checksums: torch does not look at them.
    ContainerKind{"dcp", is_distcp, read_distcp_file, nullptr, false},
    ContainerKind{"torch-zip", starts_like<looks_like_zip>, read_torch_archive,
                  state_with<read_torch_zip_state, state_of_torch>, true},
    ContainerKind{"npz", starts_like<looks_like_zip>, read_npz_archive, state_with<read_npz, state_of_arrays>, true},
    ContainerKind{"npy", starts_like<looks_like_npy>, read_with<read_npy>, state_with<read_npy, state_of_arrays>,
                  false},
    ContainerKind{"torch-legacy", starts_like<looks_like_torch_legacy>, read_with<read_torch_legacy>,
                  state_with<read_torch_legacy_state, state_of_torch>, false},
    ContainerKind{kSafetensors, is_safetensors, read_with<read_safetensors>,
                  state_with<read_safetensors_parts, state_of_safetensors>, false},
};

// A parser's mistake must not become a wrong file.
Result<void> check_places(const Contents& contents, std::uint64_t bytes) {
  std::uint64_t end = 0;
  for (const FoundTensor& tensor : contents.tensors) {
    const std::uint64_t size = tensor.info.size_bytes;
    if (size == 0 || tensor.offset < end || tensor.offset > bytes || size > bytes - tensor.offset) {
      return fail(
          ErrorKind::corrupt,
          fmt::format("tensor {}: its place is {} bytes at offset {}, expected at least 1 byte between {} and {}",
                      quote_name(tensor.info.name), size, tensor.offset, end, bytes));
    }
    end = tensor.offset + size;
  }
  return {};
}

}  // namespace

std::span<const ContainerKind> container_kinds() noexcept { return kContainerKinds; }

const ContainerKind* find_container_kind(std::string_view name) noexcept {
  const auto* const found = std::ranges::find(kContainerKinds, name, &ContainerKind::name);
  return found == kContainerKinds.end() ? nullptr : found;
}

Result<Recognized> ContainerRecognizer::recognize(const std::string& path, const FileBytes& bytes) {
  Result<Recognized> recognized = take_apart(path, bytes);
  if (recognized || !is_fault_of_bytes(recognized.error().kind())) return recognized;
  return Recognized{"", {}, recognized.error().message()};
}

Result<Recognized> ContainerRecognizer::take_apart(const std::string& path, const FileBytes& bytes) {
  BITSNAP_ASSIGN(const std::string start, bytes.read_text(0, std::min(kStartBytes, bytes.size())));
  const ContainerFile file{path, start, bytes, dcp_, limits_};
  for (const ContainerKind& kind : kContainerKinds) {
    if (!kind.looks_like(file)) continue;
    BITSNAP_ASSIGN(std::optional<Contents> contents, kind.read(file));
    if (!contents) continue;
    BITSNAP_TRY(check_places(*contents, bytes.size()));
    return Recognized{std::string(kind.name), *std::move(contents), ""};
  }
  return Recognized();
}

}  // namespace bitsnap::interop
