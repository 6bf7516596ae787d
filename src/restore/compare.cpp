// Compares two states tensor by tensor: which elements differ in bits, and by what ULP distance.
#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <bitsnap/convert.hpp>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "restore/run_control.hpp"
#include "restore/snapshot_impl.hpp"
#include "tensor/ordinal.hpp"

namespace bitsnap {
namespace {

using Kind = TensorDifference::Kind;

struct Counts {
  std::uint64_t changed = 0;
  std::uint64_t largest_ulp = 0;
};

// The dtypes whose elements have an order, and so a distance. The parts of a complex number count as floats.
struct Steps {
  std::size_t part_bytes = 1;
  tensor::OrdinalKind kind = tensor::OrdinalKind::unsigned_integer;
  bool counts = true;
};

Steps steps_of(DType dtype) noexcept {
  if (dtype == DType::c64) return {4, tensor::ordinal_kind(DType::f32), true};
  return {element_size(dtype), tensor::ordinal_kind(dtype), dtype != DType::opaque && dtype != DType::boolean};
}

template <typename T>
std::uint64_t largest_distance(ConstByteSpan a, ConstByteSpan b, tensor::OrdinalKind kind) noexcept {
  T largest = 0;
  for (std::size_t at = 0; at + sizeof(T) <= a.size(); at += sizeof(T)) {
    largest = std::max(largest, tensor::ordinal_distance(load_le<T>(a.data() + at), load_le<T>(b.data() + at), kind));
  }
  return largest;
}

template <typename T>
std::uint64_t count_changed(ConstByteSpan a, ConstByteSpan b) noexcept {
  std::uint64_t changed = 0;
  for (std::size_t at = 0; at + sizeof(T) <= a.size(); at += sizeof(T)) {
    changed += load_le<T>(a.data() + at) != load_le<T>(b.data() + at) ? 1U : 0U;
  }
  return changed;
}

Counts compare_bytes(DType dtype, ConstByteSpan a, ConstByteSpan b) noexcept {
  Counts counts;
  if (std::memcmp(a.data(), b.data(), a.size()) == 0) return counts;
  switch (element_size(dtype)) {
    case 1: counts.changed = count_changed<std::uint8_t>(a, b); break;
    case 2: counts.changed = count_changed<std::uint16_t>(a, b); break;
    case 4: counts.changed = count_changed<std::uint32_t>(a, b); break;
    default: counts.changed = count_changed<std::uint64_t>(a, b); break;
  }
  const Steps steps = steps_of(dtype);
  if (!steps.counts) return counts;
  switch (steps.part_bytes) {
    case 1: counts.largest_ulp = largest_distance<std::uint8_t>(a, b, steps.kind); break;
    case 2: counts.largest_ulp = largest_distance<std::uint16_t>(a, b, steps.kind); break;
    case 4: counts.largest_ulp = largest_distance<std::uint32_t>(a, b, steps.kind); break;
    default: counts.largest_ulp = largest_distance<std::uint64_t>(a, b, steps.kind); break;
  }
  return counts;
}

// A piece, of one chunk's size, of a tensor that both snapshots have.
struct Part {
  std::size_t difference = 0;
  std::size_t tensor_a = 0;
  std::size_t tensor_b = 0;
  std::uint64_t offset = 0;  // bytes
  std::size_t size = 0;
};

// One of the two states: its tensors, and how they are found and read.
struct Side {
  std::vector<const TensorInfo*> tensors;
  std::function<std::optional<std::size_t>(const std::string& name)> find;
  std::function<Result<void>(std::size_t tensor, std::uint64_t offset, ByteSpan out, ReadContext& context)> read;
};

Side side_of(const Snapshot& snapshot) {
  Side side;
  for (const TensorInfo& info : snapshot.tensors()) side.tensors.push_back(&info);
  side.find = [&snapshot](const std::string& name) { return snapshot.find(name); };
  side.read = [&impl = Snapshot::Impl::of(snapshot)](std::size_t tensor, std::uint64_t offset, ByteSpan out,
                                                     ReadContext& context) {
    const auto [stream, begin] = impl.tensor_place(tensor);
    context.restart();
    return impl.read_stream(stream, begin + offset, out, context);
  };
  return side;
}

Side side_of(const State& state) {
  Side side;
  auto places = std::make_shared<std::unordered_map<std::string, std::size_t>>();
  for (const TensorSource& tensor : state.tensors) {
    places->try_emplace(tensor.info.name, side.tensors.size());
    side.tensors.push_back(&tensor.info);
  }
  side.find = [places = std::move(places)](const std::string& name) {
    const auto found = places->find(name);
    return found == places->end() ? std::nullopt : std::optional(found->second);
  };
  side.read = [&state](std::size_t tensor, std::uint64_t offset, ByteSpan out, ReadContext&) -> Result<void> {
    const TensorSource& source = state.tensors[tensor];
    if (source.data == nullptr) return source.read(offset, out);
    std::memcpy(out.data(), source.data + offset, out.size());
    return {};
  };
  return side;
}

class Comparison {
 public:
  Comparison(Side a, Side b) : a_(std::move(a)), b_(std::move(b)) {
    for (std::size_t i = 0; i < a_.tensors.size(); ++i) add(i);
    for (const TensorInfo* info : b_.tensors) {
      if (!a_.find(info->name)) differences_.push_back({info->name, Kind::only_in_b, info->element_count(), 0, 0});
    }
  }

