// First moments on a lattice, for tests.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/coding_testing.hpp"
#include "codec/optimizer_step/trained_step_testing.hpp"

namespace bitsnap::codec {

// Adam's lattice at a step so late that the bias correction has no effect.
[[nodiscard]] Lattice trained_lattice(float step = 0.02F, float epsilon = 1e-8F);

// The multiple of the scale nearest to each moment, computed as in spec.md.
[[nodiscard]] Floats on_lattice(const Floats& moments, const Floats& squares, const Lattice& lattice);

// The first moment of a trained state on a lattice; `from_base`: with the first moment of the previous step as base.
[[nodiscard]] TestChunk lattice_chunk(std::size_t elements, const Lattice& lattice, bool from_base, std::uint64_t seed);

}  // namespace bitsnap::codec
