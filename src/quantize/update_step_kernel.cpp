// First moments made multiples of a step of the update, for the baseline of every machine.
#include "quantize/update_step_kernel.hpp"

#include "quantize/update_step_loop.hpp"

namespace bitsnap::quantize {

void round_to_updates_scalar(std::uint8_t* moments, const std::uint8_t* squares, std::size_t elements,
                             const codec::LatticeScale& scale) noexcept {
  round_loop(moments, squares, elements, scale);
}

}  // namespace bitsnap::quantize
