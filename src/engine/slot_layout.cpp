#include "engine/slot_layout.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <ranges>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "base/checked.hpp"
#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "container/directory.hpp"
#include "container/json_fields.hpp"
#include "container/json_text.hpp"
#include "container/value_reader.hpp"
#include "save/state_layout.hpp"

namespace bitsnap::engine {

// The inputs of a save that the content does not have. Each row begins with the number of its tensor.
struct Details {
  std::vector<std::tuple<std::uint64_t, std::string, std::uint64_t>> masters;  // name and element of the master
  // beta1, beta2 and epsilon as the bits of a double in 16 hexadecimal digits; the step.
  std::vector<std::tuple<std::uint64_t, std::string, std::string, std::string, std::uint64_t>> adam;
  std::optional<std::string> safetensors_header;
};

static constexpr auto json_fields(std::type_identity<Details>) {
  using container::json_field;
  using container::JsonNeed;
  return std::array{json_field<&Details::masters>("masters", JsonNeed::optional),
                    json_field<&Details::adam>("adam", JsonNeed::optional),
                    json_field<&Details::safetensors_header>("safetensors_header", JsonNeed::optional)};
}

namespace {

constexpr std::string_view kSlotMagic = "BSNASLOT";
constexpr std::uint64_t kHeadBytes = 32;
constexpr std::uint64_t kMaxTextBytes = std::uint64_t{1} << 28;
constexpr std::size_t kSlotNesting = 8;
// A piece of this size takes long enough to copy that distributing the pieces costs little, and is small enough that
// all threads finish at about the same time.
constexpr std::uint64_t kPieceBytes = std::uint64_t{4} << 20;
// Small tensors are copied together. Some may have to come from another device, one by one.
constexpr std::size_t kPiecesAtOnce = 256;

constexpr std::uint64_t align_up(std::uint64_t number, std::uint64_t unit) noexcept {
  return (number + unit - 1) / unit * unit;
}

tl::unexpected<Error> corrupt(std::string message) { return fail(ErrorKind::corrupt, "slot: " + std::move(message)); }

std::string hex_of(double number) { return fmt::format("{:016x}", std::bit_cast<std::uint64_t>(number)); }

std::string serialize_details(const State& state) {
  Details details;
  for (std::size_t i = 0; i < state.tensors.size(); ++i) {
    if (const auto& master = state.tensors[i].master) details.masters.emplace_back(i, master->tensor, master->element);
    if (const auto& adam = state.tensors[i].adam) {
      details.adam.emplace_back(i, hex_of(adam->beta1), hex_of(adam->beta2), hex_of(adam->epsilon), adam->step);
    }
  }
  details.safetensors_header = state.safetensors_header;
  return container::serialize_json(details);
}

Result<void> parse_details(std::string_view text, State& state) {
  auto parsed = container::parse_json<Details>(text, kSlotNesting);
  if (!parsed) return tl::unexpected(std::move(parsed).error().within("slot: details"));
  Details& details = *parsed;
  const auto tensor = [&](std::uint64_t number) -> Result<TensorSource*> {
    if (number < state.tensors.size()) return &state.tensors[static_cast<std::size_t>(number)];
    return corrupt(fmt::format("details refer to tensor {}, the state has {} tensors", number, state.tensors.size()));
  };
  for (auto& [number, name, element] : details.masters) {
    BITSNAP_ASSIGN(TensorSource* const weight, tensor(number));
    weight->master = MasterSlice{std::move(name), element};
  }
  for (const auto& [number, beta1, beta2, epsilon, step] : details.adam) {
    BITSNAP_ASSIGN(TensorSource* const moment, tensor(number));
    std::array<double, 3> numbers{};
    std::size_t count = 0;
    for (const std::string* const digits : {&beta1, &beta2, &epsilon}) {
      const std::optional<std::uint64_t> bits = container::parse_hex(*digits);
      if (!bits) return corrupt("details have a number that is not 16 hexadecimal digits");
      numbers[count++] = std::bit_cast<double>(*bits);
    }
    moment->adam = AdamNumbers{numbers[0], numbers[1], numbers[2], step};
  }
  state.safetensors_header = std::move(details.safetensors_header);
  return {};
}

bool takes_room(const TensorInfo& info) noexcept { return !info.alias_of && info.size_bytes > 0; }

// Sets the offsets from the beginning of the slot, and returns the end of the last tensor; nullopt beyond 2^64.
std::optional<std::uint64_t> place_tensors(const std::vector<TensorInfo>& tensors, std::uint64_t begin,
                                           std::vector<std::uint64_t>& offsets) {
  std::uint64_t end = begin;
  offsets.assign(tensors.size(), 0);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!takes_room(tensors[i])) continue;
    if (end > std::numeric_limits<std::uint64_t>::max() - kTensorAlignment) return std::nullopt;
    offsets[i] = align_up(end, kTensorAlignment);
    const auto next = checked_add(offsets[i], tensors[i].size_bytes);
    if (!next) return std::nullopt;
    end = *next;
  }
  return end;
}

}  // namespace

