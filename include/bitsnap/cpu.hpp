// The instruction-set level of the kernels. All levels give the same bytes; only the speed differs.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace bitsnap {

enum class CpuLevel : std::uint8_t {
  scalar = 0,
  avx2 = 1,    // x86-64: AVX2, BMI1, BMI2, LZCNT
  avx512 = 2,  // x86-64: AVX-512 F, BW, DQ, VL, VBMI, VBMI2, and all of avx2
  neon = 3,    // all aarch64 processors
};

inline constexpr CpuLevel kCpuLevels[] = {CpuLevel::scalar, CpuLevel::avx2, CpuLevel::avx512, CpuLevel::neon};

[[nodiscard]] std::string_view cpu_level_name(CpuLevel level) noexcept;
[[nodiscard]] std::optional<CpuLevel> cpu_level_from_name(std::string_view name) noexcept;

// The highest level that this machine supports, detected once.
[[nodiscard]] CpuLevel detected_cpu_level() noexcept;

// Whether this machine supports a level: the detected one, and those that it includes.
[[nodiscard]] bool has_cpu_level(CpuLevel level) noexcept;

// The level in use: the forced one if there is one, and otherwise the detected one.
[[nodiscard]] CpuLevel cpu_level() noexcept;

// Forces a level for the whole process, for tests and measurements. Returns false and changes nothing if the machine
// does not support it. Do not call it while another thread encodes or decodes.
bool force_cpu_level(CpuLevel level) noexcept;

}  // namespace bitsnap
