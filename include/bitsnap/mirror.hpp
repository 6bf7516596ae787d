// A copy of a run in another place, such as an object store, that follows the run: what is new there is added, what was
// removed is removed. At every moment the copy is a run, and a checkpoint is in it as a whole or not at all.
// docs/spec/store.md, "Mirrors", says in which order its files change.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>

namespace bitsnap {

struct MirrorOptions {
  // Only this checkpoint and what it needs; nothing is removed. nullopt: all checkpoints.
  std::optional<std::uint64_t> step = {};
  // Whether the copy will be updated again and again, so that what is removed from the run is removed from the copy: a
  // run that cannot be written is refused then.
  bool follows = false;
  std::uint64_t bytes_per_second = 0;  // that are sent at most; 0: no limit
  std::uint64_t timeout_ms = 0;        // the longest wait for another writer of the copy
  Progress progress = nullptr;         // bytes of an update
  // Asked while something is waited for, before each step and each few megabytes; true ends the call with cancelled.
  std::function<bool()> interrupted = nullptr;
};

struct MirrorReport {
  std::vector<std::uint64_t> added;    // checkpoints, ascending; all three lists
  std::vector<std::uint64_t> changed;  // whose records are others now: they were coded again, for example
  std::vector<std::uint64_t> removed;
  std::optional<std::uint64_t> newest = {};  // checkpoint of the copy
  std::uint64_t sent_bytes = 0;              // of snapshot files
  // The run could not be written, so that the copy keeps what was removed from the run: nobody can tell whether those
  // checkpoints came from this directory.
  bool keeps_removed = false;
  // Why some checkpoints of the run could not be copied: their files, or files that they need, cannot be read. All
  // others are copied.
  std::optional<Error> failure = {};
};

// One thread at a time uses a Mirror.
class Mirror {
 public:
  // Opens the copy `to` of the run `from` for writing, and makes it if it does not exist; both are paths or addresses
  // of runs. invalid_argument if another run is there, or if the copy has been continued from elsewhere: its newest
  // checkpoint is not in `from`, which did not put it there. busy if there is another writer.
  [[nodiscard]] static Result<Mirror> open(const std::string& from, const std::string& to, MirrorOptions options = {});
  Mirror(Mirror&&) noexcept;
  Mirror& operator=(Mirror&&) noexcept;
  ~Mirror();

  // Makes the copy like the run is now, but for what MirrorReport::failure says. After an error, the copy is a run with
  // all that it had before, and maybe some of the new checkpoints. The next update continues, and sends no file twice.
  [[nodiscard]] Result<MirrorReport> update();

  class Impl;  // of the library
  explicit Mirror(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace bitsnap
