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

using Chunks = std::span<const FloatSplitCoder::Chunk>;
using EncodePlans = std::vector<std::optional<EncodePlan>>;
using DecodePlans = std::vector<std::optional<DecodePlan>>;

// Appends to one array what many jobs point into; returns where it begins.
template <typename T>
std::size_t append(std::vector<T>& all, const std::vector<T>& more) {
  const std::size_t at = all.size();
  all.insert(all.end(), more.begin(), more.end());
  return at;
}

// What is known of all chunks before their tables are chosen. Chunks that the CPU has to code have no part in it.
struct Samples {
  struct Part {
    const SampleRuns* runs = nullptr;  // nullptr: of a chunk that the CPU has to code
    std::size_t first_block = 0;
    std::size_t blocks = 0;
    std::size_t first_byte = 0;  // its place in `gathered`
    std::size_t bytes = 0;
  };

  Samples(DType dtype, Chunks chunks) {
    for (const auto& chunk : chunks) {
      parts.emplace_back();
      if (!can_be_coded(dtype, chunk.count)) continue;
      const SampleRuns& own = runs.try_emplace(chunk.count, chunk.count).first->second;
      parts.back() = {.runs = &own,
                      .first_block = blocks,
                      .blocks = divide_up(chunk.count, kBlockElements),
                      .first_byte = bytes,
                      .bytes = own.elements() * element_size(dtype)};
      blocks += parts.back().blocks;
      bytes += parts.back().bytes;
    }
  }
  [[nodiscard]] std::span<const BlockBits> bits_of(const Part& part) const {
    return std::span(bits).subspan(part.first_block, part.blocks);
  }
  [[nodiscard]] ConstByteSpan gathered_of(const Part& part) const {
    return ConstByteSpan(gathered).subspan(part.first_byte, part.bytes);
  }

  std::map<std::size_t, SampleRuns> runs;  // by the number of elements
  std::vector<Part> parts;                 // of each chunk
  std::size_t blocks = 0;
  std::size_t bytes = 0;
  std::vector<BlockBits> bits;
  std::vector<std::byte> gathered;
};

// Fills in the bits and the gathered elements. Adds the time of the kernels to `seconds`.
Result<void> sample(DType dtype, Chunks chunks, cudaStream_t stream, Samples& samples, double& seconds) {
  if (samples.blocks == 0) return {};
  const std::size_t element_bytes = element_size(dtype);
  std::vector<std::uint32_t> starts;
  std::map<const SampleRuns*, std::size_t> starts_at;
  for (const auto& [count, runs] : samples.runs) starts_at[&runs] = append(starts, runs.starts());
  std::vector<ScanJob> scans;
  std::vector<GatherJob> gathers;
  const StreamEnd end(stream);
  BITSNAP_ASSIGN(const auto device_starts, DeviceArray<std::uint32_t>::copy_of(starts, stream));
  BITSNAP_ASSIGN(const auto device_bits, DeviceArray<BlockBits>::make(samples.blocks, stream));
  BITSNAP_ASSIGN(const auto device_gathered, DeviceArray<std::byte>::make(samples.bytes, stream));
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const Samples::Part& part = samples.parts[i];
    if (part.runs == nullptr) continue;
    const auto* const elements = static_cast<const std::uint8_t*>(chunks[i].elements);
    for (std::size_t block = 0; block < part.blocks; ++block) {
      const std::uint64_t first = block * kBlockElements;
      scans.push_back({.elements = elements + first * element_bytes,
                       .count = std::min(kBlockElements, chunks[i].count - first),
                       .bits = device_bits.data() + part.first_block + block});
    }
    gathers.push_back({.elements = elements,
                       .starts = device_starts.data() + starts_at[part.runs],
                       .runs = static_cast<std::uint32_t>(part.runs->starts().size()),
                       .run_elements = SampleRuns::kRunElements,
                       .to = as_u8(device_gathered.data()) + part.first_byte});
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
  return {};
}

