// A store used by many threads, on the real file system: readers run beside savers and prunes, with one shared handle
// and with several. The tests check what the readers see, but mainly ThreadSanitizer watches them.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/try.hpp"
#include "os/temporary_directory_testing.hpp"
#include "store/run_testing.hpp"
#include "store/store_impl.hpp"

namespace bitsnap::store {
namespace {

constexpr std::uint64_t kSteps = 24;
const RunOptions kTwoThreads{2, nullptr};

StoreOptions options_for(StoreAccess access) {
  StoreOptions options;
  options.access = access;
  options.settings.max_depth = 3;
  options.keep_base_bytes = 1 << 20;
  options.timeout_ms = 60'000;
  return options;
}

std::unique_ptr<Store> open(const std::string& path, StoreAccess access) {
  auto store = Store::open(path, options_for(access));
  EXPECT_TRUE(store) << store.error().message();
  return store ? std::move(*store) : nullptr;
}

Result<PruneReport> prune(Store& store) {
  Retention retention;
  retention.keep_last = 3;
  retention.keep_every = 7;
  PruneOptions options;
  options.reencode = Reencode::always;
  options.run = kTwoThreads;
  return store.prune(retention, options);
}

// A step that is pruned while it is read is not found. No other error is allowed.
bool is_gone(const Error& error) { return error.kind() == ErrorKind::not_found; }

// Calls all reading functions over and over.
class Readers {
 public:
  Readers(const Store& store, std::uint32_t shards) : store_(store), shards_(shards) {
    const auto start = [this](const auto& call) {
      threads_.emplace_back([this, call] {
        while (!is_done_) call();
      });
    };
    start([this] { read_steps(); });
    start([this] { read_newest(); });
    start([this] { list(); });
    start([this] { verify(); });
  }
  ~Readers() { stop(); }
  Readers(const Readers&) = delete;
  Readers& operator=(const Readers&) = delete;

