// Description and slabs.
#include "patch/patch_layout.hpp"

#include <algorithm>
#include <array>
#include <type_traits>

#include <fmt/format.h>

#include "base/checked.hpp"
#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "base/utf8.hpp"
#include "json/json_fields.hpp"

namespace bitsnap::patch {
namespace {

// What is written, as plain data.
struct TensorEntry {
  static constexpr auto kOnUnknownKey = json::reject_as_unsupported;
  std::string name;
  std::vector<std::string> tied;
  std::vector<std::uint64_t> shape;
  std::optional<std::uint64_t> bytes;
};

constexpr auto json_fields(std::type_identity<TensorEntry>) {
  using enum json::JsonNeed;
  return std::array{
      json::json_field<&TensorEntry::name>("name"), json::json_field<&TensorEntry::tied>("tied", optional),
      json::json_field<&TensorEntry::shape>("shape"), json::json_field<&TensorEntry::bytes>("bytes", optional)};
}

struct StreamEntry {
  static constexpr auto kOnUnknownKey = json::reject_as_unsupported;
  std::string dtype;
  std::uint64_t slab_bits = 0;
  std::vector<TensorEntry> tensors;
};

constexpr auto json_fields(std::type_identity<StreamEntry>) {
  return std::array{json::json_field<&StreamEntry::dtype>("dtype"),
                    json::json_field<&StreamEntry::slab_bits>("slab_bits")
                        .must("18 to 24",
                              [](const StreamEntry& own) {
                                return own.slab_bits >= kLeastSlabBits && own.slab_bits <= kMostSlabBits;
                              }),
                    json::json_field<&StreamEntry::tensors>("tensors")};
}

struct UnchangedEntry {
  static constexpr auto kOnUnknownKey = json::reject_as_unsupported;
  std::uint64_t tensors = 0;
  SnapshotId hash;
};

constexpr auto json_fields(std::type_identity<UnchangedEntry>) {
  return std::array{json::json_field<&UnchangedEntry::tensors>("tensors"),
                    json::json_field<&UnchangedEntry::hash>("hash")};
}

using Metadata = std::vector<std::tuple<std::string, std::string>>;

struct DescriptionEntry {
  static constexpr auto kOnUnknownKey = json::reject_as_unsupported;
  std::vector<StreamEntry> streams;
  std::optional<UnchangedEntry> unchanged;
  std::string from;
  std::string to;
  Metadata metadata;
};

constexpr auto json_fields(std::type_identity<DescriptionEntry>) {
  using enum json::JsonNeed;
  return std::array{json::json_field<&DescriptionEntry::streams>("streams"),
                    json::json_field<&DescriptionEntry::unchanged>("unchanged", optional),
                    json::json_field<&DescriptionEntry::from>("from", optional),
                    json::json_field<&DescriptionEntry::to>("to", optional),
                    json::json_field<&DescriptionEntry::metadata>("metadata", optional)};
}

Result<void> check_tensor(const Patch::Tensor& tensor, std::uint64_t bytes, const DecodeLimits& limits) {
  const auto reject = [&](ErrorKind kind, std::string message) -> Result<void> {
    return tl::unexpected(Error(kind, std::move(message)).within(quote_tensor(tensor.names.front())));
  };
  for (const std::string& name : tensor.names) {
    if (name.size() > limits.name_bytes) {
      return reject(ErrorKind::resource_exhausted,
                    fmt::format("its name has {} bytes, more than the limit of {}", name.size(), limits.name_bytes));
    }
  }
  if (tensor.shape.size() > limits.dimensions) {
    return reject(ErrorKind::resource_exhausted, fmt::format("it has {} dimensions, more than the limit of {}",
                                                             tensor.shape.size(), limits.dimensions));
  }
  if (bytes == 0) return reject(ErrorKind::corrupt, "it has no elements, and a patch names only tensors that change");
  if (bytes > limits.tensor_bytes) {
    return reject(ErrorKind::resource_exhausted,
                  fmt::format("it has {} bytes, more than the limit of {}", bytes, limits.tensor_bytes));
  }
  return {};
}

Result<std::uint64_t> size_of(DType dtype, const TensorEntry& entry) {
  if (dtype == DType::opaque) {
    if (!entry.bytes) return fail(ErrorKind::corrupt, "key 'bytes' is missing: its dtype is opaque");
    return *entry.bytes;
  }
  if (entry.bytes) return fail(ErrorKind::corrupt, "key 'bytes' is for opaque dtypes only");
  auto size = shape_size_bytes(dtype, entry.shape);
  if (!size) return fail(ErrorKind::corrupt, std::string(size.error().message()));
  return size;
}

}  // namespace

std::string write_description(const Description& description) {
  DescriptionEntry entry{
      .streams = {}, .unchanged = {}, .from = description.from, .to = description.to, .metadata = {}};
  for (const Stream& stream : description.streams) {
    StreamEntry& own = entry.streams.emplace_back();
    own.slab_bits = stream.slab_bits;
    for (std::size_t i = stream.first_tensor; i < stream.first_tensor + stream.tensors; ++i) {
      const Patch::Tensor& tensor = description.tensors[i];
      own.dtype = tensor.dtype_name;
      own.tensors.push_back({.name = tensor.names.front(),
                             .tied = {tensor.names.begin() + 1, tensor.names.end()},
                             .shape = tensor.shape,
                             .bytes = {}});
      if (tensor.dtype == DType::opaque) own.tensors.back().bytes = tensor.size_bytes;
    }
  }
  if (description.unchanged) {
    entry.unchanged = {.tensors = description.unchanged->tensors, .hash = description.unchanged->hash};
  }
  for (const auto& [key, value] : description.metadata) entry.metadata.emplace_back(key, value);
  json::JsonWriter out;
  json::write_json(out, entry);
  return out.take_text();
}

Result<Description> parse_description(std::string_view json, const DecodeLimits& limits) {
  BITSNAP_ASSIGN(DescriptionEntry entry, json::read_whole_json(json, [](json::JsonReader& in) {
                   DescriptionEntry read;
                   Result<void> done = json::read_json(in, read);
                   return done ? Result<DescriptionEntry>(std::move(read)) : tl::unexpected(std::move(done).error());
                 }));
  Description description;
  description.from = std::move(entry.from);
  description.to = std::move(entry.to);
  for (auto& [key, value] : entry.metadata) description.metadata.emplace_back(std::move(key), std::move(value));
  if (entry.unchanged) description.unchanged = {.tensors = entry.unchanged->tensors, .hash = entry.unchanged->hash};
  std::vector<std::string_view> names;
  for (StreamEntry& stream : entry.streams) {
    const DType dtype = dtype_from_name(stream.dtype);
    if (stream.tensors.empty()) return fail(ErrorKind::corrupt, "a stream has no tensors");
    description.streams.push_back({.dtype = dtype,
                                   .slab_bits = static_cast<unsigned>(stream.slab_bits),
                                   .first_tensor = description.tensors.size(),
                                   .tensors = stream.tensors.size()});
    for (TensorEntry& own : stream.tensors) {
      Patch::Tensor& tensor = description.tensors.emplace_back();
      tensor.names.push_back(std::move(own.name));
      for (std::string& name : own.tied) tensor.names.push_back(std::move(name));
      tensor.dtype = dtype;
      tensor.dtype_name = stream.dtype;
      Result<std::uint64_t> bytes = size_of(dtype, own);
      if (!bytes) return tl::unexpected(std::move(bytes).error().within(quote_tensor(tensor.names.front())));
      tensor.size_bytes = *bytes;
      tensor.shape = std::move(own.shape);
      BITSNAP_TRY(check_tensor(tensor, *bytes, limits));
    }
  }
  if (description.tensors.size() > limits.tensors) {
    return fail(ErrorKind::resource_exhausted,
                fmt::format("{} tensors, more than the limit of {}", description.tensors.size(), limits.tensors));
  }
  for (const Patch::Tensor& tensor : description.tensors)
    names.insert(names.end(), tensor.names.begin(), tensor.names.end());
  std::ranges::sort(names);
  if (const auto twice = std::ranges::adjacent_find(names); twice != names.end()) {
    return fail(ErrorKind::corrupt, fmt::format("{} occurs twice", quote_tensor(*twice)));
  }
  return description;
}

Result<SlabTable> SlabTable::make(Description& description) {
  SlabTable table;
  for (const Patch::Tensor& tensor : description.tensors) {
    table.elements_.push_back(tensor.size_bytes / element_size(tensor.dtype));
  }
  for (Stream& stream : description.streams) {
    stream.first_slab = table.slabs_;
    std::uint64_t place = 0;
    for (std::size_t i = stream.first_tensor; i < stream.first_tensor + stream.tensors; ++i) {
      table.places_.push_back(place);
      const auto end = checked_add<std::uint64_t>(place, table.elements_[i]);
      const auto next = end ? checked_add<std::uint64_t>(*end, kPlaceUnit - 1) : std::nullopt;
      if (!next) return fail(ErrorKind::corrupt, "the tensors have more elements than can be counted");
      place = *next / kPlaceUnit * kPlaceUnit;
    }
    stream.slabs = divide_up(place, stream.slab_places());
    table.slabs_ += stream.slabs;
  }
  table.streams_ = description.streams;
  return table;
}

const Stream& SlabTable::stream_of(std::uint64_t slab) const noexcept {
  const auto after = std::ranges::upper_bound(streams_, slab, {}, &Stream::first_slab);
  return *(after - 1);
}

std::vector<Piece> SlabTable::pieces(std::uint64_t slab) const {
  const Stream& stream = stream_of(slab);
  const std::uint64_t begin = (slab - stream.first_slab) * stream.slab_places();
  const std::uint64_t end = begin + stream.slab_places();
  const auto own = std::span(places_).subspan(stream.first_tensor, stream.tensors);
  // The first tensor that ends behind `begin`; the one before the first that begins behind it, or a later one.
  auto tensor = static_cast<std::size_t>(std::ranges::upper_bound(own, begin) - own.begin()) - 1 + stream.first_tensor;
  std::vector<Piece> pieces;
  for (; tensor < stream.first_tensor + stream.tensors && places_[tensor] < end; ++tensor) {
    const std::uint64_t first = std::max(begin, places_[tensor]);
    const std::uint64_t last = std::min(end, places_[tensor] + elements_[tensor]);
    if (first >= last) continue;
    pieces.push_back({.tensor = tensor,
                      .first_element = first - places_[tensor],
                      .elements = last - first,
                      .first_place = static_cast<std::uint32_t>(first - begin)});
  }
  return pieces;
}

SlabTable::Range SlabTable::slabs_of(std::size_t tensor, std::uint64_t first_element,
                                     std::uint64_t elements) const noexcept {
  const auto after = std::ranges::upper_bound(streams_, tensor, {}, &Stream::first_tensor);
  const Stream& stream = *(after - 1);
  const std::uint64_t first = places_[tensor] + first_element;
  return {.first = stream.first_slab + first / stream.slab_places(),
          .last = stream.first_slab + (first + elements - 1) / stream.slab_places()};
}

void SlabHasher::add(ConstByteSpan piece) {
  for (std::size_t at = 0; at < piece.size(); at += kHashBlockBytes) {
    blocks_.push_back(hash64(piece.subspan(at, std::min(kHashBlockBytes, piece.size() - at))));
  }
}

std::uint64_t SlabHasher::digest() const noexcept { return hash64(std::as_bytes(std::span(blocks_))); }

SnapshotId joined_hash(std::span<const std::uint64_t> hashes) noexcept {
  Hasher128 hasher;
  hasher.update(std::as_bytes(hashes));
  const Hash128 hash = hasher.digest();
  return {hash.low, hash.high};
}

}  // namespace bitsnap::patch
