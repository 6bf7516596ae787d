#include <bitsnap/writer.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace bitsnap {
namespace {

template <typename Data>
concept IsAccepted = requires(Data&& data) { TensorSource::of("", DType::u8, {}, std::forward<Data>(data)); };
static_assert(IsAccepted<const std::vector<float>&>);
static_assert(IsAccepted<std::span<const std::byte>>);
static_assert(!IsAccepted<std::vector<float>>, "memory that does not outlive the call");
static_assert(!IsAccepted<const std::vector<std::string>&>, "elements that are not bytes");

TEST(TensorSource, DescribesTypedMemory) {
  const std::vector<float> values(600);
  const auto source = TensorSource::of("model.layer.weight", DType::f32, {20, 30}, values);
  ASSERT_TRUE(source.has_value()) << source.error().message();
  EXPECT_EQ(source->info.name, "model.layer.weight");
  EXPECT_EQ(source->info.dtype, DType::f32);
  EXPECT_EQ(source->info.dtype_name, "F32");
  EXPECT_EQ(source->info.shape, (std::vector<std::uint64_t>{20, 30}));
  EXPECT_EQ(source->info.size_bytes, 2400U);
  EXPECT_EQ(source->info.role, guess_role("model.layer.weight", DType::f32));
  EXPECT_EQ(source->data, reinterpret_cast<const std::byte*>(values.data()));
}

TEST(TensorSource, DescribesScalarsEmptyTensorsAndOpaqueBytes) {
  const std::array<std::byte, 8> bytes{};
  EXPECT_EQ(TensorSource::of("step", DType::i64, {}, bytes)->info.size_bytes, 8U);
  EXPECT_EQ(TensorSource::of("none", DType::f32, {0, 7}, std::span<const std::byte>())->info.size_bytes, 0U);
  const auto opaque = TensorSource::of("packed", DType::opaque, {16}, bytes);
  ASSERT_TRUE(opaque.has_value());
  EXPECT_EQ(opaque->info.size_bytes, 8U);
}

TEST(TensorSource, RejectsMemoryThatDoesNotFitDtypeAndShape) {
  const std::vector<float> values(599);
  const auto source = TensorSource::of("w", DType::f32, {20, 30}, values);
  ASSERT_FALSE(source.has_value());
  EXPECT_EQ(source.error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(source.error().message(), "tensor 'w': F32 of shape [20, 30] needs 2400 bytes, found 2396");
}

TEST(TensorSource, RejectsAShapeThatOverflows) {
  const auto source = TensorSource::of("w", DType::f32, {~std::uint64_t{0}, 2}, std::span<const std::byte>());
  ASSERT_FALSE(source.has_value());
  EXPECT_EQ(source.error().kind(), ErrorKind::invalid_argument);
  EXPECT_TRUE(source.error().message().starts_with("tensor 'w': shape ")) << source.error().message();
}

}  // namespace
}  // namespace bitsnap
