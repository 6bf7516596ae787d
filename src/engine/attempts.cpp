// Joining of attempts, with limits for what is remembered.
#include "engine/attempts.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace bitsnap::engine {
namespace {

// Limits for remembered steps and saves: ranks are never this many steps apart.
constexpr std::size_t kMaxSteps = 1024;
constexpr std::size_t kMaxSaves = std::size_t{1} << 17;

// Steps for memory only join attempts, too, and are never committed, so the oldest entry is removed. The lowest step
// would be wrong: a training may go back to an earlier step.
template <typename Map, typename Key>
void forget_oldest(Map& map, std::deque<Key>& begun, const Key& key, std::size_t most) {
  begun.push_back(key);
  while (begun.size() > most) {
    if (begun.front() != key) map.erase(begun.front());
    begun.pop_front();
  }
}

}  // namespace

Attempts::Attempts(std::string session, std::string prefix)
    : prefix_(std::move(prefix)), session_(std::move(session)), starts_{prefix_} {
  if (!session_.empty()) starts_.insert(session_);
}

bool Attempts::is_own(const std::string& attempt) {
  const std::lock_guard lock(mutex_);
  return starts_.contains(attempt.substr(0, attempt.rfind('-')));
}

void Attempts::begin_restart(const std::string& session) {
  const std::lock_guard lock(mutex_);
  session_ = session;
  if (!session_.empty()) starts_.insert(session_);
  saves_.clear();
  saves_begun_.clear();
}

void Attempts::note_hello(std::uint32_t rank) {
  const std::lock_guard lock(mutex_);
  Trainer& trainer = trainers_[rank];
  trainer = {.number = trainer.number + 1, .began = ++now_, .died = trainer.died};
  std::erase_if(saves_, [rank](const auto& save) { return save.first.second == rank; });
}

void Attempts::note_death(std::uint32_t rank) {
  const std::lock_guard lock(mutex_);
  trainers_[rank].died = ++now_;
}

void Attempts::note_left(std::uint32_t rank) {
  const std::lock_guard lock(mutex_);
  trainers_[rank].left = ++now_;
}

// A trainer that delivered to the attempt and died before this rank's trainer said hello belongs to an earlier restart.
// Its state must not be combined with this one.
bool Attempts::may_join(const Attempt& attempt, std::uint32_t rank) const {
  if (attempt.delivered.contains(rank)) return false;
  const std::uint64_t began = trainers_.at(rank).began;
  return std::ranges::all_of(attempt.delivered, [&](const auto& delivered) {
    const Trainer& other = trainers_.at(delivered.first);
    const bool is_over = other.number != delivered.second || other.died > other.began;
    return !is_over || (other.number == delivered.second && other.died > began);
  });
}

std::string Attempts::join(std::uint64_t step, std::uint32_t rank) {
  const std::lock_guard lock(mutex_);
  Trainer& trainer = trainers_[rank];
  if (trainer.number == 0) trainer = {.number = 1, .began = ++now_};
  trainer.joined = ++now_;
  trainer.step = step;
  if (!session_.empty()) {
    const auto [save, is_new] = saves_.try_emplace({step, rank}, 0);
    if (is_new) forget_oldest(saves_, saves_begun_, save->first, kMaxSaves);
    return fmt::format("{}-{}", session_, ++save->second);
  }
  const auto [begun, is_new] = steps_.try_emplace(step);
  if (is_new) forget_oldest(steps_, steps_begun_, step, kMaxSteps);
  std::vector<Attempt>& attempts = begun->second;
  if (attempts.empty() || !may_join(attempts.back(), rank)) {
    attempts.push_back({fmt::format("{}-{}", prefix_, ++begun_), {}});
  }
  attempts.back().delivered[rank] = trainer.number;
  return attempts.back().name;
}

std::uint64_t Attempts::now() {
  const std::lock_guard lock(mutex_);
  return ++now_;
}

bool Attempts::has_delivered(std::uint64_t step, std::uint32_t rank, const std::string& attempt) const {
  if (!session_.empty()) {
    const auto save = saves_.find({step, rank});
    return save != saves_.end() && save->second != 0;
  }
  const auto attempts = steps_.find(step);
  return attempts != steps_.end() && std::ranges::any_of(attempts->second, [&](const Attempt& each) {
           return each.name == attempt && each.delivered.contains(rank);
         });
}

bool Attempts::has_gone_on(std::uint64_t step, std::uint32_t rank, const std::string& attempt, std::uint64_t joined,
                           bool count_left) {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(trainers_, [&](const auto& each) {
    const auto& [other, trainer] = each;
    if (other == rank || has_delivered(step, other, attempt)) return false;
    const bool is_later = trainer.step > step && trainer.joined > joined;
    return is_later || (count_left && trainer.left > trainers_.at(rank).began);
  });
}

void Attempts::note_failed(std::uint64_t step, std::uint32_t rank, const std::string& attempt) {
  const std::lock_guard lock(mutex_);
  const auto save = saves_.find({step, rank});
  // Only the newest save can be taken back: later ones have used the next names.
  if (save != saves_.end() && fmt::format("{}-{}", session_, save->second) == attempt) --save->second;
  const auto attempts = steps_.find(step);
  if (attempts == steps_.end() || attempts->second.back().name != attempt) return;
  const auto delivered = attempts->second.back().delivered.find(rank);
  if (delivered == attempts->second.back().delivered.end()) return;
  if (delivered->second == trainers_[rank].number) attempts->second.back().delivered.erase(delivered);
}

void Attempts::note_committed(std::uint64_t step, const std::string& attempt) {
  constexpr std::size_t kMaxRemembered = 256;
  const std::lock_guard lock(mutex_);
  steps_.erase(steps_.begin(), steps_.upper_bound(step));
  committed_.emplace_back(step, attempt);
  if (committed_.size() > kMaxRemembered) committed_.pop_front();
}

bool Attempts::was_committed(std::uint64_t step, const std::string& attempt) {
  const std::lock_guard lock(mutex_);
  return std::ranges::find(committed_, std::pair(step, attempt)) != committed_.end();
}

}  // namespace bitsnap::engine
