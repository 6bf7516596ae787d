// Any bytes as a slot of an arena: an error, or a state whose tensors lie inside, and that comes back from another slot
// as the same.
//
// The first byte says how the rest is taken. 0: as the slot. 1: as the size (u16) of the directory, the directory, and
// the details, with room for all tensors behind them.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "engine/slot_layout.hpp"
#include "exec/executor.hpp"

namespace {

using namespace bitsnap;
using namespace bitsnap::engine;

constexpr std::size_t kRoom = std::size_t{1} << 16;

void require(bool holds) {
  if (!holds) std::abort();
}

void read(ConstByteSpan slot) {
  DecodeLimits limits;
  limits.tree_nodes = 10'000;
  const auto state = read_slot(slot, slot.size(), limits);
  if (!state) return;
  const std::vector<ConstByteSpan> tensors = tensor_bytes(*state);
  for (const ConstByteSpan tensor : tensors) {
    if (tensor.empty()) continue;
    require(tensor.data() >= slot.data() && tensor.data() + tensor.size() <= slot.data() + slot.size());
  }
  // A trainer may be stricter: what it checks is what the recording does.
  const auto plan = plan_slot(*state);
  if (!plan || plan->bytes > 4 * kRoom) return;
  static const std::unique_ptr<exec::Executor> executor = exec::make_executor(1);
  std::vector<std::byte> other(static_cast<std::size_t>(plan->bytes));
  require(fill_slot(*state, *plan, other, *executor).has_value());
  const auto again = read_slot(other, other.size(), limits);
  require(again.has_value() && again->tensors.size() == state->tensors.size());
  const std::vector<ConstByteSpan> copies = tensor_bytes(*again);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    require(copies[i].size() == tensors[i].size());
    if (!copies[i].empty()) require(std::memcmp(copies[i].data(), tensors[i].data(), copies[i].size()) == 0);
    require(again->tensors[i].info.name == state->tensors[i].info.name);
    require(again->tensors[i].master.has_value() == state->tensors[i].master.has_value());
    require(again->tensors[i].adam.has_value() == state->tensors[i].adam.has_value());
  }
  require(again->metadata == state->metadata && again->safetensors_header == state->safetensors_header);
}

void read_texts(ConstByteSpan input) {
  if (input.size() < 2) return;
  const std::size_t size = std::min<std::size_t>(load_le<std::uint16_t>(input.data()), input.size() - 2);
  const std::string directory(as_text(input.subspan(2, size)));
  const std::string details(as_text(input.subspan(2 + size)));
  const std::size_t begin = (32 + directory.size() + details.size() + 63) / 64 * 64;
  std::string slot = "BSNASLOT" + std::string(24, '\0') + directory + details;
  slot.resize(begin + kRoom, 'x');
  const std::uint64_t sizes[] = {directory.size(), details.size(), begin};
  std::memcpy(slot.data() + 8, sizes, sizeof(sizes));
  read(as_byte_span(slot));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const ConstByteSpan input = std::as_bytes(std::span(data, size)).subspan(1);
  if (data[0] == 0) {
    read(input);
  } else {
    read_texts(input);
  }
  return 0;
}
