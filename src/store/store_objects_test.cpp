// Stores in an object store, where each request may fail in each way, at every moment.
#include <bitsnap/store.hpp>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "objects/local_copies.hpp"
#include "objects/object_file_system.hpp"
#include "objects/object_store_fake.hpp"
#include "os/file_system_fake.hpp"
#include "store/run_testing.hpp"
#include "store/store_impl.hpp"

namespace bitsnap::store {
namespace {

using objects::FakeObjectStore;
using objects::LeaseTimes;
using objects::ObjectFileSystem;
using objects::RequestFault;
using ::testing::HasSubstr;

constexpr const char* kRun = "s3://bucket/trainings/run";
const RunOptions kOneThread{1, nullptr};

// A process that uses a bucket. `takes_at_once`: the one before it has ended, and its lease has run out.
struct Process {
  explicit Process(const FakeObjectStore& bucket, bool takes_at_once = false, objects::LocalCopies* copies = nullptr)
      : objects(std::make_shared<FakeObjectStore>(bucket)),
        files(std::make_shared<ObjectFileSystem>(
            "s3://bucket", objects, takes_at_once ? LeaseTimes{10'000, 30'000, 0, 0} : LeaseTimes{}, copies)) {}

  [[nodiscard]] Result<std::unique_ptr<Store>> open(StoreAccess access, std::uint64_t keep_last = 0) const {
    StoreOptions options;
    options.access = access;
    options.settings.max_depth = 3;
    if (keep_last > 0) options.retention.keep_last = keep_last;
    return open_store(*files, kRun, options);
  }

