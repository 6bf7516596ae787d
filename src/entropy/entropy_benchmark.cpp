// Speed of the block coder and the plane kernels at each CPU level, beside memcpy of the same size in the same run.
// Bytes per second count plane bytes, or element bytes for kernels that move elements.
// Data: simulated trained weights (normal, deviation 0.02 times a scale per row of 4096) as bf16.
#include <benchmark/benchmark.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <bitsnap/cpu.hpp>

#include "base/scratch.hpp"
#include "entropy/byte_block_encode.hpp"
#include "entropy/change_mask.hpp"
#include "entropy/planes.hpp"

namespace bitsnap::entropy {
namespace {

constexpr std::size_t kElements = std::size_t{1} << 18;  // one chunk
constexpr std::size_t kChunks = 16;
constexpr std::size_t kRow = 4096;

using Bytes = std::vector<std::byte>;

std::uint16_t to_bf16(float value) {
  std::uint32_t bits = load_le<std::uint32_t>(reinterpret_cast<const std::byte*>(&value));
  bits += 0x7fff + ((bits >> 16) & 1);
  return static_cast<std::uint16_t>(bits >> 16);
}

Bytes simulated_weights() {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal(0.0F, 0.02F);
  std::uniform_real_distribution<float> log_scale(-1.0F, 1.0F);
  Bytes weights(kElements * kChunks * 2);
  float scale = 1;
  for (std::size_t i = 0; i < kElements * kChunks; ++i) {
    if (i % kRow == 0) scale = std::exp2(log_scale(random));
    store_le(weights.data() + 2 * i, to_bf16(scale * normal(random)));
  }
  return weights;
}

// The same weights, with a share of the 16-bit patterns moved by -1 or 1.
Bytes next_weights(const Bytes& weights, double changed) {
  std::mt19937_64 random(2);
  std::bernoulli_distribution moves(changed);
  Bytes next = weights;
  for (std::size_t i = 0; i < next.size() / 2; ++i) {
    if (!moves(random)) continue;
    const int change = (random() & 1U) != 0 ? 1 : -1;
    store_le(next.data() + 2 * i, static_cast<std::uint16_t>(load_le<std::uint16_t>(next.data() + 2 * i) + change));
  }
  return next;
}

Bytes plane_of(const Bytes& elements, const Bytes* base, bool rotated, std::size_t which) {
  const std::size_t count = elements.size() / 2;
  Bytes low(count);
  Bytes high(count);
  std::byte* const planes[] = {low.data(), high.data()};
  if (base != nullptr) {
    xor_split_planes(elements.data(), base->data(), count, 2, planes);
  } else if (rotated) {
    rotated_split_planes(elements.data(), count, 2, planes);
  } else {
    split_planes(elements.data(), count, 2, planes);
  }
  return which == 0 ? low : high;
}

void set_rate(benchmark::State& state, std::size_t bytes) {
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes) * static_cast<std::int64_t>(state.iterations()));
}

void copy(benchmark::State& state, const Bytes& data) {
  Bytes out(data.size());
  for (auto _ : state) {
    std::memcpy(out.data(), data.data(), data.size());
    benchmark::ClobberMemory();
  }
  set_rate(state, data.size());
}

// One chunk of a plane at a time, like the codecs.
void encode(benchmark::State& state, CpuLevel level, const Bytes& plane) {
  force_cpu_level(level);
  Scratch scratch;
  Bytes out(max_encoded_plane_size(kElements));
  std::size_t encoded = 0;
  for (auto _ : state) {
    encoded = 0;
    for (std::size_t i = 0; i < kChunks; ++i) {
      encoded += *encode_plane(ConstByteSpan(plane).subspan(i * kElements, kElements), out, scratch);
    }
  }
  set_rate(state, plane.size());
  state.counters["ratio"] = static_cast<double>(plane.size()) / static_cast<double>(encoded);
  force_cpu_level(detected_cpu_level());
}

void decode(benchmark::State& state, CpuLevel level, const Bytes& plane) {
  force_cpu_level(level);
  Scratch scratch;
  Bytes encoded(max_encoded_plane_size(plane.size()));
  encoded.resize(*encode_plane(plane, encoded, scratch));
  Bytes out(plane.size());
  for (auto _ : state) {
    std::size_t used = 0;
    for (std::size_t i = 0; i < kChunks; ++i) {
      used +=
          *decode_plane(ConstByteSpan(encoded).subspan(used), ByteSpan(out).subspan(i * kElements, kElements), scratch);
    }
    if (used != encoded.size()) state.SkipWithError("decoded another size");
  }
  if (out != plane) state.SkipWithError("decoded other bytes");
  set_rate(state, plane.size());
  force_cpu_level(detected_cpu_level());
}

