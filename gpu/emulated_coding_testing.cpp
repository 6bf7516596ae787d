#include "gpu/emulated_coding_testing.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "gpu/emulated_warp.hpp"
#include "gpu/float_split_plan.hpp"
#include "gpu/lane_decoder.hpp"
#include "gpu/lane_encoder.hpp"

namespace bitsnap::gpu {
namespace {

using Entries = std::array<std::array<std::uint32_t, 256>, kGroups>;

// The four warps of a chunk, as LaneEncoder or LaneDecoder.
template <typename Lanes, typename Job>
std::vector<Lanes> warps_of(const Job& job, Entries& entries) {
  std::vector<Lanes> warps;
  for (unsigned group = 0; group < kGroups; ++group) {
    warps.emplace_back(EmulatedWarp(), job, group, entries[group].data());
  }
  return warps;
}

template <unsigned kBytes, bool kRotated>
void encode(const EncodeJob& job) {
  Entries entries;
  auto warps = warps_of<LaneEncoder<EmulatedWarp, kBytes, kRotated>>(job, entries);
  std::array<EncodedGroup, kGroups> ends;
  std::ranges::transform(warps, ends.begin(), [](auto& warp) { return warp.encode(); });
  for (const auto& warp : warps) warp.assemble(ends.data());
}

template <unsigned kBytes, bool kRotated>
bool decode(const DecodeJob& job) {
  Entries entries;
  auto warps = warps_of<LaneDecoder<EmulatedWarp, kBytes, kRotated>>(job, entries);
  bool is_valid = true;
  for (auto& warp : warps) is_valid = warp.decode() && is_valid;
  return warps[0].put_escapes() && is_valid;
}

template <unsigned kBytes>
std::optional<std::vector<std::byte>> encode_chunk(DType dtype, ConstByteSpan elements) {
  const std::size_t count = elements.size() / kBytes;
  if (!can_be_coded(dtype, count)) return std::nullopt;
  const EmulatedWarp warp;
  const SampleRuns runs(count);
  std::vector<std::byte> gathered(runs.elements() * kBytes);
  gather_runs<kBytes>(warp, as_u8(elements), runs.starts().data(), static_cast<std::uint32_t>(runs.starts().size()),
                      SampleRuns::kRunElements, as_u8(gathered.data()));
  std::vector<BlockBits> bits;
  for (std::size_t first = 0; first < count; first += kBlockElements) {
    bits.push_back(scan_block<kBytes>(warp, as_u8(elements) + first * kBytes, std::min(kBlockElements, count - first)));
  }
  const std::optional<EncodePlan> plan = plan_encoding(dtype, count, runs, gathered, bits);
  if (!plan) return std::nullopt;
  std::vector<std::uint64_t> scratch(encode_scratch_bytes(count) / 8);
  std::vector<std::byte> payload(elements.size());
  std::uint64_t size = 0;
  const EncodeJob job{.elements = as_u8(elements),
                      .count = count,
                      .blocks = plan->blocks.data(),
                      .table_bytes = plan->table_bytes.data(),
                      .table_size = plan->table_bytes.size(),
                      .scratch = reinterpret_cast<std::uint8_t*>(scratch.data()),
                      .payload = as_u8(payload.data()),
                      .payload_size = &size,
                      .form = plan->form};
  plan->is_rotated ? encode<kBytes, true>(job) : encode<kBytes, false>(job);
  if (size == 0) return std::nullopt;
  payload.resize(size);
  return payload;
}

}  // namespace

std::optional<std::vector<std::byte>> emulate_encode(DType dtype, ConstByteSpan elements) {
  return element_size(dtype) == 2 ? encode_chunk<2>(dtype, elements) : encode_chunk<4>(dtype, elements);
}

Result<std::optional<std::vector<std::byte>>> emulate_decode(DType dtype, ConstByteSpan payload, std::size_t elements) {
  BITSNAP_ASSIGN(const std::optional<DecodePlan> plan, plan_decoding(dtype, elements, payload));
  if (!plan) return std::nullopt;
  std::vector<std::byte> decoded(elements * element_size(dtype));
  std::vector<std::uint64_t> masks(mask_bytes(elements) / 8);
  DecodeJob job{.rest = as_u8(payload) + plan->rest,
                .streams = {},
                .stream_sizes = {},
                .escapes = as_u8(payload) + plan->escapes,
                .escapes_size = plan->escapes_size,
                .states = as_u8(payload) + plan->states,
                .blocks = plan->blocks.data(),
                .masks = masks.data(),
                .elements = as_u8(decoded.data()),
                .count = elements,
                .is_valid = nullptr};
  for (unsigned group = 0; group < kGroups; ++group) {
    job.streams[group] = as_u8(payload) + plan->streams[group];
    job.stream_sizes[group] = plan->stream_sizes[group];
  }
  const bool is_short = element_size(dtype) == 2;
  const bool is_valid = plan->is_rotated ? (is_short ? decode<2, true>(job) : decode<4, true>(job))
                                         : (is_short ? decode<2, false>(job) : decode<4, false>(job));
  if (!is_valid) return fail(ErrorKind::corrupt, "the streams, the states or the escapes do not end as they must");
  return decoded;
}

}  // namespace bitsnap::gpu