// The chunks that have a plan. Those whose elements are rotated come last: another kernel codes them.
struct Planned {
  template <typename Plan>
  explicit Planned(const std::vector<std::optional<Plan>>& plans) {
    const auto add = [&](bool are_rotated) {
      for (std::size_t i = 0; i < plans.size(); ++i) {
        if (plans[i] && plans[i]->is_rotated == are_rotated) numbers.push_back(i);
      }
    };
    add(false);
    plain = numbers.size();
    add(true);
  }

  std::vector<std::size_t> numbers;
  std::size_t plain = 0;  // how many come first
};

// Runs the kernels of both kinds of elements, and waits. The jobs are those of Planned::numbers. Returns the time of
// the kernels in seconds.
template <typename Job, typename Launch>
Result<double> run_jobs(Launch launch, const char* what, DType dtype, const std::vector<Job>& jobs, std::size_t plain,
                        cudaStream_t stream) {
  const StreamEnd end(stream);
  BITSNAP_ASSIGN(const auto on_device, DeviceArray<Job>::copy_of(jobs, stream));
  StreamTimer timer(stream);
  for (const bool is_rotated : {false, true}) {
    const std::size_t first = is_rotated ? plain : 0;
    const std::size_t count = (is_rotated ? jobs.size() : plain) - first;
    if (count == 0) continue;
    BITSNAP_TRY(checked(launch(element_size(dtype), is_rotated, on_device.data() + first, count, stream), what));
  }
  timer.stop();
  return timer.seconds();
}

// Encodes the chunks that have a plan. Sets their sizes, and adds the time of the kernels to `seconds`.
Result<void> encode_planned(DType dtype, Chunks chunks, const EncodePlans& plans, cudaStream_t stream,
                            std::vector<std::uint64_t>& sizes, double& seconds) {
  const Planned planned(plans);
  if (planned.numbers.empty()) return {};
  std::vector<BlockEncodeTable> blocks;
  std::vector<std::uint8_t> table_bytes;
  std::size_t scratch_bytes = 0;
  for (const std::size_t number : planned.numbers) {
    append(blocks, plans[number]->blocks);
    append(table_bytes, plans[number]->table_bytes);
    scratch_bytes += encode_scratch_bytes(chunks[number].count);
  }
  const StreamEnd end(stream);
  BITSNAP_ASSIGN(const auto device_sizes, DeviceArray<std::uint64_t>::copy_of(sizes, stream));
  BITSNAP_ASSIGN(const auto device_blocks, DeviceArray<BlockEncodeTable>::copy_of(blocks, stream));
  BITSNAP_ASSIGN(const auto device_tables, DeviceArray<std::uint8_t>::copy_of(table_bytes, stream));
  BITSNAP_ASSIGN(const auto device_scratch, DeviceArray<std::uint8_t>::make(scratch_bytes, stream));
  const BlockEncodeTable* next_block = device_blocks.data();
  const std::uint8_t* next_table = device_tables.data();
  std::uint8_t* next_scratch = device_scratch.data();
  std::vector<EncodeJob> jobs;
  for (const std::size_t number : planned.numbers) {
    const EncodePlan& plan = *plans[number];
    jobs.push_back({.elements = static_cast<const std::uint8_t*>(chunks[number].elements),
                    .count = chunks[number].count,
                    .blocks = next_block,
                    .table_bytes = next_table,
                    .table_size = plan.table_bytes.size(),
                    .scratch = next_scratch,
                    .payload = static_cast<std::uint8_t*>(chunks[number].payload),
                    .payload_size = device_sizes.data() + number,
                    .form = plan.form});
    next_block += plan.blocks.size();
    next_table += plan.table_bytes.size();
    next_scratch += encode_scratch_bytes(chunks[number].count);
  }
  BITSNAP_ASSIGN(const double own_seconds,
                 run_jobs(launch_encode, "encoding chunks", dtype, jobs, planned.plain, stream));
  BITSNAP_ASSIGN(sizes, device_sizes.fetch());
  seconds += own_seconds;
  return {};
}

