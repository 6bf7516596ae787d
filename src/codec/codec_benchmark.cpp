// Measures speed and ratio of every codec on one thread, from memory to memory, chunk by chunk, with memcpy in the same
// run. The baseline huff0 is measured by `make bench`.
//
//   codec_benchmark [--level=LEVEL] [--lattice=A,B] [--clusters=FILE] [--corpus=FILE,DTYPE[,BASE_FILE[,PEER_FILE]]]...
//                   [google-benchmark options]
//
// LEVEL selects the kernels: scalar, avx2 or avx512. --lattice and --clusters are EncodeContext::lattice and
// EncodeContext::clusters; the file holds the least and the greatest element of each cluster as F32.
//
// A corpus is a file of bare elements ("weights.raw,BF16"). A base has the same size; a peer has as many F32 elements.
// Without a corpus, BF16 and F32 numbers shaped like trained weights are used, with a base that differs in one element
// of 64. Corpora of BF16 and F16 get the same numbers in F32 as their peer ("_of_peer").
//
// Bytes per second are those of the decoded chunks. `ratio` is decoded size over payload size; a chunk that the codec
// cannot express counts as raw. Codecs that express no chunk are left out.
#include <benchmark/benchmark.h>

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
  // An input of chunk i; without bytes if the corpus has no such input.
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

// All chunks of a corpus, encoded with one codec. Its memory is touched before anything is measured.
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

  // Returns whether the codec can express any chunk. Exits on errors, which would make the numbers meaningless.
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
      context = {{.dtype = coding.corpus_.dtype,
                  .elements = coding.corpus_.chunk(i).size() / element_size(coding.corpus_.dtype),
                  .inputs = inputs},
                 {},
                 coding.corpus_.lattice,
                 coding.corpus_.clusters};
    }
    std::vector<Input> inputs;
    EncodeContext context;
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

// The inputs of chunks, and the suffix of benchmark names for them.
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

// Sets the peer to F32 numbers that round to the elements.
void fill_peer(Corpus& corpus) {
  if (corpus.dtype != DType::bf16 && corpus.dtype != DType::f16) return;
  corpus.peer.resize(2 * corpus.data.size());
  for (std::size_t i = 0; i < corpus.data.size() / 2; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, corpus.data.data() + 2 * i, 2);
    std::uint32_t wide = std::uint32_t{bits} << 16;
    if (corpus.dtype == DType::f16) {  // subnormal numbers become zeros
      wide = (std::uint32_t{bits} & 0x8000U) << 16;
      if ((bits & 0x7c00U) != 0) wide |= ((std::uint32_t{bits} & 0x7fffU) << 13) + (112U << 23);
    }
    std::memcpy(corpus.peer.data() + 4 * i, &wide, 4);
  }
}

Corpus synthetic(DType dtype) {
  Corpus corpus;
  corpus.name = dtype_name(dtype);
  corpus.dtype = dtype;
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

// "FILE,DTYPE[,BASE_FILE[,PEER_FILE]]"; BASE_FILE may be empty.
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

std::optional<Lattice> read_lattice(const std::string& argument) {
  Lattice lattice;
  if (std::sscanf(argument.c_str(), "%f,%f", &lattice.a, &lattice.b) != 2) return std::nullopt;
  return lattice;
}

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

struct Arguments {
  std::vector<std::unique_ptr<Corpus>> corpora;
  std::optional<Lattice> lattice;
  std::vector<ClusterExtent> clusters;
  std::vector<char*> others;  // of google-benchmark
};

// nullopt, after a message, if an argument is wrong.
std::optional<Arguments> read_arguments(int argc, char** argv) {
  Arguments arguments;
  const auto reject = [](const char* argument, const char* expected) {
    std::fprintf(stderr, "codec_benchmark: cannot use %s: expected %s\n", argument, expected);
    return std::nullopt;
  };
  for (int i = 0; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const std::size_t equals = argument.find('=');
    const std::string_view name = argument.substr(0, equals);
    const std::string value(equals == std::string_view::npos ? "" : argument.substr(equals + 1));
    if (name == "--level") {
      const auto level = cpu_level_from_name(value);
      if (!level || !force_cpu_level(*level)) return reject(argv[i], "a CPU level of this machine");
    } else if (name == "--lattice") {
      arguments.lattice = read_lattice(value);
      if (!arguments.lattice) return reject(argv[i], "A,B");
    } else if (name == "--clusters") {
      arguments.clusters = read_clusters(value);
      if (arguments.clusters.empty()) return reject(argv[i], "a file of two F32 for each cluster");
    } else if (name == "--corpus") {
      arguments.corpora.push_back(std::make_unique<Corpus>());
      if (!read_corpus(value, *arguments.corpora.back())) {
        return reject(argv[i], "FILE,DTYPE[,BASE_FILE[,PEER_FILE]] with files of matching sizes");
      }
    } else {
      arguments.others.push_back(argv[i]);
    }
  }
  return arguments;
}

int run(int argc, char** argv) {
  std::optional<Arguments> arguments = read_arguments(argc, argv);
  if (!arguments) return 1;
  auto& [corpora, lattice, clusters, others] = *arguments;
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
