// Speed and ratio of every codec on one thread, from memory to memory, chunk by chunk, beside memcpy in the same run.
//
//   codec_benchmark [--level=LEVEL] [--lattice=A,B] [--clusters=FILE] [--corpus=FILE,DTYPE[,BASE_FILE[,PEER_FILE]]]...
//                   [google-benchmark options]
//
// The level is that of the kernels: scalar, avx2 or avx512. The lattice is what codecs are told of elements that are
// multiples of a scale, and the clusters of elements that are numbers of these: a file of the least and the greatest of
// each, as F32.
// Each corpus is a file of bare elements ("weights.raw,BF16"), whose base, if there is one, is another of the same
// size, and whose peer has as many f32. Without any, bf16 and f32 numbers shaped like trained weights stand in for
// them, and a base that differs in one element of 64. The master that bf16 and f16 elements are coded beside
// ("_of_peer") is the same numbers in f32. Bytes per second are those of the decoded chunks; `ratio` is decoded size
// over payload size, where a chunk that the codec cannot express counts as raw; a codec that expresses none is left
// out.
#include <benchmark/benchmark.h>
#define ZSTD_STATIC_LINKING_ONLY  // for the compression of literals
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include <bitsnap/cpu.hpp>
#include <bitsnap/tensor.hpp>

#include "codec/registry_encode.hpp"
#include "codec/trained_like_testing.hpp"
#include "entropy/planes.hpp"

namespace bitsnap::codec {
namespace {

using InputKinds = std::span<const InputKind>;

struct Corpus {
  std::string name;
  DType dtype = DType::opaque;
  std::vector<std::byte> data;
  std::vector<std::byte> base;  // empty: none
  std::vector<std::byte> peer;  // f32; empty: none
  std::optional<Lattice> lattice;
  std::vector<ClusterExtent> clusters;

  [[nodiscard]] std::size_t chunk_bytes() const noexcept { return kChunkElements * element_size(dtype); }
  [[nodiscard]] std::size_t chunks() const noexcept { return (data.size() + chunk_bytes() - 1) / chunk_bytes(); }
  [[nodiscard]] ConstByteSpan chunk(std::size_t i) const noexcept {
    return part(data, i * chunk_bytes(), chunk_bytes());
  }
  // What is beside that chunk; nothing where the corpus has no such input.
  [[nodiscard]] Input input(InputKind kind, std::size_t i) const noexcept {
    if (kind == InputKind::base) return {kind, dtype, part(base, i * chunk_bytes(), chunk_bytes())};
    return {kind, DType::f32, part(peer, i * kChunkElements * 4, kChunkElements * 4)};
  }
  [[nodiscard]] std::vector<Input> inputs(InputKinds kinds, std::size_t i) const {
    std::vector<Input> inputs;
    for (const InputKind kind : kinds) inputs.push_back(input(kind, i));
    return inputs;
  }

 private:
  static ConstByteSpan part(const std::vector<std::byte>& of, std::size_t begin, std::size_t size) noexcept {
    return ConstByteSpan(of).subspan(begin, std::min(size, of.size() - begin));
  }
};

// All chunks of a corpus as one codec encodes them, in memory that is touched before anything is measured.
class Coding {
 public:
  Coding(const Corpus& corpus, const Encoder& encoder, InputKinds kinds)
      : corpus_(corpus),
        encoder_(encoder),
        kinds_(kinds),
        room_(encoder.max_encoded_size(corpus.dtype, kChunkElements)),
        payloads_(room_ * corpus.chunks()),
        sizes_(corpus.chunks()),
        out_(corpus.data.size()) {}

  // Whether any chunk could be expressed; exits on an error, which would make the numbers meaningless.
  bool encode() {
    bool any = false;
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      const ConstByteSpan data = corpus_.chunk(i);
      const Surroundings around(*this, i);
      auto size = encoder_.encode(data, around.context, ByteSpan(payloads_).subspan(i * room_, room_), scratch_);
      if (!size) give_up(size.error());
      sizes_[i] = *size;
      any = any || size->has_value();
    }
    return any;
  }

  void decode() {
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      if (!sizes_[i]) continue;
      const Surroundings around(*this, i);
      const ByteSpan out = ByteSpan(out_).subspan(i * corpus_.chunk_bytes(), around.context.size_bytes());
      const auto decoded = encoder_.decoder().decode(ConstByteSpan(payloads_).subspan(i * room_, *sizes_[i]),
                                                     around.context, out, scratch_);
      if (!decoded) give_up(decoded.error());
    }
  }

