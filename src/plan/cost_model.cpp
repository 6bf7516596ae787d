// A chunk has at most 2^22 bytes, so that no product overflows 64 bits.
#include "plan/cost_model.hpp"

namespace bitsnap::plan {

std::uint64_t modelled_ps(const CostModel& model, const CodedChunk& chunk) noexcept {
  constexpr std::uint64_t kPsPerSecond = 1'000'000'000'000;
  const std::uint64_t store = chunk.payload_bytes * kPsPerSecond / model.store_bytes_per_second;
  const std::uint64_t encode = chunk.raw_bytes * chunk.speed.encode_ps / model.encoders;
  const std::uint64_t decode = chunk.raw_bytes * chunk.speed.decode_ps * chunk.decodes / model.encoders;
  return encode + store + (store + decode) * model.restore_permille / 1000;
}

}  // namespace bitsnap::plan
