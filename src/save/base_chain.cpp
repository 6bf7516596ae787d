#include "save/base_chain.hpp"

#include <set>
#include <vector>

#include <fmt/format.h>

#include "base/try.hpp"
#include "restore/snapshot_impl.hpp"

namespace bitsnap::save {

Result<std::shared_ptr<const Base>> BaseChain::find(const SnapshotId& id) const {
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

}  // namespace bitsnap::save
