// The kernels of lane_kernels.cu, with an emulated warp after the other.
#include <algorithm>
#include <array>
#include <deque>
#include <vector>

#include "gpu/emulated/warp_testing.hpp"
#include "gpu/lane_decoder.hpp"
#include "gpu/lane_encoder.hpp"
#include "gpu/lane_kernels.hpp"

namespace bitsnap::gpu {
namespace {

template <unsigned kBytes>
void scan(const ScanJob& job) {
  *job.bits = scan_block<kBytes>(EmulatedWarp(), job.elements, job.count);
}

template <unsigned kBytes>
void gather(const GatherJob& job) {
  gather_runs<kBytes>(EmulatedWarp(), job.elements, job.starts, job.runs, job.run_elements, job.to);
}

// A block of threads: the four warps of a chunk, as LaneEncoder or LaneDecoder.
template <typename Job, typename Lanes>
struct Block {
  explicit Block(const Job& given) : job(given) {
    for (unsigned group = 0; group < kGroups; ++group) {
      warps.emplace_back(EmulatedWarp(), job, group, entries[group].data());
    }
  }

  const Job job;
  std::array<std::array<std::uint32_t, 256>, kGroups> entries;
  std::vector<Lanes> warps;
};

template <unsigned kBytes, bool kRotated>
struct EncodeBlock : Block<EncodeJob, LaneEncoder<EmulatedWarp, kBytes, kRotated>> {
  using EncodeBlock::Block::Block;

  void begin() {
    std::ranges::transform(this->warps, ends.begin(), [](auto& warp) { return warp.encode(); });
  }
  void finish() {
    for (const auto& warp : this->warps) warp.assemble(ends.data());
  }

  std::array<EncodedGroup, kGroups> ends;
};

template <unsigned kBytes, bool kRotated>
struct DecodeBlock : Block<DecodeJob, LaneDecoder<EmulatedWarp, kBytes, kRotated>> {
  using DecodeBlock::Block::Block;

  void begin() {
    for (auto& warp : this->warps) is_valid = warp.decode() && is_valid;
  }
  void finish() { *this->job.is_valid = this->warps[0].put_escapes() && is_valid ? 1 : 0; }

  bool is_valid = true;
};

// All blocks are under way at once: what two of them share by mistake is seen.
template <typename Block, typename Job>
void run_blocks(const Job* jobs, std::size_t count) {
  std::deque<Block> blocks(jobs, jobs + count);
  for (Block& block : blocks) block.begin();
  for (Block& block : blocks) block.finish();
}

template <template <unsigned, bool> typename Block, typename Job>
cudaError_t launch_blocks(std::size_t element_bytes, bool is_rotated, const Job* jobs, std::size_t count,
                          cudaStream_t stream) {
  const auto run = element_bytes == 2
                       ? (is_rotated ? run_blocks<Block<2, true>, Job> : run_blocks<Block<2, false>, Job>)
                       : (is_rotated ? run_blocks<Block<4, true>, Job> : run_blocks<Block<4, false>, Job>);
  return emulated::launch(stream, [=] { run(jobs, count); });
}

template <typename Job>
cudaError_t launch_each(void (*kernel)(const Job&), const Job* jobs, std::size_t count, cudaStream_t stream) {
  return emulated::launch(stream, [=] { std::for_each(jobs, jobs + count, kernel); });
}

}  // namespace

cudaError_t launch_scan(std::size_t element_bytes, const ScanJob* jobs, std::size_t count, cudaStream_t stream) {
  return launch_each(element_bytes == 2 ? scan<2> : scan<4>, jobs, count, stream);
}

cudaError_t launch_gather(std::size_t element_bytes, const GatherJob* jobs, std::size_t count, cudaStream_t stream) {
  return launch_each(element_bytes == 2 ? gather<2> : gather<4>, jobs, count, stream);
}

cudaError_t launch_encode(std::size_t element_bytes, bool is_rotated, const EncodeJob* jobs, std::size_t count,
                          cudaStream_t stream) {
  return launch_blocks<EncodeBlock>(element_bytes, is_rotated, jobs, count, stream);
}

cudaError_t launch_decode(std::size_t element_bytes, bool is_rotated, const DecodeJob* jobs, std::size_t count,
                          cudaStream_t stream) {
  return launch_blocks<DecodeBlock>(element_bytes, is_rotated, jobs, count, stream);
}

}  // namespace bitsnap::gpu
