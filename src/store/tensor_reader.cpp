#include "store/tensor_reader.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "store/summed_progress.hpp"
#include "store/tensor_index.hpp"
#include "tensor/box.hpp"

namespace bitsnap::store {
namespace {

// Attempts to read the shards of a checkpoint that a writer changes meanwhile.
constexpr int kReadAttempts = 4;

// What is read from one shard.
struct ShardRequests {
  std::vector<Snapshot::BoxRequest> boxes;
  // Of each box: what the tensor index says of the tensor in the shard.
  std::vector<std::pair<const GlobalTensor*, const TensorPart*>> expected;
};

class BoxPlanner {
 public:
  BoxPlanner(std::string place, const std::vector<GlobalTensor>& tensors) : place_(std::move(place)) {
    by_name_.reserve(tensors.size());
    for (const GlobalTensor& tensor : tensors) by_name_.emplace(tensor.name, &tensor);
  }

  Result<void> add(const TensorBox& wanted) {
    const auto found = by_name_.find(wanted.name);
    if (found == by_name_.end()) {
      return fail(ErrorKind::not_found, fmt::format("{}: there is no tensor {}", place_, quote_name(wanted.name)));
    }
    const GlobalTensor& tensor = *found->second;
    if (wanted.dtype_name != tensor.dtype_name) {
      return tl::unexpected(
          error(ErrorKind::invalid_argument, tensor,
                fmt::format("it is {}, the memory to read into is {}", tensor.dtype_name, wanted.dtype_name)));
    }
    const tensor::Box box{wanted.offset, wanted.extent};
    if (!tensor::lies_in(box, tensor.shape) || wanted.strides.size() != tensor.shape.size()) {
      return tl::unexpected(
          error(ErrorKind::invalid_argument, tensor,
                fmt::format("the box of extent [{}] at [{}] with {} strides does not lie in it",
                            fmt::join(wanted.extent, ", "), fmt::join(wanted.offset, ", "), wanted.strides.size())));
    }
    if (std::ranges::find(box.extent, 0U) != box.extent.end()) return {};
    std::vector<tensor::Box> common;
    std::vector<std::uint32_t> shards;
    for (const TensorPart& part : tensor.parts) {
      auto shared = tensor::intersection(box, {part.offset, part.extent});
      if (!shared) continue;
      Snapshot::BoxRequest request{part.tensor, shared->offset, shared->extent, wanted.out, wanted.strides};
      for (std::size_t i = 0; i < box.offset.size(); ++i) {
        request.out += static_cast<std::int64_t>(shared->offset[i] - box.offset[i]) * wanted.strides[i];
        request.offset[i] -= part.offset[i];
      }
      ShardRequests& shard = requests_[part.shard];
      shard.boxes.push_back(std::move(request));
      shard.expected.emplace_back(&tensor, &part);
      common.push_back(*std::move(shared));
      shards.push_back(part.shard);
    }
    return check_coverage(tensor, box, common, shards);
  }

  // By shard. Refers to the tensors that the planner was made of.
  [[nodiscard]] const std::map<std::uint32_t, ShardRequests>& requests() const noexcept { return requests_; }

