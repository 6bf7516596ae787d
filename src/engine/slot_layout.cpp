#include "engine/slot_layout.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <ranges>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "base/checked.hpp"
#include "base/no_throw.hpp"
#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "base/utf8.hpp"
#include "container/value_reader.hpp"
#include "json/json_fields.hpp"
#include "json/json_text.hpp"
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
  using json::json_field;
  using json::JsonNeed;
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
      details.adam.emplace_back(i, hex_of(adam->beta1), hex_of(adam->beta2), hex_of(adam->eps), adam->step);
    }
  }
  details.safetensors_header = state.safetensors_header;
  return json::serialize_json(details);
}

Result<void> parse_details(std::string_view text, State& state) {
  auto parsed = json::parse_json<Details>(text, kSlotNesting);
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
      const std::optional<std::uint64_t> bits = json::parse_hex(*digits);
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

struct Piece {
  std::size_t tensor = 0;
  std::uint64_t offset = 0;  // within the tensor
  std::uint64_t bytes = 0;
};

// What threads copy: pieces, of which those of a batch are copied together.
struct Pieces {
  std::vector<Piece> all;
  std::vector<std::size_t> begins;  // of the batches, and the end of the last one

  [[nodiscard]] std::size_t batches() const noexcept { return begins.size() - 1; }
};

// All tensors but those of a device.
Pieces pieces_of(const State& state) {
  Pieces pieces;
  std::uint64_t together = kPieceBytes;
  std::span<const std::size_t> on_device;
  if (state.device_tensors) on_device = state.device_tensors->tensors;
  for (std::size_t i = 0; i < state.tensors.size(); ++i) {
    if (!on_device.empty() && on_device.front() == i) {
      on_device = on_device.subspan(1);
      continue;
    }
    if (!takes_room(state.tensors[i].info)) continue;
    const std::uint64_t size = state.tensors[i].info.size_bytes;
    // Such a source produces the whole tensor at the first read, so pieces would not save time.
    const std::uint64_t piece = state.tensors[i].read_brings_all ? size : kPieceBytes;
    for (std::uint64_t at = 0; at < size; at += piece) {
      const Piece next{i, at, std::min(piece, size - at)};
      if (together + next.bytes > kPieceBytes || pieces.all.size() - pieces.begins.back() == kPiecesAtOnce) {
        pieces.begins.push_back(pieces.all.size());
        together = 0;
      }
      together += next.bytes;
      pieces.all.push_back(next);
    }
  }
  pieces.begins.push_back(pieces.all.size());
  return pieces;
}

Result<void> copy_piece(const State& state, const SlotPlan& plan, const Piece& piece, ByteSpan slot) {
  const TensorSource& source = state.tensors[piece.tensor];
  const ByteSpan out = slot.subspan(static_cast<std::size_t>(plan.offsets[piece.tensor] + piece.offset),
                                    static_cast<std::size_t>(piece.bytes));
  if (source.data != nullptr) {
    std::memcpy(out.data(), source.data + piece.offset, out.size());
    return {};
  }
  Result<void> read = source.read(piece.offset, out);
  if (read) return {};
  return tl::unexpected(std::move(read).error().within("tensor " + quote_name(source.info.name)));
}

Result<void> copy_device_tensors(const State& state, const SlotPlan& plan, ByteSpan slot) {
  std::vector<ByteSpan> to;
  to.reserve(state.device_tensors->tensors.size());
  for (const std::size_t i : state.device_tensors->tensors) {
    const TensorInfo& info = state.tensors[i].info;
    const std::uint64_t size = takes_room(info) ? info.size_bytes : 0;
    to.push_back(slot.subspan(static_cast<std::size_t>(plan.offsets[i]), static_cast<std::size_t>(size)));
  }
  return state.device_tensors->copy(to);
}

// invalid_argument unless the indices are those of tensors, ascending.
Result<void> check_device_tensors(const State& state) {
  if (!state.device_tensors) return {};
  const std::vector<std::size_t>& tensors = state.device_tensors->tensors;
  const bool is_ascending = std::ranges::adjacent_find(tensors, std::greater_equal<>{}) == tensors.end();
  if (is_ascending && (tensors.empty() || tensors.back() < state.tensors.size())) return {};
  return fail(ErrorKind::invalid_argument,
              fmt::format("the indices of the tensors of a device must ascend and be below {}", state.tensors.size()));
}

}  // namespace

Result<SlotPlan> plan_slot(const State& state) { return SlotPlanner().plan(state); }

Result<SlotPlan> SlotPlanner::plan(const State& state) {
  return no_throw("staging", [&]() -> Result<SlotPlan> {
    if (!has_tensors_of(state)) BITSNAP_TRY(check_tensors(state));
    BITSNAP_TRY(check_device_tensors(state));
    if (state.safetensors_header && !is_utf8(*state.safetensors_header)) {
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
  return no_throw("staging", [&]() -> Result<void> {
    std::byte* const to = slot.data();
    std::memcpy(to, kSlotMagic.data(), kSlotMagic.size());
    store_le(to + 8, std::uint64_t{plan.directory.size()});
    store_le(to + 16, std::uint64_t{plan.details.size()});
    store_le(to + 24, plan.tensors_offset);
    std::memcpy(to + kHeadBytes, plan.directory.data(), plan.directory.size());
    std::memcpy(to + kHeadBytes + plan.directory.size(), plan.details.data(), plan.details.size());

    const Pieces pieces = pieces_of(state);
    const std::size_t device_jobs = state.device_tensors ? 1 : 0;  // the first one, beside which the others run
    const auto run = [&](std::size_t job, std::size_t) -> Result<void> {
      if (job < device_jobs) return copy_device_tensors(state, plan, slot);
      const std::size_t batch = job - device_jobs;
      for (std::size_t i = pieces.begins[batch]; i < pieces.begins[batch + 1]; ++i) {
        BITSNAP_TRY(copy_piece(state, plan, pieces.all[i], slot));
      }
      return {};
    };
    return executor.run(device_jobs + pieces.batches(), executor.default_slots(), run);
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
