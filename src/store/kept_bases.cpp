#include "store/kept_bases.hpp"

#include <algorithm>
#include <deque>
#include <mutex>

namespace bitsnap::store {
namespace {

constexpr std::size_t kMostRuns = 2;

struct HandedOver {
  std::mutex mutex;
  std::deque<std::pair<RunKey, std::shared_ptr<BaseCache>>> bases;  // the newest last
};

// Never destroyed: global objects may close stores when the process ends.
HandedOver& handed_over() {
  static auto& only = *std::make_unique<HandedOver>().release();
  return only;
}

}  // namespace

void hand_over_base(const RunKey& run, std::shared_ptr<BaseCache> cache) {
  if (!cache->has_saved()) return;
  std::shared_ptr<BaseCache> dropped;  // returns its memory without the lock
  HandedOver& all = handed_over();
  const std::lock_guard lock(all.mutex);
  auto replaced = std::ranges::find_if(all.bases, [&](const auto& each) { return each.first == run; });
  if (replaced == all.bases.end() && all.bases.size() >= kMostRuns) replaced = all.bases.begin();
  if (replaced != all.bases.end()) {
    dropped = std::move(replaced->second);
    all.bases.erase(replaced);
  }
  all.bases.emplace_back(run, std::move(cache));
}

std::shared_ptr<BaseCache> take_over_base(const RunKey& run) {
  HandedOver& all = handed_over();
  const std::lock_guard lock(all.mutex);
  const auto found = std::ranges::find_if(all.bases, [&](const auto& each) { return each.first == run; });
  if (found == all.bases.end()) return nullptr;
  std::shared_ptr<BaseCache> cache = std::move(found->second);
  all.bases.erase(found);
  return cache;
}

}  // namespace bitsnap::store
