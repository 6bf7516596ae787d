#include "engine/slot_layout.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/checked.hpp"
#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "container/directory.hpp"
#include "container/json_text.hpp"
#include "save/state_layout.hpp"
#include "store/sealed_json.hpp"

namespace bitsnap::engine {
namespace {

using store::Json;

constexpr std::string_view kMagic = "BSNASLOT";
constexpr std::uint64_t kHeadBytes = 32;
constexpr std::uint64_t kMaxTextBytes = std::uint64_t{1} << 28;
constexpr std::size_t kMaxNesting = 8;
// Large enough that handing it out costs nothing, small enough that the last pieces end together.
constexpr std::uint64_t kPieceBytes = std::uint64_t{4} << 20;

constexpr std::uint64_t align_up(std::uint64_t number, std::uint64_t unit) noexcept {
  return (number + unit - 1) / unit * unit;
}

std::string double_text(double number) { return fmt::format("{:016x}", std::bit_cast<std::uint64_t>(number)); }

std::string serialize_details(const State& state) {
  Json masters = Json::array();
  Json adam = Json::array();
  for (std::size_t i = 0; i < state.tensors.size(); ++i) {
    const TensorSource& tensor = state.tensors[i];
    if (tensor.master) masters.push_back(Json{i, tensor.master->tensor, tensor.master->element});
    if (tensor.adam) {
      adam.push_back(Json{i, double_text(tensor.adam->beta1), double_text(tensor.adam->beta2),
                          double_text(tensor.adam->epsilon), tensor.adam->step});
    }
  }
  Json details = Json::object();
  if (!masters.empty()) details["masters"] = std::move(masters);
  if (!adam.empty()) details["adam"] = std::move(adam);
  if (state.safetensors_header) details["safetensors_header"] = *state.safetensors_header;
  return details.dump(-1, ' ', false, Json::error_handler_t::replace);
}

tl::unexpected<Error> corrupt(std::string message) { return fail(ErrorKind::corrupt, "slot: " + std::move(message)); }

// Reads one row of `masters` or `adam`: the tensor it is about, after a look at its length.
Result<TensorSource*> row_tensor(const Json& row, std::size_t members, State& state) {
  const auto* const items = row.get_ptr<const Json::array_t*>();
  if (items == nullptr || items->size() != members || !items->front().is_number_unsigned()) {
    return corrupt(fmt::format("details have a row that is not one of {} members", members));
  }
  const auto tensor = items->front().get<std::uint64_t>();
  if (tensor >= state.tensors.size()) {
    return corrupt(fmt::format("details name tensor {}, there are {}", tensor, state.tensors.size()));
  }
  return &state.tensors[static_cast<std::size_t>(tensor)];
}

Result<double> parse_double(const Json& text) {
  const std::optional<std::uint64_t> bits =
      text.is_string() ? container::parse_hex(text.get_ref<const std::string&>()) : std::nullopt;
  if (!bits) return corrupt("details have a number that is not 16 hexadecimal digits");
  return std::bit_cast<double>(*bits);
}

Result<void> parse_details(std::string_view text, State& state) {
  if (store::json_nesting(text) > kMaxNesting) return corrupt("details are nested too deep");
  Json details = Json::parse(text.begin(), text.end(), nullptr, false);
  if (!details.is_object()) return corrupt("details are no JSON object");
  if (store::json_member(details, "masters") != nullptr) {
    BITSNAP_ASSIGN(const Json::array_t* const rows, store::json_array(details, "masters"));
    for (const Json& row : *rows) {
      BITSNAP_ASSIGN(TensorSource* const tensor, row_tensor(row, 3, state));
      if (!row[1].is_string() || !row[2].is_number_unsigned()) return corrupt("details have a master that is none");
      tensor->master = MasterSlice{row[1].get<std::string>(), row[2].get<std::uint64_t>()};
    }
  }
  if (store::json_member(details, "adam") != nullptr) {
    BITSNAP_ASSIGN(const Json::array_t* const rows, store::json_array(details, "adam"));
    for (const Json& row : *rows) {
      BITSNAP_ASSIGN(TensorSource* const tensor, row_tensor(row, 5, state));
      AdamNumbers adam;
      BITSNAP_ASSIGN(adam.beta1, parse_double(row[1]));
      BITSNAP_ASSIGN(adam.beta2, parse_double(row[2]));
      BITSNAP_ASSIGN(adam.epsilon, parse_double(row[3]));
      if (!row[4].is_number_unsigned()) return corrupt("details have a step that is none");
      adam.step = row[4].get<std::uint64_t>();
      tensor->adam = adam;
    }
  }
  if (store::json_member(details, "safetensors_header") != nullptr) {
    BITSNAP_ASSIGN(state.safetensors_header, store::json_string(details, "safetensors_header"));
  }
  return {};
}

bool takes_room(const TensorInfo& info) noexcept { return !info.alias_of && info.size_bytes > 0; }

// Offsets from the beginning of the slot; the end of the last tensor.
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

Result<SlotPlan> plan_slot(const State& state) {
  return no_throw("staging", [&]() -> Result<SlotPlan> {
    BITSNAP_ASSIGN(const container::Content content, save::lay_out(state));
    // What the recording would refuse later, when nobody asks any more.
    BITSNAP_ASSIGN(const container::StreamTable streams, container::derive_streams(content));
    BITSNAP_TRY(save::lay_out_masters(state, content, streams));
    if (state.safetensors_header && !container::is_utf8(*state.safetensors_header)) {
      return fail(ErrorKind::invalid_argument, "the header of safetensors is not UTF-8");
    }
    SlotPlan plan;
    BITSNAP_ASSIGN(plan.directory, container::serialize_content(content));
    plan.details = serialize_details(state);
    if (plan.directory.size() > kMaxTextBytes || plan.details.size() > kMaxTextBytes) {
      return fail(ErrorKind::resource_exhausted,
                  fmt::format("names and values of the state take {} bytes, at most {} can be handed over",
                              std::max(plan.directory.size(), plan.details.size()), kMaxTextBytes));
    }
    plan.tensors_offset = align_up(kHeadBytes + plan.directory.size() + plan.details.size(), kTensorAlignment);
    const auto end = place_tensors(content.tensors, plan.tensors_offset, plan.offsets);
    if (!end) return fail(ErrorKind::invalid_argument, "the state has more than 2^64 bytes");
    plan.bytes = *end;
    for (const TensorInfo& info : content.tensors) {
      if (takes_room(info)) plan.raw_bytes += info.size_bytes;
    }
    return plan;
  });
}

Result<void> fill_slot(const State& state, const SlotPlan& plan, ByteSpan slot, exec::Executor& executor) {
  struct Piece {
    std::size_t tensor = 0;
    std::uint64_t offset = 0;  // within the tensor
    std::uint64_t bytes = 0;
  };
  return no_throw("staging", [&]() -> Result<void> {
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < state.tensors.size(); ++i) {
      if (!takes_room(state.tensors[i].info)) continue;
      const std::uint64_t size = state.tensors[i].info.size_bytes;
      // What brings all of itself at the first touch is copied in one go.
      const std::uint64_t piece = state.tensors[i].read_brings_all ? size : kPieceBytes;
      for (std::uint64_t at = 0; at < size; at += piece) pieces.push_back({i, at, std::min(piece, size - at)});
    }
    std::byte* const to = slot.data();
    std::memcpy(to, kMagic.data(), kMagic.size());
    store_le(to + 8, std::uint64_t{plan.directory.size()});
    store_le(to + 16, std::uint64_t{plan.details.size()});
    store_le(to + 24, plan.tensors_offset);
    std::memcpy(to + kHeadBytes, plan.directory.data(), plan.directory.size());
    std::memcpy(to + kHeadBytes + plan.directory.size(), plan.details.data(), plan.details.size());
    const auto copy = [&](std::size_t item, std::size_t) -> Result<void> {
      const Piece& piece = pieces[item];
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
    return executor.run(pieces.size(), executor.default_slots(), copy);
  });
}

Result<State> read_slot(ConstByteSpan slot, std::uint64_t bytes, const DecodeLimits& limits) {
  return no_throw("slot", [&]() -> Result<State> {
    if (bytes < kHeadBytes || bytes > slot.size()) {
      return corrupt(fmt::format("{} bytes in use, expected {} to {}", bytes, kHeadBytes, slot.size()));
    }
    // The numbers are read once: they may be others a moment later.
    std::array<std::byte, kHeadBytes> head;
    std::memcpy(head.data(), slot.data(), head.size());
    if (as_text(ConstByteSpan(head).first(kMagic.size())) != kMagic) return corrupt("no state begins here");
    const auto directory_bytes = load_le<std::uint64_t>(head.data() + 8);
    const auto details_bytes = load_le<std::uint64_t>(head.data() + 16);
    const auto tensors_offset = load_le<std::uint64_t>(head.data() + 24);
    if (directory_bytes > kMaxTextBytes || details_bytes > kMaxTextBytes ||
        kHeadBytes + directory_bytes + details_bytes > tensors_offset || tensors_offset > bytes ||
        tensors_offset % kTensorAlignment != 0) {
      return corrupt(fmt::format("a directory of {} and details of {} bytes before {} of {}", directory_bytes,
                                 details_bytes, tensors_offset, bytes));
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
    state.tree = std::move(content.tree);
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
