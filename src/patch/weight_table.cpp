// Weights by name.
#include "patch/weight_table.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "base/utf8.hpp"
#include "patch/patch_layout.hpp"

namespace bitsnap::patch {
namespace {

Result<void> check_size(const WeightMemory& tensor) {
  const auto reject = [&](std::string message) {
    return fail(ErrorKind::invalid_argument, fmt::format("{}: {}", quote_tensor(tensor.name), message));
  };
  // What readers would refuse.
  static const DecodeLimits limits;
  if (!is_utf8(tensor.name)) return reject("its name is not UTF-8");
  if (tensor.name.size() > limits.name_bytes) return reject("its name is longer than 65,536 bytes");
  if (tensor.shape.size() > limits.dimensions) return reject("it has more than 255 dimensions");
  if (tensor.dtype != DType::opaque) {
    const auto expected = shape_size_bytes(tensor.dtype, tensor.shape);
    if (!expected) return reject(std::string(expected.error().message()));
    if (*expected != tensor.size_bytes) {
      return reject(fmt::format("{} takes {} bytes, but its memory has {}",
                                describe(dtype_name_of(tensor), tensor.shape), *expected, tensor.size_bytes));
    }
  } else if (tensor.dtype_name.empty()) {
    return reject("an opaque dtype needs a name");
  }
  if (tensor.memory == nullptr && tensor.size_bytes > 0) return reject("it has no memory");
  return {};
}

}  // namespace

std::string dtype_name_of(const WeightMemory& tensor) {
  return tensor.dtype == DType::opaque ? tensor.dtype_name : std::string(dtype_name(tensor.dtype));
}

std::string describe(std::string_view dtype, std::span<const std::uint64_t> shape) {
  return fmt::format("{} [{}]", dtype, fmt::join(shape, ", "));
}

Result<WeightTable> WeightTable::make(std::span<const WeightMemory> weights, std::string_view whose) {
  WeightTable table;
  table.weights_ = weights;
  table.by_name_.resize(weights.size());
  std::iota(table.by_name_.begin(), table.by_name_.end(), std::size_t{0});
  const auto name_of = [&](std::size_t i) -> std::string_view { return weights[i].name; };
  std::ranges::sort(table.by_name_, {}, name_of);
  const auto in_weights = [&](Error error) { return tl::unexpected(std::move(error).within(whose)); };
  if (const auto twice = std::ranges::adjacent_find(table.by_name_, {}, name_of); twice != table.by_name_.end()) {
    return in_weights(
        Error(ErrorKind::invalid_argument, fmt::format("{} occurs twice", quote_tensor(name_of(*twice)))));
  }
  std::vector<const WeightMemory*> by_address;
  for (const WeightMemory& tensor : weights) {
    if (Result<void> fits = check_size(tensor); !fits) return in_weights(std::move(fits).error());
    if (tensor.size_bytes > 0) by_address.push_back(&tensor);
  }
  std::ranges::sort(by_address, [](const WeightMemory* a, const WeightMemory* b) {
    return a->memory != b->memory ? std::less<>()(a->memory, b->memory) : a->size_bytes < b->size_bytes;
  });
  for (std::size_t i = 1; i < by_address.size(); ++i) {
    const WeightMemory& a = *by_address[i - 1];
    const WeightMemory& b = *by_address[i];
    if (is_same_memory(a, b) ? a.dtype == b.dtype && a.shape == b.shape : a.memory + a.size_bytes <= b.memory) continue;
    return in_weights(
        Error(ErrorKind::invalid_argument, fmt::format("{} and {} share memory, but are not the same tensor",
                                                       quote_tensor(a.name), quote_tensor(b.name))));
  }
  return table;
}

const WeightMemory* WeightTable::find(std::string_view name) const noexcept {
  const auto at =
      std::ranges::lower_bound(by_name_, name, {}, [&](std::size_t i) -> std::string_view { return weights_[i].name; });
  return at != by_name_.end() && weights_[*at].name == name ? &weights_[*at] : nullptr;
}

std::vector<const WeightMemory*> WeightTable::without(std::span<const Patch::Tensor> changed) const {
  std::vector<std::string_view> names;
  for (const Patch::Tensor& tensor : changed) names.insert(names.end(), tensor.names.begin(), tensor.names.end());
  std::ranges::sort(names);
  std::vector<const WeightMemory*> rest;
  for (const std::size_t i : by_name_) {
    if (!std::ranges::binary_search(names, weights_[i].name)) rest.push_back(&weights_[i]);
  }
  return rest;
}

void hash_tensors(std::span<const WeightMemory* const> tensors, std::vector<std::uint64_t>& to) {
  for (const WeightMemory* const tensor : tensors) {
    to.push_back(hash64(as_byte_span(tensor->name)));
    SlabHasher hasher;
    hasher.add(bytes_of(*tensor));
    to.push_back(hasher.digest());
  }
}

}  // namespace bitsnap::patch