  std::shared_ptr<FakeObjectStore> objects;
  std::shared_ptr<ObjectFileSystem> files;
};

// What a run must hold, and may hold, by step: the seeds of the states that it may be.
struct Expected {
  std::set<std::uint64_t> must;
  std::map<std::uint64_t, std::set<std::uint64_t>> may;
};

Expected steps_up_to(std::uint64_t last) {
  Expected expected;
  for (std::uint64_t step = 1; step <= last; ++step) {
    expected.must.insert(step);
    expected.may[step] = {0};
  }
  return expected;
}

// Whether the run holds what it must, nothing that it may not, and everything whole. Empty if so.
std::string check(const Store& store, const Expected& expected) {
  const auto steps = store.steps();
  if (!steps) return steps.error().message();
  for (const std::uint64_t step : expected.must) {
    if (!std::ranges::binary_search(*steps, step)) return "step " + std::to_string(step) + " is lost";
  }
  for (const std::uint64_t step : *steps) {
    const auto seeds = expected.may.find(step);
    if (seeds == expected.may.end()) return "step " + std::to_string(step) + " is there";
    std::string difference;
    for (const std::uint64_t seed : seeds->second) {
      difference = check_step(store, step, TestState(step, seed));
      if (difference.empty()) break;
    }
    if (!difference.empty()) return "step " + std::to_string(step) + ": " + difference;
  }
  return "";
}

struct Scenario {
  const char* name;
  std::uint64_t saved;  // steps that are there before
  // Tells what must and may be there, also if it ends early.
  std::function<void(const Process&, Expected&)> run;
};

void save_from(Store& store, std::uint64_t first, std::uint64_t last, Expected& expected) {
  for (std::uint64_t step = first; step <= last; ++step) {
    expected.may[step].insert(0);
    if (!store.save(step, TestState(step).state(), kOneThread)) return;
    expected.must.insert(step);
  }
}

const std::vector<Scenario> kScenarios = {
    {"saving", 0,
     [](const Process& process, Expected& expected) {
       const auto store = process.open(StoreAccess::write);
       if (store) save_from(**store, 1, 3, expected);
     }},
    {"saving more, with a label", 4,
     [](const Process& process, Expected& expected) {
       const auto store = process.open(StoreAccess::write);
       if (!store) return;
       expected.may[5].insert(0);
       CommitOptions commit;
       commit.labels = {"best"};
       commit.metadata = {{"loss", "1.5"}};
       if ((*store)->save(5, TestState(5).state(), kOneThread, nullptr, commit)) expected.must.insert(5);
       static_cast<void>((*store)->label(2, {"best", "other"}));
     }},
    {"replacing", 4,
     [](const Process& process, Expected& expected) {
       const auto store = process.open(StoreAccess::write);
       if (!store) return;
       expected.may[4].insert(9);
       CommitOptions commit;
       commit.replace = true;
       if ((*store)->save(4, TestState(4, 9).state(), kOneThread, nullptr, commit)) expected.may[4] = {9};
     }},
    {"pruning", 6,
     [](const Process& process, Expected& expected) {
       const auto store = process.open(StoreAccess::write, 2);
       expected.must = {5, 6};
       if (store) save_from(**store, 7, 8, expected);
       expected.must.erase(5);
       if (expected.must.contains(8)) expected.must.erase(6);
     }},
    {"rolling back", 4,
     [](const Process& process, Expected& expected) {
       const auto store = process.open(StoreAccess::write);
       expected.must = {1, 2};
       if (!store || !(*store)->rollback(2, kOneThread)) return;
       expected.may[3] = {};
       expected.may.erase(4);
       expected.may[3].insert(0);
       save_from(**store, 3, 3, expected);
     }},
    {"saving by two ranks", 2,
     [](const Process& process, Expected& expected) {
       const auto store = process.open(StoreAccess::shared);
       if (!store) return;
       for (std::uint64_t step = 3; step <= 4; ++step) {
         expected.may[step].insert(0);
         for (const std::uint32_t rank : {0U, 1U}) {
           if (!(*store)->save_shard(step, {rank, 2, "a"}, TestState(step, rank).state(), kOneThread)) return;
         }
         const auto committed = (*store)->commit(step, 2, "a");
         if (committed && *committed) expected.must.insert(step);
       }
     }},
};

void prepare(const FakeObjectStore& bucket, std::uint64_t steps) {
  if (steps == 0) return;
  const Process process(bucket);
  Expected expected;
  save_from(*process.open(StoreAccess::write).value(), 1, steps, expected);
  ASSERT_EQ(expected.must.size(), steps);
}

// Runs a scenario with a fault at request `at`. False if there were fewer requests.
bool survives(const Scenario& scenario, RequestFault fault, std::uint64_t at) {
  const FakeObjectStore bucket;
  prepare(bucket, scenario.saved);
  Expected expected = steps_up_to(scenario.saved);
  std::atomic<bool> happened = false;
  {
    const Process process(bucket);
    std::atomic<std::uint64_t> count = 0;
    process.objects->set_fault([&](std::string_view, const std::string&) {
      if (count++ != at) return RequestFault::none;
      happened = true;
      return fault;
    });
    scenario.run(process, expected);
  }
  const Process next(bucket, true);
  const auto reader = next.open(StoreAccess::read);
  if (reader) {
    EXPECT_EQ(check(**reader, expected), "");
  } else {
    EXPECT_EQ(reader.error().kind(), ErrorKind::not_found) << reader.error().message();
    EXPECT_TRUE(expected.must.empty());
  }
  const auto writer = next.open(StoreAccess::write);
  EXPECT_TRUE(writer) << writer.error().message();
  if (!writer) return happened;
  EXPECT_EQ(check(**writer, expected), "");
  const std::uint64_t step = (*writer)->latest().value().value_or(0) + 1;
  expected.may[step].insert(0);
  const auto saved = (*writer)->save(step, TestState(step).state(), kOneThread);
  EXPECT_TRUE(saved) << saved.error().message();
  expected.must.insert(step);
  expected.may[step] = {0};
  EXPECT_EQ(check(**writer, expected), "");
  EXPECT_TRUE((*writer)->verify()->damages.empty());
  return happened;
}

class StoreObjects : public ::testing::TestWithParam<std::size_t> {};

TEST_P(StoreObjects, SurviveAnyFaultOfAnyRequest) {
  const Scenario& scenario = kScenarios[GetParam()];
  for (const RequestFault fault :
       {RequestFault::refused, RequestFault::lost_answer, RequestFault::dead, RequestFault::dead_after}) {
    std::uint64_t at = 0;
    while (survives(scenario, fault, at)) {
      if (HasFailure()) FAIL() << scenario.name << ", fault " << static_cast<int>(fault) << " at request " << at;
      ++at;
    }
    EXPECT_GT(at, 10U);
  }
}

INSTANTIATE_TEST_SUITE_P(All, StoreObjects, ::testing::Range<std::size_t>(0, kScenarios.size()));

TEST(StoreObject, IsTheSameFilesAsOnADisk) {
  const FakeObjectStore bucket;
  prepare(bucket, 2);
  std::vector<std::string> names;
  for (const std::string& key : bucket.keys()) names.push_back(key.substr(std::string("trainings/run/").size()));
  EXPECT_THAT(names, ::testing::Contains("bitsnap.json"));
  EXPECT_THAT(names, ::testing::Contains("checkpoints/0000000002/commit.json"));
  EXPECT_THAT(names, ::testing::Each(::testing::Not(HasSubstr(".tmp"))));
}

// A writer that has saved step 1.
std::unique_ptr<Store> open_writer(const Process& process) {
  auto writer = process.open(StoreAccess::write).value();
  EXPECT_TRUE(writer->save(1, TestState(1).state(), kOneThread));
  return writer;
}

// A trainer has loaded it, and its agent finds the copies of this machine.
TEST(StoreObject, ASaveDoesNotDownloadItsBase) {
  const FakeObjectStore bucket;
  constexpr std::size_t kSize = 800;
  {
    const Process before(bucket);
    const auto store = open_store(*before.files, kRun, {.access = StoreAccess::write, .keep_base_bytes = 0});
    ASSERT_TRUE((*store)->save(1, TestState(1, 0, kSize).state()));
  }
  os::FakeFileSystem machine;
  const auto reads_of_save = [&](std::uint64_t step, objects::LocalCopies* copies) {
    std::atomic<int> reads{0};
    const Process agent(bucket, true, copies);
    agent.objects->set_fault([&](std::string_view request, const std::string& key) {
      if (request == "read" && key.ends_with(".bsnap")) ++reads;
      return RequestFault::none;
    });
    const auto store = open_store(*agent.files, kRun, {.access = StoreAccess::write, .keep_base_bytes = 0});
    EXPECT_TRUE((*store)->save(step, TestState(step, 0, kSize).state(), kOneThread));
    const int all = reads;
    EXPECT_EQ(check_step(**store, step, TestState(step, 0, kSize)), "");
    EXPECT_EQ((*store)->checkpoint(step)->base, step - 1);
    return all;
  };
  for (const bool will_save : {false, true}) {
    objects::LocalCopies copies(machine, "/cache", std::uint64_t{1} << 30);
    const Process trainer(bucket, false, &copies);
    const auto run = open_store(*trainer.files, kRun, {.access = StoreAccess::read, .loads_bases = will_save});
    EXPECT_EQ(check_step(**run, 1, TestState(1, 0, kSize)), "");
    EXPECT_EQ(machine.all_files().empty(), !will_save) << "who only reads keeps nothing";
  }
  objects::LocalCopies copies(machine, "/cache", std::uint64_t{1} << 30);
  EXPECT_EQ(reads_of_save(2, &copies), 2) << "the beginnings of the base and of the new file";
  EXPECT_GT(reads_of_save(3, nullptr), 9) << "without copies";
}

TEST(StoreObject, TwoWritersDoNotBothWrite) {
  const FakeObjectStore bucket;
  const Process first(bucket);
  const auto writer = open_writer(first);
  // The time is over for the second one: it takes the lease from the first, which is only slow.
  const Process later(bucket, true);
  const auto other = later.open(StoreAccess::write);
  ASSERT_TRUE(other) << other.error().message();
  ASSERT_TRUE((*other)->save(2, TestState(2).state(), kOneThread));
  EXPECT_THAT(writer->save(2, TestState(2, 7).state(), kOneThread).error().message(), HasSubstr("already exists"));
  EXPECT_THAT(writer->save(3, TestState(3).state(), kOneThread).error().message(),
              HasSubstr("another writer committed step 2"));
  EXPECT_EQ(check(**other, steps_up_to(2)), "");
  EXPECT_TRUE((*other)->verify()->damages.empty());
}

// Between the look for the record and the request that creates it.
TEST(StoreObject, TheRequestForTheRecordDecides) {
  const FakeObjectStore bucket;
  const Process first(bucket);
  const auto writer = open_writer(first);
  const Process later(bucket, true);
  std::unique_ptr<Store> other;
  first.objects->set_fault([&](std::string_view request, const std::string& key) {
    if (request == "put_if_absent" && key.ends_with("0000000002/commit.json") && other == nullptr) {
      other = later.open(StoreAccess::write).value();
      EXPECT_TRUE(other->save(2, TestState(2).state(), kOneThread));
    }
    return RequestFault::none;
  });
  const auto saved = writer->save(2, TestState(2, 7).state(), kOneThread);
  ASSERT_NE(other, nullptr);
  EXPECT_FALSE(saved);
  EXPECT_EQ(check(*other, steps_up_to(2)), "");
  EXPECT_TRUE(other->verify()->damages.empty());
}

// Calls may fail, but remove nothing that is needed.
TEST(StoreObject, ListsThatLagLoseNothing) {
  for (std::size_t lag = 1; lag < 40; ++lag) {
    const FakeObjectStore bucket;
    prepare(bucket, 4);
    Expected expected = steps_up_to(4);
    {
      const Process process(bucket);
      process.objects->list_lag = lag;
      const auto store = process.open(StoreAccess::write);
      if (store) save_from(**store, 5, 6, expected);
    }
    const Process next(bucket, true);
    const auto writer = next.open(StoreAccess::write);
    ASSERT_TRUE(writer) << writer.error().message();
    EXPECT_EQ(check(**writer, expected), "") << "lag " << lag;
    EXPECT_TRUE((*writer)->verify()->damages.empty()) << "lag " << lag;
  }
}

TEST(StoreObject, AServiceWithoutConditionsIsRefused) {
  FakeObjectStore bucket;
  bucket.has_conditions = false;
  const Process process(bucket);
  const auto store = process.open(StoreAccess::write);
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().kind(), ErrorKind::unsupported);
  EXPECT_THAT(store.error().message(), HasSubstr("in spite of the condition If-None-Match"));
}

}  // namespace
}  // namespace bitsnap::store
