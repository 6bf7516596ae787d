// Analyses of whole states: groups, coders and quantizers.
#include <bitsnap/analysis.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "analyze/sample_runs.hpp"
#include "codec/optimizer_step/trained_step_testing.hpp"

namespace bitsnap::analyze {
namespace {

using Form = CodedFindings::Form;
using Kind = TensorAnalysis::Kind;

// Writes no payload: an analysis uses only the encoded size.
class SizeOnlyCoder final : public Coder {
 public:
  using EncodedSize = std::function<std::size_t(std::span<const std::byte> bytes)>;

  SizeOnlyCoder(std::string name, EncodedSize encoded_size)
      : name_(std::move(name)), encoded_size_(std::move(encoded_size)) {}

  std::string name() const override { return name_; }
  bool accepts(DType) const noexcept override { return true; }
  std::size_t max_encoded_size(DType, std::size_t) const noexcept override { return 0; }
  std::unique_ptr<CoderWorker> make_worker() const override { return std::make_unique<Worker>(encoded_size_); }

 private:
  class Worker final : public CoderWorker {
   public:
    explicit Worker(EncodedSize encoded_size) : encoded_size_(std::move(encoded_size)) {}
    Result<std::optional<std::size_t>> encode(const CoderChunk& chunk, std::span<std::byte>) override {
      return encoded_size_(chunk.data);
    }
    Result<void> decode(const CoderChunk&, std::span<const std::byte>, std::span<std::byte>) override {
      return fail(ErrorKind::unsupported, "an analysis decodes nothing");
    }

   private:
    EncodedSize encoded_size_;
  };

  std::string name_;
  EncodedSize encoded_size_;
};

// A state in memory.
struct MemoryState {
  AnalysisState state;
  std::vector<std::vector<std::byte>> bytes;

  template <typename Bits>
  void add(std::string name, DType dtype, Role role, const std::vector<Bits>& elements) {
    TensorInfo info;
    info.name = std::move(name);
    info.dtype = dtype;
    info.dtype_name = dtype_name(dtype);
    info.shape = {elements.size()};
    info.role = role;
    info.size_bytes = elements.size() * sizeof(Bits);
    const auto as_bytes = std::as_bytes(std::span(elements));
    bytes.emplace_back(as_bytes.begin(), as_bytes.end());
    state.tensors.push_back(std::move(info));
  }

