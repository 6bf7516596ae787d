#include "gpu/float_split_cuda.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "base/checked.hpp"
#include "gpu/device_memory.hpp"
#include "gpu/float_split_plan.hpp"
#include "gpu/lane_kernels.hpp"
#include "os/clock.hpp"

namespace bitsnap::gpu {
namespace {

// Appends to one array what many jobs point into.
template <typename T>
std::size_t append(std::vector<T>& all, const std::vector<T>& more) {
  const std::size_t at = all.size();
  all.insert(all.end(), more.begin(), more.end());
  return at;
}

// What is known of all chunks before their tables are chosen. Chunks that the CPU has to code have no part in it.
struct Samples {
  std::map<std::size_t, SampleRuns> runs;  // by the number of elements
  std::vector<BlockBits> bits;
  std::vector<std::size_t> bits_at;  // of each chunk
  std::vector<std::byte> gathered;
  std::vector<std::size_t> gathered_at;
};

Result<Samples> sample(DType dtype, std::span<const FloatSplitCoder::Chunk> chunks, cudaStream_t stream,
                       double& seconds) {
  const std::size_t element_bytes = element_size(dtype);
  Samples samples;
  std::vector<std::uint32_t> starts;
  std::map<std::size_t, std::size_t> starts_at;
  std::size_t blocks = 0;
  std::size_t gathered = 0;
  for (const auto& chunk : chunks) {
    samples.bits_at.push_back(blocks);
    samples.gathered_at.push_back(gathered);
    if (!can_be_coded(dtype, chunk.count)) continue;
    const auto [runs, is_new] = samples.runs.try_emplace(chunk.count, chunk.count);
    if (is_new) starts_at[chunk.count] = append(starts, runs->second.starts());
    blocks += divide_up(chunk.count, kBlockElements);
    gathered += runs->second.elements() * element_bytes;
  }
  if (blocks == 0) return samples;
  std::vector<ScanJob> scans;
  std::vector<GatherJob> gathers;
  const StreamEnd end(stream);
  BITSNAP_ASSIGN(const auto device_starts, DeviceArray<std::uint32_t>::copy_of(starts, stream));
  BITSNAP_ASSIGN(const auto device_bits, DeviceArray<BlockBits>::make(blocks, stream));
  BITSNAP_ASSIGN(const auto device_gathered, DeviceArray<std::byte>::make(gathered, stream));
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const auto found = samples.runs.find(chunks[i].count);
    if (found == samples.runs.end()) continue;
    const auto* const elements = static_cast<const std::uint8_t*>(chunks[i].elements);
    for (std::size_t block = 0; block < divide_up(chunks[i].count, kBlockElements); ++block) {
      const std::uint64_t first = block * kBlockElements;
      scans.push_back({.elements = elements + first * element_bytes,
                       .count = std::min(kBlockElements, chunks[i].count - first),
                       .bits = device_bits.data() + samples.bits_at[i] + block});
    }
    gathers.push_back({.elements = elements,
                       .starts = device_starts.data() + starts_at[chunks[i].count],
                       .runs = static_cast<std::uint32_t>(found->second.starts().size()),
                       .run_elements = SampleRuns::kRunElements,
                       .to = as_u8(device_gathered.data()) + samples.gathered_at[i]});
  }
  BITSNAP_ASSIGN(const auto device_scans, DeviceArray<ScanJob>::copy_of(scans, stream));
  BITSNAP_ASSIGN(const auto device_gathers, DeviceArray<GatherJob>::copy_of(gathers, stream));
  StreamTimer timer(stream);
  BITSNAP_TRY(checked(launch_scan(element_bytes, device_scans.data(), scans.size(), stream), "scanning elements"));
  BITSNAP_TRY(
      checked(launch_gather(element_bytes, device_gathers.data(), gathers.size(), stream), "sampling elements"));
  timer.stop();
  BITSNAP_ASSIGN(samples.bits, device_bits.fetch());
  BITSNAP_ASSIGN(samples.gathered, device_gathered.fetch());
  seconds += timer.seconds();
  return samples;
}

}  // namespace

