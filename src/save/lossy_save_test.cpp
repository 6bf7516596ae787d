// Bounded loss: the stored values keep their bounds and are as coarse as these allow, the file reports the errors, and
// saving again loses nothing more.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "codec/optimizer_step/trained_step_testing.hpp"
#include "codec/rounded_from/rounded_from.hpp"
#include "save/state_testing.hpp"

namespace bitsnap::save {
namespace {

constexpr std::size_t kParameterElements = kChunkElements + 1000;
constexpr AdamNumbers kAdam{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .step = 100};

std::vector<float> floats(const Bytes& bytes) {
  std::vector<float> numbers(bytes.size() / sizeof(float));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

// A parameter with weight, master and moments. Owns the bytes of its states.
struct Parameter {
  explicit Parameter(std::uint64_t seed = 1) : trained(codec::trained_state(kParameterElements, seed)) { write(); }
  void step() {
    codec::take_step(trained, {}, 77);
    write();
  }
  void write() {
    master = codec::trained_bytes(trained.x);
    exp_avg = codec::trained_bytes(trained.m);
    exp_avg_sq = codec::trained_bytes(trained.v);
    weight = rounded(master);
  }
  [[nodiscard]] State state() const {
    State made;
    made.tensors.push_back(source("model.w", DType::bf16, {kParameterElements}, weight));
    made.tensors.push_back(source("master.w", DType::f32, {kParameterElements}, master));
    made.tensors.push_back(source("exp_avg.w", DType::f32, {kParameterElements}, exp_avg));
    made.tensors.push_back(source("exp_avg_sq.w", DType::f32, {kParameterElements}, exp_avg_sq));
    return made;
  }

  codec::TrainedState trained;
  Bytes weight, master, exp_avg, exp_avg_sq;
};

SaveOptions bounded() {
  SaveOptions options{.settings = {.policy = Policy::bounded}};
  options.adam = kAdam;
  return options;
}

std::size_t stream_of(const Snapshot& snapshot, std::string_view name) {
  return *snapshot.stream_of(*snapshot.find(name));
}

const LossReport& lost_of(const Snapshot& snapshot, std::string_view name) {
  return snapshot.quantizer(stream_of(snapshot, name)).value();
}

double wide(float number) { return static_cast<double>(number); }

double update_of(float m, float v) {
  const double c1 = 1 - std::pow(kAdam.beta1, static_cast<double>(kAdam.step));
  const double c2 = 1 - std::pow(kAdam.beta2, static_cast<double>(kAdam.step));
  return static_cast<double>(m) / c1 / (std::sqrt(static_cast<double>(v) / c2) + kAdam.eps);
}

TEST(LossySave, KeepsAndReportsItsBounds) {
  const Parameter parameter;
  Chain chain;
  const Snapshot& snapshot = chain.save(parameter.state(), bounded());
  EXPECT_TRUE(snapshot.verify().value().empty());

  EXPECT_EQ(read_tensor(snapshot, "model.w"), parameter.weight);
  EXPECT_FALSE(snapshot.quantizer(stream_of(snapshot, "model.w")).has_value());
  const Bytes stored_master = read_tensor(snapshot, "master.w");
  EXPECT_EQ(rounded(stored_master), parameter.weight) << "masters still round to their weights";
  EXPECT_EQ(codecs_of(snapshot, "model.w"), std::set<std::string>{"rounded_from"});
  EXPECT_EQ(codecs_of(snapshot, "exp_avg.w"), std::set<std::string>{"scaled_by"});

  const auto x = floats(parameter.master), x1 = floats(stored_master);
  const auto v = floats(parameter.exp_avg_sq), v1 = floats(read_tensor(snapshot, "exp_avg_sq.w"));
  const auto m = floats(parameter.exp_avg), m1 = floats(read_tensor(snapshot, "exp_avg.w"));
  double most_x = 0;
  double most_v = 0;
  double most_u = 0;
  for (std::size_t i = 0; i < kParameterElements; ++i) {
    if (x[i] != 0) most_x = std::max(most_x, std::abs((wide(x1[i]) - wide(x[i])) / wide(x[i])));
    if (v[i] != 0) most_v = std::max(most_v, std::abs((wide(v1[i]) - wide(v[i])) / wide(v[i])));
    if (v1[i] != 0) most_u = std::max(most_u, std::abs(update_of(m1[i], v1[i]) - update_of(m[i], v1[i])));
  }
  const auto& master = lost_of(snapshot, "master.w");
  EXPECT_EQ(master.quantization, Quantization::master_bits);
  EXPECT_EQ(master.bound, std::ldexp(1, -16));
  EXPECT_EQ(master.reached.max_relative, most_x);
  EXPECT_LE(most_x, 2 * master.bound.value());
  EXPECT_EQ(master.reached.elements, kParameterElements);
  const auto& squares = lost_of(snapshot, "exp_avg_sq.w");
  EXPECT_EQ(squares.bound, std::ldexp(1, -4));
  EXPECT_EQ(squares.reached.max_relative, most_v);
  EXPECT_LE(most_v, squares.bound);
  const auto& moments = lost_of(snapshot, "exp_avg.w");
  EXPECT_GT(moments.bound, 0.01) << "includes the error of second moments";
  EXPECT_LT(moments.bound, 0.06);
  EXPECT_LE(most_u, 0.010001);
  EXPECT_LE(moments.updates.largest, moments.bound);
  EXPECT_GT(most_u, 0.0099) << "the bound is used up";
  EXPECT_EQ(moments.adam, kAdam);
  EXPECT_GT(moments.updates.elements, kParameterElements / 17);
  EXPECT_GT(moments.next_update_bound.value(), 0.009);
  EXPECT_GT(moments.all_updates_bound.value(), moments.next_update_bound.value());
}

TEST(LossySave, ChangesNothingIfTheStateIsSavedAgain) {
  const Parameter parameter;
  Chain chain;
  chain.save(parameter.state(), bounded());
  Parameter again;
  again.weight = read_tensor(*chain.last(), "model.w");
  again.master = read_tensor(*chain.last(), "master.w");
  again.exp_avg = read_tensor(*chain.last(), "exp_avg.w");
  again.exp_avg_sq = read_tensor(*chain.last(), "exp_avg_sq.w");
  const Snapshot& second = chain.save(again.state(), bounded());
  EXPECT_EQ(second.id(), chain.at(0)->id());
  EXPECT_EQ(lost_of(second, "exp_avg.w").reached.changed, 0U);
  EXPECT_EQ(codecs_of(second, "exp_avg.w"), std::set<std::string>{"same"});
}

TEST(LossySave, CodesTheNextStateAgainstTheStoredBytes) {
  Parameter parameter;
  Chain chain;
  chain.save(parameter.state(), bounded());
  parameter.step();
  SaveOptions next = bounded();
  next.settings.objective = Objective::ratio;
  next.adam->step = 101;
  const Snapshot& snapshot = chain.save(parameter.state(), next);
  EXPECT_TRUE(snapshot.verify().value().empty());
  const auto alone = open_file("alone", write_state(parameter.state(), next).value().file);
  for (const std::string_view name : {"model.w", "master.w", "exp_avg.w", "exp_avg_sq.w"}) {
    EXPECT_EQ(read_tensor(snapshot, name), read_tensor(*alone, name)) << "a base does not change the stored values";
  }
  EXPECT_EQ(codecs_of(snapshot, "exp_avg.w"), std::set<std::string>{"scaled_by"});
  EXPECT_TRUE(snapshot.chunk_info(stream_of(snapshot, "exp_avg.w"), 0).value().uses_base);
}

TEST(LossySave, GivesTheSameBytesForAnyNumberOfThreads) {
  const Parameter parameter;
  for (const Policy policy : {Policy::bounded, Policy::bitsnap}) {
    SaveOptions options = bounded();
    options.settings.policy = policy;
    expect_same_bytes_for_any_threads(parameter.state(), options);
  }
}

TEST(LossySave, AsksForUnknownAdamValues) {
  const Parameter parameter;
  const auto refused = write_state(parameter.state(), {.settings = {.policy = Policy::bounded}});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().kind(), ErrorKind::invalid_argument);
  for (const std::string_view part : {"'exp_avg.w'", "betas", "epsilon", "exp_avg=exact"}) {
    EXPECT_NE(refused.error().message().find(part), std::string::npos) << refused.error().message();
  }
  SaveOptions exact{.settings = {.policy = Policy::bounded}};
  exact.settings.loss = {parse_loss_rule("exp_avg=exact").value()};
  const auto snapshot = open_file("x", write_state(parameter.state(), exact).value().file);
  EXPECT_EQ(read_tensor(*snapshot, "exp_avg.w"), parameter.exp_avg);
  EXPECT_NE(read_tensor(*snapshot, "master.w"), parameter.master);
  // A tensor's own values have priority.
  State state = parameter.state();
  state.tensors[2].adam = kAdam;
  EXPECT_TRUE(write_state(state, {.settings = {.policy = Policy::bounded}}).has_value());
  SaveOptions wrong = bounded();
  wrong.adam->beta1 = 1;
  EXPECT_FALSE(write_state(state, wrong).has_value());
}

// Also if no rule needs them, because errors are measured with them.
TEST(LossySave, RejectsInvalidAdamValuesUnderAnyRule) {
  const Parameter parameter;
  for (const AdamNumbers& wrong : {AdamNumbers{std::nan(""), 0.95, 1e-8, 1}, AdamNumbers{0.9, HUGE_VAL, 1e-8, 1},
                                   AdamNumbers{0.9, 0.95, -1, 0}, AdamNumbers{0.9, 0.95, HUGE_VAL, 1}}) {
    for (const bool is_lossless : {false, true}) {
      SaveOptions options;
      if (!is_lossless) options.settings.loss = {parse_loss_rule("exp_avg=mantissa_bits:4").value()};
      options.adam = wrong;
      EXPECT_EQ(write_state(parameter.state(), options).error().kind(), ErrorKind::invalid_argument);
      options.adam.reset();
      State state = parameter.state();
      state.tensors[2].adam = wrong;
      const auto refused = write_state(state, options);
      ASSERT_FALSE(refused.has_value());
      EXPECT_NE(refused.error().message().find("'exp_avg.w': Adam's "), std::string::npos) << refused.error().message();
    }
  }
}

// Moments of an Adam that had these betas from the start, and the reported bounds of their updates.
TEST(LossySave, ReportsUpdateBoundsOnlyWhereTheyHold) {
  const auto check = [](double beta1, double beta2, std::uint64_t steps, const char* rule) {
    std::vector<float> m(kParameterElements), v(kParameterElements);
    std::uint64_t random = 88172645463325252U;
    for (std::uint64_t step = 0; step < steps; ++step) {
      for (std::size_t i = 0; i < kParameterElements; ++i) {
        random = random * 6364136223846793005U + 1442695040888963407U;
        // Every 64th element has the gradients for which the update is largest.
        double g = static_cast<double>(static_cast<std::int64_t>(random)) * 0x1p-73 * static_cast<double>(1 + i % 7);
        if (i % 64 == 0 && beta2 > 0) g = 1e-3 * std::pow(beta1 / beta2, static_cast<double>(steps - 1 - step));
        m[i] = static_cast<float>(beta1 * wide(m[i]) + (1 - beta1) * g);
        v[i] = static_cast<float>(beta2 * wide(v[i]) + (1 - beta2) * g * g);
      }
    }
    Bytes m_bytes(4 * kParameterElements), v_bytes(4 * kParameterElements);
    std::memcpy(m_bytes.data(), m.data(), m_bytes.size());
    std::memcpy(v_bytes.data(), v.data(), v_bytes.size());
    State state;
    state.tensors.push_back(source("exp_avg.w", DType::f32, {kParameterElements}, m_bytes));
    state.tensors.push_back(source("exp_avg_sq.w", DType::f32, {kParameterElements}, v_bytes));
    SaveOptions options = bounded();
    options.adam = AdamNumbers{beta1, beta2, 1e-12, steps};
    options.settings.loss = {parse_loss_rule(rule).value()};
    const auto snapshot = open_file("x", write_state(state, options).value().file);
    const LossReport lost = lost_of(*snapshot, "exp_avg.w");
    if (lost.bound) {
      EXPECT_LE(lost.updates.largest, *lost.bound) << beta1 << ' ' << beta2 << ' ' << rule;
      EXPECT_GE(lost.updates.largest, *lost.bound / 3) << beta1 << ' ' << beta2 << ' ' << rule;
    } else {
      EXPECT_FALSE(lost.next_update_bound || lost.all_updates_bound);
    }
    return lost;
  };
  constexpr const char* kUsual = "exp_avg_sq=mantissa_bits:3";
  EXPECT_TRUE(check(0.9, 0.95, 30, kUsual).all_updates_bound);
  const LossReport growing = check(0.9, 0.8, 30, kUsual);
  EXPECT_TRUE(growing.bound && growing.next_update_bound);
  EXPECT_FALSE(growing.all_updates_bound) << "later updates can be of any size";
  EXPECT_EQ(check(0, 0, 5, kUsual).next_update_bound, 0);
  EXPECT_EQ(check(0.9, 0, 5, kUsual).bound, std::nullopt);
  EXPECT_TRUE(check(0.9, 0.95, 30, "exp_avg_sq=exact").bound);
  EXPECT_TRUE(check(0.9, 0.95, 30, "exp_avg_sq=mantissa_bits:0").bound);
  EXPECT_TRUE(check(0.9, 0.95, 30, "exp_avg_sq=master_bits:0").bound) << "twice its own bound";
  EXPECT_EQ(check(0.9, 0.95, 30, "exp_avg_sq=clusters:16").bound, std::nullopt);
}

TEST(LossySave, KeepsMomentsExactBeforeTheFirstStep) {
  Parameter parameter;
  std::ranges::fill(parameter.exp_avg, std::byte{0});
  SaveOptions options = bounded();
  options.adam->step = 0;
  const auto snapshot = open_file("x", write_state(parameter.state(), options).value().file);
  EXPECT_EQ(read_tensor(*snapshot, "exp_avg.w"), parameter.exp_avg);
  EXPECT_FALSE(snapshot->quantizer(stream_of(*snapshot, "exp_avg.w")).has_value());
}

TEST(LossySave, ReportsNoUpdateErrorsOf16BitMoments) {
  const Parameter parameter;
  State state = parameter.state();
  const auto halves = rounded(parameter.exp_avg);
  state.tensors[2] = source("exp_avg.w", DType::bf16, {kParameterElements}, halves);
  SaveOptions options = bounded();
  options.settings.loss = {parse_loss_rule("exp_avg=mantissa_bits:3").value()};
  const auto written = write_state(state, options);
  ASSERT_TRUE(written.has_value()) << written.error().message();
  const auto snapshot = open_file("x", written->file);
  const LossReport& lost = lost_of(*snapshot, "exp_avg.w");
  EXPECT_GT(lost.reached.changed, 0U);
  EXPECT_EQ(lost.updates, UpdateErrors{});
}

TEST(LossySave, AppliesTheFirstMatchingRule) {
  const Parameter parameter;
  SaveOptions options = bounded();
  options.settings.loss.emplace();
  for (const std::string_view rule : {"exp_avg_sq:*.x=exact", "exp_avg_sq:*.w=mantissa_bits:6", "*:*=exact"}) {
    options.settings.loss->push_back(parse_loss_rule(rule).value());
  }
  const auto snapshot = open_file("x", write_state(parameter.state(), options).value().file);
  EXPECT_EQ(lost_of(*snapshot, "exp_avg_sq.w").amount, 6);
  EXPECT_EQ(read_tensor(*snapshot, "master.w"), parameter.master);
  EXPECT_EQ(read_tensor(*snapshot, "exp_avg.w"), parameter.exp_avg);
  // Rules apply under any policy.
  options.settings.policy = Policy::lossless;
  EXPECT_NE(read_tensor(*open_file("y", write_state(parameter.state(), options).value().file), "exp_avg_sq.w"),
            parameter.exp_avg_sq);
  options.settings.loss = {{.role = {}, .name = "*", .quantization = Quantization::clusters, .amount = 17}};
  EXPECT_NE(write_state(parameter.state(), options).error().message().find("must be 16 or 256, got "),
            std::string::npos);
}

TEST(LossySave, KeepsFirstMomentsExactWithoutSecondMoments) {
  const Parameter parameter;
  State state;
  state.tensors.push_back(source("momentum.exp_avg", DType::f32, {kParameterElements}, parameter.exp_avg));
  const auto snapshot = open_file("x", write_state(state, {.settings = {.policy = Policy::bounded}}).value().file);
  EXPECT_EQ(read_tensor(*snapshot, "momentum.exp_avg"), parameter.exp_avg);
}

// Tied tensors may have different roles, for example tied F32 weights.
TEST(LossySave, QuantizesTiedTensorsOnlyIfTheirRulesAgree) {
  const Parameter parameter;
  const auto tied = [&](const std::vector<const char*>& names, const std::vector<const char*>& rules) {
    State state;
    for (const char* name : names) {
      state.tensors.push_back(source(name, DType::f32, {kParameterElements}, parameter.exp_avg_sq));
      if (state.tensors.size() > 1) state.tensors.back().info.alias_of = 0;
    }
    SaveOptions options = bounded();
    auto& loss = options.settings.loss.emplace();
    for (const char* rule : rules) loss.push_back(parse_loss_rule(rule).value());
    const auto snapshot = open_file("x", write_state(state, options).value().file);
    const auto& lost = snapshot->quantizer(0);
    EXPECT_EQ(read_tensor(*snapshot, names.back()) == parameter.exp_avg_sq, !lost.has_value());
    return lost ? std::string(quantization_name(lost->quantization)) : "exact";
  };
  EXPECT_EQ(tied({"master.w", "model.w"}, {}), "exact") << "the weight must stay exact";
  EXPECT_EQ(tied({"model.w", "master.w"}, {}), "exact");
  EXPECT_EQ(tied({"exp_avg_sq.w", "model.v", "exp_avg_sq.v"}, {}), "exact") << "one in between";
  EXPECT_EQ(tied({"exp_avg_sq.w", "exp_avg_sq.v"}, {}), "mantissa_bits");
  EXPECT_EQ(tied({"exp_avg_sq.w", "exp_avg_sq.v"}, {"exp_avg_sq:*.v=exact"}), "exact") << "a rule for one name";
  EXPECT_EQ(tied({"exp_avg_sq.w", "exp_avg_sq.v"}, {"exp_avg_sq:*.v=mantissa_bits:4"}), "exact") << "another amount";
  EXPECT_EQ(tied({"exp_avg_sq.w", "model.w"}, {"*=mantissa_bits:4"}), "mantissa_bits") << "a rule for both";
}

Bytes halves_of(const Bytes& masters) {
  const codec::Input input{codec::InputKind::peer, DType::f32, masters};
  Bytes halves(masters.size() / 2);
  codec::expect_elements({DType::f16, masters.size() / 4, {&input, 1}, {}}, {}, halves);
  return halves;
}

// A state with weights of both 16-bit dtypes, whose names do not match their masters.
TEST(LossySave, KeepsMastersRoundingToTheirWeights) {
  const Parameter one(1), two(2);
  const Bytes halves = halves_of(one.master);
  State state;
  state.tensors.push_back(source("model.a", DType::f16, {kParameterElements}, halves));
  state.tensors.push_back(source("model.b", DType::bf16, {kParameterElements}, two.weight));
  state.tensors.push_back(source("master.0", DType::f32, {kParameterElements}, one.master));
  state.tensors.push_back(source("master.1", DType::f32, {kParameterElements}, two.master));
  const auto amount_of = [&](const Snapshot& snapshot, const char* name) {
    return lost_of(snapshot, name).bound.value();
  };
  const auto check = [&] {
    const auto snapshot = open_file("x", write_state(state, bounded()).value().file);
    EXPECT_EQ(halves_of(read_tensor(*snapshot, "master.0")), halves);
    EXPECT_EQ(rounded(read_tensor(*snapshot, "master.1")), two.weight);
    EXPECT_EQ(amount_of(*snapshot, "master.0"), std::ldexp(1, -19));
    return amount_of(*snapshot, "master.1");
  };
  EXPECT_EQ(check(), std::ldexp(1, -16)) << "found by bits";
  for (TensorSource& tensor : state.tensors) tensor.read_brings_all = true;
  const auto unknown = open_file("x", write_state(state, bounded()).value().file);
  EXPECT_EQ(halves_of(read_tensor(*unknown, "master.0")), halves) << "the finer one";
  state.tensors[0].master = MasterSlice{"master.0", 0};
  state.tensors[1].master = MasterSlice{"master.1", 0};
  EXPECT_EQ(check(), std::ldexp(1, -16)) << "given";
}

TEST(LossySave, KeepsTiedFirstMomentsExactIfSecondMomentsDiffer) {
  const Parameter parameter;
  State state = parameter.state();
  state.tensors.push_back(state.tensors[2]);
  state.tensors[4].info.name = "exp_avg.v";
  state.tensors[4].info.alias_of = 2;
  const auto is_kept = [&] {
    const auto snapshot = open_file("x", write_state(state, bounded()).value().file);
    return read_tensor(*snapshot, "exp_avg.w") == parameter.exp_avg;
  };
  EXPECT_TRUE(is_kept()) << "exp_avg.v has no second moments";
  state.tensors.push_back(state.tensors[3]);
  state.tensors[5].info.name = "exp_avg_sq.v";
  EXPECT_TRUE(is_kept()) << "exp_avg.v has other second moments";
  state.tensors[5].info.alias_of = 3;
  EXPECT_FALSE(is_kept());
}

TEST(LossySave, StoresMomentsAsClustersUnderThePolicyBitsnap) {
  const Parameter parameter;
  const auto snapshot =
      open_file("x", write_state(parameter.state(), {.settings = {.policy = Policy::bitsnap}}).value().file);
  for (const std::string_view name : {"exp_avg.w", "exp_avg_sq.w"}) {
    const auto numbers = floats(read_tensor(*snapshot, name));
    EXPECT_LE(std::set<float>(numbers.begin(), numbers.end()).size(), 16U * 256U) << name;
    EXPECT_EQ(lost_of(*snapshot, name).quantization, Quantization::clusters);
    EXPECT_LE(lost_of(*snapshot, name).reached.max_absolute, lost_of(*snapshot, name).bound);
    EXPECT_EQ(codecs_of(*snapshot, name), std::set<std::string>{"clustered"});
    EXPECT_LE(stored_bytes(*snapshot, name), kParameterElements * 12 / 8 + 2 * 150) << "12 bits, and two tables";
  }
  EXPECT_EQ(read_tensor(*snapshot, "master.w"), parameter.master);
}

TEST(LossySave, CodesClustersWithTheClusteredCodec) {
  const Parameter parameter;
  SaveOptions options{.settings = {.policy = Policy::lossless}};
  options.settings.loss = {parse_loss_rule("exp_avg=clusters:16").value(),
                           parse_loss_rule("exp_avg_sq=clusters:256").value()};
  options.settings.objective = Objective::ratio;
  const auto snapshot = open_file("x", write_state(parameter.state(), options).value().file);
  EXPECT_TRUE(snapshot->verify().value().empty());
  for (const auto& [name, bits] : {std::pair("exp_avg.w", 12U), std::pair("exp_avg_sq.w", 16U)}) {
    EXPECT_EQ(codecs_of(*snapshot, name), std::set<std::string>{"clustered"});
    EXPECT_LE(stored_bytes(*snapshot, name), kParameterElements * bits / 8 + 2 * 2100);
  }
}

TEST(LossySave, CopiesClustersWhenAFileIsRewritten) {
  Parameter parameter;
  Chain chain;
  chain.save(parameter.state(), {.settings = {.policy = Policy::bitsnap}});
  parameter.step();
  const Snapshot& before = chain.save(parameter.state(), {.settings = {.policy = Policy::bitsnap}});
  EXPECT_EQ(codecs_of(before, "model.w"), std::set<std::string>{"bitmask"});
  const auto after =
      open_file("again", rewrite(before, {chain.at(0)->id()}, {.settings = {.policy = Policy::bitsnap}}).value().file);
  EXPECT_EQ(after->id(), before.id());
  EXPECT_EQ(codecs_of(*after, "exp_avg.w"), std::set<std::string>{"clustered"});
  EXPECT_EQ(stored_bytes(*after, "exp_avg.w"), stored_bytes(before, "exp_avg.w"));
}

// The rewritten chunks were equal to their base or coded against it, so they do not contain their scales.
TEST(LossySave, RecognizesMultiplesWhenAFileIsRewritten) {
  Parameter parameter;
  SaveOptions options = bounded();
  options.settings.objective = Objective::ratio;
  Chain chain;
  chain.save(parameter.state(), options);
  const auto expect_as_alone = [&](const Snapshot& before, const char* codec) {
    EXPECT_EQ(codecs_of(before, "exp_avg.w"), std::set<std::string>{codec});
    ASSERT_TRUE(before.chunk_info(stream_of(before, "exp_avg.w"), 0).value().uses_base);
    const SaveOptions again{.settings = {.policy = Policy::bounded, .objective = Objective::ratio}};
    const auto after = open_file("again", rewrite(before, ids_of(before.bases()), again).value().file);
    EXPECT_EQ(codecs_of(*after, "exp_avg.w"), std::set<std::string>{"scaled_by"});
    const auto alone = open_file("alone", write_state(parameter.state(), options).value().file);
    EXPECT_EQ(stored_bytes(*after, "exp_avg.w"), stored_bytes(*alone, "exp_avg.w"));
    EXPECT_TRUE(after->verify().value().empty());
  };
  expect_as_alone(chain.save(parameter.state(), options), "same");
  parameter.step();
  options.adam->step = 101;
  expect_as_alone(chain.save(parameter.state(), options), "scaled_by");
}

TEST(LossySave, KeepsLossReportsWhenAFileIsRewritten) {
  Parameter parameter;
  Chain chain;
  chain.save(parameter.state(), bounded());
  parameter.step();
  const Snapshot& before = chain.save(parameter.state(), bounded());
  const auto after =
      open_file("again", rewrite(before, {chain.at(0)->id()}, {.settings = {.policy = Policy::bounded}}).value().file);
  EXPECT_EQ(after->id(), before.id());
  EXPECT_TRUE(after->bases().empty());
  EXPECT_EQ(codecs_of(*after, "exp_avg.w"), std::set<std::string>{"scaled_by"}) << "the loss report has the scales";
  for (const std::string_view name : {"master.w", "exp_avg.w", "exp_avg_sq.w"}) {
    EXPECT_EQ(lost_of(*after, name), lost_of(before, name));
  }
}

}  // namespace
}  // namespace bitsnap::save
