// Compares the kernels for GPUs with the codec on this machine's GPU, byte for byte, and measures them, and what a save
// and a restore would gain.
//
//   gpu_check [CHUNKS]      of 2^18 elements, or a little more than half of that; default 1024
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
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

// The codec on the CPU, with memory for each slot of an executor.
class CpuCoder {
 public:
  CpuCoder(DType dtype, exec::Executor& executor)
      : dtype_(dtype), scratch_(executor.default_slots()), out_(executor.default_slots()) {}

  // The payload, until the slot is used again; empty if the codec cannot express the chunk.
  [[nodiscard]] Result<ConstByteSpan> encode(ConstByteSpan elements, std::size_t slot) {
    codec::EncodeContext context;
    context.dtype = dtype_;
    context.elements = elements.size() / element_size(dtype_);
    out_[slot].resize(codec::float_split_encoder().max_encoded_size(dtype_, context.elements));
    BITSNAP_ASSIGN(const auto size, codec::float_split_encoder().encode(elements, context, out_[slot], scratch_[slot]));
    return ConstByteSpan(out_[slot]).first(size.value_or(0));
  }

  [[nodiscard]] Result<void> decode(ConstByteSpan payload, std::size_t slot, ByteSpan elements) {
    codec::ChunkContext context;
    context.dtype = dtype_;
    context.elements = elements.size() / element_size(dtype_);
    return codec::float_split_decoder().decode(payload, context, elements, scratch_[slot]);
  }

