// Packs and unpacks the sections of an index: docs/spec/snapshot.md, "Index". Handles sizes and compression, not the
// contents. Pure functions.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>

#include "base/bytes.hpp"
#include "container/layout.hpp"

namespace bitsnap::container {

inline constexpr std::size_t kSectionKinds = 5;

// The raw bytes of each section; nullopt: there is none of this kind.
class Sections {
 public:
  [[nodiscard]] std::optional<std::vector<std::byte>>& at(SectionKind kind) { return slots_[slot(kind)]; }
  [[nodiscard]] const std::optional<std::vector<std::byte>>& at(SectionKind kind) const { return slots_[slot(kind)]; }

 private:
  [[nodiscard]] static std::size_t slot(SectionKind kind) noexcept { return static_cast<std::size_t>(kind) - 1; }

  std::array<std::optional<std::vector<std::byte>>, kSectionKinds> slots_;
};

// How strongly sections are compressed: zstd's level, or not at all. Each of the others takes more bytes than the one
// before; plain takes most.
enum class Packing : std::int8_t { plain = 0, small = 3, larger = -20, largest = -50 };

// Compresses each section if that makes it smaller.
[[nodiscard]] Result<std::vector<std::byte>> pack_sections(const Sections& sections, Packing packing = Packing::small);

// Fails unless all required sections exist, and unless their raw sizes are ones that the stored bytes can unpack to and
// together at most limits.index_bytes.
[[nodiscard]] Result<Sections> unpack_sections(ConstByteSpan index, const DecodeLimits& limits);

}  // namespace bitsnap::container
