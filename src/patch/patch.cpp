// Patch and StagedPatch.
#include <bitsnap/patch.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/no_throw.hpp"
#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "exec/executor.hpp"
#include "patch/staging.hpp"

namespace bitsnap {

struct Patch::Impl {
  std::vector<std::shared_ptr<const patch::OpenedPatch>> parts;
  std::vector<Tensor> tensors;  // of all parts, each once
};

struct StagedPatch::Impl {
  std::vector<patch::StagedPart> parts;
};

namespace {

using OpenedPatches = std::vector<std::shared_ptr<const patch::OpenedPatch>>;

// The tensors of all patches; those that share a name are one.
std::vector<Patch::Tensor> join_tensors(const OpenedPatches& patches) {
  std::vector<Patch::Tensor> joined;
  std::map<std::string, std::size_t, std::less<>> by_name;
  for (const auto& own : patches) {
    for (const Patch::Tensor& tensor : own->description.tensors) {
      const auto known =
          std::ranges::find_if(tensor.names, [&](const std::string& name) { return by_name.contains(name); });
      const std::size_t number = known == tensor.names.end() ? joined.size() : by_name.find(*known)->second;
      if (number == joined.size()) {
        joined.push_back(tensor);
        joined.back().names.clear();
      }
      for (const std::string& name : tensor.names) {
        if (by_name.try_emplace(name, number).second) joined[number].names.push_back(name);
      }
    }
  }
  return joined;
}

}  // namespace

StagedPatch::StagedPatch(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
StagedPatch::StagedPatch(StagedPatch&&) noexcept = default;
StagedPatch& StagedPatch::operator=(StagedPatch&&) noexcept = default;
StagedPatch::~StagedPatch() = default;

void StagedPatch::apply(unsigned threads) {
  const auto executor = exec::make_executor(threads);
  for (const patch::StagedPart& part : impl_->parts) patch::write_part(part, *executor);
}

std::uint64_t StagedPatch::changed_elements() const noexcept {
  std::uint64_t sum = 0;
  for (const patch::StagedPart& part : impl_->parts) {
    for (const patch::StagedSlab& slab : part.slabs) sum += slab.changed_elements();
  }
  return sum;
}

std::uint64_t StagedPatch::memory_bytes() const noexcept {
  std::uint64_t sum = 0;
  for (const patch::StagedPart& part : impl_->parts) {
    for (const patch::StagedSlab& slab : part.slabs) sum += slab.bytes();
  }
  return sum;
}

Result<StagedPatch::Changes> StagedPatch::changes(const std::string& tensor) const {
  return patch::changes_of(impl_->parts, tensor);
}

Patch::Patch(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Patch::Patch(Patch&&) noexcept = default;
Patch& Patch::operator=(Patch&&) noexcept = default;
Patch::~Patch() = default;

Result<Patch> Patch::open(std::span<const std::byte> bytes, const DecodeLimits& limits) {
  return no_throw("opening a patch", [&]() -> Result<Patch> {
    auto impl = std::make_unique<Impl>();
    do {
      std::size_t size = 0;
      Result<patch::OpenedPatch> opened = patch::open_patch(bytes, limits, size);
      if (!opened && !impl->parts.empty()) {
        return tl::unexpected(std::move(opened).error().within(fmt::format("patch {}", impl->parts.size() + 1)));
      }
      if (!opened) return tl::unexpected(std::move(opened).error());
      if (!impl->parts.empty()) {
        const std::string& before = impl->parts.back()->description.to;
        const std::string& from = opened->description.from;
        if (!before.empty() && !from.empty() && before != from) {
          return fail(ErrorKind::invalid_argument,
                      fmt::format("patch {} applies to {}, but the one before makes {}: they are out of order",
                                  impl->parts.size() + 1, quote_name(from), quote_name(before)));
        }
      }
      impl->parts.push_back(std::make_shared<patch::OpenedPatch>(std::move(*opened)));
      bytes = bytes.subspan(size);
    } while (!bytes.empty());
    impl->tensors = join_tensors(impl->parts);
    return Patch(std::move(impl));
  });
}

std::span<const Patch::Tensor> Patch::tensors() const noexcept { return impl_->tensors; }
const std::string& Patch::from() const noexcept { return impl_->parts.front()->description.from; }
const std::string& Patch::to() const noexcept { return impl_->parts.back()->description.to; }
const std::vector<std::pair<std::string, std::string>>& Patch::metadata() const noexcept {
  return impl_->parts.back()->description.metadata;
}
SnapshotId Patch::expected_id() const noexcept { return impl_->parts.front()->expected; }
SnapshotId Patch::result_id() const noexcept { return impl_->parts.back()->result; }

Result<StagedPatch> Patch::stage(std::span<const WeightMemory> weights, const StageOptions& options) const {
  return no_throw("staging a patch", [&]() -> Result<StagedPatch> {
    BITSNAP_ASSIGN(const patch::WeightTable table, patch::WeightTable::make(weights, "the weights"));
    auto impl = std::make_unique<StagedPatch::Impl>();
    const auto executor = exec::make_executor(options.threads);
    BITSNAP_ASSIGN(impl->parts, patch::stage_parts(impl_->parts, table, options.verify, *executor));
    return StagedPatch(std::move(impl));
  });
}

Result<PatchState> Patch::state_of(std::span<const WeightMemory> weights, unsigned threads) const {
  return no_throw("comparing weights with a patch", [&]() -> Result<PatchState> {
    if (impl_->parts.size() > 1) {
      return fail(ErrorKind::unsupported,
                  fmt::format("weights can be compared with one patch, but these are {} in one", impl_->parts.size()));
    }
    BITSNAP_ASSIGN(const patch::WeightTable table, patch::WeightTable::make(weights, "the weights"));
    const auto executor = exec::make_executor(threads);
    return patch::state_of_weights(*impl_->parts.front(), table, *executor);
  });
}

Result<void> apply_patch(std::span<const WeightMemory> weights, std::span<const std::byte> patch,
                         const StageOptions& options) {
  BITSNAP_ASSIGN(const Patch opened, Patch::open(patch));
  BITSNAP_ASSIGN(StagedPatch staged, opened.stage(weights, options));
  staged.apply(options.threads);
  return {};
}

}  // namespace bitsnap