template <typename Operation>
void kernel(benchmark::State& state, CpuLevel level, std::size_t bytes, Operation operation) {
  force_cpu_level(level);
  for (auto _ : state) {
    operation();
    benchmark::ClobberMemory();
  }
  set_rate(state, bytes);
  force_cpu_level(detected_cpu_level());
}

// One chunk after another through planes that stay in the cache, like the codecs.
void register_plane_kernels(CpuLevel level, const Bytes& data, const Bytes& base) {
  const std::string suffix = std::string("/").append(cpu_level_name(level));
  static std::vector<Bytes> buffers(kMaxElementSize, Bytes(kElements));
  static Bytes out(data.size());
  static std::byte* planes[kMaxElementSize];
  for (std::size_t k = 0; k < kMaxElementSize; ++k) planes[k] = buffers[k].data();
  for (const std::size_t size : {std::size_t{2}, std::size_t{4}, std::size_t{8}}) {
    const std::string name = std::to_string(size) + suffix;
    const std::size_t chunk = kElements * size;
    const auto add = [&](const std::string& what, auto each) {
      benchmark::RegisterBenchmark((what + name).c_str(), [=, &data](benchmark::State& state) {
        kernel(state, level, data.size(), [&] {
          for (std::size_t at = 0; at + chunk <= data.size(); at += chunk) each(at);
        });
      });
    };
    add("split/", [=, &data](std::size_t at) { split_planes(data.data() + at, kElements, size, planes); });
    add("merge/", [=](std::size_t at) { merge_planes(planes, kElements, size, out.data() + at); });
    add("rotated_split/",
        [=, &data](std::size_t at) { rotated_split_planes(data.data() + at, kElements, size, planes); });
    add("rotated_merge/", [=](std::size_t at) { rotated_merge_planes(planes, kElements, size, out.data() + at); });
    add("xor_split/", [=, &data, &base](std::size_t at) {
      xor_split_planes(data.data() + at, base.data() + at, kElements, size, planes);
    });
    add("xor_merge/",
        [=, &base](std::size_t at) { xor_merge_planes(planes, base.data() + at, kElements, size, out.data() + at); });
    add("any_sign_bit_set/", [=](std::size_t at) {
      benchmark::DoNotOptimize(any_sign_bit_set(out.data() + at % out.size(), kElements, size));
    });
  }
  static Bytes mask(mask_bytes(data.size() / 2));
  static Bytes values(data.size());
  const std::size_t elements = data.size() / 2;
  const auto add = [&](const std::string& what, auto operation) {
    benchmark::RegisterBenchmark((what + "2" + suffix).c_str(),
                                 [=, &data](benchmark::State& state) { kernel(state, level, data.size(), operation); });
  };
  add("changed_mask/", [=, &data, &base] { changed_mask(data.data(), base.data(), elements, 2, mask.data()); });
  add("gather_changed/", [=, &data] { gather_changed(data.data(), mask.data(), elements, 2, values.data()); });
  add("scatter_changed/",
      [=, &base] { scatter_changed(base.data(), mask.data(), values.data(), elements, 2, out.data()); });
}

}  // namespace

void register_all() {
  static const Bytes weights = simulated_weights();
  static const Bytes sparse = next_weights(weights, 0.1);
  static const Bytes dense = next_weights(weights, 0.6);
  struct Plane {
    const char* name;
    Bytes bytes;
  };
  static const std::vector<Plane> planes = {
      {"exponent", plane_of(weights, nullptr, true, 1)},     {"mantissa", plane_of(weights, nullptr, true, 0)},
      {"top_byte", plane_of(weights, nullptr, false, 1)},    {"xor_low_60%", plane_of(dense, &weights, false, 0)},
      {"xor_low_10%", plane_of(sparse, &weights, false, 0)}, {"xor_high_10%", plane_of(sparse, &weights, false, 1)},
  };
  benchmark::RegisterBenchmark("memcpy", [](benchmark::State& state) { copy(state, weights); });
  for (const CpuLevel level : kCpuLevels) {
    if (!has_cpu_level(level)) continue;
    const std::string suffix = std::string("/").append(cpu_level_name(level));
    for (const Plane& plane : planes) {
      benchmark::RegisterBenchmark((std::string("encode/") + plane.name + suffix).c_str(),
                                   [=, &plane](benchmark::State& state) { encode(state, level, plane.bytes); });
      benchmark::RegisterBenchmark((std::string("decode/") + plane.name + suffix).c_str(),
                                   [=, &plane](benchmark::State& state) { decode(state, level, plane.bytes); });
    }
    register_plane_kernels(level, weights, sparse);
  }
}

namespace {
const bool registered = (register_all(), true);
}

}  // namespace bitsnap::entropy