 private:
  const DType dtype_;
  std::vector<Scratch> scratch_;
  std::vector<Bytes> out_;
};

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
        cpu_coder_(dtype, *executor_),
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
    BITSNAP_TRY(measure_save(on_device.data(), payloads.data()));
    BITSNAP_TRY(measure_restore(decoded.data(), payloads.data()));
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
      encode_seconds_ = whole.elapsed_seconds();
      print_speeds("encode", all_bytes_, encode_seconds_);
    }
    return {};
  }

  // Whether the payloads are those of the CPU, and the other chunks those that the CPU has to code.
  [[nodiscard]] Result<bool> compare() {
    std::vector<std::uint8_t> differs(count_);
    BITSNAP_TRY(executor_->run(count_, 0, [&](std::size_t i, std::size_t slot) -> Result<void> {
      BITSNAP_ASSIGN(const ConstByteSpan expected, cpu_coder_.encode(chunk(i), slot));
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
      decode_seconds_ = whole.elapsed_seconds();
      print_speeds("decode", coded_bytes_, decode_seconds_);
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
      Bytes expected(bytes_of(i));
      const bool is_read = cpu_coder_.decode(damaged, 0, expected).has_value();
      if (found[0] != is_read) return false;
      refused += is_read ? 0U : 1U;
      if (!is_read) continue;
      Bytes read(bytes_of(i));
      BITSNAP_TRY(checked(cudaMemcpyAsync(read.data(), elements, read.size(), cudaMemcpyDeviceToHost, stream_),
                          "cudaMemcpyAsync"));
      BITSNAP_TRY(checked(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"));
      if (read != expected) return false;
    }
    return refused > 50;
  }

  using Piece = std::pair<std::size_t, std::size_t>;  // where it begins, and its size in bytes

  // What goes between the device and the host if the GPU codes: payloads, and the elements that the CPU has to code.
  [[nodiscard]] std::vector<Piece> payload_pieces() const {
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < count_; ++i) {
      pieces.emplace_back(i * chunk_bytes_, sizes_[i] > 0 ? sizes_[i] : bytes_of(i));
    }
    return pieces;
  }

  // Copies pieces of an array of the device to memory of the host that lies together, or from it. Returns the seconds.
  [[nodiscard]] Result<double> copy(std::byte* device, std::byte* host, const std::vector<Piece>& pieces,
                                    cudaMemcpyKind kind) const {
    const os::Stopwatch whole;
    for (const auto& [at, size] : pieces) {
      const bool is_read = kind == cudaMemcpyDeviceToHost;
      BITSNAP_TRY(
          checked(cudaMemcpyAsync(is_read ? host : device + at, is_read ? device + at : host, size, kind, stream_),
                  "cudaMemcpyAsync"));
      host += size;
    }
    BITSNAP_TRY(checked(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"));
    return whole.elapsed_seconds();
  }

  // Until the copy is done, a save holds a training back; when the chunks are coded, it can write them.
  [[nodiscard]] Result<void> measure_save(std::byte* elements, std::byte* payloads) {
    BITSNAP_ASSIGN(const auto host, PinnedArray::make(elements_.size()));
    const StreamEnd end(stream_);
    BITSNAP_ASSIGN(const double copy_elements,
                   copy(elements, host.data(), {{0, elements_.size()}}, cudaMemcpyDeviceToHost));
    const os::Stopwatch coding;
    BITSNAP_TRY(executor_->run(count_, 0, [&](std::size_t i, std::size_t slot) -> Result<void> {
      return cpu_coder_.encode({host.data() + i * chunk_bytes_, bytes_of(i)}, slot).map([](ConstByteSpan) {});
    }));
    const double code = coding.elapsed_seconds();
    const os::Stopwatch coding_rest;
    BITSNAP_TRY(executor_->run(count_, 0, [&](std::size_t i, std::size_t slot) -> Result<void> {
      if (sizes_[i] > 0) return {};
      return cpu_coder_.encode({host.data() + i * chunk_bytes_, bytes_of(i)}, slot).map([](ConstByteSpan) {});
    }));
    const double code_rest = coding_rest.elapsed_seconds();
    BITSNAP_ASSIGN(const double copy_payloads, copy(payloads, host.data(), payload_pieces(), cudaMemcpyDeviceToHost));
    std::printf(
        "%s save: copied in %.2f ms, then coded on %u threads in %.2f ms; "
        "coded on the GPU in %.2f ms, then copied in %.2f ms, and the rest coded in %.2f ms\n",
        std::string(dtype_name(dtype_)).c_str(), 1000 * copy_elements, executor_->threads(), 1000 * code,
        1000 * encode_seconds_, 1000 * copy_payloads, 1000 * code_rest);
    return {};
  }

  [[nodiscard]] Result<void> measure_restore(std::byte* elements, std::byte* payloads) {
    BITSNAP_ASSIGN(const auto host, PinnedArray::make(elements_.size()));
    const StreamEnd end(stream_);
    const os::Stopwatch decoding;
    BITSNAP_TRY(executor_->run(coded_.size(), 0, [&](std::size_t number, std::size_t slot) -> Result<void> {
      const std::size_t i = coded_[number];
      return cpu_coder_.decode(payload(i), slot, {host.data() + i * chunk_bytes_, bytes_of(i)});
    }));
    const double decode = decoding.elapsed_seconds();
    BITSNAP_ASSIGN(const double copy_elements,
                   copy(elements, host.data(), {{0, elements_.size()}}, cudaMemcpyHostToDevice));
    BITSNAP_ASSIGN(const double copy_payloads, copy(payloads, host.data(), payload_pieces(), cudaMemcpyHostToDevice));
    std::printf(
        "%s restore: decoded on %u threads in %.2f ms, then copied in %.2f ms; "
        "copied in %.2f ms, then decoded on the GPU in %.2f ms\n",
        std::string(dtype_name(dtype_)).c_str(), executor_->threads(), 1000 * decode, 1000 * copy_elements,
        1000 * copy_payloads, 1000 * decode_seconds_);
    return {};
  }

  static constexpr int kRounds = 3;

  const DType dtype_;
  const std::size_t count_;
  const std::size_t chunk_bytes_;
  const cudaStream_t stream_;
  const std::unique_ptr<exec::Executor> executor_;
  FloatSplitCoder coder_;
  CpuCoder cpu_coder_;
  Bytes elements_;
  std::size_t all_bytes_ = 0;
  std::vector<std::uint64_t> sizes_;
  Bytes payloads_;
  std::vector<std::size_t> coded_;  // by the GPU
  std::size_t coded_bytes_ = 0;
  double encode_seconds_ = 0;  // of the last round
  double decode_seconds_ = 0;
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
  const std::unique_ptr<CUstream_st, decltype(&cudaStreamDestroy)> owner(stream, cudaStreamDestroy);
  // Memory that is freed stays with this program instead of going back to the driver each time that a stream is done.
  cudaMemPool_t pool = nullptr;
  std::uint64_t kept_bytes = std::numeric_limits<std::uint64_t>::max();
  BITSNAP_TRY(checked(cudaDeviceGetDefaultMemPool(&pool, device), "cudaDeviceGetDefaultMemPool"));
  BITSNAP_TRY(
      checked(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept_bytes), "cudaMemPoolSetAttribute"));
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
