// One choice for chunks that are alike: the first of them that has to choose does so for those after it, each of which
// may still turn it down. What a chunk gets depends on the order of the chunks alone, not on which is ready first.
//
// A member that asks waits for members before it, never for one after it: all of them are worked on in their order, and
// each settles, whatever becomes of it (Seat sees to that). Thread-safe.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <vector>

#include "plan/planner.hpp"

namespace bitsnap::plan {

// So many chunks that are alike go by the choice of one.
inline constexpr std::size_t kLikeChunks = 32;

class SharedChoice {
 public:
  // Before anybody asks: one more chunk, the last so far. Returns its number.
  std::size_t add_member();
  [[nodiscard]] std::size_t members() const noexcept { return members_.size(); }

  // What the first of the members before this one that chose did choose; nullptr where all of them did without. Waits
  // until that is known. Valid as long as this.
  [[nodiscard]] const Choice* wait_for_precedent(std::size_t member);

  // Once for each member: what it chose for itself, or nothing.
  void settle(std::size_t member, std::optional<Choice> choice);

 private:
  struct Member {
    bool is_settled = false;
    std::optional<Choice> choice;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Member> members_;
  std::size_t first_ = 0;  // of the members that have not settled, or that chose
};

// A chunk's place among those alike, while it is worked on. Settles, with nothing, where its holder did not.
class Seat {
 public:
  Seat() = default;
  // `group` nullptr: no others are alike.
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
