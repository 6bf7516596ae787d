// Assigns the saves of several ranks to attempts: docs/spec/engine.md, "Checkpoints of several ranks". The agent owns
// one object per job. Thread-safe. It knows only what the ranks of this agent did, and reads no store.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace bitsnap::engine {

class Attempts {
 public:
  // `session`: the session that all ranks of the job share. If it is empty, the agent names the attempts, starting with
  // `prefix`, which no other agent uses.
  Attempts(std::string session, std::string prefix);

  // Whether an attempt of this name belongs to this job since the agent serves it, also before a restart.
  [[nodiscard]] bool is_own(const std::string& attempt);

  // The job is restarted. Precondition: no rank has said hello since the restart.
  void begin_restart(const std::string& session);
  // A rank said hello; its connection closed because the trainer died or left.
  void note_hello(std::uint32_t rank);
  void note_death(std::uint32_t rank);
  // The rank's trainer said that it leaves.
  void note_left(std::uint32_t rank);

  // Returns the attempt of this rank's save of the step. Must be called once per save, in the order of staging.
  [[nodiscard]] std::string join(std::uint64_t step, std::uint32_t rank);

  // A moment after all events so far, for has_gone_on().
  [[nodiscard]] std::uint64_t now();
  // Whether another rank will not deliver to the attempt, which `rank` joined at `joined`: it has begun to save a later
  // step since; or, with `count_left`, it has left since this rank's trainer said hello, and is not back.
  [[nodiscard]] bool has_gone_on(std::uint64_t step, std::uint32_t rank, const std::string& attempt,
                                 std::uint64_t joined, bool count_left);

  // The save failed and added no shard to the attempt. The rank's next save of the step may take its place.
  void note_failed(std::uint64_t step, std::uint32_t rank, const std::string& attempt);

  // The attempt is committed: no save joins it or an attempt of an earlier step any more.
  void note_committed(std::uint64_t step, const std::string& attempt);
  // Whether note_committed() was called for the attempt. Only the newest 256 calls are remembered.
  [[nodiscard]] bool was_committed(std::uint64_t step, const std::string& attempt);

 private:
  struct Attempt {
    std::string name;
    std::map<std::uint32_t, std::uint64_t> delivered;  // by rank: the number of the trainer that delivered
  };
  struct Trainer {
    std::uint64_t number = 0;  // 0: never said hello
    std::uint64_t began = 0;   // value of `now_` at the last hello
    std::uint64_t died = 0;    // value of `now_` at the last death
    std::uint64_t left = 0;    // value of `now_` when it said that it leaves; 0: it did not
    std::uint64_t joined = 0;  // value of `now_` at its last save; 0: it saved nothing
    std::uint64_t step = 0;    // of its last save
  };

  // Precondition of the next two functions: `mutex_` is held.
  [[nodiscard]] bool has_delivered(std::uint64_t step, std::uint32_t rank, const std::string& attempt) const;
  [[nodiscard]] bool may_join(const Attempt& attempt, std::uint32_t rank) const;

  const std::string prefix_;
  std::mutex mutex_;
  std::string session_;
  std::set<std::string> starts_;  // what the names of all attempts so far begin with
  std::uint64_t now_ = 0;
  std::uint64_t begun_ = 0;  // counts attempts, to make their names unique
  std::map<std::uint32_t, Trainer> trainers_;
  std::map<std::uint64_t, std::vector<Attempt>> steps_;
  std::deque<std::uint64_t> steps_begun_;  // oldest first; some may be erased from `steps_`
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::uint64_t> saves_;  // saves per step and rank since the restart
  std::deque<std::pair<std::uint64_t, std::uint32_t>> saves_begun_;
  std::deque<std::pair<std::uint64_t, std::string>> committed_;
};

}  // namespace bitsnap::engine
