#include "store/kept_bases.hpp"

#include <algorithm>
#include <deque>
#include <mutex>
#include <utility>

namespace bitsnap::store {
namespace {

constexpr std::size_t kMostRuns = 4;

struct Left {
  std::mutex mutex;
  std::deque<std::pair<RunKey, std::shared_ptr<BaseCache>>> bases;  // the newest last
};

Left& left() {
  static Left only;
  return only;
}

}  // namespace

void leave_base(const RunKey& run, std::shared_ptr<BaseCache> cache) {
  const std::lock_guard lock(left().mutex);
  std::erase_if(left().bases, [&](const auto& each) { return each.first == run; });
  left().bases.emplace_back(run, std::move(cache));
  if (left().bases.size() > kMostRuns) left().bases.pop_front();
}

std::shared_ptr<BaseCache> take_base(const RunKey& run) {
  const std::lock_guard lock(left().mutex);
  auto& bases = left().bases;
  const auto found = std::ranges::find_if(bases, [&](const auto& each) { return each.first == run; });
  if (found == bases.end()) return nullptr;
  std::shared_ptr<BaseCache> cache = std::move(found->second);
  bases.erase(found);
  return cache;
}

}  // namespace bitsnap::store
