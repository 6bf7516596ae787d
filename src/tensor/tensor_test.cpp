// Tests of dtypes, shapes, roles and the ordinal mapping.
#include <gtest/gtest.h>

#include <cstdint>

#include <bitsnap/tensor.hpp>

#include "tensor/ordinal.hpp"
#include "tensor/row_elements.hpp"

namespace bitsnap {
namespace {

TEST(DTypeNames, RoundTripAndUnknownNamesAreOpaque) {
  for (int i = 1; i <= static_cast<int>(DType::c64); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
  }
  EXPECT_EQ(dtype_from_name("F4"), DType::opaque);
  EXPECT_EQ(dtype_from_name("opaque"), DType::opaque);
  EXPECT_EQ(dtype_from_name("bf16"), DType::opaque);
}

TEST(ShapeSize, CountsBytesAndReportsOverflow) {
  EXPECT_EQ(shape_size_bytes(DType::f32, {}).value(), 4U);
  EXPECT_EQ(shape_size_bytes(DType::bf16, {3, 5}).value(), 30U);
  EXPECT_EQ(shape_size_bytes(DType::f64, {UINT64_MAX, UINT64_MAX, 0}).value(), 0U);
  EXPECT_EQ(shape_size_bytes(DType::u8, {std::uint64_t{1} << 62}).value(), std::uint64_t{1} << 62);
  EXPECT_EQ(shape_size_bytes(DType::u8, {std::uint64_t{1} << 63}).error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(shape_size_bytes(DType::u16, {std::uint64_t{1} << 40, std::uint64_t{1} << 40}).error().kind(),
            ErrorKind::invalid_argument);
}

TEST(RowElements, IsTheShortestSufficientProductOfTrailingExtents) {
  using Shape = std::vector<std::uint64_t>;
  EXPECT_EQ(tensor::row_elements(Shape{1000, 320}), 320U);
  EXPECT_EQ(tensor::row_elements(Shape{8, 1000, 64}), 64U) << "experts";
  EXPECT_EQ(tensor::row_elements(Shape{512, 256, 3, 3}), 256U * 9) << "convolution";
  EXPECT_EQ(tensor::row_elements(Shape{4096, 63}), 0U);
  EXPECT_EQ(tensor::row_elements(Shape{5, 4096, 16}), 4096U * 16);
  EXPECT_EQ(tensor::row_elements(Shape{100'000}), 0U) << "one extent only";
  EXPECT_EQ(tensor::row_elements(Shape{}), 0U);
  EXPECT_EQ(tensor::row_elements(Shape{2, kChunkElements}), kChunkElements);
  EXPECT_EQ(tensor::row_elements(Shape{2, kChunkElements + 1}), 0U);
  EXPECT_EQ(tensor::row_elements(Shape{2, UINT64_MAX, 63}), 0U);
  EXPECT_EQ(tensor::row_elements(Shape{2, 0, 63}), 0U);
}

TEST(GuessRole, RecognizesTheNamesOfFrameworks) {
  EXPECT_EQ(guess_role("optimizer.state.0.exp_avg", DType::f32), Role::exp_avg);
  EXPECT_EQ(guess_role("optimizer.state.0.exp_avg_sq", DType::f32), Role::exp_avg_sq);
  EXPECT_EQ(guess_role("optimizer.state.0.step", DType::f32), Role::other);
  EXPECT_EQ(guess_role("master.model.wte", DType::f32), Role::master);
  EXPECT_EQ(guess_role("optimizer.fp32_from_fp16_params.0", DType::f32), Role::master);
  EXPECT_EQ(guess_role("model.layers.0.mlp.up_proj.weight", DType::bf16), Role::weight);
  EXPECT_EQ(guess_role("masterpiece", DType::bf16), Role::weight);
  EXPECT_EQ(guess_role("exp_avg", DType::i64), Role::other);
  EXPECT_EQ(guess_role("optimizer.state.exp_avg.decoder.w", DType::f32), Role::exp_avg);
  EXPECT_EQ(guess_role("chained_0.optimizer.state.exp_avg_sq/decoder/w", DType::bf16), Role::exp_avg_sq);
  EXPECT_EQ(guess_role("state.0.max_exp_avg_sq", DType::f32), Role::exp_avg_sq);
  EXPECT_EQ(guess_role("__0_0.distcp/optimizer.bucket_idx_0.exp_avg_sq[0,64]", DType::f32), Role::exp_avg_sq);
  EXPECT_EQ(guess_role("__0_0.distcp/fp32_param[8]", DType::f32), Role::master);
  for (const std::string_view name :
       {"optimizer.state.fp32_param.decoder.w", "optimizer.shard_fp32_from_float16_groups.0.1", "master_weights/0",
        "optimizer.single_partition_of_fp32_groups.0", "fp32_flat_groups.3", "optimizer.fp32_partitioned_groups.0",
        "optimizer.main_params.w", "masters.w"}) {
    EXPECT_EQ(guess_role(name, DType::f32), Role::master) << name;
  }
  EXPECT_EQ(guess_role("lr_scheduler.base", DType::f32), Role::other);
  EXPECT_EQ(guess_role("cuda_rng_state.0", DType::f32), Role::other);
}

// A wrong guess could make a tensor lose bits.
TEST(GuessRole, ComparesWholePartsOfNames) {
  for (const std::string_view name :
       {"webmaster.layers.0.weight", "blocks.0.master_token", "model.main_param_proj.weight", "model.spymaster.w",
        "encoder.exp_avg_pool.weight", "model.exp_average.weight", "model.fp32_from_audio.weight", "exp_avg_square.w",
        "model.stringer.weight", "model.optimized.weight", "a.optimizers.w"}) {
    EXPECT_EQ(guess_role(name, DType::f32), Role::weight) << name;
  }
}

TEST(Roles, RoundTripThroughTheirNames) {
  for (const Role role : {Role::other, Role::weight, Role::master, Role::exp_avg, Role::exp_avg_sq}) {
    EXPECT_EQ(role_from_name(role_name(role)), role);
  }
  EXPECT_EQ(role_from_name("bias"), std::nullopt);
}

template <typename T>
void expect_bijection(tensor::OrdinalKind kind) {
  const std::uint64_t count = std::uint64_t{1} << std::numeric_limits<T>::digits;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto bits = static_cast<T>(i);
    ASSERT_EQ(tensor::from_ordinal(tensor::to_ordinal(bits, kind), kind), bits);
  }
}

TEST(Ordinal, IsABijectionOnAllBitPatterns) {
  for (const auto kind :
       {tensor::OrdinalKind::unsigned_integer, tensor::OrdinalKind::signed_integer, tensor::OrdinalKind::floating}) {
    expect_bijection<std::uint8_t>(kind);
    expect_bijection<std::uint16_t>(kind);
  }
}

TEST(Ordinal, OrdersFloatsAndCountsUlps) {
  constexpr auto kFloat = tensor::OrdinalKind::floating;
  const auto ordinal = [](std::uint16_t bits) { return tensor::to_ordinal(bits, kFloat); };
  // bf16: -2 < -1 < -0 < +0 < smallest subnormal < 1 < infinity < NaN
  EXPECT_LT(ordinal(0xC000), ordinal(0xBF80));
  EXPECT_LT(ordinal(0xBF80), ordinal(0x8000));
  EXPECT_EQ(ordinal(0x8000) + 1, ordinal(0x0000));
  EXPECT_EQ(ordinal(0x0000) + 1, ordinal(0x0001));
  EXPECT_LT(ordinal(0x3F80), ordinal(0x7F80));
  EXPECT_LT(ordinal(0x7F80), ordinal(0x7FC1));
  // A carry into the exponent is one ULP.
  EXPECT_EQ(tensor::ordinal_distance<std::uint16_t>(0x3FFF, 0x4000, kFloat), 1);
  EXPECT_EQ(tensor::ordinal_distance<std::uint16_t>(0x8001, 0x0001, kFloat), 3);
  EXPECT_EQ(tensor::ordinal_distance<std::uint8_t>(0xFF, 0x01, tensor::OrdinalKind::signed_integer), 2);
}

}  // namespace
}  // namespace bitsnap
