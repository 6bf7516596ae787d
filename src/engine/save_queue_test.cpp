// The queue of a rank: drawn sequences of the calls of both threads against a plain model, and the waits.
#include "engine/save_queue.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace bitsnap::engine {
namespace {

using Reached = SaveQueue::Reached;

constexpr std::uint64_t kSteps = 6;  // few, so that steps meet

QueuedSave save_of(std::uint64_t step, bool persist = true) {
  return {.staged = {.ticket = step, .step = step, .persist = persist}, .attempt = {}, .arena = nullptr};
}

Uncommitted shard_of(std::uint64_t step, std::uint64_t ticket) {
  ProgressEvent event;
  event.ticket = ticket;
  return {.step = step, .attempt = "a", .event = event};
}

// Calls that would wait are left out.
class DrawnQueue {
 public:
  explicit DrawnQueue(std::uint32_t seed) : random_(seed) {}

  void run(int calls) {
    for (int i = 0; i < calls && !::testing::Test::HasFatalFailure(); ++i) {
      call(draw(9));
      check();
    }
  }

 private:
  struct Item {
    std::uint64_t number = 0;  // 0: no save
    std::uint64_t step = 0;
    bool persist = false;
  };
  enum class Published : std::uint8_t { none, encoding, encoded, publishing };

  std::uint32_t draw(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }

  void call(std::uint32_t which) {
    switch (which) {
      case 0:
      case 1: push_save(); break;
      case 2:
        queue_.push(PersistRequest{draw(kSteps)});
        waiting_.push_back({});
        break;
      case 3: take(); break;
      case 4: encode(); break;
      case 5: end_encoding(); break;
      case 6: write(); break;
      case 7: end_committing(); break;
      default: drop_or_remove(); break;
    }
  }

  void push_save() {
    const std::uint64_t step = draw(kSteps);
    const bool persist = draw(2) == 0;
    queue_.push(save_of(step, persist));
    waiting_.push_back({++staged_, step, persist});
  }

  void take() {
    if (waiting_.empty() || is_working_) return;
    const auto taken = queue_.take();
    ASSERT_TRUE(taken);
    const auto* const save = std::get_if<QueuedSave>(&*taken);
    work_ = waiting_.front();
    waiting_.pop_front();
    is_working_ = true;
    ASSERT_EQ(save != nullptr ? save->number : 0, work_.number);
  }

  // The encoder thread encodes its work for the store, or ends it.
  void encode() {
    if (!is_working_ || published_ == Published::encoding) return;
    const bool is_for_store = work_.number == 0 || work_.persist;
    if (is_for_store && published_ == Published::none && !is_committing_ && draw(2) == 0) {
      QueuedSave save = save_of(work_.step);
      save.number = work_.number;
      publication_ = queue_.begin_publication(save);
      ASSERT_NE(publication_, nullptr);
      published_ = Published::encoding;
      published_item_ = work_;
      return;
    }
    queue_.end_work();
    is_working_ = false;
  }

  void end_encoding() {
    if (published_ != Published::encoding) return;
    const bool is_encoded = draw(3) != 0;
    queue_.end_encoding(*publication_, is_encoded, {});
    published_ = is_encoded ? Published::encoded : Published::none;
    queue_.end_work();
    is_working_ = false;
  }

  // The writer thread takes what is due, and begins to commit.
  void write() {
    if (is_committing_ || published_ == Published::encoding) return;
    if (published_ == Published::none && removed_.empty()) return;
    const auto publication = queue_.await_writing();
    ASSERT_TRUE(publication);
    ASSERT_EQ(*publication, published_ == Published::encoded ? publication_ : nullptr);
    if (*publication != nullptr && draw(2) == 0) {
      const std::uint64_t step = published_item_.step;
      ASSERT_FALSE(queue_.add_uncommitted(shard_of(step, ++tickets_)));
      uncommitted_.push_back({step, tickets_});
    }
    published_ = Published::none;
    is_committing_ = !uncommitted_.empty() || !removed_.empty();
    ASSERT_EQ(queue_.begin_committing(), is_committing_);
  }

  void end_committing() {
    if (!is_committing_) return;
    if (!uncommitted_.empty()) {
      queue_.drop_uncommitted(uncommitted_.front().second);
      uncommitted_.pop_front();
    }
    EXPECT_EQ(queue_.take_removed(), removed_);
    removed_.clear();
    queue_.end_committing();
    is_committing_ = false;
  }

  void drop_or_remove() {
    if (draw(4) == 0) {
      EXPECT_EQ(queue_.drop().size(), waiting_.size());
      waiting_.clear();
    } else {
      const std::uint64_t step = draw(kSteps);
      queue_.push_removed(std::span(&step, 1));
      removed_.insert(step);
    }
  }

