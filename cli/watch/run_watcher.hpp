// Takes each checkpoint that a training writes into a run once it is complete. One thread; the run is opened for each
// checkpoint and closed again. All that lasts is in the run, so a killed watcher loses nothing.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>

#include "cli/command.hpp"
#include "cli/watch/checkpoint_saving.hpp"
#include "cli/watch/completeness.hpp"
#include "cli/watch/raw_deletion.hpp"
#include "cli/watch/raw_events.hpp"
#include "cli/watch/raw_inputs.hpp"
#include "cli/watch/raw_tree.hpp"

namespace bitsnap::cli {

struct WatchOptions {
  RunSaveOptions save;
  std::string directory;
  RawKeeping keeping;
  std::chrono::milliseconds settle{30'000};
  std::chrono::milliseconds poll{5'000};
  bool once = false;
};

class RunWatcher {
 public:
  RunWatcher(const WatchOptions& options, const CommonOptions& common);

  // Ends after an interrupt, with cancelled; with --once after everything that is complete; and after errors that will
  // not pass.
  [[nodiscard]] Result<void> run();

 private:
  using Clock = std::chrono::steady_clock;

  enum class Phase {
    observed,  // until it is complete
    in_run,    // the run has its step
    refused,   // it will not be saved unless it changes
  };

  struct Watched {
    Phase phase = Phase::observed;
    std::vector<RawEntry> tree;        // while it is observed
    Clock::time_point since;           // the tree has been the same since then
    std::optional<FileFacts> settled;  // of the checkpoint itself when it left the first phase
    std::optional<std::string> held;   // why it is none to save: a run holds it
    bool was_saved = false;            // by this process
    bool was_judged_for_deletion = false;
    unsigned failures = 0;
    Clock::time_point retry_at;
  };

  [[nodiscard]] Result<void> poll();
  void refuse_duplicates(const std::vector<RawCheckpoint>& found);
  [[nodiscard]] Result<void> visit(const RawCheckpoint& checkpoint, const TrainingMarkers& markers);
  // Whether nothing is to be done about it because it has not changed since it was saved or refused.
  [[nodiscard]] static bool is_settled(const RawCheckpoint& checkpoint, const Watched& watched);
  // Updates the tree; false if the checkpoint cannot be read now.
  [[nodiscard]] bool observe(const RawCheckpoint& checkpoint, Watched& watched);
  [[nodiscard]] Result<void> settle_old_step(const RawCheckpoint& checkpoint, Watched& watched);
  [[nodiscard]] Result<void> take(const RawCheckpoint& checkpoint, Watched& watched);
  [[nodiscard]] Result<void> save(const RawCheckpoint& checkpoint, const Watched& watched);
  [[nodiscard]] Result<void> handle_failure(const RawCheckpoint& checkpoint, Watched& watched, const Error& error);
  [[nodiscard]] Result<void> delete_old(const RawInputs& found);
  [[nodiscard]] Result<void> delete_one(const RawCheckpoint& raw, bool is_left, bool& is_judged);

  static void settle(Watched& watched, Phase phase);
  [[nodiscard]] bool has(std::uint64_t step) const;
  [[nodiscard]] bool is_above_run(std::uint64_t step) const { return steps_.empty() || step > steps_.back(); }
  void note_once(const std::string& path, std::optional<std::uint64_t> step, const std::string& text);
  void skip_once(const std::string& path, std::optional<std::uint64_t> step, const std::string& reason);
  void warn_once(const std::string& path, std::optional<std::uint64_t> step, const Error& error);

  const WatchOptions& options_;
  const CommonOptions& common_;
  RawEvents events_;
  std::map<std::string, Watched> watched_;   // by path
  std::set<std::string> noted_;              // what was printed and is not printed again
  std::map<std::string, bool> left_judged_;  // leftovers of deletions
  std::vector<std::uint64_t> steps_;         // of the run
  std::optional<Error> fatal_;               // of the run, if it will not pass
  // Of one poll: a lower step is about to be complete, and the run takes steps in ascending order only.
  bool is_blocked_ = false;
  bool is_waiting_ = false;
};

}  // namespace bitsnap::cli
