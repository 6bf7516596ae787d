// Which of the kernels that one operation has is called: one per CPU level, chosen at run time.
//
//   constexpr KernelTable<Split> kSplit{split_scalar, BITSNAP_X86(split_avx2, split_avx512)};
//   kSplit.pick()(bytes, size);
//
// A level without a kernel of its own is served by the next lower one of its machine. Kernels for NEON follow those for
// x86-64: `BITSNAP_NEON(split_neon)`.
#pragma once

#include <bitsnap/cpu.hpp>

#if defined(__x86_64__) && !defined(BITSNAP_SCALAR_ONLY)
#define BITSNAP_X86(avx2, avx512) avx2, avx512
#else
#define BITSNAP_X86(avx2, avx512) nullptr, nullptr
#endif

#if defined(__aarch64__) && !defined(BITSNAP_SCALAR_ONLY)
#define BITSNAP_NEON(neon) neon
#else
#define BITSNAP_NEON(neon) nullptr
#endif

namespace bitsnap {

template <typename Function>
struct KernelTable {
  Function* scalar;
  Function* avx2;    // or nullptr
  Function* avx512;  // or nullptr
  Function* neon = nullptr;

  [[nodiscard]] Function* pick(CpuLevel level = cpu_level()) const noexcept {
    if (level == CpuLevel::neon) return neon != nullptr ? neon : scalar;
    if (level >= CpuLevel::avx512 && avx512 != nullptr) return avx512;
    if (level >= CpuLevel::avx2 && avx2 != nullptr) return avx2;
    return scalar;
  }
};

}  // namespace bitsnap
