// bases_of(): a base, and everything that it depends on.
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <bitsnap/snapshot.hpp>

#include "base/try.hpp"
#include "restore/snapshot_impl.hpp"

namespace bitsnap {
namespace {

// Thread-safe. Owns a share of the base.
class BaseChain final : public BaseProvider {
 public:
  // nullptr: there are no bases.
  explicit BaseChain(std::shared_ptr<const Base> base) noexcept : base_(std::move(base)) {}

  [[nodiscard]] Result<std::shared_ptr<const Base>> find(const SnapshotId& id) const override;

 private:
  std::shared_ptr<const Base> base_;
};

Result<std::shared_ptr<const Base>> BaseChain::find(const SnapshotId& id) const {
  if (base_ == nullptr) {
    return fail(ErrorKind::not_found, fmt::format("it needs base {}, and no base was given", id.to_hex()));
  }
  std::vector<std::shared_ptr<const Base>> pending{base_};
  std::set<SnapshotId> known{base_->id()};
  while (!pending.empty()) {
    std::shared_ptr<const Base> base = std::move(pending.back());
    pending.pop_back();
    if (base->id() == id) return base;
    const auto* snapshot = dynamic_cast<const Snapshot*>(base.get());
    for (std::size_t i = 0; snapshot != nullptr && i < snapshot->bases().size(); ++i) {
      if (!known.insert(snapshot->bases()[i].id).second) continue;
      BITSNAP_ASSIGN(std::shared_ptr<const Base> next, Snapshot::Impl::of(*snapshot).base(i));
      pending.push_back(std::move(next));
    }
  }
  return fail(ErrorKind::not_found,
              fmt::format("base {} is neither {} nor one of its bases", id.to_hex(), base_->name()));
}

}  // namespace

std::shared_ptr<const BaseProvider> bases_of(std::shared_ptr<const Base> base) {
  return std::make_shared<const BaseChain>(std::move(base));
}

}  // namespace bitsnap
