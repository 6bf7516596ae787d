// The plane kernels for the baseline of every machine.
#include "entropy/planes_kernel.hpp"

#include "entropy/planes_loop.hpp"

namespace bitsnap::entropy {
namespace {

struct Vectors {
  template <std::size_t kSize, Change kChange>
  static std::size_t split(const std::uint8_t*, const std::uint8_t*, std::size_t, std::uint8_t* const*) noexcept {
    return 0;
  }
  template <std::size_t kSize, Change kChange>
  static std::size_t merge(const std::uint8_t* const*, const std::uint8_t*, std::size_t, std::uint8_t*) noexcept {
    return 0;
  }
};

}  // namespace

void split_planes_scalar(const std::uint8_t* in, const std::uint8_t* base, std::size_t elements,
                         std::size_t element_size, bool rotated, std::uint8_t* const* planes) noexcept {
  run_sized(element_size, change_of(base, rotated), SplitKernel<Vectors>{in, base, elements, planes});
}

void merge_planes_scalar(const std::uint8_t* const* planes, const std::uint8_t* base, std::size_t elements,
                         std::size_t element_size, bool rotated, std::uint8_t* out) noexcept {
  run_sized(element_size, change_of(base, rotated), MergeKernel<Vectors>{planes, base, elements, out});
}

}  // namespace bitsnap::entropy