Result<std::vector<std::uint64_t>> FloatSplitCoder::encode(DType dtype, std::span<const Chunk> chunks) {
  const std::size_t element_bytes = element_size(dtype);
  kernel_seconds_ = 0;
  BITSNAP_ASSIGN(const Samples samples, sample(dtype, chunks, stream_, kernel_seconds_));
  const os::Stopwatch planning;
  std::vector<std::optional<EncodePlan>> plans(chunks.size());
  BITSNAP_TRY(executor_.run(chunks.size(), 0, [&](std::size_t i, std::size_t) -> Result<void> {
    const auto found = samples.runs.find(chunks[i].count);
    if (found == samples.runs.end()) return {};
    const std::size_t bytes = found->second.elements() * element_bytes;
    plans[i] = plan_encoding(
        dtype, chunks[i].count, found->second, ConstByteSpan(samples.gathered).subspan(samples.gathered_at[i], bytes),
        std::span(samples.bits).subspan(samples.bits_at[i], divide_up(chunks[i].count, kBlockElements)));
    return {};
  }));
  plan_seconds_ = planning.elapsed_seconds();

  std::vector<BlockEncodeTable> blocks;
  std::vector<std::uint8_t> table_bytes;
  std::vector<std::uint64_t> sizes(chunks.size());
  std::vector<EncodeJob> jobs[2];         // [rotated]
  std::vector<std::size_t> blocks_at[2];  // of each job
  std::vector<std::size_t> tables_at[2];
  std::size_t scratch_bytes = 0;
  std::vector<std::size_t> scratch_at[2];
  const StreamEnd end(stream_);
  BITSNAP_ASSIGN(const auto device_sizes, DeviceArray<std::uint64_t>::copy_of(sizes, stream_));
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (!plans[i]) continue;
    const std::size_t kind = plans[i]->is_rotated ? 1 : 0;
    blocks_at[kind].push_back(append(blocks, plans[i]->blocks));
    tables_at[kind].push_back(append(table_bytes, plans[i]->table_bytes));
    scratch_at[kind].push_back(scratch_bytes);
    scratch_bytes += encode_scratch_bytes(chunks[i].count);
    jobs[kind].push_back({.elements = static_cast<const std::uint8_t*>(chunks[i].elements),
                          .count = chunks[i].count,
                          .table_size = plans[i]->table_bytes.size(),
                          .payload = static_cast<std::uint8_t*>(chunks[i].payload),
                          .payload_size = device_sizes.data() + i,
                          .form = plans[i]->form});
  }
  if (blocks.empty()) return sizes;
  BITSNAP_ASSIGN(const auto device_blocks, DeviceArray<BlockEncodeTable>::copy_of(blocks, stream_));
  BITSNAP_ASSIGN(const auto device_tables, DeviceArray<std::uint8_t>::copy_of(table_bytes, stream_));
  BITSNAP_ASSIGN(const auto device_scratch, DeviceArray<std::uint8_t>::make(scratch_bytes, stream_));
  for (std::size_t kind = 0; kind < 2; ++kind) {
    for (std::size_t i = 0; i < jobs[kind].size(); ++i) {
      jobs[kind][i].blocks = device_blocks.data() + blocks_at[kind][i];
      jobs[kind][i].table_bytes = device_tables.data() + tables_at[kind][i];
      jobs[kind][i].scratch = device_scratch.data() + scratch_at[kind][i];
    }
  }
  BITSNAP_ASSIGN(const auto plain, DeviceArray<EncodeJob>::copy_of(jobs[0], stream_));
  BITSNAP_ASSIGN(const auto rotated, DeviceArray<EncodeJob>::copy_of(jobs[1], stream_));
  StreamTimer timer(stream_);
  for (std::size_t kind = 0; kind < 2; ++kind) {
    if (jobs[kind].empty()) continue;
    const EncodeJob* const first = kind == 1 ? rotated.data() : plain.data();
    BITSNAP_TRY(checked(launch_encode(element_bytes, kind == 1, first, jobs[kind].size(), stream_), "encoding chunks"));
  }
  timer.stop();
  BITSNAP_ASSIGN(sizes, device_sizes.fetch());
  kernel_seconds_ += timer.seconds();
  return sizes;
}

