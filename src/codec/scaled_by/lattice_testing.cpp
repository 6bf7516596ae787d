#include "codec/scaled_by/lattice_testing.hpp"

#include <cmath>

namespace bitsnap::codec {

Lattice trained_lattice(float step, float epsilon) { return {.a = step, .b = step * epsilon}; }

Floats on_lattice(const Floats& moments, const Floats& squares, const Lattice& lattice) {
  Floats multiples;
  for (std::size_t i = 0; i < moments.size(); ++i) {
    const float root = lattice.a * std::sqrt(squares[i]);
    const float scale = root + lattice.b;
    multiples.push_back(std::nearbyint(moments[i] / scale) * scale + 0.0F);  // no negative zero
  }
  return multiples;
}

TestChunk lattice_chunk(std::size_t elements, const Lattice& lattice, bool from_base, std::uint64_t seed) {
  const TrainedStep step = train_step(elements, {}, seed);
  TestChunk chunk{.dtype = DType::f32,
                  .data = trained_bytes(on_lattice(step.after.m, step.after.v, lattice)),
                  .base = trained_bytes(step.after.v),
                  .kind = InputKind::peer,
                  .base_dtype = DType::f32,
                  .lattice = lattice};
  if (from_base) {
    chunk.base = trained_bytes(on_lattice(step.before.m, step.before.v, lattice));
    chunk.kind = InputKind::base;
    chunk.more = {{InputKind::peer, trained_bytes(step.after.v)}};
  }
  return chunk;
}

}  // namespace bitsnap::codec