// Decodes the payloads that have a plan. Sets which were valid, and returns the time of the kernels in seconds.
Result<double> decode_planned(DType dtype, std::span<const FloatSplitCoder::Payload> payloads, const DecodePlans& plans,
                              cudaStream_t stream, std::vector<std::uint32_t>& are_valid) {
  const Planned planned(plans);
  if (planned.numbers.empty()) return 0.0;
  std::vector<entropy::RansDecodeTable> blocks;
  std::size_t masks = 0;
  for (const std::size_t number : planned.numbers) {
    append(blocks, plans[number]->blocks);
    masks += mask_bytes(payloads[number].count) / sizeof(std::uint64_t);
  }
  const StreamEnd end(stream);
  BITSNAP_ASSIGN(const auto device_blocks, DeviceArray<entropy::RansDecodeTable>::copy_of(blocks, stream));
  BITSNAP_ASSIGN(const auto device_masks, DeviceArray<std::uint64_t>::make(masks, stream));
  BITSNAP_ASSIGN(const auto device_valid, DeviceArray<std::uint32_t>::copy_of(are_valid, stream));
  const entropy::RansDecodeTable* next_block = device_blocks.data();
  std::uint64_t* next_masks = device_masks.data();
  std::vector<DecodeJob> jobs;
  for (const std::size_t number : planned.numbers) {
    const DecodePlan& plan = *plans[number];
    const FloatSplitCoder::Payload& payload = payloads[number];
    const auto* const bytes = static_cast<const std::uint8_t*>(payload.on_device);
    DecodeJob job{.rest = bytes + plan.rest,
                  .escapes = bytes + plan.escapes,
                  .escapes_size = plan.escapes_size,
                  .states = bytes + plan.states,
                  .blocks = next_block,
                  .masks = next_masks,
                  .elements = static_cast<std::uint8_t*>(payload.elements),
                  .count = payload.count,
                  .is_valid = device_valid.data() + number};
    for (unsigned group = 0; group < kGroups; ++group) {
      job.streams[group] = bytes + plan.streams[group];
      job.stream_sizes[group] = plan.stream_sizes[group];
    }
    jobs.push_back(job);
    next_block += plan.blocks.size();
    next_masks += mask_bytes(payload.count) / sizeof(std::uint64_t);
  }
  BITSNAP_ASSIGN(const double seconds, run_jobs(launch_decode, "decoding chunks", dtype, jobs, planned.plain, stream));
  BITSNAP_ASSIGN(are_valid, device_valid.fetch());
  return seconds;
}

}  // namespace

Result<std::vector<std::uint64_t>> FloatSplitCoder::encode(DType dtype, Chunks chunks) {
  kernel_seconds_ = 0;
  Samples samples(dtype, chunks);
  BITSNAP_TRY(sample(dtype, chunks, stream_, samples, kernel_seconds_));
  const os::Stopwatch planning;
  EncodePlans plans(chunks.size());
  BITSNAP_TRY(executor_.run(chunks.size(), 0, [&](std::size_t i, std::size_t) -> Result<void> {
    const Samples::Part& part = samples.parts[i];
    if (part.runs == nullptr) return {};
    plans[i] = plan_encoding(dtype, chunks[i].count, *part.runs, samples.gathered_of(part), samples.bits_of(part));
    return {};
  }));
  plan_seconds_ = planning.elapsed_seconds();
  std::vector<std::uint64_t> sizes(chunks.size());
  BITSNAP_TRY(encode_planned(dtype, chunks, plans, stream_, sizes, kernel_seconds_));
  return sizes;
}

Result<std::vector<bool>> FloatSplitCoder::decode(DType dtype, std::span<const Payload> payloads) {
  const os::Stopwatch planning;
  DecodePlans plans(payloads.size());
  BITSNAP_TRY(executor_.run(payloads.size(), 0, [&](std::size_t i, std::size_t) -> Result<void> {
    if (auto plan = plan_decoding(dtype, payloads[i].count, payloads[i].bytes)) plans[i] = std::move(*plan);
    return {};
  }));
  plan_seconds_ = planning.elapsed_seconds();
  std::vector<std::uint32_t> are_valid(payloads.size());
  BITSNAP_ASSIGN(kernel_seconds_, decode_planned(dtype, payloads, plans, stream_, are_valid));
  std::vector<bool> are_decoded(payloads.size());
  std::transform(are_valid.begin(), are_valid.end(), are_decoded.begin(), [](std::uint32_t one) { return one != 0; });
  return are_decoded;
}

}  // namespace bitsnap::gpu