  const AnalysisState& get() {
    state.read = [this](std::size_t tensor, std::uint64_t offset, std::span<std::byte> out) -> Result<void> {
      std::memcpy(out.data(), bytes[tensor].data() + offset, out.size());
      return {};
    };
    return state;
  }
};

std::vector<float> weights(std::size_t elements, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> values(0.0F, 0.02F);
  std::vector<float> out(elements);
  std::ranges::generate(out, [&] { return values(random); });
  return out;
}

Analysis analyzed(MemoryState& state, MemoryState* earlier = nullptr, const AnalysisOptions& options = {}) {
  auto analysis = analyze_state(state.get(), earlier == nullptr ? nullptr : &earlier->get(), options);
  EXPECT_TRUE(analysis.has_value()) << (analysis ? "" : analysis.error().message());
  return analysis ? std::move(*analysis) : Analysis{};
}

const CodedFindings* find(const std::vector<CodedFindings>& list, std::string_view coder, Form form) {
  const auto found =
      std::ranges::find_if(list, [&](const CodedFindings& one) { return one.coder == coder && one.form == form; });
  return found == list.end() ? nullptr : &*found;
}

TEST(Analysis, SkipsSmallTensorsAliasesAndUnwantedTensors) {
  MemoryState state;
  state.add("w", DType::f32, Role::weight, weights(2000, 1));
  state.add("tied", DType::f32, Role::weight, weights(2000, 1));
  state.state.tensors.back().alias_of = 0;
  state.add("step", DType::f32, Role::other, std::vector<float>{7});
  state.add("head", DType::f32, Role::weight, weights(2000, 2));
  AnalysisOptions options;
  options.wanted = [](const TensorInfo& tensor) { return tensor.name != "head"; };
  const Analysis analysis = analyzed(state, nullptr, options);
  ASSERT_EQ(analysis.tensors.size(), 4U);
  EXPECT_EQ(analysis.tensors[0].kind, Kind::analyzed);
  EXPECT_EQ(analysis.tensors[1].kind, Kind::alias);
  EXPECT_EQ(analysis.tensors[2].kind, Kind::small);
  EXPECT_EQ(analysis.tensors[3].kind, Kind::unwanted);
  ASSERT_EQ(analysis.groups.size(), 1U);
  EXPECT_EQ(analysis.groups[0].tensors, 1U);
  EXPECT_EQ(analysis.raw_bytes, 16'004U);
  EXPECT_EQ(analysis.analyzed_bytes, 8'000U);
  EXPECT_EQ(analysis.looked_at_bytes, 8'000U);
}

TEST(Analysis, CodesAPartOfManySmallTensorsAndCountsAll) {
  constexpr std::size_t kSmall = 1000;
  constexpr std::size_t kElements = 2048;
  MemoryState state;
  state.add("large", DType::f32, Role::weight, weights(3 * kLeastElements, 1));
  for (std::size_t i = 0; i < kSmall; ++i) {
    std::vector<float> values(kElements, 0.0F);
    values[i % kElements] = 1.0F;
    state.add("small" + std::to_string(i), DType::f32, i % 20 == 0 ? Role::exp_avg : Role::weight, values);
  }
  const auto coded_elements = [&](std::uint64_t sample_bytes, bool codes_all) {
    auto coded = std::make_shared<std::atomic<std::uint64_t>>(0);
    AnalysisOptions options{.sample_bytes = sample_bytes, .quantizers = false, .codes_all_tensors = codes_all};
    options.baselines = {std::make_shared<SizeOnlyCoder>("count", [coded](std::span<const std::byte> bytes) {
      *coded += bytes.size() / sizeof(float);
      return bytes.size();
    })};
    Analysis analysis = analyzed(state, nullptr, options);
    return std::pair(std::move(analysis), coded->load() / 2 /* plain, and in planes */);
  };
  constexpr std::uint64_t kAll = 3 * kLeastElements + kSmall * kElements;
  EXPECT_EQ(coded_elements(0, false).second, kAll);
  EXPECT_EQ(coded_elements(1U << 20, true).second, kLeastElements + kSmall * kElements);
  const auto [analysis, coded] = coded_elements(1U << 20, false);
  // One in fifteen of the weights; there are too few moments to leave any out.
  EXPECT_EQ(coded, kLeastElements + 64 * kElements + 50 * kElements);
  EXPECT_EQ(analysis.looked_at_bytes, (kLeastElements + kSmall * kElements) * sizeof(float));
  const Findings& group = analysis.groups.at(0).findings;
  EXPECT_EQ(group.elements, 3 * kLeastElements + 950 * kElements);
  EXPECT_EQ(group.baselines.at(0).elements, 3 * kLeastElements + 64 * kElements);
  for (const TensorAnalysis& tensor : analysis.tensors) {
    EXPECT_EQ(tensor.kind, Kind::analyzed);
    EXPECT_TRUE(tensor.tensor == 0 || tensor.findings.zeros == 1.0 - 1.0 / kElements);
    EXPECT_EQ(tensor.findings.best_alone.has_value(), !tensor.findings.codecs.empty());
  }
}

TEST(Analysis, WeightsTensorsOfAGroupByTheirElements) {
  MemoryState state;
  state.add("a", DType::u16, Role::other, std::vector<std::uint16_t>(3000, 0));
  state.add("b", DType::u16, Role::other, std::vector<std::uint16_t>(9000, 0xFFFF));
  state.add("c", DType::i16, Role::other, std::vector<std::uint16_t>(4000, 1));
  const Analysis analysis = analyzed(state);
  ASSERT_EQ(analysis.groups.size(), 2U);
  const Findings& findings = analysis.groups[0].findings;
  EXPECT_EQ(findings.elements, 12'000U);
  EXPECT_DOUBLE_EQ(findings.zeros, 0.25);
  EXPECT_DOUBLE_EQ(findings.ones[0], 0.75);
  EXPECT_EQ(findings.constant_bits[0], 1.0);
  EXPECT_EQ(findings.best_alone->codec, "constant");
  EXPECT_EQ(analysis.groups[1].dtype, DType::i16);
}

TEST(Analysis, WeightsCodersOfAGroupByTheElementsOfItsTensors) {
  MemoryState state;
  state.add("a", DType::u16, Role::other, std::vector<std::uint16_t>(4000, 0));
  state.add("b", DType::u16, Role::other, std::vector<std::uint16_t>(4000, 1));
  state.add("c", DType::u16, Role::other, std::vector<std::uint16_t>(8000, 1));
  AnalysisOptions options;
  options.baselines.push_back(std::make_shared<SizeOnlyCoder>(
      "zeros", [](std::span<const std::byte> bytes) { return bytes[0] == std::byte{0} ? 0 : bytes.size(); }));
  const Analysis analysis = analyzed(state, nullptr, options);
  ASSERT_EQ(analysis.groups.size(), 1U);
  const CodedFindings* coded = find(analysis.groups[0].findings.baselines, "zeros", Form::alone);
  ASSERT_NE(coded, nullptr);
  EXPECT_EQ(coded->elements, 16'000U);
  EXPECT_DOUBLE_EQ(coded->bits, 12.0);
}

TEST(Analysis, UnchangedTensorsTakeNoBitsWithABase) {
  MemoryState state;
  MemoryState earlier;
  state.add("w", DType::f32, Role::weight, weights(5000, 1));
  state.add("new", DType::f32, Role::weight, weights(5000, 2));
  earlier.add("w", DType::f32, Role::weight, weights(5000, 1));
  const Analysis analysis = analyzed(state, &earlier);
  const Findings& same = analysis.tensors[0].findings;
  ASSERT_TRUE(same.change);
  EXPECT_EQ(same.change->changed, 0.0);
  EXPECT_EQ(same.change->same_bits, std::vector<double>(32, 1.0));
  EXPECT_EQ(same.change->distances, std::vector<double>{1.0});
  EXPECT_EQ(same.best_on_base->codec, "same+base");
  EXPECT_EQ(same.best_on_base->bits, 0.0);
  ASSERT_NE(find(same.codecs, "same", Form::on_base), nullptr);
  EXPECT_EQ(find(same.codecs, "constant", Form::alone), nullptr);
  const Findings& fresh = analysis.tensors[1].findings;
  EXPECT_FALSE(fresh.change);
  EXPECT_FALSE(fresh.best_on_base);
  EXPECT_EQ(find(fresh.codecs, "byte_group", Form::on_base), nullptr);
  // In the group, only half of the elements have a base.
  const Findings& group = analysis.groups[0].findings;
  EXPECT_EQ(group.elements, 10'000U);
  EXPECT_EQ(group.change->elements, 5'000U);
  EXPECT_EQ(group.best_on_base->elements, 5'000U);
}

TEST(Analysis, ATensorOfAnotherSizeOrDtypeIsNotABase) {
  MemoryState state;
  MemoryState earlier;
  state.add("a", DType::f32, Role::weight, weights(5000, 1));
  state.add("b", DType::f32, Role::weight, weights(5000, 1));
  earlier.add("a", DType::f32, Role::weight, weights(4999, 1));
  earlier.add("b", DType::i32, Role::weight, weights(5000, 1));
  const Analysis analysis = analyzed(state, &earlier);
  EXPECT_FALSE(analysis.tensors[0].findings.change);
  EXPECT_FALSE(analysis.tensors[1].findings.change);
}

TEST(Analysis, BaselinesCodeBytesPlanesAndPlanesOfTheXor) {
  MemoryState state;
  MemoryState earlier;
  state.add("w", DType::u16, Role::weight, std::vector<std::uint16_t>(4096, 0x0201));
  earlier.add("w", DType::u16, Role::weight, std::vector<std::uint16_t>(4096, 0x0101));
  AnalysisOptions options;
  // The coder counts bytes that differ from the one before: all of 1, 2, 1, 2, but one in each of its planes.
  const auto differing = [](std::span<const std::byte> bytes) {
    std::size_t count = 1;
    for (std::size_t i = 1; i < bytes.size(); ++i) count += bytes[i] != bytes[i - 1] ? 1U : 0U;
    return count + (bytes[0] == std::byte{0} ? 100U : 0U);
  };
  options.baselines.push_back(std::make_shared<SizeOnlyCoder>("differing", differing));
  const Findings findings = analyzed(state, &earlier, options).tensors[0].findings;
  ASSERT_EQ(findings.baselines.size(), 3U);
  EXPECT_EQ(find(findings.baselines, "differing", Form::alone)->bits, 16.0);
  EXPECT_EQ(find(findings.baselines, "differing", Form::planes)->bits, 8.0 * 2 / 4096);
  EXPECT_EQ(find(findings.baselines, "differing", Form::xor_planes)->bits, 8.0 * 102 / 4096);
}

TEST(Analysis, QuantizersKeepTheirBoundsAndFewerKeptBitsTakeLessSpace) {
  MemoryState state;
  MemoryState earlier;
  const std::vector<float> values = weights(50'000, 1);
  std::vector<float> moved = values;
  for (float& value : moved) value *= 1.001F;
  state.add("m", DType::f32, Role::exp_avg, moved);
  earlier.add("m", DType::f32, Role::exp_avg, values);
  const Findings findings = analyzed(state, &earlier).tensors[0].findings;
  ASSERT_EQ(findings.quantizers.size(), 14U);
  for (unsigned kept = 1; kept <= 12; ++kept) {
    const QuantizerFindings& point = findings.quantizers[kept - 1];
    EXPECT_EQ(point.quantizer, "round_mantissa");
    EXPECT_EQ(point.parameter, kept);
    EXPECT_FALSE(point.nominal_bits);
    // The largest relative error is half a step above a power of two.
    const double half_step = std::ldexp(1.0, -static_cast<int>(kept) - 1);
    EXPECT_LE(point.max_relative, half_step);
    EXPECT_GT(point.max_relative, 0.99 * half_step / (1 + half_step));
    EXPECT_GT(point.mean_relative, 0.0);
    ASSERT_TRUE(point.bits_on_base);
    EXPECT_LE(*point.bits_on_base, point.bits);
    if (kept > 1) {
      EXPECT_NEAR(point.bits - findings.quantizers[kept - 2].bits, 1.0, 0.3);
    }
  }
  EXPECT_LT(*findings.quantizers[0].bits_on_base, 0.5);
  for (const std::size_t i : {12U, 13U}) {
    const QuantizerFindings& point = findings.quantizers[i];
    EXPECT_EQ(point.quantizer, "clusters");
    EXPECT_EQ(point.parameter, i == 12 ? 16U : 256U);
    EXPECT_EQ(point.nominal_bits, i == 12 ? 12.0 : 16.0);
    EXPECT_GT(point.mean_relative, 0.0);
    EXPECT_LT(point.mean_relative, 0.01);
    EXPECT_FALSE(point.bits_on_base);
  }
  EXPECT_GT(findings.quantizers[12].mean_square, findings.quantizers[13].mean_square);
}

constexpr AdamNumbers kAdam{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .step = 300};

void add_moments(MemoryState& state, const codec::TrainedState& trained) {
  state.add("exp_avg.w", DType::f32, Role::exp_avg, trained.m);
  state.add("exp_avg_sq.w", DType::f32, Role::exp_avg_sq, trained.v);
}

std::vector<QuantizerFindings> points_of(const Findings& findings, std::string_view quantizer) {
  std::vector<QuantizerFindings> points;
  for (const QuantizerFindings& point : findings.quantizers) {
    if (point.quantizer == quantizer) points.push_back(point);
  }
  return points;
}

AnalysisOptions with_adam(const std::optional<AdamNumbers>& adam = kAdam) {
  AnalysisOptions options;
  options.adam = [adam](std::size_t) { return adam; };
  return options;
}

TEST(Analysis, UpdateStepKeepsItsBoundsWithSecondMoments) {
  const codec::TrainedState trained = codec::trained_state(50'000, 1);
  codec::TrainedState before = trained;
  for (float& moment : before.m) moment *= 1.05F;
  MemoryState state;
  MemoryState earlier;
  add_moments(state, trained);
  add_moments(earlier, before);
  const Analysis analysis = analyzed(state, &earlier, with_adam());
  const Findings& moments = analysis.tensors[0].findings;
  const std::vector<QuantizerFindings> points = points_of(moments, "update_step");
  ASSERT_EQ(points.size(), 7U);
  EXPECT_EQ(points[0].parameter, 0.002);
  EXPECT_EQ(points[3].parameter, 0.02);
  for (std::size_t i = 0; i < points.size(); ++i) {
    const QuantizerFindings& point = points[i];
    EXPECT_EQ(point.codec, "scaled_by");
    ASSERT_TRUE(point.update);
    EXPECT_LE(point.update->largest, point.parameter / 2 * 1.001);
    EXPECT_GT(point.update->largest, point.parameter / 2 * 0.98);
    EXPECT_GT(point.update->mean_of_updates, 0.1);
    EXPECT_GT(point.mean_relative, 0.0);
    EXPECT_GT(point.mean_square, 0.0);
    ASSERT_TRUE(point.bits_on_base);
    EXPECT_LT(*point.bits_on_base, point.bits) << "a twentieth is not as far as the moments are from zero";
    if (i > 0) {
      EXPECT_LT(point.bits, points[i - 1].bits);
      EXPECT_GT(point.update->mean, points[i - 1].update->mean);
    }
  }
  // Update errors are also reported for other quantizers, if they quantize first moments.
  for (const std::string_view other : {"round_mantissa", "clusters"}) {
    for (const QuantizerFindings& point : points_of(moments, other)) EXPECT_GT(point.update.value().mean, 0.0);
  }
  EXPECT_TRUE(points_of(analysis.tensors[1].findings, "update_step").empty());
  EXPECT_FALSE(analysis.tensors[1].findings.quantizers.front().update);
}

TEST(Analysis, UpdateStepWithABaseNeedsSecondMomentsOfTheBase) {
  const codec::TrainedState trained = codec::trained_state(8'000, 1);
  MemoryState state;
  MemoryState earlier;
  add_moments(state, trained);
  earlier.add("exp_avg.w", DType::f32, Role::exp_avg, trained.m);
  const Findings findings = analyzed(state, &earlier, with_adam()).tensors[0].findings;
  EXPECT_FALSE(points_of(findings, "update_step").at(0).bits_on_base);
  EXPECT_TRUE(points_of(findings, "round_mantissa").at(0).bits_on_base);
}

TEST(Analysis, UpdateErrorsOfAGroupAreMeansOverTensorsWithUpdates) {
  const codec::TrainedState trained = codec::trained_state(8'000, 1);
  MemoryState state;
  add_moments(state, trained);
  state.add("exp_avg.alone", DType::f32, Role::exp_avg, trained.m);
  const Analysis analysis = analyzed(state, nullptr, with_adam());
  const auto& of_tensor = analysis.tensors[0].findings.quantizers.front();
  EXPECT_FALSE(analysis.tensors[2].findings.quantizers.front().update) << "it has no second moments";
  ASSERT_EQ(analysis.groups[0].findings.elements, 16'000U);
  const auto& of_group = analysis.groups[0].findings.quantizers.front();
  EXPECT_EQ(of_group.elements, 16'000U);
  EXPECT_EQ(of_group.update.value().elements, 8'000U);
  EXPECT_EQ(of_group.update.value().mean, of_tensor.update.value().mean);
}

TEST(Analysis, HasNoUpdateFindingsWithoutAdamNumbers) {
  MemoryState state;
  add_moments(state, codec::trained_state(8'000, 1));
  AdamNumbers unmoved = kAdam;
  unmoved.step = 0;
  for (const AnalysisOptions& options : {AnalysisOptions{}, with_adam(std::nullopt), with_adam(unmoved)}) {
    const Findings findings = analyzed(state, nullptr, options).tensors[0].findings;
    EXPECT_TRUE(points_of(findings, "update_step").empty());
    EXPECT_FALSE(findings.quantizers.front().update);
  }
  AdamNumbers wrong = kAdam;
  wrong.beta1 = 1;
  const auto refused = analyze_state(state.get(), nullptr, with_adam(wrong));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind(), ErrorKind::invalid_argument);
  EXPECT_NE(refused.error().message().find("'exp_avg.w'"), std::string::npos) << refused.error().message();
}

TEST(Analysis, LeavesOutQuantizersIfTheOptionIsOff) {
  MemoryState state;
  add_moments(state, codec::trained_state(8'000, 1));
  AnalysisOptions options = with_adam();
  const Findings all = analyzed(state, nullptr, options).tensors[0].findings;
  options.quantizers = false;
  const Findings findings = analyzed(state, nullptr, options).tensors[0].findings;
  EXPECT_TRUE(findings.quantizers.empty());
  EXPECT_EQ(findings.best_alone->bits, all.best_alone->bits);
}

TEST(Analysis, MeasuresOnlyQuantizersThatAcceptTheDtype) {
  MemoryState state;
  state.add("w", DType::bf16, Role::weight, std::vector<std::uint16_t>(4096, 0x3F81));
  state.add("n", DType::i32, Role::other, std::vector<std::uint32_t>(4096, 5));
  const Analysis analysis = analyzed(state);
  EXPECT_EQ(analysis.tensors[0].findings.quantizers.size(), 6U);
  EXPECT_TRUE(analysis.tensors[1].findings.quantizers.empty());
}

bool same(const Findings& a, const Findings& b) {
  const auto bits = [](const Findings& findings) {
    std::vector<double> all = findings.plane_entropies;
    all.insert(all.end(), findings.ones.begin(), findings.ones.end());
    for (const CodedFindings& coded : findings.codecs) all.push_back(coded.bits);
    for (const QuantizerFindings& point : findings.quantizers) {
      all.insert(all.end(), {point.bits, point.mean_relative, point.mean_square, point.max_absolute});
    }
    if (findings.change) all.push_back(*findings.change->delta_entropy_by_exponent);
    return all;
  };
  return bits(a) == bits(b);
}

TEST(Analysis, GivesTheSameFindingsForAnyNumberOfThreads) {
  MemoryState state;
  MemoryState earlier;
  for (const char* name : {"a", "b", "c"}) {
    state.add(name, DType::f32, Role::master, weights(300'000, 1));
    earlier.add(name, DType::f32, Role::master, weights(300'000, 2));
  }
  AnalysisOptions options;
  options.sample_bytes = 400'000;
  options.run.threads = 1;
  const Analysis one = analyzed(state, &earlier, options);
  EXPECT_LT(one.looked_at_bytes, 500'000U);
  EXPECT_GT(one.looked_at_bytes, 300'000U);
  options.run.threads = 4;
  const Analysis four = analyzed(state, &earlier, options);
  EXPECT_TRUE(same(one.groups[0].findings, four.groups[0].findings));
  EXPECT_FALSE(same(one.groups[0].findings, analyzed(state, &earlier).groups[0].findings));
}

TEST(Analysis, ReturnsReadErrorsAndCancellation) {
  MemoryState state;
  state.add("w", DType::f32, Role::weight, weights(5000, 1));
  AnalysisState broken = state.get();
  broken.read = [](std::size_t, std::uint64_t, std::span<std::byte>) -> Result<void> {
    return tl::unexpected(Error(ErrorKind::corrupt, "no"));
  };
  const auto failed = analyze_state(broken, nullptr);
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().kind(), ErrorKind::corrupt);
  AnalysisOptions options;
  options.run.progress = [](std::uint64_t, std::uint64_t) { return false; };
  const auto cancelled = analyze_state(state.get(), nullptr, options);
  ASSERT_FALSE(cancelled.has_value());
  EXPECT_EQ(cancelled.error().kind(), ErrorKind::cancelled);
}

}  // namespace
}  // namespace bitsnap::analyze
