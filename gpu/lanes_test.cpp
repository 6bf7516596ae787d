// Tests of the coder for GPUs without one: with the source of the kernels run by an emulated warp, and an emulated CUDA
// runtime, it writes what the codec writes, reads what that wrote, and refuses what it refuses.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "codec/builtin_codecs.hpp"
#include "codec/coding_testing.hpp"
#include "codec/trained_like_testing.hpp"
#include "gpu/chunks_testing.hpp"
#include "gpu/device_memory.hpp"
#include "gpu/float_split_cuda.hpp"
#include "gpu/float_split_plan.hpp"

namespace bitsnap::gpu {
namespace {

using Bytes = std::vector<std::byte>;
using codec::TestChunk;
using codec::TestRandom;

Bytes trained_like(DType dtype, std::size_t elements, std::uint64_t seed) {
  Bytes bytes(elements * element_size(dtype));
  codec::fill_trained_like(dtype, bytes, seed);
  return bytes;
}

// The payload; nullopt if the CPU has to code the chunk.
Result<std::optional<Bytes>> encode_on_device(DType dtype, const Bytes& elements) {
  const cudaStream_t stream = nullptr;
  const StreamEnd end(stream);
  const auto executor = exec::make_executor(1);
  BITSNAP_ASSIGN(const auto from, DeviceArray<std::byte>::copy_of(elements, stream));
  BITSNAP_ASSIGN(const auto to, DeviceArray<std::byte>::make(elements.size(), stream));
  const FloatSplitCoder::Chunk chunk{
      .elements = from.data(), .count = elements.size() / element_size(dtype), .payload = to.data()};
  BITSNAP_ASSIGN(const std::vector<std::uint64_t> sizes,
                 FloatSplitCoder(*executor, stream).encode(dtype, std::span(&chunk, 1)));
  if (sizes[0] == 0) return std::nullopt;
  BITSNAP_ASSIGN(Bytes payload, to.fetch());
  payload.resize(sizes[0]);
  return payload;
}

// The elements; nullopt if the payload is damaged or has another form.
Result<std::optional<Bytes>> decode_on_device(DType dtype, const Bytes& payload, std::size_t elements) {
  const cudaStream_t stream = nullptr;
  const StreamEnd end(stream);
  const auto executor = exec::make_executor(1);
  BITSNAP_ASSIGN(const auto from, DeviceArray<std::byte>::copy_of(payload, stream));
  BITSNAP_ASSIGN(const auto to, DeviceArray<std::byte>::make(elements * element_size(dtype), stream));
  const FloatSplitCoder::Payload given{
      .bytes = payload, .on_device = from.data(), .elements = to.data(), .count = elements};
  BITSNAP_ASSIGN(const std::vector<bool> are_decoded,
                 FloatSplitCoder(*executor, stream).decode(dtype, std::span(&given, 1)));
  if (!are_decoded[0]) return std::nullopt;
  BITSNAP_ASSIGN(Bytes decoded, to.fetch());
  return decoded;
}

// Expects the codec's payload from the kernels, and the elements from both payloads.
void expect_same(DType dtype, const Bytes& elements) {
  Scratch scratch;
  const TestChunk chunk{.dtype = dtype, .data = elements, .base = {}};
  const auto expected = encode_test_chunk(codec::float_split_encoder(), chunk, scratch);
  const auto found = encode_on_device(dtype, elements);
  ASSERT_TRUE(expected);
  ASSERT_TRUE(found) << found.error().message();
  ASSERT_TRUE(*found) << "the plan leaves this chunk to the CPU";
  ASSERT_TRUE(**found == *expected);
  const auto decoded = decode_on_device(dtype, *expected, chunk.elements());
  ASSERT_TRUE(decoded) << decoded.error().message();
  ASSERT_TRUE(*decoded);
  EXPECT_TRUE(**decoded == elements);
}

class GpuLanes : public testing::TestWithParam<std::tuple<DType, bool>> {
 protected:
  [[nodiscard]] static DType dtype() { return std::get<0>(GetParam()); }
  [[nodiscard]] static bool has_signs() { return std::get<1>(GetParam()); }
  [[nodiscard]] static Bytes without_signs(std::size_t elements, std::uint64_t seed) {
    Bytes bytes(elements * element_size(dtype()));
    fill_without_signs(dtype(), bytes, seed);
    return bytes;
  }
  [[nodiscard]] static Bytes numbers(std::size_t elements, std::uint64_t seed) {
    return has_signs() ? trained_like(dtype(), elements, seed) : without_signs(elements, seed);
  }
};

TEST_P(GpuLanes, WriteAndReadThePayloadsOfTheCodec) {
  for (const std::size_t elements : {65536U, 65536U + 4096, 3 * 65536U + 256, 2 * 65536U + 3001, 2 * 65536U + 48}) {
    SCOPED_TRACE(elements);
    expect_same(dtype(), numbers(elements, elements));
  }
}

TEST_P(GpuLanes, EscapeWhatTheTablesLack) {
  for (const std::size_t every : {3000U, 200U, 60U}) {
    SCOPED_TRACE(every);
    Bytes elements = numbers(2 * 65536 + 777 + 2048, every);
    scatter_outliers(dtype(), elements, every, has_signs(), every);
    expect_same(dtype(), elements);
    EXPECT_GT(load_le<std::uint32_t>((*encode_on_device(dtype(), elements))->data() + 17), 10U) << "no escapes";
  }
}

TEST_P(GpuLanes, CodeNothingForABlockOfOneSymbol) {
  Bytes elements = numbers(3 * 65536, 5);
  const std::size_t width = element_size(dtype());
  give_one_symbol(dtype(), std::span(elements).subspan(65536 * width, 65536 * width));
  expect_same(dtype(), elements);
  elements[100'001 * width - 1] ^= std::byte{1};  // which no sample sees
  expect_same(dtype(), elements);
}

// The chunks that gpu_check codes.
TEST_P(GpuLanes, CodeTheMixtureOfChunks) {
  for (std::size_t number = 0; number < 20; ++number) {
    if ((number % 3 != 2) != has_signs()) continue;
    SCOPED_TRACE(number);
    Bytes elements(mixed_chunk_elements(number) * element_size(dtype()));
    fill_mixed_chunk(dtype(), number, elements);
    if (is_left_to_cpu(number)) {
      EXPECT_FALSE(*encode_on_device(dtype(), elements));
    } else {
      expect_same(dtype(), elements);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, GpuLanes, testing::Combine(testing::Values(DType::bf16, DType::f32), testing::Bool()));

TEST(GpuCoder, LeavesOtherFormsToTheCpu) {
  const auto is_coded = [](DType dtype, const Bytes& elements) {
    return encode_on_device(dtype, elements)->has_value();
  };
  const Bytes shortened = [] {
    Bytes bytes = trained_like(DType::f32, 65536, 1);
    for (std::size_t i = 0; i < bytes.size(); i += 4) bytes[i] = bytes[i + 1] = {};
    return bytes;
  }();
  EXPECT_FALSE(is_coded(DType::f32, shortened));
  EXPECT_FALSE(is_coded(DType::f32, Bytes(65536 * 4)));                           // one symbol
  EXPECT_FALSE(is_coded(DType::bf16, trained_like(DType::bf16, 65535, 1)));       // below 128 KiB
  EXPECT_FALSE(is_coded(DType::bf16, trained_like(DType::bf16, 65536 + 17, 1)));  // no whole runs in the last block
  EXPECT_FALSE(is_coded(DType::f16, trained_like(DType::f16, 65536, 1)));
  Bytes noise(1 << 18);
  scatter_outliers(DType::bf16, noise, 1, true, 1);
  EXPECT_FALSE(is_coded(DType::bf16, noise));
  Scratch scratch;
  const auto planes =
      encode_test_chunk(codec::float_split_encoder(),
                        {.dtype = DType::f16, .data = trained_like(DType::f16, 65536, 1), .base = {}}, scratch);
  EXPECT_FALSE(*decode_on_device(DType::f16, *planes, 65536));
}

Bytes file_bytes(const std::filesystem::path& path) {
  Bytes bytes(std::filesystem::file_size(path));
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

TEST(GpuLaneDecoder, ReadsTheGoldenPayloads) {
  const auto folder = std::filesystem::path(BITSNAP_TESTS_DIR) / "golden" / "codec" / "float_split";
  std::size_t read = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const DType dtype = entry.path().filename().string().starts_with("BF16") ? DType::bf16 : DType::f32;
    if (entry.path().extension() != ".payload" || !entry.path().filename().string().starts_with(dtype_name(dtype))) {
      continue;
    }
    const Bytes elements = file_bytes(std::filesystem::path(entry.path()).replace_extension(".raw"));
    const Bytes payload = file_bytes(entry.path());
    if (payload[0] != std::byte{3} && payload[0] != std::byte{4}) continue;  // not in lanes
    const auto decoded = decode_on_device(dtype, payload, elements.size() / element_size(dtype));
    ASSERT_TRUE(decoded && *decoded) << entry.path();
    EXPECT_TRUE(**decoded == elements) << entry.path();
    ++read;
  }
  EXPECT_GE(read, 2U);
}

// Damage gives an error or other elements, as on the CPU, and no access outside of the payload (as sanitizers see).
TEST(GpuLaneDecoder, RefusesDamageThatTheCodecRefuses) {
  constexpr std::size_t kElements = 65536;
  Bytes elements = trained_like(DType::bf16, kElements, 3);
  scatter_outliers(DType::bf16, elements, 500, true, 3);
  Scratch scratch;
  const TestChunk chunk{.dtype = DType::bf16, .data = elements, .base = {}};
  const Bytes payload = *encode_test_chunk(codec::float_split_encoder(), chunk, scratch);
  TestRandom random(7);
  std::size_t refused = 0;
  for (int attempt = 0; attempt < 60; ++attempt) {
    Bytes damaged(payload);
    // Not in the lower bytes of the elements, most of the payload, where damage only changes elements.
    const std::size_t behind = 21 + kElements;
    const std::size_t at = attempt % 3 == 0 ? 1 + random.below(20) : behind + random.below(payload.size() - behind);
    damaged[at] ^= static_cast<std::byte>(1 + random.below(255));
    if (attempt % 5 == 4) damaged.resize(damaged.size() - 1 - random.below(600));
    const auto expected = decode_test_chunk(codec::float_split_decoder(), damaged, chunk, scratch);
    const auto found = *decode_on_device(DType::bf16, damaged, kElements);
    ASSERT_EQ(found.has_value(), expected.has_value()) << "byte " << at;
    if (found) {
      EXPECT_TRUE(*found == *expected);
    } else {
      const auto plan = plan_decoding(DType::bf16, kElements, damaged);
      EXPECT_EQ(plan ? ErrorKind::corrupt : plan.error().kind(), expected.error().kind());
      ++refused;
    }
  }
  EXPECT_GT(refused, 40U);
}

// Each want of memory is an error, and nothing that was allocated stays.
TEST(GpuCoder, FailsWithoutMemoryAndLeavesNone) {
  const Bytes elements = trained_like(DType::bf16, 65536, 9);
  const auto payload = encode_on_device(DType::bf16, elements);
  ASSERT_TRUE(payload && *payload);
  const auto expect_failures = [](auto&& code) {
    emulated::fail_at(0);
    ASSERT_TRUE(code());
    const std::size_t calls = emulated::fail_at(0);
    EXPECT_GT(calls, 5U);
    for (std::size_t call = 1; call <= calls; ++call) {
      SCOPED_TRACE(call);
      emulated::fail_at(call);
      const auto done = code();
      ASSERT_FALSE(done);
      EXPECT_EQ(done.error().kind(), ErrorKind::resource_exhausted);
      EXPECT_EQ(emulated::allocations(), 0U);
    }
    emulated::fail_at(0);
  };
  expect_failures([&] { return encode_on_device(DType::bf16, elements); });
  expect_failures([&] { return decode_on_device(DType::bf16, **payload, 65536); });
}

}  // namespace
}  // namespace bitsnap::gpu
