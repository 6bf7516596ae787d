// Compares the kernels for GPUs with the codec on this machine's GPU, byte for byte, and measures them.
//
//   gpu_check [CHUNKS]      of 2^18 elements, or a little more than half of that; default 1024
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "codec/builtin_codecs.hpp"
#include "codec/encoder.hpp"
#include "codec/trained_like_testing.hpp"
#include "exec/executor.hpp"
#include "gpu/chunks_testing.hpp"
#include "gpu/device_memory.hpp"
#include "gpu/float_split_cuda.hpp"
#include "os/clock.hpp"

namespace bitsnap::gpu {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kChunkElements = std::size_t{1} << 18;

// The CPU's payload; empty if the codec cannot express the chunk.
Result<Bytes> payload_of(DType dtype, ConstByteSpan elements) {
  Scratch scratch;
  codec::EncodeContext context;
  context.dtype = dtype;
  context.elements = elements.size() / element_size(dtype);
  Bytes out(codec::float_split_encoder().max_encoded_size(dtype, context.elements));
  BITSNAP_ASSIGN(const auto size, codec::float_split_encoder().encode(elements, context, out, scratch));
  out.resize(size.value_or(0));
  return out;
}

bool report(const char* what, bool is_right) {
  std::printf("%-60s %s\n", what, is_right ? "ok" : "WRONG");
  return is_right;
}

// The chunks of one dtype.
class Check {
 public:
  Check(DType dtype, std::size_t chunks, cudaStream_t stream)
      : dtype_(dtype),
        count_(chunks),
        chunk_bytes_(kChunkElements * element_size(dtype)),
        stream_(stream),
        executor_(exec::make_executor(0)),
        coder_(*executor_, stream),
        elements_(chunks * chunk_bytes_) {
    for (std::size_t i = 0; i < count_; ++i) all_bytes_ += bytes_of(i);
  }

  [[nodiscard]] Result<bool> run() {
    BITSNAP_TRY(fill());
    BITSNAP_ASSIGN(const auto on_device, DeviceArray<std::byte>::copy_of(elements_, stream_));
    BITSNAP_ASSIGN(const auto payloads, DeviceArray<std::byte>::make(elements_.size(), stream_));
    BITSNAP_ASSIGN(const auto decoded, DeviceArray<std::byte>::make(elements_.size(), stream_));
    BITSNAP_TRY(encode(on_device.data(), payloads.data()));
    BITSNAP_ASSIGN(payloads_, payloads.fetch());
    BITSNAP_ASSIGN(const bool are_same, compare());
    const bool is_written = report("payloads equal to those of the CPU", are_same);
    BITSNAP_ASSIGN(const bool are_decoded, decode(payloads.data(), decoded.data()));
    BITSNAP_ASSIGN(const Bytes back, decoded.fetch());
    const bool is_read = report("elements equal after decoding", are_decoded && are_equal(back));
    BITSNAP_ASSIGN(const bool are_refused, refuses_damage(decoded.data()));
    const bool is_safe = report("damaged payloads are refused", are_refused);
    StreamTimer copy(stream_);
    BITSNAP_TRY(
        checked(cudaMemcpyAsync(decoded.data(), on_device.data(), elements_.size(), cudaMemcpyDeviceToDevice, stream_),
                "cudaMemcpyAsync"));
    copy.stop();
    std::printf("copy on the device: %.1f GB/s\n", static_cast<double>(elements_.size()) * 1e-9 / copy.seconds());
    return is_written && is_read && is_safe;
  }

 private:
  [[nodiscard]] std::size_t bytes_of(std::size_t i) const { return mixed_chunk_elements(i) * element_size(dtype_); }
  [[nodiscard]] ConstByteSpan chunk(std::size_t i) const {
    return ConstByteSpan(elements_).subspan(i * chunk_bytes_, bytes_of(i));
  }
  [[nodiscard]] ConstByteSpan payload(std::size_t i) const {
    return ConstByteSpan(payloads_).subspan(i * chunk_bytes_, sizes_[i]);
  }

  [[nodiscard]] Result<void> fill() {
    return executor_->run(count_, 0, [&](std::size_t i, std::size_t) -> Result<void> {
      fill_mixed_chunk(dtype_, i, std::span(elements_).subspan(i * chunk_bytes_, bytes_of(i)));
      return {};
    });
  }

  void print_speeds(const char* what, std::size_t bytes, double seconds) const {
    const double gigabytes = static_cast<double>(bytes) * 1e-9;
    std::printf("%s %s: kernels %.1f GB/s, planning on %u threads %.1f GB/s, whole call %.1f GB/s\n",
                std::string(dtype_name(dtype_)).c_str(), what, gigabytes / coder_.kernel_seconds(),
                executor_->threads(), gigabytes / coder_.plan_seconds(), gigabytes / seconds);
  }

  [[nodiscard]] Result<void> encode(const std::byte* elements, std::byte* payloads) {
    std::vector<FloatSplitCoder::Chunk> chunks;
    for (std::size_t i = 0; i < count_; ++i) {
      chunks.push_back({.elements = elements + i * chunk_bytes_,
                        .count = mixed_chunk_elements(i),
                        .payload = payloads + i * chunk_bytes_});
    }
    for (int round = 0; round < kRounds; ++round) {
      const os::Stopwatch whole;
      BITSNAP_ASSIGN(sizes_, coder_.encode(dtype_, chunks));
      print_speeds("encode", all_bytes_, whole.elapsed_seconds());
    }
    return {};
  }

