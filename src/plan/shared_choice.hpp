// One choice for a group of similar chunks: the first member that chooses sets the precedent, and each later member may
// follow or reject it. The result depends on the order of the members, not on which thread is ready first.
//
// A member waits only for earlier members. There is no deadlock, because the pipeline starts chunks in the same order
// and a Seat settles for its member in any case. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <vector>

#include "plan/planner.hpp"

namespace bitsnap::plan {

// The most members of a group. More of them would save little: choosing already takes 3 to 7 % of the time for hashing,
// choosing and coding in a model of 87 M parameters (docs/decisions/0011-objectives.md).
inline constexpr std::size_t kLikeChunks = 32;

class SharedChoice {
 public:
  // Adds a chunk behind all others and returns its number. All members are added before the first one waits.
  std::size_t add_member();
  [[nodiscard]] std::size_t members() const noexcept { return members_.size(); }

  // The choice of the first earlier member that chose, or nullptr if none of them did. Waits until that is known. Valid
  // as long as this object.
  [[nodiscard]] const Choice* wait_for_precedent(std::size_t member);

  // Called once for each member, with its own choice or nullopt.
  void settle(std::size_t member, std::optional<Choice> choice);

 private:
  struct Member {
    bool is_settled = false;
    std::optional<Choice> choice;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Member> members_;
  std::size_t first_ = 0;  // the first member that has not settled or that chose
};

// The place of one chunk in its group while the chunk is encoded. Its destructor settles if nothing else did.
class Seat {
 public:
  Seat() = default;
  // `group` nullptr: no other chunk is similar.
  Seat(SharedChoice* group, std::size_t member) noexcept : group_(group), member_(member) {}
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;
  ~Seat() { settle({}); }

  [[nodiscard]] const Choice* wait_for_precedent() {
    return group_ != nullptr ? group_->wait_for_precedent(member_) : nullptr;
  }
  void settle(std::optional<Choice> choice) {
    if (group_ != nullptr) group_->settle(member_, std::move(choice));
    group_ = nullptr;
  }

 private:
  SharedChoice* group_ = nullptr;
  std::size_t member_ = 0;
};

}  // namespace bitsnap::plan
