#include "gpu/float_split_plan.hpp"

#include <algorithm>
#include <array>

#include "base/checked.hpp"
#include "base/spread_runs.hpp"
#include "codec/float_split/float_split.hpp"
#include "codec/short_elements_encode.hpp"
#include "entropy/element_sample_encode.hpp"
#include "entropy/rans_table_encode.hpp"
#include "entropy/split_payload.hpp"
#include "entropy/split_tables_encode.hpp"

namespace bitsnap::gpu {
namespace {

static_assert(kLanes == entropy::kRansLanes && kGroups == entropy::kRansGroups);
static_assert(kBlockElements == entropy::kRansBlockElements && kFirstState == entropy::kRansFirstState);
static_assert(kStateBytes == entropy::kRansStateBytes && kSizesBytes == entropy::kSplitSizesBytes);

class GatheredSamples final : public entropy::SplitSamples {
 public:
  GatheredSamples(const SampleRuns& runs, ConstByteSpan gathered, std::size_t element_bytes,
                  std::span<const BlockBits> bits) noexcept
      : runs_(runs), gathered_(gathered), element_bytes_(element_bytes), bits_(bits) {}

  [[nodiscard]] ConstByteSpan of(SampleRuns::Part part) const noexcept {
    return gathered_.subspan(part.first * element_bytes_, part.count * element_bytes_);
  }
  ConstByteSpan of_all() const noexcept override { return of(runs_.all()); }
  ConstByteSpan of_block(std::size_t block) const noexcept override { return of(runs_.block(block)); }
  bool has_one_symbol(std::size_t block, const entropy::SplitShape& shape) const noexcept override {
    const std::uint32_t top = std::uint32_t{0xff} << (8 * (shape.element_bytes - 1));
    return (bits_[block].differs & (shape.rotated ? top >> 1 : top)) == 0;
  }

 private:
  const SampleRuns& runs_;
  const ConstByteSpan gathered_;
  const std::size_t element_bytes_;
  const std::span<const BlockBits> bits_;
};

}  // namespace

SampleRuns::SampleRuns(std::size_t elements) {
  const auto add = [&](const SpreadRuns& runs, std::size_t first, std::size_t size) {
    parts_.push_back({.first = starts_.size() * kRunElements, .count = std::min(runs.total(), size)});
    if (size <= runs.total()) {
      for (std::size_t at = 0; at < size; at += kRunElements) starts_.push_back(static_cast<std::uint32_t>(first + at));
      return;
    }
    for (std::size_t run = 0; run < runs.count; ++run) {
      starts_.push_back(static_cast<std::uint32_t>(first + runs.start(run, size)));
    }
  };
  static_assert(codec::kZerosGlance.elements == kRunElements && codec::kZerosLook.elements == kRunElements &&
                entropy::kSymbolRuns.elements == kRunElements);
  add(codec::kZerosGlance, 0, elements);
  add(codec::kZerosLook, 0, elements);
  add(entropy::kSymbolRuns, 0, elements);
  for (std::size_t first = 0; first < elements; first += kBlockElements) {
    add(entropy::kSymbolRuns, first, std::min<std::size_t>(kBlockElements, elements - first));
  }
}

bool can_be_coded(DType dtype, std::size_t elements) noexcept {
  if (!codec::suits_lanes(dtype) || elements * element_size(dtype) < codec::kMinLanesBytes) return false;
  const std::size_t last = elements % kBlockElements;
  return last > entropy::kSymbolRuns.total() || last % SampleRuns::kRunElements == 0;
}

std::optional<EncodePlan> plan_encoding(DType dtype, std::size_t elements, const SampleRuns& runs,
                                        ConstByteSpan gathered, std::span<const BlockBits> bits) {
  const std::size_t element_bytes = element_size(dtype);
  const GatheredSamples samples(runs, gathered, element_bytes, bits);
  if (codec::may_share_zeros(samples.of(runs.glance()), dtype) &&
      codec::shared_zero_bits(samples.of(runs.look()), dtype) > 0) {
    return std::nullopt;
  }
  std::uint32_t any = 0;
  for (const BlockBits& block : bits) any |= block.any;
  EncodePlan plan;
  plan.is_rotated = (any >> (8 * element_bytes - 1) & 1) != 0;
  plan.form =
      static_cast<std::uint8_t>(plan.is_rotated ? codec::FloatSplitForm::lanes_rotated : codec::FloatSplitForm::lanes);
  const entropy::SplitShape shape{.elements = elements, .element_bytes = element_bytes, .rotated = plan.is_rotated};
  std::vector<entropy::RansTable> tables(bits.size());
  if (!choose_split_tables(samples, shape, tables).are_worth_using) return std::nullopt;
  for (const entropy::RansTable& table : tables) {
    BlockEncodeTable block{};
    fill_encode_table(table, block.table);
    block.filler = commonest_symbol(table);
    plan.blocks.push_back(block);
    std::array<std::byte, entropy::kMaxRansTableBytes> bytes;
    const std::size_t size = write_rans_table(table, bytes.data());
    plan.table_bytes.insert(plan.table_bytes.end(), as_u8(bytes.data()), as_u8(bytes.data()) + size);
  }
  return plan;
}

Result<std::optional<DecodePlan>> plan_decoding(DType dtype, std::size_t elements, ConstByteSpan payload) {
  using codec::FloatSplitForm;
  if (payload.empty() || !codec::suits_lanes(dtype)) return std::nullopt;
  const auto form = static_cast<FloatSplitForm>(payload[0]);
  if (form != FloatSplitForm::lanes && form != FloatSplitForm::lanes_rotated) return std::nullopt;
  DecodePlan plan;
  plan.is_rotated = form == FloatSplitForm::lanes_rotated;
  plan.blocks.resize(divide_up(elements, kBlockElements));
  BITSNAP_ASSIGN(
      const entropy::SplitPayload fields,
      entropy::read_split_payload(
          payload.subspan(codec::kFloatSplitHeaderBytes),
          {.elements = elements, .element_bytes = element_size(dtype), .rotated = plan.is_rotated}, plan.blocks));
  const auto offset = [&](ConstByteSpan field) { return static_cast<std::size_t>(field.data() - payload.data()); };
  plan.rest = offset(fields.rest);
  for (std::size_t group = 0; group < kGroups; ++group) {
    plan.streams[group] = offset(fields.streams[group]);
    plan.stream_sizes[group] = fields.streams[group].size();
  }
  plan.escapes = offset(fields.escapes);
  plan.escapes_size = fields.escapes.size();
  plan.states = offset(fields.states);
  return plan;
}

}  // namespace bitsnap::gpu
