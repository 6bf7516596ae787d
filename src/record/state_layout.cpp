// Checking a state and laying it out.
#include "record/state_layout.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_map>

#include <fmt/format.h>

#include "base/checked.hpp"
#include "base/try.hpp"
#include "container/json_text.hpp"

namespace bitsnap::record {
namespace {

Result<void> check_shard(const TensorInfo& info) {
  const ShardBox& box = *info.shard;
  if (box.global_shape.size() != info.shape.size() || box.offset.size() != info.shape.size()) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("global shape has {} and offset {} dimensions, the tensor {}", box.global_shape.size(),
                            box.offset.size(), info.shape.size()));
  }
  for (std::size_t i = 0; i < info.shape.size(); ++i) {
    const auto end = checked_add(box.offset[i], info.shape[i]);
    if (!end || *end > box.global_shape[i]) {
      return fail(ErrorKind::invalid_argument,
                  fmt::format("dimension {}: offset {} and extent {} leave the global extent {}", i, box.offset[i],
                              info.shape[i], box.global_shape[i]));
    }
  }
  return {};
}

Result<void> check_tensor(const TensorSource& source, const State& state, std::size_t index) {
  const TensorInfo& info = source.info;
  const DecodeLimits limits;
  if (info.name.size() > limits.name_bytes) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("the name has {} bytes, at most {} can be stored", info.name.size(), limits.name_bytes));
  }
  if (!container::is_utf8(info.name) || !container::is_utf8(info.dtype_name)) {
    return fail(ErrorKind::invalid_argument, "the name or the dtype's name is not UTF-8");
  }
  if (info.shape.size() > limits.rank) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("{} dimensions, at most {} can be stored", info.shape.size(), limits.rank));
  }
  if (info.size_bytes > limits.tensor_bytes) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("{} bytes, at most {} can be stored", info.size_bytes, limits.tensor_bytes));
  }
  BITSNAP_ASSIGN(const std::uint64_t expected, shape_size_bytes(info.dtype, info.shape));
  if (info.dtype != DType::opaque) {
    if (info.size_bytes != expected) {
      return fail(ErrorKind::invalid_argument,
                  fmt::format("dtype and shape make {} bytes, the tensor claims {}", expected, info.size_bytes));
    }
  }
  if (dtype_from_name(info.dtype_name) != info.dtype) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("dtype is called \"{}\" but is {}", info.dtype_name, dtype_name(info.dtype)));
  }
  if (info.shard) BITSNAP_TRY(check_shard(info));
  if (info.alias_of) {
    const std::size_t target = *info.alias_of;
    if (target >= index || state.tensors[target].info.alias_of ||
        state.tensors[target].info.size_bytes != info.size_bytes || info.size_bytes == 0) {
      return fail(ErrorKind::invalid_argument,
                  fmt::format("alias of tensor {}, which is not an earlier tensor of the same size above 0", target));
    }
  } else if (info.size_bytes > 0 && source.data == nullptr && !source.read) {
    return fail(ErrorKind::invalid_argument, "has no bytes: neither data nor read is given");
  }
  return {};
}

}  // namespace

Result<container::Content> lay_out(const State& state) {
  const DecodeLimits limits;
  if (state.tensors.size() > limits.tensors) {
    return fail(ErrorKind::invalid_argument, fmt::format("the state has {} tensors, at most {} can be stored",
                                                         state.tensors.size(), limits.tensors));
  }
  container::Content content;
  content.tree = state.tree;
  content.metadata = state.metadata;
  content.tensors.reserve(state.tensors.size());
  content.pool_offsets.resize(state.tensors.size());
  std::unordered_map<std::string_view, std::size_t> names;
  for (std::size_t i = 0; i < state.tensors.size(); ++i) {
    const TensorInfo& info = state.tensors[i].info;
    if (auto checked = check_tensor(state.tensors[i], state, i); !checked) {
      return tl::unexpected(
          std::move(checked).error().within(fmt::format("tensor {}", container::quote_name(info.name))));
    }
    if (!names.emplace(info.name, i).second) {
      return fail(ErrorKind::invalid_argument,
                  fmt::format("tensor {}: the name stands twice", container::quote_name(info.name)));
    }
    if (info.size_bytes > 0 && info.size_bytes < kPoolTensorBytes && !info.alias_of) {
      content.pool_offsets[i] = content.pool_bytes;
      content.pool_bytes += info.size_bytes;
    }
    content.tensors.push_back(info);
  }
  return content;
}

StreamReader::StreamReader(const State& state, const container::Content& content, const container::StreamTable& streams)
    : state_(state), content_(content), streams_(streams) {
  // Offsets ascend with the tensors' numbers, so this is sorted.
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
  // The stream is named by whoever asked for it; a tensor in the pool only here.
  if (!result && content_.pool_offsets[tensor]) {
    return tl::unexpected(
        std::move(result).error().within(fmt::format("tensor {}", container::quote_name(source.info.name))));
  }
  return result;
}

}  // namespace bitsnap::record
