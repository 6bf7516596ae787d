#include "interop/torch_legacy/torch_legacy.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/checked.hpp"
#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "interop/pickle/pickle_reader.hpp"
#include "interop/torch_tensors/storage_split.hpp"
#include "interop/torch_tensors/tensor_walk.hpp"

namespace bitsnap::interop {
namespace {

// 0x1950a86a20f9469cfc6c, little-endian and as digits.
constexpr std::string_view kLegacyMagic = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
constexpr std::string_view kLegacyMagicDigits = "119547037146038801333356";
constexpr std::int64_t kLegacyProtocol = 1001;
// The pickles have no size. Most fit in the first piece; if not, the next one is larger by this factor.
constexpr std::uint64_t kFirstPieceBytes = std::uint64_t{1} << 16U;
constexpr std::uint64_t kPieceGrowth = 8;

struct LegacyPickles {
  PickleGraph object;
  PickleGraph keys;
  std::uint64_t bytes = 0;  // of all pickles
};

// The pickle at `at`, which then points behind it.
Result<PickleGraph> read_next_pickle(std::string_view text, std::uint64_t& at, const DecodeLimits& limits) {
  Result<PickleGraph> graph = read_pickle(text.substr(static_cast<std::size_t>(at)), limits);
  if (!graph) return tl::unexpected(std::move(graph).error().within(fmt::format("the pickle at {}", at)));
  at += graph->bytes;
  return graph;
}

bool begins_with_magic(std::string_view text, const DecodeLimits& limits) {
  const Result<PickleGraph> graph = read_pickle(text.substr(0, 64), limits);
  if (!graph) return false;
  const PickleNode* number = graph->find(graph->root, PickleKind::big_integer);
  return number != nullptr && (number->text == kLegacyMagic || number->text == kLegacyMagicDigits);
}

Result<LegacyPickles> read_legacy_pickles(std::string_view text, const DecodeLimits& limits) {
  LegacyPickles pickles;
  BITSNAP_TRY(read_next_pickle(text, pickles.bytes, limits));
  BITSNAP_ASSIGN(const PickleGraph protocol, read_next_pickle(text, pickles.bytes, limits));
  const PickleNode* number = protocol.find(protocol.root, PickleKind::integer);
  if (number == nullptr || number->integer != kLegacyProtocol) {
    return fail(ErrorKind::unsupported, fmt::format("the protocol is not {}", kLegacyProtocol));
  }
  // The byte order of the machine that wrote the file; the elements are little-endian on every machine.
  BITSNAP_TRY(read_next_pickle(text, pickles.bytes, limits));
  BITSNAP_ASSIGN(pickles.object, read_next_pickle(text, pickles.bytes, limits));
  BITSNAP_ASSIGN(pickles.keys, read_next_pickle(text, pickles.bytes, limits));
  return pickles;
}

// Reads as much of the file as the pickles take, into `text`, to which the result refers.
Result<LegacyPickles> read_legacy_start(const FileBytes& bytes, const DecodeLimits& limits, std::string& text) {
  const std::uint64_t most = std::min(bytes.size(), limits.index_bytes);
  for (std::uint64_t piece = kFirstPieceBytes;; piece *= kPieceGrowth) {
    BITSNAP_ASSIGN(text, bytes.read_text(0, std::min(piece, most)));
    if (!begins_with_magic(text, limits)) {
      return fail(ErrorKind::unsupported, "the file does not begin with the magic number of torch.save");
    }
    Result<LegacyPickles> pickles = read_legacy_pickles(text, limits);
    if (pickles || pickles.error().kind() != ErrorKind::truncated || text.size() == bytes.size()) return pickles;
    if (text.size() == most) {
      return fail(ErrorKind::resource_exhausted, fmt::format("the pickles take more than {} bytes", most));
    }
  }
}

// Bytes of one element as torch counts those of a storage; types smaller than a byte are counted in bytes.
std::optional<std::uint64_t> stored_element_bytes(const TorchType& type) {
  if (type.bytes > 0) return type.bytes;
  if (type == TorchType()) return std::nullopt;
  return 1;
}

// Behind the pickles, in the order of the keys: the number of elements as int64, and the elements.
Result<std::vector<StorageRange>> find_legacy_storages(const FileBytes& bytes, const LegacyPickles& pickles,
                                                       const TorchObjects& objects) {
  const PickleNode* keys = pickles.keys.find(pickles.keys.root, PickleKind::list);
  if (keys == nullptr) return fail(ErrorKind::corrupt, "the keys of the storages are no list");
  std::map<std::string_view, std::size_t> storages;
  for (std::size_t i = 0; i < objects.storages.size(); ++i) storages.emplace(objects.storages[i].key, i);
  std::vector<StorageRange> ranges(objects.storages.size());
  std::uint64_t at = pickles.bytes;
  for (const NodeId node : keys->items) {
    const PickleNode* key = pickles.keys.find(node, PickleKind::string);
    const bool is_short = key != nullptr && key->text.size() <= kMaxStorageKeyBytes;
    const auto found = is_short ? storages.find(key->text) : storages.end();
    if (found == storages.end()) return fail(ErrorKind::corrupt, "a key names no storage, or one for the second time");
    const TorchStorage& storage = objects.storages[found->second];
    const std::optional<std::uint64_t> element_bytes = stored_element_bytes(storage.type);
    if (!element_bytes) {
      return fail(ErrorKind::unsupported, fmt::format("the type of storage {} is unknown", quote_name(storage.key)));
    }
    std::array<std::byte, 8> count{};
    BITSNAP_TRY(bytes.read_at(at, count));
    const auto elements = load_le<std::uint64_t>(count.data());
    const auto size = checked_multiply(elements, *element_bytes);
    if (elements != storage.elements || !size) {
      return fail(ErrorKind::corrupt, fmt::format("storage {} has {} elements, the pickle says {}",
                                                  quote_name(storage.key), elements, storage.elements));
    }
    at += count.size();
    if (*size > bytes.size() - at) {
      return fail(ErrorKind::truncated,
                  fmt::format("storage {} has {} bytes, {} remain", quote_name(storage.key), *size, bytes.size() - at));
    }
    ranges[found->second] = {.offset = at, .bytes = *size};
    at += *size;
    storages.erase(found);
  }
  if (!storages.empty()) {
    return fail(ErrorKind::corrupt, fmt::format("storage {} has no data", quote_name(storages.begin()->first)));
  }
  return ranges;
}

// Each member refers to the ones before it.
struct LegacyFile {
  std::string text;
  LegacyPickles pickles;
  UniqueNames names;
  TorchObjects objects;
  std::vector<StorageRange> ranges;
};

Result<void> read_legacy_file(const FileBytes& bytes, const DecodeLimits& limits, LegacyFile& file) {
  BITSNAP_ASSIGN(file.pickles, read_legacy_start(bytes, limits, file.text));
  BITSNAP_ASSIGN(file.objects,
                 find_torch_objects(file.pickles.object, {.keys_are_addresses = true}, file.names, limits));
  BITSNAP_ASSIGN(file.ranges, find_legacy_storages(bytes, file.pickles, file.objects));
  return {};
}

}  // namespace

bool looks_like_torch_legacy(std::string_view start) noexcept {
  constexpr std::string_view kIntegerOfTenBytes = "\x8a\x0a";
  constexpr std::size_t kFrameBytes = 9;  // from protocol 4 on
  if (start.size() < 2 || start[0] != '\x80' || start[1] < 2 || start[1] > 5) return false;
  start.remove_prefix(2);
  if (start.starts_with('\x95')) start.remove_prefix(std::min(kFrameBytes, start.size()));
  return start.starts_with(kIntegerOfTenBytes) && start.substr(kIntegerOfTenBytes.size()).starts_with(kLegacyMagic);
}

Result<Contents> read_torch_legacy(const FileBytes& bytes, const DecodeLimits& limits) {
  LegacyFile file;
  BITSNAP_TRY(read_legacy_file(bytes, limits, file));
  return split_storages(file.objects, file.ranges, false, file.names, limits);
}

Result<TorchState> read_torch_legacy_state(const FileBytes& bytes, const DecodeLimits& limits) {
  LegacyFile file;
  BITSNAP_TRY(read_legacy_file(bytes, limits, file));
  return read_torch_state(file.pickles.object, file.objects, file.ranges, false, limits);
}

}  // namespace bitsnap::interop