Result<std::vector<bool>> FloatSplitCoder::decode(DType dtype, std::span<const Payload> payloads) {
  const os::Stopwatch planning;
  std::vector<std::optional<DecodePlan>> plans(payloads.size());
  BITSNAP_TRY(executor_.run(payloads.size(), 0, [&](std::size_t i, std::size_t) -> Result<void> {
    if (auto plan = plan_decoding(dtype, payloads[i].count, payloads[i].bytes)) plans[i] = std::move(*plan);
    return {};
  }));
  plan_seconds_ = planning.elapsed_seconds();

  std::vector<entropy::RansDecodeTable> blocks;
  std::vector<std::size_t> blocks_at(payloads.size());
  std::size_t masks = 0;
  std::vector<std::size_t> masks_at(payloads.size());
  for (std::size_t i = 0; i < payloads.size(); ++i) {
    if (!plans[i]) continue;
    blocks_at[i] = append(blocks, plans[i]->blocks);
    masks_at[i] = masks;
    masks += mask_bytes(payloads[i].count) / sizeof(std::uint64_t);
  }
  std::vector<bool> are_decoded(payloads.size());
  if (blocks.empty()) return are_decoded;
  const std::vector<std::uint32_t> none(payloads.size());
  std::vector<DecodeJob> jobs[2];
  const StreamEnd end(stream_);
  BITSNAP_ASSIGN(const auto device_blocks, DeviceArray<entropy::RansDecodeTable>::copy_of(blocks, stream_));
  BITSNAP_ASSIGN(const auto device_masks, DeviceArray<std::uint64_t>::make(masks, stream_));
  BITSNAP_ASSIGN(const auto device_valid, DeviceArray<std::uint32_t>::copy_of(none, stream_));
  for (std::size_t i = 0; i < payloads.size(); ++i) {
    if (!plans[i]) continue;
    const auto* const bytes = static_cast<const std::uint8_t*>(payloads[i].on_device);
    DecodeJob job{.rest = bytes + plans[i]->rest,
                  .escapes = bytes + plans[i]->escapes,
                  .escapes_size = plans[i]->escapes_size,
                  .states = bytes + plans[i]->states,
                  .blocks = device_blocks.data() + blocks_at[i],
                  .masks = device_masks.data() + masks_at[i],
                  .elements = static_cast<std::uint8_t*>(payloads[i].elements),
                  .count = payloads[i].count,
                  .is_valid = device_valid.data() + i};
    for (unsigned group = 0; group < kGroups; ++group) {
      job.streams[group] = bytes + plans[i]->streams[group];
      job.stream_sizes[group] = plans[i]->stream_sizes[group];
    }
    jobs[plans[i]->is_rotated ? 1 : 0].push_back(job);
  }
  BITSNAP_ASSIGN(const auto plain, DeviceArray<DecodeJob>::copy_of(jobs[0], stream_));
  BITSNAP_ASSIGN(const auto rotated, DeviceArray<DecodeJob>::copy_of(jobs[1], stream_));
  StreamTimer timer(stream_);
  for (std::size_t kind = 0; kind < 2; ++kind) {
    if (jobs[kind].empty()) continue;
    const DecodeJob* const first = kind == 1 ? rotated.data() : plain.data();
    BITSNAP_TRY(
        checked(launch_decode(element_size(dtype), kind == 1, first, jobs[kind].size(), stream_), "decoding chunks"));
  }
  timer.stop();
  BITSNAP_ASSIGN(const std::vector<std::uint32_t> valid, device_valid.fetch());
  kernel_seconds_ = timer.seconds();
  std::transform(valid.begin(), valid.end(), are_decoded.begin(), [](std::uint32_t one) { return one != 0; });
  return are_decoded;
}

}  // namespace bitsnap::gpu