  void check() const {
    const bool has_work = !waiting_.empty() || is_working_ || published_ != Published::none;
    EXPECT_EQ(queue_.is_idle(true), !has_work && removed_.empty());
    EXPECT_EQ(queue_.is_idle(false), !has_work && removed_.empty() && uncommitted_.empty());
    EXPECT_EQ(queue_.is_settled(), !has_work && !is_committing_);
    const SaveQueue::Counts counts = queue_.counts();
    EXPECT_EQ(counts.queued, waiting_.size());
    EXPECT_EQ(counts.is_encoding, is_working_);
    EXPECT_EQ(counts.is_writing, published_ == Published::encoded);
    EXPECT_EQ(counts.uncommitted, uncommitted_.size());
    EXPECT_EQ(queue_.uncommitted().size(), uncommitted_.size());
    EXPECT_EQ(queue_.staged_count(), staged_);
    for (std::uint64_t saves = 0; saves <= staged_; ++saves) EXPECT_EQ(queue_.reached(saves), reached(saves));
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      bool is_uncommitted = false;
      for (const auto& shard : uncommitted_) is_uncommitted |= shard.first == step;
      bool is_storing = is_uncommitted || (published_ != Published::none && published_item_.step == step);
      for (const Item& item : waiting_) is_storing |= item.persist && item.step == step;
      EXPECT_EQ(queue_.is_uncommitted({step, "a"}), is_uncommitted);
      EXPECT_FALSE(queue_.is_uncommitted({step, "b"}));
      EXPECT_EQ(queue_.is_storing(step), is_storing);
    }
  }

  [[nodiscard]] Reached reached(std::uint64_t saves) const {
    if (is_working_ && work_.number != 0 && work_.number <= saves) return Reached::staged;
    for (const Item& item : waiting_) {
      if (item.number != 0 && item.number <= saves) return Reached::staged;
    }
    if (published_ != Published::none && published_item_.number <= saves) return Reached::encoded;
    return is_committing_ ? Reached::encoded : Reached::settled;
  }

  std::mt19937 random_;
  SaveQueue queue_;
  std::deque<Item> waiting_;
  bool is_working_ = false;
  Item work_;
  Published published_ = Published::none;
  Item published_item_;
  Publication* publication_ = nullptr;
  std::deque<std::pair<std::uint64_t, std::uint64_t>> uncommitted_;  // step and ticket
  std::set<std::uint64_t> removed_;
  bool is_committing_ = false;
  std::uint64_t staged_ = 0;
  std::uint64_t tickets_ = 0;
};

TEST(SaveQueue, AgreesWithAModelInDrawnSequences) {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    DrawnQueue(seed).run(60);
  }
}

TEST(SaveQueue, BeginsAPublicationOnlyAfterThePreviousOneAndItsCommits) {
  SaveQueue queue;
  Publication* const first = queue.begin_publication(save_of(1));
  ASSERT_NE(first, nullptr);
  std::atomic<bool> has_begun = false;
  std::thread encoder([&] {
    EXPECT_NE(queue.begin_publication(save_of(2)), nullptr);
    has_begun = true;
  });
  queue.end_encoding(*first, true, {});
  EXPECT_EQ(queue.await_writing(), std::optional(first));
  EXPECT_FALSE(queue.add_uncommitted(shard_of(1, 1)));
  EXPECT_TRUE(queue.begin_committing());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(has_begun);
  queue.end_committing();
  encoder.join();
  EXPECT_TRUE(has_begun);
}

TEST(SaveQueue, TriesToCommitAgainWithoutAnyEvent) {
  SaveQueue queue;
  EXPECT_FALSE(queue.add_uncommitted(shard_of(1, 1)));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(queue.await_writing(), std::optional<Publication*>(nullptr));
    EXPECT_TRUE(queue.begin_committing());
    queue.end_committing();
  }
}

TEST(SaveQueue, GivesUpTheOldestOfTooManyUncommittedShards) {
  SaveQueue queue;
  for (std::uint64_t i = 0; i < SaveQueue::kMaxUncommitted; ++i) EXPECT_FALSE(queue.add_uncommitted(shard_of(i, i)));
  const auto oldest = queue.add_uncommitted(shard_of(100, 100));
  ASSERT_TRUE(oldest);
  EXPECT_EQ(oldest->step, 0U);
  EXPECT_EQ(queue.uncommitted().size(), SaveQueue::kMaxUncommitted);
}

TEST(SaveQueue, EndsBothThreadsButPublishesWhatIsEncoded) {
  SaveQueue queue;
  Publication* const publication = queue.begin_publication(save_of(1));
  queue.push(save_of(2));
  queue.end();
  EXPECT_FALSE(queue.take());
  EXPECT_EQ(queue.begin_publication(save_of(2)), nullptr);
  queue.end_encoding(*publication, true, {});
  EXPECT_EQ(queue.await_writing(), std::optional(publication));
  EXPECT_FALSE(queue.begin_committing());
  EXPECT_FALSE(queue.await_writing());
  EXPECT_EQ(queue.drop().size(), 1U);
}

}  // namespace
}  // namespace bitsnap::engine
