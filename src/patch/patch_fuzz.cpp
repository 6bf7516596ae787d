// Fuzz target of patches: any payload of a slab decodes to an error or to changes inside the slab, identically on every
// CPU level; and any weights and base round-trip.
//
// Input: byte 0: dtype (bits 0-2: BF16, F16, F8_E4M3, F8_E5M2, F32, U8, I16, F64), bit 3: make and apply a patch, bit
// 4: two tensors instead of one; bytes 1-2: elements minus 1; byte 3: a seed of the base; then the payload, or what is
// added to the base's bytes.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include <bitsnap/cpu.hpp>
#include <bitsnap/patch.hpp>

#include "base/scratch.hpp"
#include "patch/slab_decode.hpp"

namespace bitsnap::patch {
namespace {

constexpr std::size_t kHeaderSize = 4;
constexpr DType kDTypes[] = {DType::bf16, DType::f16, DType::f8_e4m3, DType::f8_e5m2,
                             DType::f32,  DType::u8,  DType::i16,     DType::f64};

[[noreturn]] void broken(const char* law) {
  std::fprintf(stderr, "patch_fuzz: %s\n", law);
  std::abort();
}

// A heap block of exactly this size, so that AddressSanitizer sees every access beyond it.
class ExactMemory {
 public:
  explicit ExactMemory(std::size_t size) : bytes_(new std::byte[size]()), size_(size) {}
  [[nodiscard]] ByteSpan span() const noexcept { return {bytes_.get(), size_}; }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t size_;
};

void fill(ByteSpan to, std::uint8_t seed) {
  std::uint64_t noise = 0x9E3779B97F4A7C15 + seed;
  for (std::byte& own : to) {
    noise ^= noise << 13;
    noise ^= noise >> 7;
    noise ^= noise << 17;
    own = static_cast<std::byte>(noise >> (seed % 8 + 20));
  }
}

struct Decoded {
  bool is_error = false;
  std::vector<std::byte> result;
};

Decoded decode(ConstByteSpan payload, DType dtype, std::span<const Piece> pieces,
               std::span<const ConstByteSpan> bytes) {
  Scratch scratch;
  SlabHasher hasher;
  StagedSlab staged;
  Decoded decoded;
  if (!decode_slab(payload, {.dtype = dtype, .pieces = pieces, .bytes = bytes}, scratch, hasher, staged)) {
    decoded.is_error = true;
    return decoded;
  }
  std::size_t at = 0;
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    const ExactMemory out(bytes[p].size());
    std::ranges::copy(bytes[p], out.span().begin());
    write_changes(staged, pieces[p], at, element_size(dtype), out.span());
    decoded.result.insert(decoded.result.end(), out.span().begin(), out.span().end());
    at += static_cast<std::size_t>(pieces[p].elements);
  }
  return decoded;
}

void decode_everywhere(ConstByteSpan payload, DType dtype, std::span<const Piece> pieces,
                       std::span<const ConstByteSpan> bytes) {
  std::optional<Decoded> first;
  for (const CpuLevel level : kCpuLevels) {
    if (!force_cpu_level(level)) continue;
    const Decoded own = decode(payload, dtype, pieces, bytes);
    if (first && (own.is_error != first->is_error || own.result != first->result)) broken("CPU levels disagree");
    first = own;
  }
  force_cpu_level(detected_cpu_level());
}

void round_trip(ConstByteSpan changes, DType dtype, std::span<const ConstByteSpan> bytes) {
  std::vector<ExactMemory> memories;
  std::vector<WeightMemory> base;
  std::vector<WeightMemory> weights;
  std::size_t next = 0;
  for (std::size_t p = 0; p < bytes.size(); ++p) {
    for (auto* const side : {&base, &weights}) {
      const ExactMemory& own = memories.emplace_back(bytes[p].size());
      std::ranges::copy(bytes[p], own.span().begin());
      WeightMemory& tensor = side->emplace_back();
      tensor.name = std::string(1, static_cast<char>('a' + p));
      tensor.dtype = dtype;
      tensor.shape = {bytes[p].size() / element_size(dtype)};
      tensor.memory = own.span().data();
      tensor.size_bytes = own.span().size();
    }
    for (std::byte& own : memories.back().span()) {
      if (next < changes.size()) own ^= changes[next++];
    }
  }
  const auto patch = make_patch(weights, base, {.threads = 1});
  if (!patch) broken("no patch");
  if (!apply_patch(base, *patch, {.threads = 1})) broken("a patch does not apply");
  for (std::size_t p = 0; p < bytes.size(); ++p) {
    if (!std::ranges::equal(memories[2 * p].span(), memories[2 * p + 1].span())) broken("a patch makes something else");
  }
}

void run(ConstByteSpan input) {
  if (input.size() < kHeaderSize) return;
  const auto flags = std::to_integer<unsigned>(input[0]);
  const DType dtype = kDTypes[flags & 7];
  const std::size_t elements = load_le<std::uint16_t>(input.data() + 1) + std::size_t{1};
  const std::size_t tensors = (flags >> 4 & 1) + 1;
  std::vector<ExactMemory> base;
  std::vector<Piece> pieces;
  std::vector<ConstByteSpan> bytes;
  std::uint32_t place = 0;
  for (std::size_t i = 0; i < tensors; ++i) {
    const std::size_t own = i == 0 ? elements : elements / 3 + 1;
    fill(base.emplace_back(own * element_size(dtype)).span(), std::to_integer<std::uint8_t>(input[3]));
    pieces.push_back({.tensor = i, .first_element = 0, .elements = own, .first_place = place});
    bytes.emplace_back(base.back().span());
    place += static_cast<std::uint32_t>(divide_up(own, kPlaceUnit) * kPlaceUnit);
  }
  const ConstByteSpan rest = input.subspan(kHeaderSize);
  if ((flags >> 3 & 1) != 0) {
    round_trip(rest, dtype, bytes);
  } else {
    decode_everywhere(rest, dtype, pieces, bytes);
  }
}

}  // namespace
}  // namespace bitsnap::patch

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  bitsnap::patch::run({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
