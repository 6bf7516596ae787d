// First moments on the lattice of an update's step, for tests.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/coding_testing.hpp"
#include "codec/optimizer_step/trained_step_testing.hpp"

namespace bitsnap::codec {

// That of Adam at so late a step that nothing is left of its bias.
[[nodiscard]] Lattice trained_lattice(float step = 0.02F, float epsilon = 1e-8F);

// Each the multiple of its scale that comes nearest to a moment, computed as spec.md says.
[[nodiscard]] Floats on_lattice(const Floats& moments, const Floats& squares, const Lattice& lattice);

// The first moment of a trained state on a lattice; `from_base`: coded against the one a step before, on its own.
[[nodiscard]] TestChunk lattice_chunk(std::size_t elements, const Lattice& lattice, bool from_base, std::uint64_t seed);

}  // namespace bitsnap::codec
