// Tests of the planner: which codecs compete, which one wins for each objective, which choices are followed, and the
// reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "codec/trained_like_testing.hpp"
#include "plan/planner.hpp"

namespace bitsnap::plan {
namespace {

using Bytes = std::vector<std::byte>;

constexpr PlannerSettings kRatio{.objective = Objective::ratio};

std::string candidate_suffix(const Candidate& candidate) {
  if (candidate.inputs == CandidateInputs::none) return "";
  return candidate.uses_base() ? "+base" : "+peer";
}

std::vector<std::string> names(const StreamPlanner& planner) {
  std::vector<std::string> found;
  for (const Candidate& candidate : planner.candidates()) {
    found.push_back(std::string(candidate.encoder->decoder().name()) + candidate_suffix(candidate));
  }
  return found;
}

Bytes bf16_weights(std::size_t elements, unsigned seed) {
  Bytes bytes(elements * 2);
  codec::fill_trained_like(DType::bf16, bytes, seed);
  return bytes;
}

PlannerSettings settings_of(Objective objective, std::uint64_t store_bytes_per_second = 0,
                            std::optional<std::string> codec = {}) {
  return make_planner_settings(
             {.objective = objective, .store_speed = store_bytes_per_second, .codec = std::move(codec)})
      .value();
}

Surroundings on_base(ConstByteSpan base, std::uint32_t base_depth = 0) {
  return {.base = {codec::InputKind::base, DType::bf16, base}, .base_depth = base_depth};
}

Surroundings with_peer(ConstByteSpan base, ConstByteSpan masters) {
  Surroundings around = on_base(base);
  around.peer = {codec::InputKind::peer, DType::f32, masters};
  return around;
}

std::string chosen(const StreamPlanner& planner, ConstByteSpan data, ConstByteSpan base = {},
                   const codec::RowPlace& rows = {}) {
  Scratch scratch;
  Surroundings around = on_base(base);
  around.rows = rows;
  const Choice choice = planner.choose(data, around, scratch).value();
  if (choice.candidate.encoder == nullptr) return "raw";
  return std::string(choice.candidate.encoder->decoder().name()) + candidate_suffix(choice.candidate);
}

TEST(StreamPlanner, TakesCandidatesByPolicyDtypeAndBase) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(names({{.policy = Policy::raw}, {.dtype = DType::bf16, .role = Role::weight, .has_base = true}}), Names());
  EXPECT_EQ(names({{.policy = Policy::lmc}, {.dtype = DType::bf16, .role = Role::weight, .has_base = true}}),
            (Names{"byte_group+base", "byte_group"}));
  EXPECT_EQ(names({{.policy = Policy::lmc}, {.dtype = DType::f32, .role = Role::exp_avg}}), (Names{"byte_group"}));
  EXPECT_EQ(names({{.policy = Policy::bitsnap}, {.dtype = DType::bf16, .role = Role::weight, .has_base = true}}),
            (Names{"bitmask+base"}));
  EXPECT_EQ(names({{.policy = Policy::bitsnap}, {.dtype = DType::bf16, .role = Role::weight}}), Names());
  EXPECT_EQ(names({{.policy = Policy::bitsnap}, {.dtype = DType::f32, .role = Role::exp_avg, .has_base = true}}),
            Names());
  EXPECT_EQ(names({{}, {.dtype = DType::u8, .role = Role::other, .is_pool = true, .has_base = true}}), (Names{"zstd"}));
  EXPECT_EQ(names({kRatio, {.dtype = DType::u8, .role = Role::other, .is_pool = true, .has_base = true}}),
            (Names{"zstd", "byte_group+base", "bitmask+base", "byte_group"}));
  EXPECT_EQ(names({{}, {.dtype = DType::i64, .role = Role::other}}), (Names{"byte_group", "zstd"}));
  EXPECT_EQ(names({{}, {.dtype = DType::bf16, .role = Role::weight, .has_base = true}}),
            (Names{"float_split", "ordinal_delta+base", "byte_group+base", "bitmask+base", "byte_group", "zstd"}));
  EXPECT_EQ(names({{}, {.dtype = DType::f32, .role = Role::master}}), (Names{"float_split", "byte_group", "zstd"}));
  for (const Role role : {Role::exp_avg, Role::exp_avg_sq, Role::other}) {
    EXPECT_EQ(names({{}, {.dtype = DType::f32, .role = role}}),
              (Names{"float_split", "factored_split", "byte_group", "zstd"}));
  }
}

TEST(StreamPlanner, StoresClusteredElementsAsClusters) {
  using Names = std::vector<std::string>;
  const auto of_clusters = [](Policy policy, DType dtype, Role role) {
    return names(
        {{.policy = policy}, {.dtype = dtype, .role = role, .has_base = true, .quantization = Quantization::clusters}});
  };
  for (const Role role : {Role::exp_avg, Role::exp_avg_sq, Role::master}) {
    EXPECT_EQ(of_clusters(Policy::bitsnap, DType::f32, role), (Names{"clustered"}));
  }
  EXPECT_EQ(of_clusters(Policy::bitsnap, DType::f32, Role::other), (Names{"bitmask+base", "clustered"}));
  for (const Policy policy : {Policy::lossless, Policy::bounded}) {
    EXPECT_EQ(of_clusters(policy, DType::f32, Role::exp_avg),
              (Names{"clustered", "float_split", "factored_split", "ordinal_delta+base", "byte_group+base",
                     "bitmask+base", "byte_group", "zstd"}));
  }
  EXPECT_EQ(of_clusters(Policy::raw, DType::f32, Role::exp_avg), Names());
  EXPECT_EQ(of_clusters(Policy::bitsnap, DType::bf16, Role::exp_avg), Names());

  // The codec wins if the clusters are given.
  const codec::ClusterExtent clusters[] = {{-1, -0.1F}, {0.1F, 1}};
  std::mt19937 random(1);
  std::vector<float> numbers;
  for (std::size_t i = 0; i < kChunkElements; ++i) {
    const codec::ClusterExtent& cluster = clusters[random() % 2];
    const double scale = (static_cast<double>(cluster.greatest) - static_cast<double>(cluster.least)) / 255;
    const double offset = scale * static_cast<double>(random() % 255);
    numbers.push_back(static_cast<float>(static_cast<double>(cluster.least) + offset));
  }
  for (const Policy policy : {Policy::bitsnap, Policy::lossless}) {
    const StreamPlanner planner({.policy = policy, .objective = Objective::ratio},
                                {.dtype = DType::f32, .role = Role::exp_avg, .quantization = Quantization::clusters});
    Scratch scratch;
    Surroundings around;
    around.clusters = clusters;
    const Choice choice = planner.choose(std::as_bytes(std::span(numbers)), around, scratch).value();
    ASSERT_NE(choice.candidate.encoder, nullptr);
    EXPECT_EQ(choice.candidate.encoder->decoder().name(), "clustered");
  }
}

TEST(StreamPlanner, SkipsOtherCandidatesIfThePeerExplainsTheChunk) {
  const StreamPlanner planner({},
                              {.dtype = DType::bf16, .role = Role::weight, .has_base = true, .peer_dtype = DType::f32});
  EXPECT_EQ(names(planner).front(), "rounded_from+peer");
  const Bytes weights = bf16_weights(kChunkElements, 1);
  Bytes masters(2 * weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i) masters[2 * (i / 2 * 2) + 2 + i % 2] = weights[i];
  Scratch scratch;
  const Choice choice = planner.choose(weights, with_peer(weights, masters), scratch).value();
  ASSERT_EQ(choice.ranked.size(), 1U);
  EXPECT_EQ(choice.candidate.inputs, CandidateInputs::peer);
  EXPECT_LT(choice.estimates[0], 100U);
  // An unrelated peer loses.
  const Bytes zeros(masters.size());
  const Choice other = planner.choose(weights, with_peer(weights, zeros), scratch).value();
  EXPECT_NE(other.candidate.inputs, CandidateInputs::peer);
  EXPECT_EQ(
      names({{}, {.dtype = DType::bf16, .role = Role::weight, .has_base = true, .peer_dtype = DType::bf16}}).front(),
      "float_split")
      << "a peer that is no master";
}

TEST(StreamPlanner, WantsTheBaseOnlyIfACandidateUsesIt) {
  EXPECT_TRUE(
      StreamPlanner({}, {.dtype = DType::u8, .role = Role::other, .is_pool = true, .has_base = true}).wants_base());
  EXPECT_TRUE(StreamPlanner({.policy = Policy::lmc}, {.dtype = DType::f32, .role = Role::master, .has_base = true})
                  .wants_base());
  EXPECT_FALSE(StreamPlanner({.policy = Policy::lmc}, {.dtype = DType::f32, .role = Role::master}).wants_base());
  EXPECT_FALSE(StreamPlanner({.policy = Policy::raw}, {.dtype = DType::f32, .role = Role::master, .has_base = true})
                   .wants_base());
}

TEST(StreamPlanner, TakesTheSmallestEstimate) {
  const StreamPlanner floats(kRatio, {.dtype = DType::bf16, .role = Role::weight, .has_base = true});
  const Bytes weights = bf16_weights(kChunkElements, 1);
  EXPECT_EQ(chosen(floats, weights), "float_split");
  EXPECT_EQ(chosen(floats, weights, bf16_weights(kChunkElements, 2)), "float_split");
  Bytes near = weights;
  for (std::size_t i = 0; i < near.size(); i += 8) near[i] ^= std::byte{1};
  EXPECT_EQ(chosen(floats, near, weights), "byte_group+base");

  std::mt19937 random(3);
  Bytes noise(kChunkElements);
  for (auto& byte : noise) byte = static_cast<std::byte>(random());
  EXPECT_EQ(chosen({{}, {.dtype = DType::u8, .role = Role::other}}, noise), "raw");
  Bytes repeating(kChunkElements);
  for (std::size_t i = 0; i < repeating.size(); ++i) repeating[i] = static_cast<std::byte>((i * i) % 251);
  EXPECT_EQ(chosen({{}, {.dtype = DType::u8, .role = Role::other}}, repeating), "zstd");
}

TEST(StreamPlanner, EstimatesGeneralCodecsUnlessMantissasAreRandom) {
  const StreamPlanner planner(kRatio, {.dtype = DType::f32, .role = Role::master});
  const auto judged = [&](const Bytes& bytes) {
    Scratch scratch;
    const Choice choice = planner.choose(bytes, {}, scratch).value();
    std::vector<std::string> found;
    for (std::size_t i = 0; i < choice.estimates.size(); ++i) {
      if (choice.estimates[i] != UINT64_MAX) found.push_back(names(planner)[i]);
    }
    return found;
  };
  using Names = std::vector<std::string>;
  Bytes masters(4 * kChunkElements);
  codec::fill_trained_like(DType::f32, masters, 1);
  EXPECT_EQ(judged(masters), Names()) << "the one remaining codec is tried without an estimate";
  EXPECT_EQ(chosen(planner, masters), "float_split");
  // Each of the lower mantissa bytes may have a pattern that general codecs use.
  for (const std::size_t byte : {0U, 1U}) {
    Bytes coarse = masters;
    for (std::size_t i = byte; i < coarse.size(); i += 4) coarse[i] &= std::byte{0xf0};
    EXPECT_EQ(judged(coarse), (Names{"float_split", "byte_group", "zstd"})) << byte;
  }
}

// bf16 weights of which the signs of one in ten changed: ordinal_delta sees far distances.
struct FlippedSigns {
  Bytes base = bf16_weights(kChunkElements, 1);
  Bytes now = base;
  FlippedSigns() {
    std::mt19937 random(1);
    for (std::size_t i = 1; i < now.size(); i += 2) now[i] ^= random() % 10 == 0 ? std::byte{0x80} : std::byte{0};
  }
};

TEST(StreamPlanner, AsksGeneralCodecsOnTheBaseIfOnlyBytesCount) {
  const FlippedSigns flipped;
  const StreamTraits weights{.dtype = DType::bf16, .role = Role::weight, .has_base = true};
  EXPECT_EQ(chosen({kRatio, weights}, flipped.now, flipped.base), "byte_group+base");
  Scratch scratch;
  const StreamPlanner balanced(settings_of(Objective::balanced), weights);
  const Choice choice = balanced.choose(flipped.now, on_base(flipped.base), scratch).value();
  EXPECT_TRUE(choice.skips_general_codecs);
  EXPECT_EQ(choice.estimates[2], kNoEstimate) << names(balanced)[2];
}

TEST(StreamPlanner, DoesNotFollowIfOtherBytesAreTheSameAsInTheBase) {
  const Bytes before = bf16_weights(kChunkElements, 2);
  const Bytes unrelated = bf16_weights(kChunkElements, 3);
  const FlippedSigns flipped;
  const StreamPlanner planner(kRatio, {.dtype = DType::bf16, .role = Role::weight, .has_base = true});
  Scratch scratch;
  const Choice precedent = planner.choose(before, on_base(unrelated), scratch).value();
  EXPECT_FALSE(precedent.candidate.uses_base());
  EXPECT_TRUE(planner.follow(precedent, unrelated, on_base(before)).has_value());
  EXPECT_FALSE(planner.follow(precedent, flipped.now, on_base(flipped.base)).has_value());
}

TEST(StreamPlanner, LooksAgainAtAPayloadThatIsLargerThanExpectedIfOnlyBytesCount) {
  const StreamTraits weights{.dtype = DType::bf16, .role = Role::weight, .has_base = true};
  const Choice choice{.candidate = {}, .expected_bytes = 100'000, .raw_bytes = 500'000, .contenders = {0, 1}};
  EXPECT_TRUE(StreamPlanner(kRatio, weights).is_misjudged(choice, 108'000));
  EXPECT_FALSE(StreamPlanner(kRatio, weights).is_misjudged(choice, 105'000));
  EXPECT_FALSE(StreamPlanner({}, weights).is_misjudged(choice, 108'000));
  EXPECT_FALSE(StreamPlanner({.policy = Policy::lmc}, weights).is_misjudged(choice, 108'000));
}

TEST(StreamPlanner, FindsScalesOfRowsAndColumnsInWholeChunks) {
  constexpr std::size_t kRow = 4096;
  const auto moments = [](double row_octaves, double column_octaves) {
    codec::TestRandom random(5);
    std::vector<double> columns(kRow);
    for (double& column : columns) column = column_octaves * random.normal();
    Bytes bytes(4 * kChunkElements);
    double row = 0;
    for (std::size_t i = 0; i < kChunkElements; ++i) {
      if (i % kRow == 0) row = row_octaves * random.normal();
      const std::uint64_t bits = codec::element_bits(
          DType::f32, 1e-6 * std::exp2(row + columns[i % kRow]) * (0.01 + std::abs(random.normal())));
      std::memcpy(bytes.data() + 4 * i, &bits, 4);
    }
    return bytes;
  };
  const StreamPlanner planner(kRatio, {.dtype = DType::f32, .role = Role::exp_avg_sq});
  EXPECT_EQ(chosen(planner, moments(0, 2), {}, {.row_elements = kRow, .first_column = 0}), "factored_split");
  const auto estimate = [&](const Bytes& bytes, const codec::RowPlace& rows) {
    Scratch scratch;
    return planner.choose(bytes, {.rows = rows}, scratch).value().estimates[1];
  };
  const Bytes by_column = moments(0, 2);
  const std::uint64_t known = estimate(by_column, {.row_elements = kRow, .first_column = 0});
  EXPECT_LT(known + kChunkElements / 16, estimate(by_column, {.row_elements = kRow - 1, .first_column = 0}))
      << "half a bit of each element";
}

TEST(StreamPlanner, RanksAllCandidatesThatBeatRaw) {
  const StreamPlanner floats(kRatio, {.dtype = DType::bf16, .role = Role::weight, .has_base = true});
  const Bytes weights = bf16_weights(kChunkElements, 1);
  Scratch scratch;
  const Bytes base = bf16_weights(kChunkElements, 2);
  const Choice choice = floats.choose(weights, on_base(base), scratch).value();
  ASSERT_GE(choice.ranked.size(), 2U);
  EXPECT_EQ(choice.ranked[0].encoder, choice.candidate.encoder);
  // A candidate with a base has to be smaller by more than the error of estimates.
  const auto size_of = [&](std::size_t i) {
    const std::uint64_t size = choice.estimates[i];
    return floats.candidates()[i].uses_base() ? size + size / 256 : size;
  };
  std::vector<std::uint64_t> sizes;
  for (std::size_t i = 0; i < floats.candidates().size(); ++i) {
    if (choice.estimates[i] < weights.size()) sizes.push_back(size_of(i));
  }
  std::ranges::sort(sizes);
  ASSERT_EQ(sizes.size(), choice.ranked.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto& candidates = floats.candidates();
    const auto same = [&](const Candidate& one) { return one == choice.ranked[i]; };
    const auto at = static_cast<std::size_t>(std::ranges::find_if(candidates, same) - candidates.begin());
    EXPECT_EQ(size_of(at), sizes[i]);
  }
}

TEST(StreamPlanner, ChoosesForSmallChunks) {
  for (const std::size_t elements : {1U, 2U, 7U, 1000U, 32'768U, 32'769U}) {
    const Bytes weights = bf16_weights(elements, 4);
    const StreamPlanner planner({}, {.dtype = DType::bf16, .role = Role::weight});
    Scratch scratch;
    EXPECT_TRUE(planner.choose(weights, {}, scratch).has_value()) << elements;
  }
}

TEST(StreamPlanner, GivesItsReason) {
  StreamPlanner planner({.policy = Policy::lmc}, {.dtype = DType::bf16, .role = Role::weight});
  const Choice choice{.candidate = planner.candidates()[0] /* byte_group */, .estimates = {150'000}};
  planner.note(choice, "byte_group", 200'000);
  planner.note(choice, "byte_group", 200'000);
  planner.note(Choice{}, "constant", 200'000);
  EXPECT_EQ(planner.reason(), "byte_group 2/3, constant 1/3; ratio: byte_group 300.0 kB, raw 400.0 kB");
  StreamPlanner raw({.policy = Policy::raw}, {.dtype = DType::bf16, .role = Role::weight});
  raw.note(Choice{}, "raw", 100);
  EXPECT_EQ(raw.reason(), "raw 1/1; the policy has nothing else for it");

  StreamPlanner timed({}, {.dtype = DType::f32, .role = Role::exp_avg});
  ASSERT_EQ(names(timed).size(), 4U);
  const std::vector<std::uint64_t> estimates{800'000, 790'000, kNoEstimate, kNoEstimate};
  const std::vector<std::uint64_t> times{420'000'000, 440'000'000, kNoEstimate, kNoEstimate};
  timed.note({.candidate = timed.candidates()[0], .estimates = estimates, .times = times, .raw_ps = 550'000'000},
             "float_split", 1'000'000);
  EXPECT_EQ(timed.reason(),
            "float_split 1/1; balanced: float_split 800.0 kB in 420.0 us, factored_split 790.0 kB in 440.0 us, raw "
            "1000.0 kB in 550.0 us");

  StreamPlanner clear({}, {.dtype = DType::f32, .role = Role::master});
  clear.note({.candidate = clear.candidates()[0], .estimates = {kNoEstimate, kNoEstimate, kNoEstimate}}, "float_split",
             1'000'000);
  EXPECT_EQ(clear.reason(), "float_split 1/1; balanced: nothing else comes near");
}

// A chunk in which one element of `one_in` changed since the base.
struct Moved {
  explicit Moved(std::size_t one_in) : now(bf16_weights(kChunkElements, 1)), base(now) {
    for (std::size_t i = 0; i < now.size(); i += 2 * one_in) base[i] ^= std::byte{1};
  }
  Bytes now;
  Bytes base;
};

TEST(StreamPlanner, MinimizesModelledTimeUnderTimeObjectives) {
  const Moved moved(2);
  const auto with = [&](Objective objective, std::uint64_t store) {
    return chosen({settings_of(objective, store), {.dtype = DType::bf16, .role = Role::weight, .has_base = true}},
                  moved.now, moved.base);
  };
  EXPECT_EQ(with(Objective::ratio, 0), "byte_group+base");
  EXPECT_EQ(with(Objective::balanced, 1'000'000), "byte_group+base") << "the slowest store: only bytes count";
  EXPECT_EQ(with(Objective::balanced, 0), "ordinal_delta+base");
  EXPECT_EQ(with(Objective::speed, 25'000'000'000), "float_split");
  EXPECT_EQ(with(Objective::speed, kFastestStore), "raw");
  EXPECT_EQ(with(Objective::ratio, kFastestStore), "byte_group+base") << "the ratio does not depend on the store";
}

TEST(StreamPlanner, AvoidsDeepBasesThatTakeLongToDecode) {
  const Moved moved(2);
  const StreamPlanner planner(settings_of(Objective::balanced),
                              {.dtype = DType::bf16, .role = Role::weight, .has_base = true});
  const auto at_depth = [&](std::uint32_t depth) {
    Scratch scratch;
    return planner.choose(moved.now, on_base(moved.base, depth), scratch).value().candidate.uses_base();
  };
  EXPECT_TRUE(at_depth(0));
  EXPECT_FALSE(at_depth(120));
}

TEST(StreamPlanner, SkipsCandidatesWhoseCodingAloneTakesTooLong) {
  std::mt19937 random(3);
  Bytes bytes(kChunkElements);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random() & 3U);
  const auto estimates = [&](Objective objective) {
    const StreamPlanner planner(settings_of(objective), {.dtype = DType::u8, .role = Role::other});
    Scratch scratch;
    return planner.choose(bytes, {}, scratch).value().estimates;
  };
  const auto asked = [](std::uint64_t estimate) { return estimate != kNoEstimate; };
  EXPECT_EQ(std::ranges::count_if(estimates(Objective::ratio), asked), 2);
  EXPECT_EQ(estimates(Objective::speed)[1], kNoEstimate) << "zstd";
}

TEST(StreamPlanner, UsesOnlyTheForcedCodec) {
  const Moved moved(64);
  const auto forced = [&](std::string_view codec, Policy policy, DType dtype, bool has_base) {
    PlannerSettings settings = settings_of(Objective::balanced, 0, std::string(codec));
    settings.policy = policy;
    return StreamPlanner(settings, {.dtype = dtype, .role = Role::weight, .has_base = has_base});
  };
  EXPECT_EQ(chosen(forced("zstd", Policy::lossless, DType::bf16, true), moved.now, moved.base), "zstd");
  EXPECT_EQ(chosen(forced("ordinal_delta", Policy::raw, DType::bf16, true), moved.now, moved.base),
            "ordinal_delta+base");
  EXPECT_EQ(chosen(forced("ordinal_delta", Policy::lossless, DType::bf16, true), moved.now), "raw") << "no base";
  EXPECT_EQ(chosen(forced("byte_group", Policy::lossless, DType::bf16, true), moved.now, moved.base),
            "byte_group+base");
  EXPECT_EQ(chosen(forced("byte_group", Policy::lossless, DType::bf16, false), moved.now), "byte_group");
  StreamPlanner floats = forced("float_split", Policy::lossless, DType::u8, true);
  EXPECT_TRUE(floats.candidates().empty());
  EXPECT_FALSE(floats.detects_trivial());
  floats.note({}, "raw", 10);
  EXPECT_EQ(floats.reason(), "raw 1/1; float_split is forced");
  EXPECT_TRUE(codes_with_peers(settings_of(Objective::ratio, 0, "rounded_from")));
  EXPECT_FALSE(codes_with_peers(settings_of(Objective::ratio, 0, "zstd")));
}

Choice choose(const StreamPlanner& planner, ConstByteSpan data, ConstByteSpan base = {}) {
  Scratch scratch;
  return planner.choose(data, on_base(base), scratch).value();
}

TEST(StreamPlanner, FollowsTheChoiceOfASimilarChunk) {
  StreamPlanner planner(kRatio, {.dtype = DType::f32, .role = Role::exp_avg, .has_base = true});
  const auto moments = [](std::size_t elements, unsigned seed) {
    Bytes bytes(elements * 4);
    codec::fill_trained_like(DType::f32, bytes, seed);
    return bytes;
  };
  const Bytes first = moments(kChunkElements, 1);
  const Choice precedent = choose(planner, first);
  ASSERT_TRUE(StreamPlanner::is_precedent(precedent));
  const Bytes alike = moments(kChunkElements / 2, 2);
  const auto followed = planner.follow(precedent, alike, {});
  ASSERT_TRUE(followed.has_value());
  EXPECT_EQ(followed->candidate.encoder, precedent.candidate.encoder);
  EXPECT_EQ(followed->ranked.size(), 1U);
  EXPECT_EQ(followed->expected_bytes, precedent.expected_bytes / 2);
  EXPECT_FALSE(StreamPlanner::is_precedent(*followed));
  EXPECT_TRUE(StreamPlanner::is_as_expected(*followed, precedent.expected_bytes / 2 * 105 / 100));
  EXPECT_FALSE(StreamPlanner::is_as_expected(*followed, precedent.expected_bytes / 2 * 108 / 100));
  EXPECT_FALSE(StreamPlanner::is_as_expected(*followed, precedent.expected_bytes / 2 * 92 / 100));
  planner.note(precedent, "float_split", first.size());
  planner.note(*followed, "float_split", alike.size());
  EXPECT_TRUE(planner.reason().starts_with("float_split 2/2; ratio: ")) << planner.reason();
  StreamPlanner other(kRatio, {.dtype = DType::f32, .role = Role::exp_avg, .has_base = true});
  other.note(*followed, "float_split", alike.size(), "the other");
  EXPECT_EQ(other.reason(), "float_split 1/1, as the other");

  EXPECT_FALSE(planner.follow(precedent, first, {.base = {codec::InputKind::base, DType::f32, first}}).has_value())
      << "it has a base, too";
  EXPECT_FALSE(planner.follow(precedent, moments(1000, 3), {}).has_value()) << "it is too small for a sample";
  Bytes rounded = first;
  for (std::size_t i = 0; i < rounded.size(); i += 4) rounded[i] = std::byte{0};
  EXPECT_FALSE(planner.follow(precedent, rounded, {}).has_value()) << "its mantissas are not random";
}

TEST(StreamPlanner, ExpectsAnySmallPayloadOfAnOptimizerStep) {
  const Choice followed{
      .candidate = {.inputs = CandidateInputs::optimizer_step}, .expected_bytes = 2'000, .raw_bytes = 1'000'000};
  EXPECT_TRUE(StreamPlanner::is_as_expected(followed, 100));
  EXPECT_TRUE(StreamPlanner::is_as_expected(followed, 100'000));
  EXPECT_FALSE(StreamPlanner::is_as_expected(followed, 200'000));
}

TEST(StreamPlanner, DoesNotFollowIfTheBaseIsDeeper) {
  const Moved moved(2);
  const StreamPlanner planner(settings_of(Objective::balanced),
                              {.dtype = DType::bf16, .role = Role::weight, .has_base = true});
  const Choice precedent = choose(planner, moved.now, moved.base);
  ASSERT_TRUE(StreamPlanner::is_precedent(precedent));
  EXPECT_TRUE(planner.follow(precedent, moved.now, on_base(moved.base)).has_value());
  EXPECT_FALSE(planner.follow(precedent, moved.now, on_base(moved.base, 3)).has_value());
}

TEST(StreamPlanner, IgnoresTheObjectiveUnderThePapersPolicies) {
  const Bytes weights = bf16_weights(kChunkElements, 1);
  const PlannerSettings speed{
      .policy = Policy::lmc, .objective = Objective::speed, .model = {.store_bytes_per_second = kFastestStore}};
  EXPECT_EQ(chosen({speed, {.dtype = DType::bf16, .role = Role::weight}}, weights), "byte_group");
}

}  // namespace
}  // namespace bitsnap::plan
