// Which saves of several ranks belong together: docs/spec/engine.md, "Checkpoints of several ranks". One for each job;
// thread-safe. It knows what the ranks of this agent did, and reads no store.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace bitsnap::engine {

class Attempts {
 public:
  // `session`: the name that all ranks agreed upon at this start of the job; empty: the agent names the attempts,
  // beginning with `prefix`, which no other agent uses.
  Attempts(std::string session, std::string prefix) : prefix_(std::move(prefix)), session_(std::move(session)) {}

  // The job is restarted; none of its ranks has said hello yet.
  void begin_restart(const std::string& session);
  // A rank said hello; its trainer died, or left.
  void note_hello(std::uint32_t rank);
  void note_death(std::uint32_t rank);

  // The attempt that this rank's save of the step belongs to. To be called once for each save, in the order in which
  // the trainer handed them over.
  [[nodiscard]] std::string join(std::uint64_t step, std::uint32_t rank);

  // The save did not come to be a shard of the attempt it was to be: the next one of this step may.
  void note_failed(std::uint64_t step, std::uint32_t rank, const std::string& attempt);

  // Somebody saw it committed: nobody joins it, or one of an earlier step, any more.
  void note_committed(std::uint64_t step, const std::string& attempt);
  // Whether that was noted, of those noted last.
  [[nodiscard]] bool was_committed(std::uint64_t step, const std::string& attempt);

 private:
  struct Attempt {
    std::string name;
    std::map<std::uint32_t, std::uint64_t> delivered;  // by rank: the number of its trainer
  };
  struct Trainer {
    std::uint64_t number = 0;  // 0: never said hello
    std::uint64_t began = 0;   // moments are counted by what was noted
    std::uint64_t died = 0;    // the last time
  };

  [[nodiscard]] bool may_join(const Attempt& attempt, std::uint32_t rank) const;

  const std::string prefix_;
  std::mutex mutex_;
  std::string session_;
  std::uint64_t now_ = 0;
  std::uint64_t begun_ = 0;  // attempts, so that their names differ
  std::map<std::uint32_t, Trainer> trainers_;
  std::map<std::uint64_t, std::vector<Attempt>> steps_;
  std::deque<std::uint64_t> steps_begun_;                                   // in their order; some may be gone
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::uint64_t> saves_;  // of a step by a rank, since the restart
  std::deque<std::pair<std::uint64_t, std::uint32_t>> saves_begun_;
  std::deque<std::pair<std::uint64_t, std::string>> committed_;
};

}  // namespace bitsnap::engine