Result<SlotPlan> plan_slot(const State& state) { return SlotPlanner().plan(state); }

Result<SlotPlan> SlotPlanner::plan(const State& state) {
  return no_throw("staging", [&]() -> Result<SlotPlan> {
    if (!has_tensors_of(state)) BITSNAP_TRY(check_tensors(state));
    if (state.safetensors_header && !container::is_utf8(*state.safetensors_header)) {
      return fail(ErrorKind::invalid_argument, "the safetensors header must be valid UTF-8");
    }
    content_.tree.reset();
    if (state.tree) {
      BITSNAP_ASSIGN(content_.tree, serialize_value(*state.tree));
    }
    content_.metadata = state.metadata;
    SlotPlan plan;
    BITSNAP_ASSIGN(plan.directory, container::serialize_content(content_, tensors_));
    plan.details = serialize_details(state);
    if (plan.directory.size() > kMaxTextBytes || plan.details.size() > kMaxTextBytes) {
      return fail(ErrorKind::resource_exhausted,
                  fmt::format("the names and values of the state need {} bytes, the limit is {}",
                              std::max(plan.directory.size(), plan.details.size()), kMaxTextBytes));
    }
    plan.tensors_offset = align_up(kHeadBytes + plan.directory.size() + plan.details.size(), kTensorAlignment);
    const auto end = place_tensors(content_.tensors, plan.tensors_offset, plan.offsets);
    if (!end) return fail(ErrorKind::invalid_argument, "the state has more than 2^64 bytes");
    plan.bytes = *end;
    for (const TensorInfo& info : content_.tensors) {
      if (takes_room(info)) plan.raw_bytes += info.size_bytes;
    }
    return plan;
  });
}

bool SlotPlanner::has_tensors_of(const State& state) const {
  const auto is_same = [&](std::size_t i) {
    const TensorSource& source = state.tensors[i];
    const bool has_data = !takes_room(source.info) || source.data != nullptr || source.read != nullptr;
    return has_data && source.master == masters_[i] && source.info == content_.tensors[i];
  };
  if (tensors_.empty() || state.tensors.size() != content_.tensors.size()) return false;
  return std::ranges::all_of(std::views::iota(std::size_t{0}, state.tensors.size()), is_same);
}

Result<void> SlotPlanner::check_tensors(const State& state) {
  tensors_.clear();
  checked_tensors_ += state.tensors.size();
  BITSNAP_ASSIGN(content_, save::lay_out_tensors(state));
  // The agent would refuse these faults later, when the caller no longer waits.
  BITSNAP_ASSIGN(const container::StreamTable streams, container::derive_streams(content_));
  BITSNAP_TRY(save::lay_out_masters(state, content_, streams));
  masters_.clear();
  for (const TensorSource& source : state.tensors) masters_.push_back(source.master);
  BITSNAP_ASSIGN(tensors_, container::serialize_tensors(content_));
  return {};
}