 private:
  // Every element must come from one part, or it would be unknown which of several values it has.
  Result<void> check_coverage(const GlobalTensor& tensor, const tensor::Box& box, const std::vector<tensor::Box>& parts,
                              const std::vector<std::uint32_t>& shards) const {
    const std::uint64_t elements = tensor::volume(box.extent).value_or(0);
    if (parts.size() == 1 && parts.front() == box) return {};
    // The parts ascend, but what they have in common with the box need not.
    std::vector<std::size_t> order(parts.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::sort(order, {}, [&](std::size_t i) -> const tensor::Box& { return parts[i]; });
    std::vector<tensor::Box> sorted;
    sorted.reserve(parts.size());
    for (const std::size_t i : order) sorted.push_back(parts[i]);
    const tensor::Coverage coverage = tensor::cover(sorted);
    if (coverage.has_too_many) {
      return tl::unexpected(error(ErrorKind::resource_exhausted, tensor, "it has too many parts"));
    }
    if (coverage.overlap) {
      return tl::unexpected(
          error(ErrorKind::corrupt, tensor,
                fmt::format("shards {} and {} hold different values of the same elements",
                            shards[order[coverage.overlap->first]], shards[order[coverage.overlap->second]])));
    }
    if (coverage.covered == elements) return {};
    return tl::unexpected(
        error(ErrorKind::not_found, tensor,
              fmt::format("the shards hold {} of {} elements of the box of extent [{}] at [{}]", coverage.covered,
                          elements, fmt::join(box.extent, ", "), fmt::join(box.offset, ", "))));
  }

  [[nodiscard]] Error error(ErrorKind kind, const GlobalTensor& tensor, const std::string& what) const {
    return {kind, fmt::format("{}: tensor {} of shape [{}]: {}", place_, quote_name(tensor.name),
                              fmt::join(tensor.shape, ", "), what)};
  }

  std::string place_;
  std::unordered_map<std::string_view, const GlobalTensor*> by_name_;
  std::map<std::uint32_t, ShardRequests> requests_;
};

// Whether the shard holds what the tensor index says: a file that says another dtype would be read over the end of the
// caller's memory.
Result<void> check_shard(const Snapshot& snapshot, const ShardRequests& requests) {
  for (const auto& [tensor, part] : requests.expected) {
    const bool is_there = part->tensor < snapshot.tensors().size();
    const TensorInfo* const info = is_there ? &snapshot.tensors()[part->tensor] : nullptr;
    if (info != nullptr && info->dtype_name == tensor->dtype_name && info->shape == part->extent) continue;
    return fail(ErrorKind::corrupt,
                fmt::format("{}: tensor {} is not the {} of shape [{}] that the tensor index names", snapshot.name(),
                            part->tensor, tensor->dtype_name, fmt::join(part->extent, ", ")));
  }
  return {};
}

std::uint64_t bytes_of(const Snapshot& snapshot, const std::vector<Snapshot::BoxRequest>& requests) {
  std::uint64_t bytes = 0;
  for (const Snapshot::BoxRequest& request : requests) {
    const TensorInfo& info = snapshot.tensors()[request.tensor];
    const std::uint64_t elements = std::max<std::uint64_t>(tensor::volume(info.shape).value_or(1), 1);
    bytes += info.size_bytes / elements * tensor::volume(request.extent).value_or(0);
  }
  return bytes;
}

}  // namespace

Result<std::pair<CommitRecord, TensorReader::Tensors>> TensorReader::record_with_tensors(std::uint64_t step,
                                                                                         unsigned threads) const {
  for (int attempt = 1;; ++attempt) {
    auto record = read_commit_record(directories_.file_system(), layout_, step);
    if (!record && record.error().kind() == ErrorKind::not_found) return tl::unexpected(directories_.not_found(step));
    if (!record) return tl::unexpected(std::move(record).error());
    {
      const std::lock_guard lock(mutex_);
      if (record_ && *record_ == *record) return std::pair(*std::move(record), tensors_);
    }
    auto made = list_tensors(directories_.file_system(), layout_, reader_, *record, limits_, threads);
    if (made) {
      const std::lock_guard lock(mutex_);
      record_ = *record;
      tensors_ = std::make_shared<const std::vector<GlobalTensor>>(*std::move(made));
      return std::pair(*std::move(record), tensors_);
    }
    // A writer may have removed or rewritten the step since its record was read.
    if (attempt == kReadAttempts || !is_damage(made.error())) return tl::unexpected(std::move(made).error());
  }
}

Result<TensorReader::Tensors> TensorReader::list(std::uint64_t step) const {
  BITSNAP_ASSIGN(auto found, record_with_tensors(step, 0));
  return std::move(found.second);
}

Result<void> TensorReader::read(std::uint64_t step, std::span<const TensorBox> boxes, const RunOptions& options) const {
  for (int attempt = 1;; ++attempt) {
    BITSNAP_ASSIGN(const auto found, record_with_tensors(step, options.threads));
    BoxPlanner planner(fmt::format("{}: step {}", layout_.root(), step), *found.second);
    for (const TensorBox& box : boxes) BITSNAP_TRY(planner.add(box));
    // All are opened before the first is read, so that they stay readable.
    std::vector<std::pair<std::shared_ptr<const Snapshot>, const std::vector<Snapshot::BoxRequest>*>> shards;
    std::uint64_t total = 0;
    bool has_changed = false;
    for (const auto& [shard, requests] : planner.requests()) {
      BITSNAP_ASSIGN(std::shared_ptr<const Snapshot> opened, reader_.open(step, shard));
      has_changed = has_changed || opened->id() != found.first.shards[shard].id;
      if (has_changed) break;
      BITSNAP_TRY(check_shard(*opened, requests));
      total += bytes_of(*opened, requests.boxes);
      shards.emplace_back(std::move(opened), &requests.boxes);
    }
    if (has_changed && attempt < kReadAttempts) continue;
    if (has_changed) {
      return fail(ErrorKind::busy, fmt::format("{}: step {} changed {} times while it was being opened; read it again "
                                               "later",
                                               layout_.root(), step, kReadAttempts));
    }
    SummedProgress progress(options.progress, total);
    for (const auto& [snapshot, requests] : shards) {
      RunOptions own = options;
      own.progress = progress.next(bytes_of(*snapshot, *requests));
      BITSNAP_TRY(snapshot->read_boxes(*requests, own));
    }
    return {};
  }
}

}  // namespace bitsnap::store