  // Whether the payloads are those of the CPU, and the other chunks those that the CPU has to code.
  [[nodiscard]] Result<bool> compare() {
    std::vector<std::uint8_t> differs(count_);
    BITSNAP_TRY(executor_->run(count_, 0, [&](std::size_t i, std::size_t) -> Result<void> {
      BITSNAP_ASSIGN(const Bytes expected, payload_of(dtype_, chunk(i)));
      const bool is_lanes = !expected.empty() && (expected[0] == std::byte{3} || expected[0] == std::byte{4});
      differs[i] = is_lanes != (sizes_[i] > 0) || (is_lanes && !std::ranges::equal(payload(i), expected));
      return {};
    }));
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      if (sizes_[i] == 0) continue;
      coded_.push_back(i);
      coded_bytes_ += bytes_of(i);
      bytes += sizes_[i];
    }
    std::printf("%zu of %zu chunks coded on the GPU, %.3f times smaller\n", coded_.size(), count_,
                static_cast<double>(coded_bytes_) / static_cast<double>(bytes));
    return coded_.size() > count_ / 2 && std::ranges::count(differs, 0) == std::ssize(differs);
  }

  [[nodiscard]] Result<bool> decode(const std::byte* payloads, std::byte* elements) {
    std::vector<FloatSplitCoder::Payload> given;
    for (const std::size_t i : coded_) {
      given.push_back({.bytes = payload(i),
                       .on_device = payloads + i * chunk_bytes_,
                       .elements = elements + i * chunk_bytes_,
                       .count = mixed_chunk_elements(i)});
    }
    bool are_decoded = true;
    for (int round = 0; round < kRounds; ++round) {
      const os::Stopwatch whole;
      BITSNAP_ASSIGN(const std::vector<bool> found, coder_.decode(dtype_, given));
      print_speeds("decode", coded_bytes_, whole.elapsed_seconds());
      are_decoded = are_decoded && std::find(found.begin(), found.end(), false) == found.end();
    }
    return are_decoded;
  }

  [[nodiscard]] bool are_equal(const Bytes& back) const {
    return std::ranges::all_of(coded_, [&](std::size_t i) {
      return std::ranges::equal(std::span(back).subspan(i * chunk_bytes_, bytes_of(i)), chunk(i));
    });
  }

  // Whether the GPU refuses what the codec refuses, and reads the rest as it does, if a byte behind the lower bytes of
  // the elements is changed: of the tables, the streams, the escapes or the states.
  [[nodiscard]] Result<bool> refuses_damage(std::byte* elements) {
    codec::TestRandom random(1);
    std::size_t refused = 0;
    for (std::size_t attempt = 0; attempt < 100 && !coded_.empty(); ++attempt) {
      const std::size_t i = coded_[attempt % coded_.size()];
      const ConstByteSpan own = payload(i);
      Bytes damaged(own.begin(), own.end());
      const std::size_t behind = 21 + mixed_chunk_elements(i) * (element_size(dtype_) - 1);
      damaged[behind + random.below(own.size() - behind)] ^= static_cast<std::byte>(1 + random.below(255));
      BITSNAP_ASSIGN(const auto there, DeviceArray<std::byte>::copy_of(damaged, stream_));
      const FloatSplitCoder::Payload given{
          .bytes = damaged, .on_device = there.data(), .elements = elements, .count = mixed_chunk_elements(i)};
      BITSNAP_ASSIGN(const std::vector<bool> found, coder_.decode(dtype_, std::span(&given, 1)));
      Scratch scratch;
      Bytes expected(bytes_of(i));
      codec::ChunkContext context;
      context.dtype = dtype_;
      context.elements = mixed_chunk_elements(i);
      const bool is_read = codec::float_split_decoder().decode(damaged, context, expected, scratch).has_value();
      if (found[0] != is_read) return false;
      refused += is_read ? 0U : 1U;
      if (!is_read) continue;
      Bytes read(bytes_of(i));
      BITSNAP_TRY(checked(cudaMemcpy(read.data(), elements, read.size(), cudaMemcpyDeviceToHost), "cudaMemcpy"));
      if (read != expected) return false;
    }
    return refused > 50;
  }

  static constexpr int kRounds = 3;

  const DType dtype_;
  const std::size_t count_;
  const std::size_t chunk_bytes_;
  const cudaStream_t stream_;
  const std::unique_ptr<exec::Executor> executor_;
  FloatSplitCoder coder_;
  Bytes elements_;
  std::size_t all_bytes_ = 0;
  std::vector<std::uint64_t> sizes_;
  Bytes payloads_;
  std::vector<std::size_t> coded_;  // by the GPU
  std::size_t coded_bytes_ = 0;
};

Result<bool> run(std::size_t chunks) {
  int device = 0;
  cudaDeviceProp properties{};
  BITSNAP_TRY(checked(cudaGetDevice(&device), "cudaGetDevice"));
  BITSNAP_TRY(checked(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties"));
  std::printf("%s, %d multiprocessors, %zu chunks of %zu elements\n", properties.name, properties.multiProcessorCount,
              chunks, kChunkElements);
  cudaStream_t stream = nullptr;
  BITSNAP_TRY(checked(cudaStreamCreate(&stream), "cudaStreamCreate"));
  bool is_right = true;
  for (const DType dtype : {DType::bf16, DType::f32}) {
    BITSNAP_ASSIGN(const bool own, Check(dtype, chunks, stream).run());
    is_right = is_right && own;
  }
  return is_right;
}

}  // namespace
}  // namespace bitsnap::gpu

int main(int argc, char** argv) {
  const std::size_t chunks = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1024;
  const auto is_right = bitsnap::gpu::run(chunks == 0 ? 1 : chunks);
  if (!is_right) std::fprintf(stderr, "gpu_check: %s\n", is_right.error().message().c_str());
  return is_right && *is_right ? 0 : 1;
}
