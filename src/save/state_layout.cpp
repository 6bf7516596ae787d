// Checks tensors, masters and aliases, and reads streams from the caller's memory or functions.
#include "save/state_layout.hpp"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "base/checked.hpp"
#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "base/utf8.hpp"

namespace bitsnap::save {
namespace {

template <typename... Args>
tl::unexpected<Error> wrong(fmt::format_string<Args...> text, Args&&... args) {
  return fail(ErrorKind::invalid_argument, fmt::format(text, std::forward<Args>(args)...));
}

Result<void> check_shard(const TensorInfo& info) {
  const ShardBox& box = *info.shard;
  if (box.global_shape.size() != info.shape.size() || box.offset.size() != info.shape.size()) {
    return wrong("the global shape has {} dimensions and the offset {}, expected {} as in the tensor",
                 box.global_shape.size(), box.offset.size(), info.shape.size());
  }
  for (std::size_t i = 0; i < info.shape.size(); ++i) {
    const auto end = checked_add(box.offset[i], info.shape[i]);
    if (!end || *end > box.global_shape[i]) {
      return wrong("dimension {}: offset {} and size {} exceed the global size {}", i, box.offset[i], info.shape[i],
                   box.global_shape[i]);
    }
  }
  const DecodeLimits limits;
  if (box.global_name.size() > limits.name_bytes || !is_utf8(box.global_name)) {
    return wrong("the global name must be valid UTF-8 of at most {} bytes", limits.name_bytes);
  }
  if (box.global_name == info.name) return wrong("the global name is the tensor's own name, and must be left empty");
  return {};
}

Result<void> check_tensor(const TensorSource& source, const State& state, std::size_t index) {
  const TensorInfo& info = source.info;
  const DecodeLimits limits;
  if (info.name.size() > limits.name_bytes) {
    return wrong("the name must have at most {} bytes, got {}", limits.name_bytes, info.name.size());
  }
  if (!is_utf8(info.name) || !is_utf8(info.dtype_name)) {
    return wrong("the name and the dtype's name must be valid UTF-8");
  }
  if (info.shape.size() > limits.dimensions) {
    return wrong("the shape must have at most {} dimensions, got {}", limits.dimensions, info.shape.size());
  }
  if (info.size_bytes > limits.tensor_bytes) {
    return wrong("the size must be at most {} bytes, got {}", limits.tensor_bytes, info.size_bytes);
  }
  BITSNAP_ASSIGN(const std::uint64_t expected, shape_size_bytes(info.dtype, info.shape));
  if (info.dtype != DType::opaque && info.size_bytes != expected) {
    return wrong("dtype and shape need {} bytes, got {}", expected, info.size_bytes);
  }
  if (dtype_from_name(info.dtype_name) != info.dtype) {
    return wrong("the dtype's name must be {}, got {}", dtype_name(info.dtype), quote_name(info.dtype_name));
  }
  if (info.shard) BITSNAP_TRY(check_shard(info));
  if (info.alias_of) {
    const std::size_t target = *info.alias_of;
    if (target >= index || state.tensors[target].info.alias_of ||
        state.tensors[target].info.size_bytes != info.size_bytes || info.size_bytes == 0) {
      return wrong("alias_of must be an earlier, non-empty tensor of the same size that is not an alias, got tensor {}",
                   target);
    }
  } else if (info.size_bytes > 0 && source.data == nullptr && !source.read) {
    return wrong("the tensor has no data: set data or read");
  }
  return {};
}

struct GivenMaster {
  std::size_t weight = 0;  // tensor
  std::size_t master = 0;  // tensor
  std::uint64_t element = 0;
};

// The tensor that holds the bytes of a tensor: itself, or the target of an alias.
std::size_t holder_of(const container::Content& content, std::size_t tensor) noexcept {
  return content.tensors[tensor].alias_of.value_or(tensor);
}

Result<GivenMaster> check_master(const State& state, std::size_t weight, const container::Content& content) {
  const TensorInfo& info = state.tensors[weight].info;
  const MasterSlice& given = *state.tensors[weight].master;
  if (info.dtype != DType::bf16 && info.dtype != DType::f16) {
    return wrong("a tensor with a master ({}) must be BF16 or F16, got {}", quote_name(given.tensor), info.dtype_name);
  }
  const std::optional<std::size_t> found = content.names.find(content.tensors, given.tensor);
  if (!found) return wrong("its master {} is not in the state", quote_name(given.tensor));
  const TensorInfo& master = state.tensors[*found].info;
  if (master.dtype != DType::f32) {
    return wrong("its master {} must be F32, got {}", quote_name(given.tensor), master.dtype_name);
  }
  const std::uint64_t elements = info.element_count();
  const std::uint64_t there = master.element_count();
  if (given.element > there || elements > there - given.element) {
    return wrong("{} elements from element {} exceed its master {} of {} elements", elements, given.element,
                 quote_name(given.tensor), there);
  }
  return GivenMaster{weight, *found, given.element};
}

}  // namespace

Result<container::Content> lay_out(const State& state) {
  BITSNAP_ASSIGN(container::Content content, lay_out_tensors(state));
  if (state.tree) {
    BITSNAP_ASSIGN(content.tree, serialize_value(*state.tree));
  }
  content.metadata = state.metadata;
  return content;
}

Result<container::Content> lay_out_tensors(const State& state) {
  const DecodeLimits limits;
  if (state.tensors.size() > limits.tensors) {
    return wrong("the state must have at most {} tensors, got {}", limits.tensors, state.tensors.size());
  }
  container::Content content;
  content.tensors.reserve(state.tensors.size());
  content.pool_offsets.resize(state.tensors.size());
  for (std::size_t i = 0; i < state.tensors.size(); ++i) {
    const TensorInfo& info = state.tensors[i].info;
    if (auto checked = check_tensor(state.tensors[i], state, i); !checked) {
      return tl::unexpected(std::move(checked).error().within(quote_tensor(info.name)));
    }
    if (info.size_bytes > 0 && info.size_bytes < kPoolTensorBytes && !info.alias_of) {
      content.pool_offsets[i] = content.pool_bytes;
      content.pool_bytes += info.size_bytes;
    }
    content.tensors.push_back(info);
  }
  content.names = container::NameIndex(content.tensors);
  if (const auto repeated = content.names.find_duplicate(content.tensors)) {
    return wrong("{}: duplicate name", quote_tensor(content.tensors[*repeated].name));
  }
  return content;
}

Result<std::vector<std::optional<PeerStream>>> lay_out_masters(const State& state, const container::Content& content,
                                                               const container::StreamTable& streams) {
  std::vector<std::optional<PeerStream>> masters(streams.streams.size());
  std::unordered_map<std::size_t, GivenMaster> given;  // of the tensor that holds the weight's bytes
  for (std::size_t i = 0; i < state.tensors.size(); ++i) {
    if (!state.tensors[i].master) continue;
    auto checked = check_master(state, i, content);
    if (!checked) return tl::unexpected(std::move(checked).error().within(quote_tensor(state.tensors[i].info.name)));
    const std::size_t holder = holder_of(content, i);
    const std::size_t master = holder_of(content, checked->master);
    const auto [before, is_new] = given.try_emplace(holder, *checked);
    if (!is_new &&
        (holder_of(content, before->second.master) != master || before->second.element != checked->element)) {
      const auto describe = [&](const GivenMaster& one) {
        return fmt::format("{} has the master {} from element {}", quote_tensor(state.tensors[one.weight].info.name),
                           quote_name(state.tensors[one.master].info.name), one.element);
      };
      return wrong("{}, but {}; tensors that share their bytes must have the same master", describe(before->second),
                   describe(*checked));
    }
    // An alias may have another dtype than the stream; the stream's elements are no rounded masters then.
    const std::optional<std::size_t> stream = streams.stream_of[holder];
    const std::optional<std::size_t> peer = streams.stream_of[master];
    if (!stream || !peer || streams.streams[*stream].dtype != content.tensors[i].dtype) continue;
    if (streams.streams[*peer].dtype == DType::f32) masters[*stream] = PeerStream{*peer, checked->element};
  }
  return masters;
}

StreamReader::StreamReader(const State& state, const container::Content& content, const container::StreamTable& streams)
    : state_(state), content_(content), streams_(streams) {
  // Sorted by offset, because offsets ascend with the numbers of the tensors.
  for (std::size_t i = 0; i < content.pool_offsets.size(); ++i) {
    if (content.pool_offsets[i]) pooled_.push_back(i);
  }
}

Result<void> StreamReader::read(std::size_t stream, std::uint64_t offset, ByteSpan out,
                                ReadContext& /*context*/) const {
  const StreamInfo& info = streams_.streams[stream];
  if (info.tensor) return read_tensor(*info.tensor, offset, out);

  const auto after = std::ranges::upper_bound(pooled_, offset, {},
                                              [this](std::size_t tensor) { return *content_.pool_offsets[tensor]; });
  for (auto each = after - 1; !out.empty(); ++each) {
    const std::uint64_t skip = offset - *content_.pool_offsets[*each];
    const std::uint64_t size = std::min<std::uint64_t>(content_.tensors[*each].size_bytes - skip, out.size());
    BITSNAP_TRY(read_tensor(*each, skip, out.first(size)));
    offset += size;
    out = out.subspan(size);
  }
  return {};
}

bool StreamReader::can_be_sampled(std::size_t stream) const noexcept {
  const auto& tensor = streams_.streams[stream].tensor;
  return tensor && !state_.tensors[*tensor].read_brings_all;
}

Result<void> StreamReader::read_tensor(std::size_t tensor, std::uint64_t offset, ByteSpan out) const {
  const TensorSource& source = state_.tensors[tensor];
  if (source.data != nullptr) {
    std::memcpy(out.data(), source.data + offset, out.size());
    return {};
  }
  auto result = source.read(offset, out);
  // The caller names the stream in the error, but does not know which tensor of the pool failed.
  if (!result && content_.pool_offsets[tensor]) {
    return tl::unexpected(std::move(result).error().within(quote_tensor(source.info.name)));
  }
  return result;
}

}  // namespace bitsnap::save
