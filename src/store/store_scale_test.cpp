// Many checkpoints, long runs and long chains: what is bounded stays bounded, and no payload is read twice.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "codec/trained_like_testing.hpp"
#include "os/clock.hpp"
#include "os/file_system_fake.hpp"
#include "os/file_system_faulty.hpp"
#include "os/memory.hpp"
#include "os/spare_pages_testing.hpp"
#include "os/temporary_directory_testing.hpp"
#include "store/catalog.hpp"
#include "store/crash_trial_testing.hpp"
#include "store/store_calls_testing.hpp"
#include "store/store_impl.hpp"
#include "store/store_laws_testing.hpp"

namespace bitsnap::store {
namespace {

std::uint64_t allocated_bytes() {
  const auto memory = os::process_memory();
  return memory ? memory->anonymous_bytes : 0;
}

TestState tiny_state(std::uint64_t step) {
  TestState state;
  std::vector<std::byte> bytes(64);
  std::memcpy(bytes.data(), &step, sizeof(step));
  state.add("tiny", DType::u8, std::move(bytes));
  return state;
}

TEST(StoreScale, LongRunsGrowNeitherFilesNorMemory) {
  const std::uint64_t saves = takes_samples() ? 1'000 : 100'000;
  const std::uint64_t saves_of_a_handle = saves / 10;
  constexpr std::uint64_t kSlackBytes = 3 << 20;
  // The file system in memory keeps more than 200 bytes for each save until it is copied.
  constexpr std::uint64_t kSlackBytesOfASave = 400;
  auto files = std::make_unique<os::FakeFileSystem>();
  Retention retention;
  retention.keep_last = 5;
  PruneOptions pruning;
  pruning.run = kOneThread;
  std::size_t most_files = 0;
  std::uint64_t early_bytes = 0;
  std::uint64_t late_bytes = 0;
  const os::Stopwatch watch;
  for (std::uint64_t step = 1; step <= saves;) {
    const auto store = open_store(*files, kTestRun, writing());
    ASSERT_TRUE(store);
    const std::uint64_t bytes_before = allocated_bytes();
    for (const std::uint64_t end = step + saves_of_a_handle; step < end; ++step) {
      ASSERT_TRUE((*store)->save(step, tiny_state(step).state(), kOneThread));
      ASSERT_TRUE((*store)->prune(retention, pruning));
      if (step % 100 == 0) most_files = std::max(most_files, files->all_files().size());
    }
    late_bytes = allocated_bytes();
    if (step == 2 * saves_of_a_handle + 1) early_bytes = late_bytes;
    // A sanitizer keeps freed memory.
    EXPECT_TRUE(takes_samples() || late_bytes <= bytes_before + kSlackBytes + saves_of_a_handle * kSlackBytesOfASave);
    EXPECT_EQ((*store)->steps()->size(), 5U);
    EXPECT_EQ(check_step(**store, step - 1, tiny_state(step - 1)), "");
    files = files->copy();
  }
  std::cout << saves << " saves in " << watch.elapsed_seconds() << " s, at most " << most_files << " files, "
            << early_bytes << " bytes early and " << late_bytes << " late\n";
  // Five kept steps and those that they need, with two files each, and the files of the store itself.
  EXPECT_LE(most_files, 2 * (5 + 8) + 3U);
  EXPECT_TRUE(takes_samples() || late_bytes <= early_bytes + kSlackBytes) << early_bytes << " " << late_bytes;
}

// On the real file system. Most steps have no snapshot file, because listing opens none.
TEST(StoreScale, TenThousandCheckpointsAreListedQuickly) {
  const std::uint64_t many_steps = takes_samples() ? 1'000 : 10'000;
  constexpr double kGenerousSeconds = 2;
  const os::TemporaryDirectory directory;
  os::FileSystem& files = os::real_file_system();
  const RunLayout layout(directory / "run");
  const auto store = open_store(files, layout.root(), writing());
  ASSERT_TRUE(store) << store.error().message();
  ASSERT_TRUE((*store)->save(1, tiny_state(1).state()));
  CommitRecord record = read_commit_record(files, layout, 1).value();
  for (record.step = 2; record.step <= many_steps; ++record.step) {
    ASSERT_TRUE(files.create_directory(layout.step_directory(record.step)));
    const std::string text = serialize_commit_record(record);
    auto file = files.create(layout.commit(record.step));
    ASSERT_TRUE(file && (*file)->append(as_byte_span(text)) && (*file)->close());
  }
  const auto measure = [&](const std::string& what, const auto& call) {
    static_cast<void>(call());
    const os::Stopwatch watch;
    const auto result = call();
    const double seconds = watch.elapsed_seconds();
    std::cout << what << ": " << seconds * 1e3 << " ms\n";
    ASSERT_TRUE(result) << result.error().message();
    EXPECT_EQ(result->size(), many_steps) << what;
    EXPECT_TRUE(takes_samples() || seconds < kGenerousSeconds) << what;
  };
  measure("steps()", [&] { return (*store)->steps(); });
  measure("list() without a catalog", [&] { return (*store)->checkpoints(); });
  // The catalog omits records of the last second, because a later change could leave the same time.
  const os::Stopwatch aging;
  while (aging.elapsed_seconds() < 1.1) {
  }
  ASSERT_TRUE(write_catalog(StepDirectories(files, layout)));
  measure("list() with a catalog", [&] { return (*store)->checkpoints(); });
  const os::Stopwatch newest;
  ASSERT_TRUE(StepDirectories(files, layout).list_newest());
  std::cout << "the newest: " << newest.elapsed_seconds() * 1e3 << " ms\n";
}

// The number of file operations must not depend on the number of steps, except within one directory listing.
TEST(StoreScale, SavingAShardReadsOnlyTheNewestRecords) {
  const auto operations = [](std::uint64_t earlier) {
    os::FakeFileSystem fake;
    StoreOptions options = writing();
    options.settings.max_depth = 2;
    {
      const auto store = open_store(fake, kTestRun, options);
      for (std::uint64_t step = 1; step <= earlier; ++step) {
        EXPECT_TRUE((*store)->save(step, TestState(step).state(), kOneThread));
      }
    }
    options.access = StoreAccess::shared;
    os::FaultyFileSystem files(fake);
    const auto store = open_store(files, kTestRun, options);
    files.reset();
    const std::uint64_t step = earlier + 1;
    EXPECT_TRUE((*store)->save_shard(step, {0, 1, "a"}, TestState(step).state(), kOneThread));
    const auto committed = (*store)->commit(step, 1, "a");
    EXPECT_TRUE(committed && *committed && committed->checkpoint->base);
    EXPECT_TRUE((*store)->snapshot());
    EXPECT_EQ(files.count(os::FileOperation::list_directory), 4U);
    return files.count();
  };
  EXPECT_EQ(operations(5), operations(35));
}

// Noise, which only compresses against a base.
TestState with_tensors(const std::vector<std::string>& names) {
  TestState state;
  for (const std::string& name : names) {
    std::vector<std::byte> bytes(16'384);
    std::uint64_t noise = std::hash<std::string>()(name);
    for (std::byte& byte : bytes) {
      noise = noise * 6'364'136'223'846'793'005U + 1'442'695'040'888'963'407U;
      byte = static_cast<std::byte>(noise >> 56);
    }
    state.add(name, DType::u8, std::move(bytes));
  }
  return state;
}

TEST(StoreScale, FindsMovedTensorsAndOpensFewFilesForNewOnes) {
  constexpr std::uint32_t kRanks = 60;
  os::FakeFileSystem fake;
  os::FaultyFileSystem files(fake);
  StoreOptions options;
  options.access = StoreAccess::shared;
  const auto store = open_store(files, kTestRun, options);
  ASSERT_TRUE(store);
  const auto of = [](std::uint32_t rank) { return "of-" + std::to_string(rank); };
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    ASSERT_TRUE((*store)->save_shard(1, {rank, kRanks, "a"}, with_tensors({of(rank)}).state(), kOneThread));
  }
  ASSERT_TRUE((*store)->commit(1, kRanks, "a"));
  // Returns the stored bytes, and how many files of the base were opened.
  const auto save = [&](std::uint32_t rank, const TestState& state) {
    files.reset();
    const auto saved = (*store)->save_shard(2, {rank, kRanks, "a"}, state.state(), kOneThread);
    EXPECT_TRUE(saved) << saved.error().message();
    const auto steps = files.steps();
    const auto opened = std::ranges::count_if(steps, [](const auto& step) {
      return step.operation == os::FileOperation::open && step.path.find("/0000000001/shard-") != std::string::npos;
    });
    return std::pair(saved->stored_bytes, static_cast<std::size_t>(opened));
  };
  EXPECT_LT(save(0, with_tensors({of(kRanks - 1)})).first, 4'000U);
  EXPECT_LT(save(kRanks - 1, with_tensors({of(0)})).first, 4'000U);
  const auto [bytes, opened] = save(30, with_tensors({of(30), "new"}));
  EXPECT_GT(bytes, 16'384U);
  EXPECT_LT(bytes, 20'000U);
  // Its own shard, then up to kLooksInVain others, and its own again to check that the new file is readable.
  EXPECT_LE(opened, save::ShardedBases::kLooksInVain + 2U);
}

// Reads of snapshots until the new file is written. Later reads only check that the references are there.
std::size_t reads_of_snapshots(const os::FaultyFileSystem& files) {
  const auto steps = files.steps();
  const auto is_written = [](const auto& step) {
    return step.operation == os::FileOperation::sync && step.path.ends_with(".bsnap");
  };
  const auto end = std::ranges::find_if(steps, is_written);
  EXPECT_NE(end, steps.end());
  return static_cast<std::size_t>(std::count_if(steps.begin(), end, [](const auto& step) {
    return step.operation == os::FileOperation::read && step.path.ends_with(".bsnap");
  }));
}

// What twelve saves read, by one handle or each by its own, as one of several ranks or not.
std::vector<std::size_t> reads_of_saves(bool opens_each, bool is_rank, std::uint64_t keep_base_bytes) {
  std::vector<std::size_t> reads;
  os::FakeFileSystem fake;
  os::FaultyFileSystem files(fake);
  StoreOptions options = writing();
  options.keep_base_bytes = keep_base_bytes;
  if (is_rank) options.access = StoreAccess::shared;
  std::unique_ptr<Store> store;
  for (std::uint64_t step = 1; step <= 12; ++step) {
    if (opens_each) store = nullptr;
    if (store == nullptr) store = open_store(files, kTestRun, options).value();
    const TestState state(step);
    files.reset();
    if (is_rank) {
      EXPECT_TRUE(store->save_shard(step, {0, 1, "a"}, state.state(), kOneThread));
      reads.push_back(reads_of_snapshots(files));
      EXPECT_TRUE(store->commit(step, 1, "a"));
    } else {
      EXPECT_TRUE(store->save(step, state.state(), kOneThread));
      reads.push_back(reads_of_snapshots(files));
    }
    EXPECT_EQ(check_step(*store, step, state), "");
  }
  return reads;
}

// It reads the payloads of its base alone, to look for damage, and of the others only what they are.
TEST(StoreScale, ASaveWithItsBaseInMemoryReadsOneSnapshot) {
  for (const bool opens_each : {false, true}) {
    for (const bool is_rank : {false, true}) {
      SCOPED_TRACE(testing::Message() << opens_each << is_rank);
      const std::vector<std::size_t> kept = reads_of_saves(opens_each, is_rank, 1 << 20);
      const std::vector<std::size_t> plain = reads_of_saves(opens_each, is_rank, 0);
      EXPECT_EQ(kept[1], plain[1]);  // the first save keeps nothing
      for (std::size_t i = 2; i < 9; ++i) EXPECT_LT(kept[i], plain[i]) << "step " << i + 1;
      EXPECT_GT(plain[8] - kept[8], plain[2] - kept[2]);  // all payloads of the chain
    }
  }
}

// A state whose pages are large enough to be taken.
TestState large_state(std::uint64_t step) {
  TestState state;
  for (const std::string name : {"a", "b"}) {
    std::vector<std::byte> bytes(3 << 20);
    codec::fill_trained_like(DType::f32, bytes, 1);
    for (std::size_t i = 0; i < bytes.size(); i += 4 * (1 + step)) bytes[i] ^= static_cast<std::byte>(step);
    state.add(name, DType::f32, std::move(bytes));
  }
  return state;
}

// The next saves keep nothing.
TEST(StoreScale, ABaseThatTheSystemTookIsRead) {
  const auto save = [](bool takes, std::vector<std::size_t>& reads) {
    os::FakeFileSystem fake;
    os::FaultyFileSystem files(fake);
    const auto store = open_store(files, kTestRun, writing()).value();
    std::vector<std::vector<std::byte>> written;
    for (std::uint64_t step = 1; step <= 6; ++step) {
      files.reset();
      if (takes && step == 4) os::take_offered_pages();
      EXPECT_TRUE(store->save(step, large_state(step).state(), kOneThread));
      reads.push_back(reads_of_snapshots(files));
      EXPECT_EQ(check_step(*store, step, large_state(step)), "");
      const std::string path = fmt::format("{}/checkpoints/{:010}/shard-00000-of-00001.bsnap", kTestRun, step);
      written.push_back(os::read_file(fake, path, 1 << 24).value());
    }
    return written;
  };
  std::vector<std::size_t> kept;
  std::vector<std::size_t> taken;
  EXPECT_EQ(save(false, kept), save(true, taken));
  EXPECT_EQ(taken[2], kept[2]);
  EXPECT_GT(taken[3], kept[3]);
  EXPECT_EQ(taken[4], kept[4]);
  EXPECT_GT(taken[5], kept[5]);
}

TEST(StoreScale, ReadingAChainReadsEachPayloadOnce) {
  os::FakeFileSystem fake;
  constexpr std::uint64_t kLinks = 8;
  {
    const auto store = open_store(fake, kTestRun, writing());
    ASSERT_TRUE(store);
    for (std::uint64_t step = 1; step <= kLinks + 1; ++step) {
      ASSERT_TRUE((*store)->save(step, TestState(step).state(), kOneThread));
    }
  }
  os::FaultyFileSystem files(fake);
  const auto store = open_store(files, kTestRun, {});
  const auto snapshot = (*store)->snapshot(kLinks + 1);
  ASSERT_TRUE(snapshot);
  const std::size_t streams = (*snapshot)->streams().size();
  files.reset();
  EXPECT_EQ(difference(**snapshot, TestState(kLinks + 1)), "");
  // Each stream has one chunk, which has at most one payload in each link.
  EXPECT_LE(files.count(os::FileOperation::read), streams * (kLinks + 1));
  EXPECT_EQ(files.count(os::FileOperation::open), 0U);
}

}  // namespace
}  // namespace bitsnap::store
