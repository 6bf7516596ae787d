// Tests of the planner's settings, the names of objectives, and the cost model.
#include "plan/planner_settings.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "codec/registry_encode.hpp"

namespace bitsnap::plan {
namespace {

// One value of each setting that is not its default, by the name of the setting.
const std::map<std::string_view, SettingValue> kValues = {
    {"policy", "bounded"}, {"objective", "speed"},          {"store_speed", std::uint64_t{5'000'000}},
    {"base", "keyframe"},  {"max_depth", std::uint64_t{3}}, {"loss", std::vector<std::string>{"master=exact"}},
    {"codec", "zstd"}};

TEST(Settings, AreSetReadAndMergedByTheTable) {
  CodingSettings all;
  for (const SettingField& field : setting_fields()) {
    CodingSettings one;
    ASSERT_TRUE(kValues.contains(field.name)) << field.name;
    const SettingValue& value = kValues.at(field.name);
    EXPECT_EQ(field.get(one), std::nullopt) << field.name;
    ASSERT_TRUE(set_setting(one, field.name, value)) << field.name;
    EXPECT_EQ(field.get(one), value) << field.name;
    EXPECT_NE(field.get(default_settings()), value) << field.name;
    EXPECT_TRUE(check_settings(one)) << field.name;
    EXPECT_EQ(merge_settings(CodingSettings(), one), one) << field.name;
    all = merge_settings(all, one);
  }
  EXPECT_EQ(merge_settings(all, default_settings()), all);
  for (const SettingField& field : setting_fields()) EXPECT_EQ(field.get(all), kValues.at(field.name)) << field.name;
}

TEST(Settings, RefuseValuesOfAnotherTypeAndNameTheField) {
  for (const SettingField& field : setting_fields()) {
    for (const SettingValue& wrong : {SettingValue("no such name"), SettingValue(std::uint64_t{1'000'001} << 21),
                                      SettingValue(std::vector<std::string>{"no such rule"})}) {
      CodingSettings settings;
      const Result<void> set = set_setting(settings, field.name, wrong);
      ASSERT_FALSE(set) << field.name;
      EXPECT_EQ(set.error().kind(), ErrorKind::invalid_argument);
      EXPECT_EQ(set.error().field(), field.name);
      EXPECT_EQ(settings, CodingSettings()) << field.name;
    }
  }
  CodingSettings settings;
  EXPECT_EQ(set_setting(settings, "maximum", "x").error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(check_settings({.max_depth = 33}).error().message(), "max_depth must be 0 to 32, got 33");
  EXPECT_EQ(check_settings({.max_depth = 33}).error().field(), "max_depth");
}

TEST(Settings, LeaveLossRulesOutThatBelongToAnotherPolicy) {
  const CodingSettings others{.policy = Policy::bounded, .loss = std::vector{*parse_loss_rule("master=exact")}};
  EXPECT_EQ(merge_settings({}, others).loss, others.loss);
  EXPECT_EQ(merge_settings({.policy = Policy::bounded}, others).loss, others.loss);
  EXPECT_EQ(merge_settings({.policy = Policy::lossless}, others).loss, std::nullopt);
}

TEST(PlannerSettings, TakesTheStoreSpeedFromTheObjectiveOrTheCaller) {
  EXPECT_EQ(make_planner_settings({})->model.store_bytes_per_second, 2'000'000'000U);
  EXPECT_EQ(make_planner_settings({.objective = Objective::speed})->model.store_bytes_per_second, 20'000'000'000U);
  EXPECT_EQ(
      make_planner_settings({.objective = Objective::speed, .store_speed = 5'000'000})->model.store_bytes_per_second,
      5'000'000U);
  for (const std::uint64_t store : {std::uint64_t{1}, kSlowestStore - 1, kFastestStore + 1, UINT64_MAX}) {
    const auto settings = make_planner_settings({.store_speed = store});
    ASSERT_FALSE(settings.has_value()) << store;
    EXPECT_EQ(settings.error().kind(), ErrorKind::invalid_argument);
  }
}

TEST(PlannerSettings, ListsTheCodecsIfTheNameIsUnknown) {
  const auto settings = make_planner_settings({.codec = "gzip"});
  ASSERT_FALSE(settings.has_value());
  EXPECT_EQ(settings.error().kind(), ErrorKind::invalid_argument);
  EXPECT_NE(settings.error().message().find("'gzip'"), std::string::npos);
  for (const codec::Encoder* encoder : codec::all_encoders()) {
    EXPECT_NE(settings.error().message().find(encoder->decoder().name()), std::string::npos);
    EXPECT_EQ(make_planner_settings({.codec = std::string(encoder->decoder().name())})->forced, encoder);
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
