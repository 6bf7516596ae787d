// What a patch holds, and how its tensors are divided into slabs: docs/spec/patch.md, "Description" and "Slabs". Pure
// functions; what is read is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <bitsnap/limits.hpp>
#include <bitsnap/patch.hpp>

#include "base/hash.hpp"

namespace bitsnap::patch {

// On disk: never change.
inline constexpr std::uint64_t kMagic = 0x0A0D'4150'4E53'4289;  // 89 42 53 4E 50 41 0D 0A
inline constexpr std::uint32_t kFormatVersion = 0;
inline constexpr std::size_t kHeaderBytes = 64;
inline constexpr std::size_t kTailBytes = 8;
inline constexpr unsigned kLeastSlabBits = 18;
inline constexpr unsigned kMostSlabBits = 24;
inline constexpr std::size_t kPlaceUnit = 64;           // a tensor begins at a multiple of this many places
inline constexpr std::size_t kHashBlockBytes = 65'536;  // of one tensor in one slab

// All changed tensors of one dtype.
struct Stream {
  DType dtype = DType::opaque;
  unsigned slab_bits = kLeastSlabBits;
  std::size_t first_tensor = 0;
  std::size_t tensors = 0;
  std::uint64_t first_slab = 0;
  std::uint64_t slabs = 0;

  [[nodiscard]] std::uint64_t slab_places() const noexcept { return std::uint64_t{1} << slab_bits; }
};

// What hash_unchanged adds.
struct Unchanged {
  std::uint64_t tensors = 0;  // without any change
  SnapshotId hash;
};

struct Description {
  std::vector<Patch::Tensor> tensors;
  std::vector<Stream> streams;
  std::optional<Unchanged> unchanged;
  std::string from;
  std::string to;
  std::vector<std::pair<std::string, std::string>> metadata;
};

[[nodiscard]] std::string write_description(const Description& description);
// corrupt, unsupported or resource_exhausted for what the document or the limits forbid. Does not divide the streams.
[[nodiscard]] Result<Description> parse_description(std::string_view json, const DecodeLimits& limits);

// A part of one tensor that lies in one slab. Elements of opaque tensors are bytes.
struct Piece {
  std::size_t tensor = 0;
  std::uint64_t first_element = 0;
  std::uint64_t elements = 0;
  std::uint32_t first_place = 0;  // in the slab, a multiple of kPlaceUnit
};

// The slabs of all streams, numbered one after another.
class SlabTable {
 public:
  SlabTable() = default;
  // Sets first_slab and slabs of the streams. corrupt if the tensors have more elements than can be counted.
  [[nodiscard]] static Result<SlabTable> make(Description& description);

  [[nodiscard]] std::uint64_t size() const noexcept { return slabs_; }
  [[nodiscard]] const Stream& stream_of(std::uint64_t slab) const noexcept;
  [[nodiscard]] std::vector<Piece> pieces(std::uint64_t slab) const;
  // The slabs that elements of a tensor lie in, from `first` to `last`. Precondition: there are such elements.
  struct Range {
    std::uint64_t first = 0;
    std::uint64_t last = 0;
  };
  [[nodiscard]] Range slabs_of(std::size_t tensor, std::uint64_t first_element, std::uint64_t elements) const noexcept;

 private:
  std::vector<Stream> streams_;
  std::vector<std::uint64_t> elements_;  // per tensor
  std::vector<std::uint64_t> places_;    // per tensor: where it begins in its stream
  std::uint64_t slabs_ = 0;
};

// The memory of a piece, in the order of the tensors of the description.
template <typename Byte>
[[nodiscard]] std::span<Byte> bytes_of(const Piece& piece, std::size_t element_bytes, Byte* tensor) noexcept {
  return {tensor + piece.first_element * element_bytes, static_cast<std::size_t>(piece.elements * element_bytes)};
}

// The hash of a slab, from its pieces in order.
class SlabHasher {
 public:
  void add(ConstByteSpan piece);
  [[nodiscard]] std::uint64_t digest() const noexcept;

 private:
  std::vector<std::uint64_t> blocks_;
};

[[nodiscard]] SnapshotId joined_hash(std::span<const std::uint64_t> hashes) noexcept;
[[nodiscard]] inline std::uint32_t short_hash(std::uint64_t hash) noexcept { return static_cast<std::uint32_t>(hash); }

}  // namespace bitsnap::patch
