// The scalar plane kernels.
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

constinit const PlaneKernels PlaneKernels::kScalar = plane_kernels<Vectors>();

}  // namespace bitsnap::entropy
