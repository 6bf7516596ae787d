// ZipNN's method on zstd's Huffman coder Huff0: takes the XOR with the base, if any, or rotates each element by one
// bit; splits byte planes, and codes blocks of 128 KiB or leaves them raw. The plane of exponents is always tried, the
// others only if Huff0's sample of the block shrinks.
//
// libzstd.a contains Huff0's functions, but neither its headers nor libzstd.so export them. So this file declares them
// as they are in 1.5.4 to 1.5.7, and the build accepts only these versions.
#include "bench/native/native_coders.hpp"

#if defined(BITSNAP_BENCH_HUFF0)

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include <bitsnap/cpu.hpp>

#include "base/bytes.hpp"
#include "base/try.hpp"
#include "entropy/planes.hpp"

extern "C" {
// NOLINTBEGIN(readability-identifier-naming): zstd's names.
std::size_t HUF_compress4X_repeat(void* out, std::size_t room, const void* in, std::size_t size, unsigned max_symbol,
                                  unsigned table_log, void* memory, std::size_t memory_size, std::size_t* table,
                                  int* repeat, int flags);
std::size_t HUF_decompress4X_hufOnly_wksp(std::uint32_t* table, void* out, std::size_t size, const void* in,
                                          std::size_t in_size, void* memory, std::size_t memory_size, int flags);
unsigned HUF_isError(std::size_t code);
// NOLINTEND(readability-identifier-naming)
}

namespace bitsnap::bench {
namespace {

constexpr std::size_t kBlock = std::size_t{128} << 10;
constexpr unsigned kTableLog = 11;     // as in zstd
constexpr unsigned kMaxTableLog = 12;  // the size of the decoding table
constexpr int kUseBmi2 = 1;
constexpr int kSampleFirst = 8;

class Huff0Worker final : public CoderWorker {
 public:
  explicit Huff0Worker(bool with_base) : with_base_(with_base) { decoding_table_[0] = kMaxTableLog * 0x01000001U; }

  Result<std::optional<std::size_t>> encode(const CoderChunk& chunk, ByteSpan out) override {
    const std::size_t width = element_size(chunk.dtype);
    const std::size_t elements = chunk.data.size() / width;
    const auto planes = planes_of(elements, width);
    if (with_base_) {
      entropy::xor_split_planes(chunk.data.data(), chunk.base.data(), elements, width, planes.data());
    } else {
      entropy::rotated_split_planes(chunk.data.data(), elements, width, planes.data());
    }
    std::byte* to = out.data();
    for (std::size_t k = 0; k < width; ++k) {
      for (std::size_t begin = 0; begin < elements; begin += kBlock) {
        to = encode_block({planes[k] + begin, std::min(kBlock, elements - begin)}, k + 1 == width ? 0 : kSampleFirst,
                          to);
      }
    }
    return static_cast<std::size_t>(to - out.data());
  }

  Result<void> decode(const CoderChunk& chunk, ConstByteSpan payload, ByteSpan out) override {
    const std::size_t width = element_size(chunk.dtype);
    const std::size_t elements = out.size() / width;
    const auto planes = planes_of(elements, width);
    const std::byte* from = payload.data();
    for (std::size_t k = 0; k < width; ++k) {
      for (std::size_t begin = 0; begin < elements; begin += kBlock) {
        BITSNAP_ASSIGN(from, decode_block(from, {planes[k] + begin, std::min(kBlock, elements - begin)}));
      }
    }
    if (with_base_) {
      entropy::xor_merge_planes(planes.data(), chunk.base.data(), elements, width, out.data());
    } else {
      entropy::rotated_merge_planes(planes.data(), elements, width, out.data());
    }
    return {};
  }

  // A block is stored as its size and its bytes.
  static constexpr std::size_t kBlockHeader = 4;
  static constexpr std::size_t kBlockRoom = kBlockHeader + kBlock + kBlock / 128 + 512;

 private:
  std::byte* encode_block(ConstByteSpan block, int sample_flag, std::byte* to) noexcept {
    int repeat = 0;  // do not reuse the table of an earlier block
    std::size_t size = HUF_compress4X_repeat(to + kBlockHeader, kBlockRoom - kBlockHeader, block.data(), block.size(),
                                             255, kTableLog, memory_.data(), memory_.size() * sizeof(memory_[0]),
                                             encoding_table_.data(), &repeat, flags_ | sample_flag);
    // ZipNN stores blocks raw that shrink by less than 5 %.
    if (size == 0 || HUF_isError(size) != 0 || size > block.size() / 100 * 95) {
      size = block.size();
      std::memcpy(to + kBlockHeader, block.data(), size);
    } else if (size == 1) {
      to[kBlockHeader] = block[0];  // all bytes are equal
    }
    store_le(to, static_cast<std::uint32_t>(size));
    return to + kBlockHeader + size;
  }

  Result<const std::byte*> decode_block(const std::byte* from, ByteSpan block) {
    const auto size = load_le<std::uint32_t>(from);
    from += kBlockHeader;
    if (size == block.size()) {
      std::memcpy(block.data(), from, size);
    } else if (size == 1) {
      std::memset(block.data(), std::to_integer<int>(*from), block.size());
    } else {
      const std::size_t decoded =
          HUF_decompress4X_hufOnly_wksp(decoding_table_.data(), block.data(), block.size(), from, size, memory_.data(),
                                        memory_.size() * sizeof(memory_[0]), flags_);
      if (decoded != block.size()) return fail(ErrorKind::internal, "huff0: decoding failed");
    }
    return from + size;
  }

  std::array<std::byte*, entropy::kMaxElementSize> planes_of(std::size_t elements, std::size_t width) {
    if (planes_.size() < elements * width) planes_.resize(elements * width);
    std::array<std::byte*, entropy::kMaxElementSize> planes{};
    for (std::size_t k = 0; k < width; ++k) planes[k] = planes_.data() + k * elements;
    return planes;
  }

  bool with_base_;
  int flags_ = cpu_level() == CpuLevel::scalar ? 0 : kUseBmi2;
  std::vector<std::byte> planes_;
  std::array<std::uint64_t, 2048> memory_{};
  std::array<std::size_t, 257> encoding_table_{};
  std::array<std::uint32_t, 1 + (1U << kMaxTableLog)> decoding_table_{};
};

class Huff0Coder final : public Coder {
 public:
  explicit Huff0Coder(bool with_base) : with_base_(with_base) {}

  std::string name() const override { return with_base_ ? "huff0+xor" : "huff0"; }
  bool uses_base() const noexcept override { return with_base_; }
  bool accepts(DType dtype) const noexcept override {
    return dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f32;
  }
  std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept override {
    return element_size(dtype) * ((elements + kBlock - 1) / kBlock) * Huff0Worker::kBlockRoom;
  }
  std::unique_ptr<CoderWorker> make_worker() const override { return std::make_unique<Huff0Worker>(with_base_); }

 private:
  bool with_base_;
};

}  // namespace

CoderPointer make_huff0_coder(bool with_base) { return std::make_shared<Huff0Coder>(with_base); }

}  // namespace bitsnap::bench

#else

namespace bitsnap::bench {

CoderPointer make_huff0_coder(bool) { return nullptr; }

}  // namespace bitsnap::bench

#endif
