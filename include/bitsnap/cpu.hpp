// The instruction-set level that the kernels run at. Every level gives the same bytes; only the speed differs.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace bitsnap {

enum class CpuLevel : std::uint8_t {
  scalar = 0,
  avx2 = 1,    // x86-64: AVX2, BMI1, BMI2, LZCNT
  avx512 = 2,  // x86-64: AVX-512 F, BW, DQ, VL, VBMI, VBMI2, and all of avx2
  neon = 3,    // every aarch64
};

inline constexpr CpuLevel kCpuLevels[] = {CpuLevel::scalar, CpuLevel::avx2, CpuLevel::avx512, CpuLevel::neon};

[[nodiscard]] std::string_view cpu_level_name(CpuLevel level) noexcept;
[[nodiscard]] std::optional<CpuLevel> cpu_level_from_name(std::string_view name) noexcept;

// The highest level of this machine, found once.
[[nodiscard]] CpuLevel detected_cpu_level() noexcept;

// Whether this machine can run at a level: the detected one, and those that are part of it.
[[nodiscard]] bool has_cpu_level(CpuLevel level) noexcept;

// The level in use: the detected one, or another one that was forced.
[[nodiscard]] CpuLevel cpu_level() noexcept;

// Forces a level for the whole process, for tests and measurements; returns false and changes nothing if the machine
// lacks it. Not to be called while another thread encodes or decodes.
bool force_cpu_level(CpuLevel level) noexcept;

}  // namespace bitsnap
