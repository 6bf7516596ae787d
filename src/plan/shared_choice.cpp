// The lock, and the search for the first choice.
#include "plan/shared_choice.hpp"

#include <utility>

namespace bitsnap::plan {

std::size_t SharedChoice::add_member() {
  members_.emplace_back();
  return members_.size() - 1;
}

const Choice* SharedChoice::wait_for_precedent(std::size_t member) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return first_ >= member || members_[first_].is_settled; });
  return first_ < member ? &*members_[first_].choice : nullptr;
}

void SharedChoice::settle(std::size_t member, std::optional<Choice> choice) {
  const std::lock_guard lock(mutex_);
  members_[member] = {.is_settled = true, .choice = std::move(choice)};
  while (first_ < members_.size() && members_[first_].is_settled && !members_[first_].choice) ++first_;
  changed_.notify_all();
}

}  // namespace bitsnap::plan
