// Writes the golden files of the codecs: write_codec_golden <folder>. See golden/README.md.
//
// Existing files are kept, because golden files are written once and read forever. Run it after adding a codec or a
// case. The data is small and varied; its purpose is that the payloads of this version stay readable.
#include <bit>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

#include "codec/clustered/clustered_testing.hpp"
#include "codec/coding_testing.hpp"
#include "codec/gradient_step/made_gradient_testing.hpp"
#include "codec/optimizer_step/trained_step_testing.hpp"
#include "codec/registry_encode.hpp"
#include "codec/scaled_by/lattice_testing.hpp"

namespace bitsnap::codec {
namespace {

struct GoldenCase {
  DType dtype;
  Pattern pattern;
  std::size_t elements;
  BaseKind base;
  std::string_view only_codec = {};  // empty: all that accept the chunk
  RowPlace rows = {};
  DType peer = DType::opaque;  // replaces the base; opaque: none
};

constexpr GoldenCase kCases[] = {
    {DType::bf16, Pattern::trained_like, 1200, BaseKind::none},
    {DType::bf16, Pattern::trained_like, 1200, BaseKind::near},
    {DType::bf16, Pattern::special_floats, 333, BaseKind::sparse},
    {DType::f16, Pattern::trained_like, 1100, BaseKind::none},
    {DType::f32, Pattern::trained_like, 1100, BaseKind::none},
    {DType::f32, Pattern::non_negative, 1100, BaseKind::none},
    {DType::f32, Pattern::low_half_zero, 1001, BaseKind::none},
    {DType::f32, Pattern::trained_like, 1100, BaseKind::near},
    {DType::bf16, Pattern::trained_like, 65800, BaseKind::none, "float_split"},
    {DType::f32, Pattern::non_negative, 33000, BaseKind::none, "float_split"},
    {DType::f32, Pattern::low_half_zero, 33001, BaseKind::none, "float_split"},
    {DType::f32, Pattern::rounded, 33500, BaseKind::none, "float_split"},
    {DType::f32, Pattern::rounded, 33333, BaseKind::none, "float_split"},
    {DType::bf16, Pattern::rounded, 66007, BaseKind::none, "float_split"},
    {DType::bf16, Pattern::trained_like, 5000, BaseKind::near, "ordinal_delta"},
    {DType::bf16, Pattern::trained_like, 20000, BaseKind::sparse, "ordinal_delta"},
    {DType::bf16, Pattern::trained_like, 20000, BaseKind::near, "ordinal_delta"},
    {DType::f32, Pattern::trained_like, 20000, BaseKind::near, "ordinal_delta"},
    {DType::bf16, Pattern::trained_like, 20000, BaseKind::drifted, "ordinal_delta"},
    {DType::f32, Pattern::trained_like, 20000, BaseKind::drifted, "ordinal_delta"},
    {DType::f32, Pattern::non_negative, 20000, BaseKind::decayed, "ordinal_delta"},
    {DType::f32, Pattern::non_negative, 1003, BaseKind::decayed, "ordinal_delta"},
    {DType::f16, Pattern::trained_like, 5000, BaseKind::near, "ordinal_delta"},
    {DType::f32, Pattern::trained_like, 5000, BaseKind::near, "ordinal_delta"},
    {DType::f32, Pattern::special_floats, 9001, BaseKind::sparse, "ordinal_delta"},
    {DType::f8_e4m3, Pattern::trained_like, 5001, BaseKind::near, "ordinal_delta"},
    {DType::f8_e5m2, Pattern::trained_like, 9000, BaseKind::sparse, "ordinal_delta"},
    {DType::f32, Pattern::rounded, 5001, BaseKind::near, "ordinal_delta"},
    {DType::f32, Pattern::rounded, 5006, BaseKind::near, "ordinal_delta"},
    {DType::f32, Pattern::rounded, 5008, BaseKind::sparse, "ordinal_delta"},
    {DType::f32, Pattern::low_half_zero, 5001, BaseKind::sparse, "ordinal_delta"},
    {DType::f32, Pattern::rounded, 9001, BaseKind::drifted, "ordinal_delta"},
    {DType::bf16, Pattern::rounded, 5001, BaseKind::near, "ordinal_delta"},
    {DType::f16, Pattern::rounded, 5001, BaseKind::drifted, "ordinal_delta"},
    {DType::f32, Pattern::rounded, 5002, BaseKind::none, "factored_split"},
    {DType::f32, Pattern::rounded, 5007, BaseKind::none, "factored_split"},
    {DType::f32, Pattern::low_half_zero, 5003, BaseKind::none, "factored_split", {128, 5}},
    {DType::bf16, Pattern::rounded, 5004, BaseKind::none, "factored_split"},
    {DType::f16, Pattern::rounded, 5005, BaseKind::none, "factored_split", {100, 0}},
    {DType::f32, Pattern::factored, 5000, BaseKind::none, "factored_split"},
    {DType::f32, Pattern::factored, 5000, BaseKind::none, "factored_split", {128, 0}},
    {DType::bf16, Pattern::factored, 9000, BaseKind::none, "factored_split", {128, 0}},
    {DType::f16, Pattern::factored, 8001, BaseKind::none, "factored_split", {127, 90}},
    {DType::f32, Pattern::trained_like, 7000, BaseKind::none, "factored_split", {512, 0}},
    {DType::bf16, Pattern::special_floats, 5000, BaseKind::none, "factored_split", {100, 99}},
    {DType::bf16, Pattern::trained_like, 1300, BaseKind::equal, "rounded_from", {}, DType::f32},
    {DType::bf16, Pattern::special_floats, 1301, BaseKind::sparse, "rounded_from", {}, DType::f32},
    {DType::f16, Pattern::trained_like, 1302, BaseKind::equal, "rounded_from", {}, DType::f32},
    {DType::f16, Pattern::special_floats, 1303, BaseKind::drifted, "rounded_from", {}, DType::f32},
    {DType::f32, Pattern::trained_like, 1304, BaseKind::equal, "rounded_from", {}, DType::bf16},
    {DType::f32, Pattern::special_floats, 1305, BaseKind::near, "rounded_from", {}, DType::bf16},
    {DType::f32, Pattern::low_half_zero, 1306, BaseKind::equal, "rounded_from", {}, DType::bf16},
    {DType::f64, Pattern::trained_like, 300, BaseKind::none},
    {DType::f8_e4m3, Pattern::trained_like, 1100, BaseKind::none},
    {DType::u8, Pattern::one_outlier, 65539, BaseKind::none, "byte_group"},
    {DType::u8, Pattern::byte_ramp, 600, BaseKind::none},
    {DType::i64, Pattern::ramp, 300, BaseKind::none},
    {DType::i64, Pattern::ramp, 300, BaseKind::equal},
    {DType::f32, Pattern::zeros, 700, BaseKind::none},
    {DType::bf16, Pattern::ones, 65, BaseKind::none},
};

std::string name_of(const GoldenCase& golden) {
  const std::string rows = golden.rows.row_elements == 0 ? std::string()
                                                         : "-rows" + std::to_string(golden.rows.row_elements) + "from" +
                                                               std::to_string(golden.rows.first_column);
  return std::string(dtype_name(golden.dtype)) + "-" + std::string(pattern_name(golden.pattern)) + "-" +
         std::to_string(golden.elements) + "-" + std::string(base_kind_name(golden.base)) + rows;
}

// For optimizer_step: chunks with the state from which they follow.
struct StepCase {
  std::string_view name;
  bool is_square = false;
  std::size_t elements = 0;
  Hyperparameters hyperparameters = {};
  DType dtype = DType::f32;
  bool fused = false;  // only BF16
};

constexpr StepCase kStepCases[] = {
    {"second_moment", true, 3000, {}},
    {"second_moment", true, 3001, {.beta1 = 0.912345, .beta2 = 0.9765432}},
    {"parameter", false, 3002, {}},
    {"parameter", false, 3003, {.epsilon = 1e-4, .bias1 = 0.19, .bias2 = 0.0975}},
    {"second_moment", true, 3004, {.beta1 = 0.95, .beta2 = 0.99}, DType::bf16},
    {"second_moment", true, 3005, {}, DType::bf16, true},
    {"parameter", false, 3006, {}, DType::bf16},
    {"parameter", false, 3007, {.rate = 1e-5}, DType::bf16, true},
    {"parameter", false, 3008, {.rate = 1e-2, .epsilon = 1e-4, .bias1 = 0.19, .bias2 = 0.0975}, DType::bf16},
};

// For scaled_by: chunks with their lattice.
struct LatticeCase {
  std::size_t elements = 0;
  float step = 0;
  float epsilon = 0;
  bool from_base = false;
  std::size_t exceptions = 0;
};

constexpr LatticeCase kLatticeCases[] = {
    {700, 0.02F, 1e-8F, false, 0},
    {1201, 0.02F, 1e-8F, true, 7},
    {16500, 0.05F, 1e-5F, false, 300},
    {16600, 0.05F, 1e-8F, true, 0},
};

// For clustered: chunks with the clusters of their tensor.
struct ClusterCase {
  std::size_t elements = 0;
  std::size_t clusters = 0;
  std::size_t exceptions = 0;
};

constexpr ClusterCase kClusterCases[] = {{700, 16, 0}, {1203, 16, 8}, {1501, 3, 70}, {3001, 200, 5}};

// For gradient_step: chunks with the state before a step of few significant bits.
struct GradientCase {
  std::string_view name;
  std::size_t elements = 0;
  MadeGradient made;
  float square_beta = 0;  // of a second moment
  bool is_average = false;
};

constexpr GradientCase kGradientCases[] = {
    {"lerp_fused", 3004, {.constants = {0.9F, 0.1F, 1.2345678F}}},
    {"lerp", 3005, {.form = GradientForm::lerp, .constants = {0.9F, 0.1F, 1.5F}, .zeros = 0.2F}},
    {"add_fused", 3006, {.form = GradientForm::add_fused, .constants = {0.9F, 1, 1.7F}}},
    {"decay_fused", 3007, {.form = GradientForm::decay_fused, .constants = {0.95F, 0.05F, 1}}},
    {"decay_and_add", 3008, {.form = GradientForm::decay_and_add, .constants = {0.9F, 0.1F, 1.1F}, .bits = 11}},
    {"square", 3009, {.constants = {0.9F, 0.1F, 1.7F}, .zeros = 0.1F}, 0.95F},
    {"average", 3010, {.constants = {0.999F, 0.001F, 1}}, 0, true},
    {"sums", 3011, {.constants = {0.9F, 0.1F, 1.1F}, .varied = 5}},
    {"update", 16'500, {.form = GradientForm::add_fused, .constants = {0.9998F, -0.00123F, 1}, .octaves = 16}},
};

bool write_file(const std::filesystem::path& path, ConstByteSpan bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return file.good();
}

bool write_case(const std::filesystem::path& folder, const Encoder& encoder, const GoldenCase& golden) {
  if (!golden.only_codec.empty() && golden.only_codec != encoder.decoder().name()) return true;
  TestChunk chunk{.dtype = golden.dtype,
                  .data = make_chunk(golden.pattern, golden.dtype, golden.elements, golden.elements),
                  .base = {},
                  .rows = golden.rows,
                  .clusters = {}};
  if (golden.peer == DType::opaque) {
    chunk.base = make_base(golden.base, chunk.data, element_size(golden.dtype), golden.elements);
  } else {
    chunk.base = make_base(golden.base, make_peer(golden.dtype, chunk.data, golden.peer, golden.elements),
                           element_size(golden.peer), golden.elements);
    chunk.kind = InputKind::peer;
    chunk.base_dtype = golden.peer;
  }
  const std::filesystem::path stem = folder / encoder.decoder().name() / name_of(golden);
  const std::filesystem::path payload_path = stem.string() + ".payload";
  if (std::filesystem::exists(payload_path) || !accepts(encoder.decoder(), chunk)) return true;
  Scratch scratch;
  const auto payload = encode_test_chunk(encoder, chunk, scratch);
  if (!payload) return true;
  std::filesystem::create_directories(stem.parent_path());
  const std::string input = "." + std::string(chunk.base_dtype ? dtype_name(*chunk.base_dtype) : "base");
  if (!chunk.base.empty() && !write_file(stem.string() + input, chunk.base)) return false;
  return write_file(stem.string() + ".raw", chunk.data) && write_file(payload_path, *payload);
}

bool write_step_case(const std::filesystem::path& folder, const StepCase& golden) {
  const Encoder& encoder = *find_encoder(CodecId::optimizer_step);
  const std::filesystem::path stem =
      folder / encoder.decoder().name() /
      (std::string(dtype_name(golden.dtype)) + "-" + std::string(golden.name) + "-" + std::to_string(golden.elements));
  if (std::filesystem::exists(stem.string() + ".payload")) return true;
  const bool is_bf16 = golden.dtype == DType::bf16;
  const TrainedStep step =
      is_bf16 ? train_rounded_step(golden.elements, golden.hyperparameters, golden.elements, golden.fused)
              : train_step(golden.elements, golden.hyperparameters, golden.elements);
  TestChunk chunk = golden.is_square ? second_moment_chunk(step) : parameter_chunk(step);
  if (is_bf16) chunk = as_bf16(chunk);
  Scratch scratch;
  const auto payload = encode_test_chunk(encoder, chunk, scratch);
  if (!payload) return false;
  std::filesystem::create_directories(stem.parent_path());
  for (std::size_t i = 0; i < chunk.more.size(); ++i) {
    const std::string kind = chunk.more[i].kind == InputKind::base ? "-base" : "-peer";
    if (!write_file(stem.string() + "." + std::to_string(i + 2) + kind, chunk.more[i].bytes)) return false;
  }
  return write_file(stem.string() + ".base", chunk.base) && write_file(stem.string() + ".raw", chunk.data) &&
         write_file(stem.string() + ".payload", *payload);
}

bool write_gradient_case(const std::filesystem::path& folder, const GradientCase& golden) {
  const Encoder& encoder = *find_encoder(CodecId::gradient_step);
  const std::filesystem::path stem =
      folder / encoder.decoder().name() / ("F32-" + std::string(golden.name) + "-" + std::to_string(golden.elements));
  if (std::filesystem::exists(stem.string() + ".payload")) return true;
  const TestChunk chunk = golden.is_average ? made_average_chunk(golden.elements, golden.made, 3, golden.elements)
                          : golden.square_beta > 0
                              ? made_square_chunk(golden.elements, golden.made, golden.square_beta, golden.elements)
                              : made_gradient_chunk(golden.elements, golden.made, golden.elements);
  Scratch scratch;
  const auto payload = encode_test_chunk(encoder, chunk, scratch);
  if (!payload) return false;
  std::filesystem::create_directories(stem.parent_path());
  for (std::size_t i = 0; i < chunk.more.size(); ++i) {
    const std::string kind = chunk.more[i].kind == InputKind::base ? "-base" : "-peer";
    if (!write_file(stem.string() + "." + std::to_string(i + 2) + kind, chunk.more[i].bytes)) return false;
  }
  return write_file(stem.string() + ".base", chunk.base) && write_file(stem.string() + ".raw", chunk.data) &&
         write_file(stem.string() + ".payload", *payload);
}

bool write_lattice_case(const std::filesystem::path& folder, const LatticeCase& golden) {
  const Encoder& encoder = *find_encoder(CodecId::scaled_by);
  const Lattice lattice = trained_lattice(golden.step, golden.epsilon);
  char name[64];
  std::snprintf(name, sizeof name, "F32-lattice%08x-%08x-%zu%s", std::bit_cast<unsigned>(lattice.a),
                std::bit_cast<unsigned>(lattice.b), golden.elements, golden.from_base ? "-base" : "");
  const std::filesystem::path stem = folder / encoder.decoder().name() / name;
  if (std::filesystem::exists(stem.string() + ".payload")) return true;
  TestChunk chunk = lattice_chunk(golden.elements, lattice, golden.from_base, golden.elements);
  const std::vector<std::byte> specials = make_chunk(Pattern::special_floats, DType::f32, golden.exceptions, 1);
  for (std::size_t i = 0; i < golden.exceptions; ++i) {
    std::memcpy(chunk.data.data() + i * (golden.elements / golden.exceptions) * 4, specials.data() + 4 * i, 4);
  }
  Scratch scratch;
  const auto payload = encode_test_chunk(encoder, chunk, scratch);
  if (!payload) return false;
  std::filesystem::create_directories(stem.parent_path());
  if (golden.from_base && !write_file(stem.string() + ".2-peer", chunk.more[0].bytes)) return false;
  return write_file(stem.string() + (golden.from_base ? ".base" : ".F32"), chunk.base) &&
         write_file(stem.string() + ".raw", chunk.data) && write_file(stem.string() + ".payload", *payload);
}

bool write_cluster_case(const std::filesystem::path& folder, const ClusterCase& golden) {
  const Encoder& encoder = *find_encoder(CodecId::clustered);
  const std::filesystem::path stem =
      folder / encoder.decoder().name() /
      ("F32-clusters" + std::to_string(golden.clusters) + "-" + std::to_string(golden.elements));
  if (std::filesystem::exists(stem.string() + ".payload")) return true;
  TestChunk chunk =
      clustered_chunk(golden.elements, normal_clusters(golden.clusters, golden.elements), golden.elements);
  const std::vector<std::byte> specials = make_chunk(Pattern::special_floats, DType::f32, golden.exceptions, 1);
  for (std::size_t i = 0; i < golden.exceptions; ++i) {
    std::memcpy(chunk.data.data() + i * (golden.elements / golden.exceptions) * 4, specials.data() + 4 * i, 4);
  }
  Scratch scratch;
  const auto payload = encode_test_chunk(encoder, chunk, scratch);
  if (!payload) return false;
  std::filesystem::create_directories(stem.parent_path());
  return write_file(stem.string() + ".clusters", std::as_bytes(std::span(chunk.clusters))) &&
         write_file(stem.string() + ".raw", chunk.data) && write_file(stem.string() + ".payload", *payload);
}

}  // namespace
}  // namespace bitsnap::codec

int main(int argc, char** argv) {
  using namespace bitsnap::codec;
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_codec_golden <folder>\n");
    return 1;
  }
  for (const Encoder* encoder : all_encoders()) {
    for (const GoldenCase& golden : kCases) {
      if (!write_case(argv[1], *encoder, golden)) {
        std::fprintf(stderr, "write_codec_golden: cannot write to %s\n", argv[1]);
        return 1;
      }
    }
  }
  for (const LatticeCase& golden : kLatticeCases) {
    if (!write_lattice_case(argv[1], golden)) {
      std::fprintf(stderr, "write_codec_golden: cannot write to %s\n", argv[1]);
      return 1;
    }
  }
  for (const ClusterCase& golden : kClusterCases) {
    if (!write_cluster_case(argv[1], golden)) {
      std::fprintf(stderr, "write_codec_golden: cannot write to %s\n", argv[1]);
      return 1;
    }
  }
  for (const GradientCase& golden : kGradientCases) {
    if (!write_gradient_case(argv[1], golden)) {
      std::fprintf(stderr, "write_codec_golden: cannot write to %s\n", argv[1]);
      return 1;
    }
  }
  for (const StepCase& golden : kStepCases) {
    if (!write_step_case(argv[1], golden)) {
      std::fprintf(stderr, "write_codec_golden: cannot write to %s\n", argv[1]);
      return 1;
    }
  }
  return 0;
}