  [[nodiscard]] double ratio() const noexcept {
    std::size_t total = 0;
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      total += sizes_[i].value_or(corpus_.chunk(i).size());
    }
    return static_cast<double>(corpus_.data.size()) / static_cast<double>(std::max<std::size_t>(total, 1));
  }

  [[nodiscard]] const Corpus& corpus() const noexcept { return corpus_; }

 private:
  struct Surroundings {
    Surroundings(const Coding& coding, std::size_t i) {
      inputs = coding.corpus_.inputs(coding.kinds_, i);
      context = {.dtype = coding.corpus_.dtype,
                 .elements = coding.corpus_.chunk(i).size() / element_size(coding.corpus_.dtype),
                 .inputs = inputs,
                 .parameters = {},
                 .lattice = coding.corpus_.lattice,
                 .clusters = coding.corpus_.clusters};
    }
    std::vector<Input> inputs;
    ChunkContext context;
  };

  [[noreturn]] static void give_up(const Error& error) {
    std::fprintf(stderr, "codec_benchmark: %s\n", error.message().c_str());
    std::exit(1);
  }

  const Corpus& corpus_;
  const Encoder& encoder_;
  InputKinds kinds_;
  std::size_t room_;
  std::vector<std::byte> payloads_;
  std::vector<std::optional<std::size_t>> sizes_;
  std::vector<std::byte> out_;
  Scratch scratch_;
};

void report(benchmark::State& state, const Corpus& corpus) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) *
                          static_cast<std::int64_t>(corpus.data.size()));
}

void register_memcpy(const Corpus& corpus) {
  benchmark::RegisterBenchmark((corpus.name + "/memcpy").c_str(), [&corpus](benchmark::State& state) {
    std::vector<std::byte> out(corpus.data.size());
    for ([[maybe_unused]] auto _ : state) {
      for (std::size_t i = 0; i < corpus.chunks(); ++i) {
        const ConstByteSpan data = corpus.chunk(i);
        std::memcpy(out.data() + i * corpus.chunk_bytes(), data.data(), data.size());
      }
      benchmark::ClobberMemory();
    }
    report(state, corpus);
  });
}

// What chunks are coded beside, as it is called.
struct Beside {
  std::string_view name;
  std::vector<InputKind> kinds;
};
const Beside kBeside[] = {{"", {}},
                          {"_of_base", {InputKind::base}},
                          {"_of_peer", {InputKind::peer}},
                          {"_of_base_and_peer", {InputKind::base, InputKind::peer}}};

void register_codec(const Corpus& corpus, const Encoder& encoder, const Beside& beside) {
  const std::vector<Input> inputs = corpus.inputs(beside.kinds, 0);
  if (std::ranges::any_of(inputs, [](const Input& input) { return input.bytes.empty(); })) return;
  if (!encoder.decoder().accepts(corpus.dtype, inputs)) return;
  const auto coding = std::make_shared<Coding>(corpus, encoder, beside.kinds);
  if (!coding->encode()) return;
  const std::string name = corpus.name + "/" + std::string(encoder.decoder().name()) + std::string(beside.name);
  benchmark::RegisterBenchmark((name + "/encode").c_str(), [coding](benchmark::State& state) {
    for ([[maybe_unused]] auto _ : state) coding->encode();
    report(state, coding->corpus());
    state.counters["ratio"] = coding->ratio();
  });
  benchmark::RegisterBenchmark((name + "/decode").c_str(), [coding](benchmark::State& state) {
    for ([[maybe_unused]] auto _ : state) coding->decode();
    report(state, coding->corpus());
  });
}

// ZipNN's method in a tight loop: the elements rotated by a bit, the planes but the top one raw, and that one Huffman
// coded by zstd in blocks of 128 KiB, without a search for matches.
class Huff0 {
 public:
  explicit Huff0(const Corpus& corpus)
      : corpus_(corpus),
        width_(element_size(corpus.dtype)),
        plane_(kBlock),
        payloads_(corpus.data.size() + ZSTD_compressBound(kBlock)),
        out_(corpus.data.size()) {
    ZSTD_CCtx_setParameter(encoder_.get(), ZSTD_c_compressionLevel, ZSTD_minCLevel());
    ZSTD_CCtx_setParameter(encoder_.get(), ZSTD_c_literalCompressionMode, ZSTD_lcm_huffman);
  }

  void encode() {
    sizes_.clear();
    std::byte* to = payloads_.data();
    for_blocks([&](std::size_t begin, std::size_t elements) {
      auto planes = rest_planes(to, elements);
      planes[width_ - 1] = plane_.data();
      entropy::rotated_split_planes(corpus_.data.data() + begin, elements, width_, planes.data());
      to += (width_ - 1) * elements;
      sizes_.push_back(ZSTD_compress2(encoder_.get(), to, ZSTD_compressBound(kBlock), plane_.data(), elements));
      to += sizes_.back();
    });
    size_ = static_cast<std::size_t>(to - payloads_.data());
  }

