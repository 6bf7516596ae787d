// SaveQueue: the work of one rank's two threads, from the trainer's request until it is done.
//
// The encoder thread takes requests in their order. A save for the store becomes the rank's one Publication: the
// encoder thread encodes it, then the writer thread publishes it. A shard that waits for those of other ranks stays as
// an Uncommitted. While the writer thread commits, no publication begins, because both use the store.
//
// The rank owns the queue. All functions may be called from any thread, except those named for one of the two threads.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <bitsnap/store.hpp>

#include "engine/arena.hpp"
#include "engine/messages.hpp"
#include "store/pending_save.hpp"

namespace bitsnap::engine {

// A save that the trainer has staged, from the queue until it is published or has failed.
struct QueuedSave {
  Staged staged;
  std::string attempt;  // empty with one rank
  std::shared_ptr<const Arena> arena;
  std::uint64_t joined = 0;  // when it joined the attempt (Attempts::now)
  std::uint64_t number = 0;  // counted from 1; SaveQueue::push() sets it

  [[nodiscard]] ConstByteSpan slot() const noexcept { return arena->slot(staged.slot); }
};

// What a fetch hands over: the answer, and the memory with the files.
struct FetchResult {
  Fetched fetched;
  os::SharedMemory memory;
};
using FetchDone = std::function<void(Result<FetchResult>)>;

struct QueuedFetch {
  FetchRequest request;
  FetchDone done;
};

// A save that goes to the store. The encoder thread owns it until `is_encoded`, then the writer thread.
struct Publication {
  const QueuedSave queued;
  std::shared_ptr<Store> store = nullptr;
  std::optional<store::PendingSave> save = std::nullopt;  // nullopt: the step is in the store already
  ProgressEvent event = {};
  bool is_encoded = false;  // guarded by the queue
};

// A durable shard that waits for the shards of other ranks.
struct Uncommitted {
  std::uint64_t step = 0;
  std::string attempt;
  ProgressEvent event;
  std::uint64_t joined = 0;  // as in QueuedSave
  std::uint64_t since_ns = 0;
};

class SaveQueue {
 public:
  using Work = std::variant<QueuedSave, QueuedFetch, PersistRequest>;

  // Limit for saves, fetches and persist requests that wait. A correct trainer stages at most one save per slot.
  static constexpr std::size_t kMaxWork = 64;
  // Limit for shards that wait for other ranks; each round of commits checks all of them.
  static constexpr std::size_t kMaxUncommitted = 64;

  void push(Work work);
  // Steps for the writer thread to remove when no publication is under way.
  void push_removed(std::span<const std::uint64_t> steps);
  // What waits, oldest first; afterwards nothing does.
  [[nodiscard]] std::deque<Work> drop();
  // Both threads end: the encoder thread after its present work, the writer thread after an encoded publication.
  void end();

  // For the encoder thread. Waits for work; nullopt: the rank ends. The work is under way until end_work().
  [[nodiscard]] std::optional<Work> take();
  void end_work();
  // Waits until the writer thread has published the previous save, which is the base of this one; nullptr: the rank
  // ends.
  [[nodiscard]] Publication* begin_publication(const QueuedSave& queued);
  // Hands the publication to the writer thread, or drops it if encoding failed.
  void end_encoding(Publication& publication, bool is_encoded, const ProgressEvent& event);

  // For the writer thread. Waits for an encoded publication, which it returns, or until it is time to commit or remove
  // without one: nullptr. nullopt: the rank ends.
  [[nodiscard]] std::optional<Publication*> await_writing();
  // The publication, if any, is over. Returns whether there is something to commit or to remove, until
  // end_committing().
  [[nodiscard]] bool begin_committing();
  void end_committing();
  [[nodiscard]] std::set<std::uint64_t> take_removed();
  // Returns the oldest shard, which waits no more, if there are too many.
  [[nodiscard]] std::optional<Uncommitted> add_uncommitted(Uncommitted shard);
  [[nodiscard]] std::deque<Uncommitted> uncommitted() const;
  void drop_uncommitted(std::uint64_t ticket);

  // staged_count() counts the saves that were staged. reached(n): how far all of the first n saves have come.
  enum class Reached : std::uint8_t {
    staged,
    encoded,  // or failed
    settled,  // encoded, and none is being written or committed; shards that wait for other ranks do not count
  };
  [[nodiscard]] std::uint64_t staged_count() const;
  [[nodiscard]] Reached reached(std::uint64_t saves) const;
  // Whether a save of this step will be published, or its shard waits for the shards of other ranks.
  [[nodiscard]] bool is_storing(std::uint64_t step) const;
  // Whether this rank's shard of the step is stored, and waits for those of other ranks.
  [[nodiscard]] bool is_uncommitted(const PersistRequest& request) const;
  // Whether nothing is left to encode, write, commit or remove; with `ignore_uncommitted`, shards that wait for other
  // ranks do not count.
  [[nodiscard]] bool is_idle(bool ignore_uncommitted) const;
  // Whether nothing is left to do that this agent can do: shards that wait for other ranks do not count, unless they
  // are being committed.
  [[nodiscard]] bool is_settled() const;

  struct Counts {
    std::size_t queued = 0;
    bool is_encoding = false;
    bool is_writing = false;
    std::size_t uncommitted = 0;
  };
  [[nodiscard]] Counts counts() const;

 private:
  // Makes the change under the lock, and tells the threads that wait.
  template <typename Change>
  void change(const Change& change);
  // Precondition of the next two functions: `mutex_` is held.
  [[nodiscard]] bool has_work() const { return !work_.empty() || encoding_ || publication_ != nullptr; }
  // Whether a waiting save has the property.
  template <typename Property>
  [[nodiscard]] bool is_waiting(const Property& property) const;

  static constexpr auto kFirstCommitWait = std::chrono::milliseconds(20);
  static constexpr auto kLongestCommitWait = std::chrono::milliseconds(2000);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_ending_ = false;
  std::deque<Work> work_;
  std::optional<std::uint64_t> encoding_;  // number of the save that is being encoded; UINT64_MAX for other work
  std::uint64_t staged_ = 0;
  std::unique_ptr<Publication> publication_;
  std::deque<Uncommitted> uncommitted_;
  std::set<std::uint64_t> removed_;
  bool is_committing_ = false;
  std::chrono::milliseconds commit_wait_ = kFirstCommitWait;  // until the next round of commits
};

}  // namespace bitsnap::engine
