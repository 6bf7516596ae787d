// The kernels of an operation: a struct of function pointers, with one constant of that type for each CPU level.
//
//   struct SplitKernels {
//     void (*split)(const std::uint8_t* bytes, std::size_t size) noexcept;
//     static const SplitKernels kScalar, kAvx2;
//   };
//   kernels<SplitKernels>().split(bytes, size);
//
// x_levels.cpp is compiled once for each level and defines `SplitKernels::BITSNAP_KERNEL_LEVEL`; a file written for
// one level, x_avx2.cpp, defines `SplitKernels::kAvx2`. A level without a constant uses the next lower one.
//
// All kernels allocate nothing, cannot fail, and give the same bits and the same verdict at every level. Any thread may
// call them. Unless a kernel states otherwise, buffers have the sizes that the arguments imply and need no alignment,
// and outputs must not overlap inputs.
#pragma once

#include <bitsnap/cpu.hpp>

namespace bitsnap {

template <typename Kernels>
[[nodiscard]] const Kernels& kernels([[maybe_unused]] CpuLevel level = cpu_level()) noexcept {
#if defined(__x86_64__) && !defined(BITSNAP_SCALAR_ONLY)
  if constexpr (requires { Kernels::kAvx512; }) {
    if (level == CpuLevel::avx512) return Kernels::kAvx512;
  }
  if constexpr (requires { Kernels::kAvx2; }) {
    if (level == CpuLevel::avx2 || level == CpuLevel::avx512) return Kernels::kAvx2;
  }
#elif defined(__aarch64__) && !defined(BITSNAP_SCALAR_ONLY)
  if constexpr (requires { Kernels::kNeon; }) {
    if (level == CpuLevel::neon) return Kernels::kNeon;
  }
#endif
  return Kernels::kScalar;
}

}  // namespace bitsnap
