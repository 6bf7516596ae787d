// The sections that an index is made of, packed and unpacked: docs/spec/snapshot.md, "Index". Knows sizes and
// compression, not what is inside.
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

// Section of kind k at place k - 1.
class Sections {
 public:
  [[nodiscard]] std::optional<std::vector<std::byte>>& at(SectionKind kind) { return slots_[slot(kind)]; }
  [[nodiscard]] const std::optional<std::vector<std::byte>>& at(SectionKind kind) const { return slots_[slot(kind)]; }

 private:
  [[nodiscard]] static std::size_t slot(SectionKind kind) noexcept { return static_cast<std::size_t>(kind) - 1; }

  std::array<std::optional<std::vector<std::byte>>, kSectionKinds> slots_;
};

// Each section compressed where that makes it smaller.
[[nodiscard]] Result<std::vector<std::byte>> pack_sections(const Sections& sections);

// The raw bytes of every section. The required ones are there; none is larger than the bytes in hand can unfold to, and
// all together keep to limits.index_bytes.
[[nodiscard]] Result<Sections> unpack_sections(ConstByteSpan index, const DecodeLimits& limits);

}  // namespace bitsnap::container