  void stop() {
    is_done_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  [[nodiscard]] std::uint64_t read() const { return read_; }

 private:
  void read_steps() {
    const auto steps = store_.steps();
    ASSERT_TRUE(steps) << steps.error().message();
    for (const std::uint64_t step : *steps) {
      for (std::uint32_t shard = 0; shard < shards_; ++shard) {
        const auto snapshot = store_.snapshot(step, shard);
        if (!snapshot) {
          EXPECT_TRUE(is_gone(snapshot.error())) << snapshot.error().message();
          continue;
        }
        EXPECT_EQ(difference(**snapshot, TestState(step, 100 * shard)), "") << step;
        ++read_;
      }
    }
  }
  void read_newest() {
    const auto snapshot = store_.snapshot();
    EXPECT_TRUE(snapshot || is_gone(snapshot.error())) << snapshot.error().message();
    if (!snapshot) return;
    EXPECT_EQ((*snapshot)->tensors().size(), TestState(1).tensors().size());
  }
  void list() {
    const auto list = store_.checkpoints();
    ASSERT_TRUE(list) << list.error().message();
    for (const Checkpoint& info : *list) {
      EXPECT_FALSE(info.damage) << info.damage->message();
      const auto again = store_.checkpoint(info.step);
      EXPECT_TRUE(again || is_gone(again.error())) << again.error().message();
    }
    static_cast<void>(store_.is_durable());
  }
  void verify() {
    StoreVerifyOptions options;
    options.run = kTwoThreads;
    const auto verified = store_.verify(options);
    ASSERT_TRUE(verified) << verified.error().message();
    for (const StoreDamage& damage : verified->damages) ADD_FAILURE() << damage.file << ": " << damage.error.message();
  }

  const Store& store_;
  const std::uint32_t shards_;
  std::atomic<bool> is_done_ = false;
  std::atomic<std::uint64_t> read_ = 0;
  std::vector<std::thread> threads_;
};

void save_and_prune(Store& store) {
  for (std::uint64_t step = 1; step <= kSteps; ++step) {
    const auto saved = store.save(step, TestState(step).state(), kTwoThreads);
    ASSERT_TRUE(saved) << saved.error().message();
    if (step % 4 != 0) continue;
    const auto pruned = prune(store);
    ASSERT_TRUE(pruned) << pruned.error().message();
  }
}

TEST(StoreThreads, ReadWhileTheSameHandleSavesAndPrunes) {
  const os::TemporaryDirectory directory;
  const auto store = open(directory / "run", StoreAccess::write);
  Readers readers(*store, 1);
  save_and_prune(*store);
  readers.stop();
  EXPECT_GT(readers.read(), 0U);
  EXPECT_EQ(store->steps()->back(), kSteps);
}

TEST(StoreThreads, ReadWhileAnotherHandleSavesAndPrunes) {
  const os::TemporaryDirectory directory;
  const auto writer = open(directory / "run", StoreAccess::write);
  const auto reader = open(directory / "run", StoreAccess::read);
  Readers readers(*reader, 1);
  save_and_prune(*writer);
  readers.stop();
  EXPECT_GT(readers.read(), 0U);
  EXPECT_EQ(reader->steps()->back(), kSteps);
}

// Two ranks, with one handle each or a shared one.
TEST(StoreThreads, WriteShardsConcurrently) {
  for (const bool is_one_handle : {true, false}) {
    const os::TemporaryDirectory directory;
    const auto first = open(directory / "run", StoreAccess::shared);
    const auto second = open(directory / "run", StoreAccess::shared);
    const auto write = [](Store& store, std::uint32_t shard) {
      for (std::uint64_t step = 1; step <= kSteps / 2; ++step) {
        const TestState state(step, 100 * shard);
        const auto saved = store.save_shard(step, {shard, 2, "a"}, state.state(), kTwoThreads);
        ASSERT_TRUE(saved) << saved.error().message();
        for (;;) {
          const auto committed = store.commit(step, 2, "a");
          ASSERT_TRUE(committed) << committed.error().message();
          if (*committed) break;
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        if (shard != 0 || step % 4 != 0) continue;
        const auto pruned = prune(store);
        ASSERT_TRUE(pruned) << pruned.error().message();
      }
    };
    Readers readers(*second, 2);
    std::thread other([&] { write(is_one_handle ? *first : *second, 1); });
    write(*first, 0);
    other.join();
    readers.stop();
    EXPECT_EQ(second->steps()->back(), kSteps / 2);
    EXPECT_TRUE(second->verify()->damages.empty());
  }
}

// A rank sees the run record before the rank that writes it lets the lock go.
TEST(StoreThreads, ARankWaitsForAnotherOneThatWorksAlone) {
  const os::TemporaryDirectory directory;
  auto alone = open(directory / "run", StoreAccess::write);
  StoreOptions options = options_for(StoreAccess::shared);
  options.timeout_ms = 0;
  options.interrupted = [&alone] {
    alone.reset();
    return false;
  };
  const auto rank = Store::open(directory / "run", options);
  ASSERT_TRUE(rank) << rank.error().message();
  const TestState state(1);
  const auto saved = (*rank)->save_shard(1, {0, 1, "a"}, state.state(), kTwoThreads);
  EXPECT_TRUE(saved) << saved.error().message();
  EXPECT_EQ(alone, nullptr);
}

// The function is asked at once, and again and again until the other writer is done.
TEST(StoreThreads, ACallThatWaitsEndsWhenItIsInterrupted) {
  const os::TemporaryDirectory directory;
  open(directory / "run", StoreAccess::write);
  for (const bool waits_for_lock : {true, false}) {
    std::atomic<int> asked = 0;
    StoreOptions options = options_for(StoreAccess::shared);
    options.interrupted = [&asked] { return ++asked == 3; };
    const auto store = Store::open(directory / "run", options);
    ASSERT_TRUE(store) << store.error().message();
    const auto holder = waits_for_lock ? open(directory / "run", StoreAccess::write) : nullptr;
    const TestState state(1);
    const auto save = [&](const Progress& progress) {
      return (*store)->save_shard(1, {0, 1, "a"}, state.state(), {1, progress});
    };
    Result<SaveSummary> waiting = fail(ErrorKind::internal, "was not called");
    if (waits_for_lock) {
      waiting = save(nullptr);
    } else {
      const auto saved = save([&](std::uint64_t, std::uint64_t) {
        if (asked == 0) waiting = save(nullptr);
        return true;
      });
      EXPECT_TRUE(saved) << saved.error().message();
    }
    ASSERT_FALSE(waiting);
    EXPECT_EQ(waiting.error().kind(), ErrorKind::cancelled) << waiting.error().message();
    EXPECT_EQ(asked, 3);
  }
}

}  // namespace
}  // namespace bitsnap::store