  void decode() {
    std::byte* from = payloads_.data();
    std::size_t block = 0;
    for_blocks([&](std::size_t begin, std::size_t elements) {
      auto planes = rest_planes(from, elements);
      planes[width_ - 1] = plane_.data();
      from += (width_ - 1) * elements;
      ZSTD_decompressDCtx(decoder_.get(), plane_.data(), elements, from, sizes_[block]);
      from += sizes_[block++];
      entropy::rotated_merge_planes(planes.data(), elements, width_, out_.data() + begin);
    });
  }

  [[nodiscard]] const Corpus& corpus() const noexcept { return corpus_; }
  [[nodiscard]] double ratio() const noexcept {
    return static_cast<double>(corpus_.data.size()) / static_cast<double>(size_);
  }

 private:
  static constexpr std::size_t kBlock = std::size_t{128} << 10;
  using Planes = std::array<std::byte*, entropy::kMaxElementSize>;

  struct Free {
    void operator()(ZSTD_CCtx* context) const noexcept { ZSTD_freeCCtx(context); }
    void operator()(ZSTD_DCtx* context) const noexcept { ZSTD_freeDCtx(context); }
  };

  template <typename Body>
  void for_blocks(Body&& body) {
    const std::size_t bytes = kBlock * width_;
    for (std::size_t begin = 0; begin < corpus_.data.size(); begin += bytes) {
      body(begin, std::min(bytes, corpus_.data.size() - begin) / width_);
    }
  }

  [[nodiscard]] Planes rest_planes(std::byte* at, std::size_t elements) const noexcept {
    Planes planes{};
    for (std::size_t k = 0; k + 1 < width_; ++k) planes[k] = at + k * elements;
    return planes;
  }

  const Corpus& corpus_;
  std::size_t width_;
  std::unique_ptr<ZSTD_CCtx, Free> encoder_{ZSTD_createCCtx()};
  std::unique_ptr<ZSTD_DCtx, Free> decoder_{ZSTD_createDCtx()};
  std::vector<std::byte> plane_;
  std::vector<std::byte> payloads_;
  std::vector<std::byte> out_;
  std::vector<std::size_t> sizes_;
  std::size_t size_ = 0;
};

void register_huff0(const Corpus& corpus) {
  if (corpus.dtype != DType::bf16 && corpus.dtype != DType::f32) return;
  const auto coding = std::make_shared<Huff0>(corpus);
  coding->encode();
  benchmark::RegisterBenchmark((corpus.name + "/huff0/encode").c_str(), [coding](benchmark::State& state) {
    for ([[maybe_unused]] auto _ : state) coding->encode();
    report(state, coding->corpus());
    state.counters["ratio"] = coding->ratio();
  });
  benchmark::RegisterBenchmark((corpus.name + "/huff0/decode").c_str(), [coding](benchmark::State& state) {
    for ([[maybe_unused]] auto _ : state) coding->decode();
    report(state, coding->corpus());
  });
}

// The elements as f32: what each is the rounding of.
void fill_peer(Corpus& corpus) {
  if (corpus.dtype != DType::bf16 && corpus.dtype != DType::f16) return;
  corpus.peer.resize(2 * corpus.data.size());
  for (std::size_t i = 0; i < corpus.data.size() / 2; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, corpus.data.data() + 2 * i, 2);
    std::uint32_t wide = std::uint32_t{bits} << 16;
    if (corpus.dtype == DType::f16) {  // of normal numbers
      wide = (std::uint32_t{bits} & 0x8000U) << 16;
      if ((bits & 0x7c00U) != 0) wide |= ((std::uint32_t{bits} & 0x7fffU) << 13) + (112U << 23);
    }
    std::memcpy(corpus.peer.data() + 4 * i, &wide, 4);
  }
}

Corpus synthetic(DType dtype) {
  Corpus corpus{.name = std::string(dtype_name(dtype)),
                .dtype = dtype,
                .data = {},
                .base = {},
                .peer = {},
                .lattice = {},
                .clusters = {}};
  corpus.data.resize(std::size_t{32} << 20);
  fill_trained_like(dtype, corpus.data, 1);
  corpus.base = corpus.data;
  for (std::size_t i = 0; i < corpus.base.size(); i += 64 * element_size(dtype)) corpus.base[i] ^= std::byte{1};
  return corpus;
}

bool read_file(const std::string& path, std::vector<std::byte>& bytes) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const ConstByteSpan read = std::as_bytes(std::span(text));
  bytes.assign(read.begin(), read.end());
  return !bytes.empty();
}

