// RankStore: the store as the agent uses it for one rank. It has one handle, which it opens again when the settings
// have changed or the handle may be stale, and it says who has committed a step.
//
// The rank owns it. Only the rank's two threads call what opens or reads the store; the setters may be called from any
// thread and wait for no disk.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include <bitsnap/store.hpp>

#include "engine/job.hpp"
#include "engine/messages.hpp"
#include "store/base_cache.hpp"

namespace bitsnap::engine {

class RankStore {
 public:
  RankStore(Job& job, std::uint32_t rank, WriteSettings settings, std::shared_ptr<store::BaseCache> cache)
      : job_(job), rank_(rank), cache_(std::move(cache)), settings_(std::move(settings)) {}

  // Those of a new trainer, from the next open() on.
  void set_settings(const WriteSettings& settings);
  // From the next open() on, the trainer's caller removes checkpoints, and keeps this many.
  void set_rotation(std::optional<std::uint64_t> keep_last);
  // The handle has failed, or its view of the store may be stale.
  void note_stale();

  [[nodiscard]] Result<std::shared_ptr<Store>> open();
  // The settings for a save for memory only.
  [[nodiscard]] CodingSettings memory_settings();
  // Removes what the retention does not keep, now that `step` is committed.
  [[nodiscard]] Result<void> prune(std::uint64_t step);
  // Removes these steps, except the newest one of the store.
  [[nodiscard]] Result<void> remove(const std::set<std::uint64_t>& unneeded);

  // Whether the step is committed, or retired, by this attempt.
  [[nodiscard]] bool is_committed(std::uint64_t step, const std::string& attempt, bool retired = false) const;
  // The error of a shard that is not committed because another attempt of its step, or one of a later step, is: that of
  // another job if that one's it is, otherwise `error`; nullopt: the store has no attempt of the step.
  [[nodiscard]] std::optional<Error> other_attempt_error(const Store& store, std::uint64_t step,
                                                         const std::string& attempt, Error error) const;

 private:
  // A call whose failure makes the handle stale.
  template <typename Use>
  [[nodiscard]] Result<void> use(const char* what, const Use& use);
  void remember_settings(const Store& store);

  Job& job_;
  const std::uint32_t rank_;
  const std::shared_ptr<store::BaseCache> cache_;

  std::mutex opening_;            // held while the store is opened; before `mutex_`
  std::shared_ptr<Store> store_;  // guarded by `opening_`

  std::mutex mutex_;
  WriteSettings settings_;
  bool is_rotated_ = false;  // the retention comes from set_rotation(): the store removes nothing
  bool must_reopen_ = false;
  std::optional<CodingSettings> remembered_;  // the store's settings when it was opened last
};

}  // namespace bitsnap::engine
