// Fuzz target of all codecs: any bytes as a payload, and any data round-trips.
//
// Input: codec (1 byte, modulo the number of codecs), dtype (1), flags (1), elements minus 1 (2 bytes, and bit 3 of
// the flags as bit 16), then the payload. Flags: bit 0 an input, bit 1 it is a peer, bit 2 encode the rest as data,
// bits 4 to 6 the row length, bit 7 more inputs. Inputs are made from the first bytes; the lower two bits of the row
// length select a peer's dtype and the kinds of more inputs. A lattice or clusters for encoding are read from where
// payloads of scaled_by or clustered have them.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "codec/registry.hpp"
#include "codec/registry_encode.hpp"

namespace bitsnap::codec {
namespace {

constexpr std::size_t kHeaderBytes = 5;
constexpr std::size_t kRowElements[] = {0, 64, 67, 100, 128, 320, 1000, 4096};

[[noreturn]] void broken(const char* law) {
  std::fprintf(stderr, "codec_fuzz: %s\n", law);
  std::abort();
}

// A heap block of exactly this size, so that AddressSanitizer sees every access beyond it.
class ExactBuffer {
 public:
  explicit ExactBuffer(std::size_t size) : bytes_(new std::byte[size]), size_(size) {}
  explicit ExactBuffer(ConstByteSpan contents) : ExactBuffer(contents.size()) {
    std::copy(contents.begin(), contents.end(), bytes_.get());
  }
  [[nodiscard]] ByteSpan span() const noexcept { return {bytes_.get(), size_}; }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t size_;
};

void round_trip(const Encoder& encoder, ConstByteSpan data, const EncodeContext& context, Scratch& scratch) {
  const ExactBuffer room(encoder.max_encoded_size(context.dtype, context.elements));
  const auto size = encoder.encode(data, context, room.span(), scratch);
  if (!size) broken("encoding fails");
  if (!*size) return;
  if (**size > data.size()) broken("a payload is larger than the chunk");
  const ExactBuffer payload(room.span().first(**size));
  const ExactBuffer again(data.size());
  if (!encoder.decoder().decode(payload.span(), context, again.span(), scratch))
    broken("the decoder rejects an encoded payload");
  if (!std::equal(data.begin(), data.end(), again.span().begin())) broken("decode(encode(x)) is not x");
}

void run(ConstByteSpan bytes) {
  if (bytes.size() < kHeaderBytes) return;
  static Scratch scratch;
  const auto field = [&](std::size_t i) { return std::to_integer<std::size_t>(bytes[i]); };
  const Encoder& encoder = *all_encoders()[field(0) % all_encoders().size()];
  const auto dtype = static_cast<DType>(field(1) % (static_cast<std::size_t>(DType::c64) + 1));
  const std::size_t flags = field(2);
  const std::size_t elements = 1 + field(3) + (field(4) << 8) + ((flags >> 3 & 1) << 16);
  const ConstByteSpan rest = bytes.subspan(kHeaderBytes);

  const DType input_dtypes[] = {dtype, DType::f32, DType::bf16, DType::f16};
  const DType input_dtype = (flags & 2) != 0 ? input_dtypes[flags >> 4 & 3] : dtype;
  const ExactBuffer input_bytes(elements * element_size(input_dtype));
  for (std::size_t i = 0; i < input_bytes.span().size(); ++i) {
    input_bytes.span()[i] = rest.empty() ? std::byte{0} : rest[i % std::min<std::size_t>(rest.size(), 61)];
  }
  const Input input{
      .kind = (flags & 2) != 0 ? InputKind::peer : InputKind::base, .dtype = input_dtype, .bytes = input_bytes.span()};
  std::vector<Input> inputs((flags & 1) != 0 ? 1 : 0, input);
  const ExactBuffer more_bytes(input_bytes.span());
  if ((flags & 0x81) == 0x81) {
    constexpr auto kBase = InputKind::base;
    constexpr auto kPeer = InputKind::peer;
    const std::vector<InputKind> more_kinds[] = {{kPeer}, {kPeer, kPeer}, {kBase, kPeer}, {kBase, kBase, kPeer}};
    // Each differs slightly from the first.
    std::rotate(more_bytes.span().begin(), more_bytes.span().begin() + 1, more_bytes.span().end());
    for (const InputKind kind : more_kinds[flags >> 4 & 3]) inputs.push_back({kind, input_dtype, more_bytes.span()});
  }
  std::optional<Lattice> lattice;
  if (rest.size() >= 9) {
    lattice = Lattice{.a = std::bit_cast<float>(load_le<std::uint32_t>(rest.data() + 1)),
                      .b = std::bit_cast<float>(load_le<std::uint32_t>(rest.data() + 5))};
  }
  constexpr std::size_t kClustersBegin = 6;
  std::vector<ClusterExtent> clusters;
  const std::size_t cluster_count = rest.size() < kClustersBegin ? 0 : 1 + std::to_integer<std::size_t>(rest[1]);
  for (std::size_t i = 0; i < cluster_count && rest.size() >= kClustersBegin + 8 * (i + 1); ++i) {
    const std::byte* const at = rest.data() + kClustersBegin + 8 * i;
    clusters.push_back({.least = std::bit_cast<float>(load_le<std::uint32_t>(at)),
                        .greatest = std::bit_cast<float>(load_le<std::uint32_t>(at + 4))});
  }
  const std::size_t row_elements = kRowElements[flags >> 4 & 7];
  const EncodeContext context{
      {.dtype = dtype, .elements = elements, .inputs = inputs},
      {.row_elements = row_elements, .first_column = row_elements > 0 ? elements % row_elements : 0},
      lattice,
      clusters};
  if (!encoder.decoder().accepts(dtype, context.inputs)) return;

  const ExactBuffer chunk(context.size_bytes());
  if ((flags & 4) != 0) {
    const std::size_t given = std::min(rest.size(), chunk.span().size());
    std::copy_n(rest.begin(), given, chunk.span().begin());
    for (std::size_t i = given; i < chunk.span().size(); ++i) {
      chunk.span()[i] = input_bytes.span()[i % input_bytes.span().size()];
    }
    round_trip(encoder, chunk.span(), context, scratch);
    return;
  }
  const ExactBuffer payload(rest);
  const auto decoded = encoder.decoder().decode(payload.span(), context, chunk.span(), scratch);
  if (decoded) {
    round_trip(encoder, chunk.span(), context, scratch);
  } else if (decoded.error().kind() != ErrorKind::corrupt && decoded.error().kind() != ErrorKind::truncated) {
    broken("an error blames something other than the payload");
  }
}

}  // namespace
}  // namespace bitsnap::codec

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  bitsnap::codec::run(std::as_bytes(std::span(data, size)));
  return 0;
}
