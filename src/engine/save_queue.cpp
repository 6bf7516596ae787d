#include "engine/save_queue.hpp"

#include <algorithm>
#include <utility>

namespace bitsnap::engine {

template <typename Change>
void SaveQueue::change(const Change& change) {
  {
    const std::lock_guard lock(mutex_);
    change();
  }
  changed_.notify_all();
}

void SaveQueue::push(Work work) {
  change([&] {
    if (auto* const save = std::get_if<QueuedSave>(&work)) save->number = ++staged_;
    work_.push_back(std::move(work));
  });
}

void SaveQueue::push_removed(std::span<const std::uint64_t> steps) {
  change([&] { removed_.insert(steps.begin(), steps.end()); });
}

std::deque<SaveQueue::Work> SaveQueue::drop() {
  const std::lock_guard lock(mutex_);
  return std::exchange(work_, {});
}

void SaveQueue::end() {
  change([&] { is_ending_ = true; });
}

std::optional<SaveQueue::Work> SaveQueue::take() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_ending_ || !work_.empty(); });
  if (is_ending_) return std::nullopt;
  Work work = std::move(work_.front());
  work_.pop_front();
  const auto* const save = std::get_if<QueuedSave>(&work);
  encoding_ = save != nullptr ? save->number : UINT64_MAX;
  return work;
}

void SaveQueue::end_work() {
  const std::lock_guard lock(mutex_);
  encoding_.reset();
}

Publication* SaveQueue::begin_publication(const QueuedSave& queued) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_ending_ || (publication_ == nullptr && !is_committing_); });
  if (is_ending_) return nullptr;
  publication_ = std::make_unique<Publication>(Publication{.queued = queued});
  return publication_.get();
}

void SaveQueue::end_encoding(Publication& publication, bool is_encoded, const ProgressEvent& event) {
  change([&] {
    publication.event = event;
    publication.is_encoded = is_encoded;
    if (!is_encoded) publication_.reset();
  });
}

std::optional<Publication*> SaveQueue::await_writing() {
  std::unique_lock lock(mutex_);
  const auto is_due = [&] {
    return publication_ != nullptr ? publication_->is_encoded : is_ending_ || !removed_.empty();
  };
  for (;;) {
    if (uncommitted_.empty()) {
      changed_.wait(lock, is_due);
    } else {
      changed_.wait_for(lock, commit_wait_, is_due);
    }
    if (!is_due() && publication_ != nullptr) continue;  // the encoder thread is using the store
    commit_wait_ =
        is_due() ? kFirstCommitWait : std::min(2 * commit_wait_, std::chrono::milliseconds(kLongestCommitWait));
    if (publication_ == nullptr && is_ending_) return std::nullopt;
    is_committing_ = publication_ == nullptr;  // before the encoder thread can begin a publication
    return publication_.get();
  }
}

bool SaveQueue::begin_committing() {
  bool is_needed = false;
  change([&] {
    publication_.reset();
    is_committing_ = is_needed = !uncommitted_.empty() || !removed_.empty();
  });
  return is_needed;
}

void SaveQueue::end_committing() {
  change([&] { is_committing_ = false; });
}

std::set<std::uint64_t> SaveQueue::take_removed() {
  const std::lock_guard lock(mutex_);
  return std::exchange(removed_, {});
}

std::optional<Uncommitted> SaveQueue::add_uncommitted(Uncommitted shard) {
  const std::lock_guard lock(mutex_);
  uncommitted_.push_back(std::move(shard));
  if (uncommitted_.size() <= kMaxUncommitted) return std::nullopt;
  Uncommitted oldest = std::move(uncommitted_.front());
  uncommitted_.pop_front();
  return oldest;
}

std::deque<Uncommitted> SaveQueue::uncommitted() const {
  const std::lock_guard lock(mutex_);
  return uncommitted_;
}

void SaveQueue::drop_uncommitted(std::uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  std::erase_if(uncommitted_, [&](const Uncommitted& each) { return each.event.ticket == ticket; });
}

template <typename Property>
bool SaveQueue::is_waiting(const Property& property) const {
  return std::ranges::any_of(work_, [&](const Work& work) {
    const auto* const queued = std::get_if<QueuedSave>(&work);
    return queued != nullptr && property(*queued);
  });
}

std::uint64_t SaveQueue::staged_count() const {
  const std::lock_guard lock(mutex_);
  return staged_;
}

SaveQueue::Reached SaveQueue::reached(std::uint64_t saves) const {
  const std::lock_guard lock(mutex_);
  const auto is_one = [saves](const QueuedSave& queued) { return queued.number <= saves; };
  if ((encoding_ && *encoding_ <= saves) || is_waiting(is_one)) return Reached::staged;
  const bool is_writing = publication_ != nullptr && is_one(publication_->queued);
  return is_writing || is_committing_ ? Reached::encoded : Reached::settled;
}

bool SaveQueue::is_storing(std::uint64_t step) const {
  const std::lock_guard lock(mutex_);
  const auto is_its = [step](const QueuedSave& queued) { return queued.staged.persist && queued.staged.step == step; };
  return is_waiting(is_its) || (publication_ != nullptr && publication_->queued.staged.step == step) ||
         std::ranges::find(uncommitted_, step, &Uncommitted::step) != uncommitted_.end();
}

bool SaveQueue::is_uncommitted(const PersistRequest& request) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(uncommitted_, [&](const Uncommitted& shard) {
    return shard.step == request.step && shard.attempt == request.attempt;
  });
}

bool SaveQueue::is_idle(bool ignore_uncommitted) const {
  const std::lock_guard lock(mutex_);
  return !has_work() && removed_.empty() && (ignore_uncommitted || uncommitted_.empty());
}

bool SaveQueue::is_settled() const {
  const std::lock_guard lock(mutex_);
  return !has_work() && !is_committing_;
}

SaveQueue::Counts SaveQueue::counts() const {
  const std::lock_guard lock(mutex_);
  return {.queued = work_.size(),
          .is_encoding = encoding_.has_value(),
          .is_writing = publication_ != nullptr && publication_->is_encoded,
          .uncommitted = uncommitted_.size()};
}

}  // namespace bitsnap::engine