Result<void> fill_slot(const State& state, const SlotPlan& plan, ByteSpan slot, exec::Executor& executor) {
  struct Piece {
    std::size_t tensor = 0;
    std::uint64_t offset = 0;  // within the tensor
    std::uint64_t bytes = 0;
  };
  return no_throw("staging", [&]() -> Result<void> {
    std::vector<Piece> pieces;
    std::vector<std::size_t> begins;  // of pieces that are copied together
    std::uint64_t together = kPieceBytes;
    for (std::size_t i = 0; i < state.tensors.size(); ++i) {
      if (!takes_room(state.tensors[i].info)) continue;
      const std::uint64_t size = state.tensors[i].info.size_bytes;
      // Such a source produces the whole tensor at the first read, so pieces would not save time.
      const std::uint64_t piece = state.tensors[i].read_brings_all ? size : kPieceBytes;
      for (std::uint64_t at = 0; at < size; at += piece) {
        const Piece next{i, at, std::min(piece, size - at)};
        if (together + next.bytes > kPieceBytes || pieces.size() - begins.back() == kPiecesAtOnce) {
          begins.push_back(pieces.size());
          together = 0;
        }
        together += next.bytes;
        pieces.push_back(next);
      }
    }
    const std::size_t batches = begins.size();
    begins.push_back(pieces.size());
    std::byte* const to = slot.data();
    std::memcpy(to, kSlotMagic.data(), kSlotMagic.size());
    store_le(to + 8, std::uint64_t{plan.directory.size()});
    store_le(to + 16, std::uint64_t{plan.details.size()});
    store_le(to + 24, plan.tensors_offset);
    std::memcpy(to + kHeadBytes, plan.directory.data(), plan.directory.size());
    std::memcpy(to + kHeadBytes + plan.directory.size(), plan.details.data(), plan.details.size());
    const auto copy = [&](const Piece& piece) -> Result<void> {
      const TensorSource& source = state.tensors[piece.tensor];
      const ByteSpan out = slot.subspan(static_cast<std::size_t>(plan.offsets[piece.tensor] + piece.offset),
                                        static_cast<std::size_t>(piece.bytes));
      if (source.data == nullptr) {
        Result<void> read = source.read(piece.offset, out);
        if (!read) {
          return tl::unexpected(std::move(read).error().within("tensor " + container::quote_name(source.info.name)));
        }
        return {};
      }
      std::memcpy(out.data(), source.data + piece.offset, out.size());
      return {};
    };
    return executor.run(batches, executor.default_slots(), [&](std::size_t batch, std::size_t) -> Result<void> {
      for (std::size_t i = begins[batch]; i < begins[batch + 1]; ++i) BITSNAP_TRY(copy(pieces[i]));
      return {};
    });
  });
}

Result<State> read_slot(ConstByteSpan slot, std::uint64_t bytes, const DecodeLimits& limits) {
  return no_throw("slot", [&]() -> Result<State> {
    if (bytes < kHeadBytes || bytes > slot.size()) {
      return corrupt(fmt::format("{} bytes in use, expected {} to {}", bytes, kHeadBytes, slot.size()));
    }
    // Each number is read once, because the trainer may change it at any moment.
    std::array<std::byte, kHeadBytes> head;
    std::memcpy(head.data(), slot.data(), head.size());
    if (as_text(ConstByteSpan(head).first(kSlotMagic.size())) != kSlotMagic) return corrupt("wrong magic");
    const auto directory_bytes = load_le<std::uint64_t>(head.data() + 8);
    const auto details_bytes = load_le<std::uint64_t>(head.data() + 16);
    const auto tensors_offset = load_le<std::uint64_t>(head.data() + 24);
    if (directory_bytes > kMaxTextBytes || details_bytes > kMaxTextBytes ||
        kHeadBytes + directory_bytes + details_bytes > tensors_offset || tensors_offset > bytes ||
        tensors_offset % kTensorAlignment != 0) {
      return corrupt(fmt::format(
          "directory of {} bytes and details of {} bytes do not fit before the tensors at offset {} of {} bytes",
          directory_bytes, details_bytes, tensors_offset, bytes));
    }
    const auto text = [&](std::uint64_t offset, std::uint64_t size) {
      return std::string(as_text(slot.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(size))));
    };
    BITSNAP_ASSIGN(container::Content content, container::parse_content(text(kHeadBytes, directory_bytes), limits));
    std::vector<std::uint64_t> offsets;
    const auto end = place_tensors(content.tensors, tensors_offset, offsets);
    if (!end || *end > bytes) {
      return corrupt(fmt::format("{} tensors do not fit into {} bytes", content.tensors.size(), bytes));
    }
    State state;
    state.metadata = std::move(content.metadata);
    if (content.tree) {
      BITSNAP_ASSIGN(state.tree, container::parse_tree(*content.tree, content.tensors, limits));
    }
    state.tensors.resize(content.tensors.size());
    for (std::size_t i = 0; i < content.tensors.size(); ++i) {
      state.tensors[i].info = std::move(content.tensors[i]);
      if (takes_room(state.tensors[i].info)) state.tensors[i].data = slot.data() + offsets[i];
    }
    BITSNAP_TRY(parse_details(text(kHeadBytes + directory_bytes, details_bytes), state));
    return state;
  });
}

std::vector<ConstByteSpan> tensor_bytes(const State& state) {
  std::vector<ConstByteSpan> bytes;
  bytes.reserve(state.tensors.size());
  for (const TensorSource& tensor : state.tensors) {
    const auto size = tensor.data == nullptr ? 0 : static_cast<std::size_t>(tensor.info.size_bytes);
    bytes.emplace_back(tensor.data, size);
  }
  return bytes;
}

}  // namespace bitsnap::engine