// "FILE,DTYPE[,BASE_FILE[,PEER_FILE]]"; a base without a name is none.
bool read_corpus(const std::string& argument, Corpus& corpus) {
  std::array<std::string, 4> fields;
  std::istringstream stream(argument);
  for (std::string& field : fields) std::getline(stream, field, ',');
  const auto& [path, dtype, base, peer] = fields;
  corpus.dtype = dtype_from_name(dtype);
  corpus.name = path.substr(path.find_last_of('/') + 1);
  if (corpus.dtype == DType::opaque || !read_file(path, corpus.data)) return false;
  const std::size_t width = element_size(corpus.dtype);
  if (corpus.data.size() % width != 0) return false;
  if (!peer.empty() && (!read_file(peer, corpus.peer) || corpus.peer.size() / 4 != corpus.data.size() / width)) {
    return false;
  }
  return base.empty() || (read_file(base, corpus.base) && corpus.base.size() == corpus.data.size());
}

// "A,B"
std::optional<Lattice> read_lattice(const std::string& argument) {
  Lattice lattice;
  if (std::sscanf(argument.c_str(), "%f,%f", &lattice.a, &lattice.b) != 2) return std::nullopt;
  return lattice;
}

// A file of the least and the greatest number of each cluster, as F32.
std::vector<ClusterExtent> read_clusters(const std::string& path) {
  std::vector<std::byte> bytes;
  std::vector<ClusterExtent> clusters;
  if (!read_file(path, bytes)) return clusters;
  for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    clusters.push_back({.least = std::bit_cast<float>(load_le<std::uint32_t>(bytes.data() + at)),
                        .greatest = std::bit_cast<float>(load_le<std::uint32_t>(bytes.data() + at + 4))});
  }
  return clusters;
}

int run(int argc, char** argv) {
  std::vector<std::unique_ptr<Corpus>> corpora;
  std::vector<char*> others;
  std::optional<Lattice> lattice;
  std::vector<ClusterExtent> clusters;
  for (int i = 0; i < argc; ++i) {
    constexpr std::string_view kFlag = "--corpus=";
    constexpr std::string_view kLevelFlag = "--level=";
    constexpr std::string_view kLatticeFlag = "--lattice=";
    constexpr std::string_view kClustersFlag = "--clusters=";
    const std::string_view argument = argv[i];
    if (argument.starts_with(kLevelFlag)) {
      const auto level = cpu_level_from_name(argument.substr(kLevelFlag.size()));
      if (level && force_cpu_level(*level)) continue;
      std::fprintf(stderr, "codec_benchmark: this machine has no level of that name: %s\n", argv[i]);
      return 1;
    }
    if (argument.starts_with(kLatticeFlag)) {
      lattice = read_lattice(argv[i] + kLatticeFlag.size());
      if (lattice) continue;
      std::fprintf(stderr, "codec_benchmark: cannot use %s: expected A,B\n", argv[i]);
      return 1;
    }
    if (argument.starts_with(kClustersFlag)) {
      clusters = read_clusters(argv[i] + kClustersFlag.size());
      if (!clusters.empty()) continue;
      std::fprintf(stderr, "codec_benchmark: cannot use %s: expected a file of two F32 for each cluster\n", argv[i]);
      return 1;
    }
    if (!argument.starts_with(kFlag)) {
      others.push_back(argv[i]);
      continue;
    }
    corpora.push_back(std::make_unique<Corpus>());
    if (!read_corpus(argv[i] + kFlag.size(), *corpora.back())) {
      std::fprintf(stderr, "codec_benchmark: cannot use %s: expected FILE,DTYPE[,BASE_FILE[,PEER_FILE]]\n", argv[i]);
      return 1;
    }
  }
  int other_count = static_cast<int>(others.size());
  benchmark::Initialize(&other_count, others.data());
  if (benchmark::ReportUnrecognizedArguments(other_count, others.data())) return 1;
  if (corpora.empty()) {
    for (const DType dtype : {DType::bf16, DType::f32}) corpora.push_back(std::make_unique<Corpus>(synthetic(dtype)));
  }
  for (const auto& corpus : corpora) {
    fill_peer(*corpus);
    corpus->lattice = lattice;
    corpus->clusters = clusters;
    register_memcpy(*corpus);
    register_huff0(*corpus);
    for (const Encoder* encoder : all_encoders()) {
      for (const Beside& beside : kBeside) register_codec(*corpus, *encoder, beside);
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace bitsnap::codec

int main(int argc, char** argv) { return bitsnap::codec::run(argc, argv); }
