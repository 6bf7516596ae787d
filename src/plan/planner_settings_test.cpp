// Tests of the planner's settings, the names of objectives, and the cost model.
#include "plan/planner_settings.hpp"

#include <gtest/gtest.h>

#include "codec/registry_encode.hpp"

namespace bitsnap::plan {
namespace {

TEST(PlannerSettings, NamesObjectives) {
  for (const Objective objective : {Objective::ratio, Objective::balanced, Objective::speed}) {
    EXPECT_EQ(objective_from_name(objective_name(objective)), objective);
  }
  EXPECT_FALSE(objective_from_name("best"));
}

TEST(PlannerSettings, TakesTheStoreSpeedFromTheObjectiveOrTheCaller) {
  EXPECT_EQ(make_planner_settings(Policy::lossless, Objective::balanced, 0, "")->model.store_bytes_per_second,
            2'000'000'000U);
  EXPECT_EQ(make_planner_settings(Policy::lossless, Objective::speed, 0, "")->model.store_bytes_per_second,
            20'000'000'000U);
  EXPECT_EQ(make_planner_settings(Policy::lossless, Objective::speed, 5'000'000, "")->model.store_bytes_per_second,
            5'000'000U);
  for (const std::uint64_t store : {std::uint64_t{1}, kSlowestStore - 1, kFastestStore + 1, UINT64_MAX}) {
    const auto settings = make_planner_settings(Policy::lossless, Objective::balanced, store, "");
    ASSERT_FALSE(settings.has_value()) << store;
    EXPECT_EQ(settings.error().kind(), ErrorKind::invalid_argument);
  }
}

TEST(PlannerSettings, ListsTheCodecsIfTheNameIsUnknown) {
  const auto settings = make_planner_settings(Policy::lossless, Objective::balanced, 0, "gzip");
  ASSERT_FALSE(settings.has_value());
  EXPECT_EQ(settings.error().kind(), ErrorKind::invalid_argument);
  EXPECT_NE(settings.error().message().find("'gzip'"), std::string::npos);
  for (const codec::Encoder* encoder : codec::all_encoders()) {
    EXPECT_NE(settings.error().message().find(encoder->decoder().name()), std::string::npos);
    EXPECT_EQ(make_planner_settings(Policy::lossless, Objective::balanced, 0, encoder->decoder().name())->forced,
              encoder);
  }
}

TEST(CostModel, AddsEncodingWritingAndRestoring) {
  const CostModel model{.store_bytes_per_second = 1'000'000'000, .encoders = 4, .restore_permille = 500};
  // 1000 bytes: encoding takes 100 ns on 4 threads, writing 600 bytes 600 ns, decoding twice 50 ns; restores count
  // half.
  const CodedChunk chunk{
      .raw_bytes = 1000, .payload_bytes = 600, .speed = {.encode_ps = 100, .decode_ps = 50}, .decodes = 2};
  EXPECT_EQ(modelled_ps(model, chunk), 25'000U + 600'000U + (600'000U + 25'000U) / 2);
}

TEST(CostModel, DoesNotOverflowForTheLargestChunkAndSlowestStore) {
  const CodedChunk chunk{.raw_bytes = std::uint64_t{16} << 18,
                         .payload_bytes = std::uint64_t{16} << 18,
                         .speed = {.encode_ps = 1000, .decode_ps = 1000},
                         .decodes = 255};
  for (const std::uint64_t store : {kSlowestStore, kFastestStore}) {
    const CostModel model{.store_bytes_per_second = store, .encoders = 1, .restore_permille = 1000};
    const double exact = 4194304.0 * (1000 + 255'000 + 2e12 / static_cast<double>(store));
    EXPECT_NEAR(static_cast<double>(modelled_ps(model, chunk)), exact, 10.0);
  }
}

TEST(CostModel, HasAReferenceSpeedForEveryUseOfACodec) {
  const CodingSpeed slowest = reference_speed(static_cast<codec::CodecId>(999), DType::f32, false);
  for (const codec::Encoder* encoder : codec::all_encoders()) {
    for (const DType dtype : {DType::bf16, DType::f16, DType::f32, DType::f64, DType::u8, DType::i64}) {
      for (const bool on_base : {false, true}) {
        const codec::Input base{codec::InputKind::base, dtype, {}};
        if (!encoder->decoder().accepts(dtype, {&base, on_base ? 1U : 0U})) continue;
        const CodingSpeed speed = reference_speed(encoder->decoder().id(), dtype, on_base);
        EXPECT_FALSE(speed.encode_ps == slowest.encode_ps && speed.decode_ps == slowest.decode_ps)
            << encoder->decoder().name() << (on_base ? " on base" : "");
      }
    }
  }
}

}  // namespace
}  // namespace bitsnap::plan