  Result<std::vector<TensorDifference>> run(const DecodeLimits& limits, const RunOptions& options) {
    std::uint64_t total = 0;
    for (const Part& part : parts_) total += part.size;
    restore::RunControl control(options, limits, total);
    std::vector<Counts> counts(control.slots());
    const auto work = [&](std::size_t item, std::size_t slot) -> Result<void> {
      const Part& part = parts_[item];
      ReadContext& context = control.context(slot);
      BITSNAP_ASSIGN(const ByteSpan bytes_a, context.scratch().take(part.size));
      BITSNAP_ASSIGN(const ByteSpan bytes_b, context.scratch().take(part.size));
      BITSNAP_TRY(a_.read(part.tensor_a, part.offset, bytes_a, context));
      BITSNAP_TRY(b_.read(part.tensor_b, part.offset, bytes_b, context));
      counts[slot] = compare_bytes(a_.tensors[part.tensor_a]->dtype, bytes_a, bytes_b);
      return {};
    };
    const auto commit = [&](std::size_t item, std::size_t slot) -> Result<void> {
      TensorDifference& difference = differences_[parts_[item].difference];
      difference.changed += counts[slot].changed;
      difference.largest_ulp = std::max(difference.largest_ulp, counts[slot].largest_ulp);
      if (counts[slot].changed > 0) difference.kind = Kind::changed;
      control.add(parts_[item].size);
      return {};
    };
    BITSNAP_TRY(control.executor().run_ordered(parts_.size(), control.slots(), work, commit, &control.cancel()));
    return std::move(differences_);
  }

 private:
  void add(std::size_t tensor_a) {
    const TensorInfo& a = *a_.tensors[tensor_a];
    TensorDifference difference{a.name, Kind::equal, a.element_count(), 0, 0};
    const std::optional<std::size_t> tensor_b = b_.find(a.name);
    if (!tensor_b) {
      difference.kind = Kind::only_in_a;
    } else {
      const TensorInfo& b = *b_.tensors[*tensor_b];
      if (a.dtype != b.dtype || a.dtype_name != b.dtype_name || a.shape != b.shape || a.size_bytes != b.size_bytes) {
        difference.kind = Kind::incomparable;
      } else {
        const std::uint64_t whole = kChunkElements * element_size(a.dtype);
        for (std::uint64_t at = 0; at < a.size_bytes; at += whole) {
          const auto size = static_cast<std::size_t>(std::min(whole, a.size_bytes - at));
          parts_.push_back(Part{differences_.size(), tensor_a, *tensor_b, at, size});
        }
      }
    }
    differences_.push_back(std::move(difference));
  }

  Side a_;
  Side b_;
  std::vector<TensorDifference> differences_;
  std::vector<Part> parts_;
};

}  // namespace

Result<std::vector<TensorDifference>> compare(const Snapshot& a, const Snapshot& b, const RunOptions& options) {
  return no_throw("compare",
                  [&] { return Comparison(side_of(a), side_of(b)).run(Snapshot::Impl::of(a).limits, options); });
}

Result<std::vector<TensorDifference>> compare(const State& a, const State& b, const RunOptions& options) {
  return no_throw("compare", [&] { return Comparison(side_of(a), side_of(b)).run(DecodeLimits(), options); });
}

}  // namespace bitsnap
