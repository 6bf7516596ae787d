// Detects and forces the CPU level. The compiler's runtime also checks that the operating system saves the vector
// registers.
#include <bitsnap/cpu.hpp>

#include <atomic>

namespace bitsnap {
namespace {

CpuLevel detect() noexcept {
#if defined(__x86_64__) && !defined(BITSNAP_SCALAR_ONLY)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                    __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("lzcnt");
  if (!avx2) return CpuLevel::scalar;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2");
  return avx512 ? CpuLevel::avx512 : CpuLevel::avx2;
#elif defined(__aarch64__) && !defined(BITSNAP_SCALAR_ONLY)
  return CpuLevel::neon;
#else
  return CpuLevel::scalar;
#endif
}

std::atomic<CpuLevel>& current() noexcept {
  static std::atomic<CpuLevel> level{detected_cpu_level()};
  return level;
}

}  // namespace

std::string_view cpu_level_name(CpuLevel level) noexcept {
  switch (level) {
    case CpuLevel::scalar: return "scalar";
    case CpuLevel::avx2: return "avx2";
    case CpuLevel::avx512: return "avx512";
    case CpuLevel::neon: return "neon";
  }
  return "unknown";
}

std::optional<CpuLevel> cpu_level_from_name(std::string_view name) noexcept {
  for (const CpuLevel level : kCpuLevels) {
    if (name == cpu_level_name(level)) return level;
  }
  return std::nullopt;
}

CpuLevel detected_cpu_level() noexcept {
  static const CpuLevel level = detect();
  return level;
}

bool has_cpu_level(CpuLevel level) noexcept {
  const CpuLevel detected = detected_cpu_level();
  if (level == CpuLevel::scalar || level == detected) return true;
  return level == CpuLevel::avx2 && detected == CpuLevel::avx512;
}

CpuLevel cpu_level() noexcept { return current().load(std::memory_order_relaxed); }

bool force_cpu_level(CpuLevel level) noexcept {
  if (!has_cpu_level(level)) return false;
  current().store(level, std::memory_order_relaxed);
  return true;
}

}  // namespace bitsnap
