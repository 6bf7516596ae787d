// A store without failures: saving, restoring, chains, keyframes, and the checkpoints of several ranks.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "codec/trained_like_testing.hpp"
#include "os/file_system_fake.hpp"
#include "os/temporary_directory_testing.hpp"
#include "store/store_calls_testing.hpp"

namespace bitsnap::store {
namespace {

TEST(Store, RestoresEveryBitOfEveryStep) {
  os::FakeFileSystem files;
  {
    const auto store = open(files);
    save_steps(*store, 1, 30);
    expect_steps(*store, store->steps().value());
  }
  StoreOptions reading;
  const auto store = open(files, reading);
  EXPECT_EQ(store->steps()->size(), 30U);
  expect_steps(*store, store->steps().value());
  EXPECT_EQ(check_step(*store, 30, TestState(30)), "");
  EXPECT_EQ(difference(*store->snapshot().value(), TestState(30)), "");
}

TEST(Store, ASaveThatItsCheckRejectsLeavesNothing) {
  os::FakeFileSystem files;
  const auto store = open(files);
  save_steps(*store, 1, 2);
  const std::vector<std::string> before = files.all_files();
  const TestState state(3);
  const auto saved = store->save(3, state.state(), {}, [&](const Snapshot& written) -> Result<void> {
    EXPECT_EQ(difference(written, state), "");
    return fail(ErrorKind::invalid_argument, "rejected");
  });
  ASSERT_FALSE(saved);
  EXPECT_NE(saved.error().message().find("rejected"), std::string::npos);
  EXPECT_EQ(store->steps().value(), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(files.all_files(), before);
  save_steps(*store, 3, 3);
  expect_steps(*store, {1, 2, 3});
}

TEST(Store, ReadersDoNotSeeAStoreBeingCreated) {
  os::FakeFileSystem files;
  for (const char* const directory : {"/run", "/run/checkpoints", "/run/checkpoints/0000000001"}) {
    ASSERT_TRUE(files.create_directory(directory));
    const std::unique_ptr<os::FileLock> lock = files.lock("/run/lock", os::LockKind::exclusive).value();
    StoreOptions without = writing();
    without.create = false;
    for (const StoreOptions& options : {StoreOptions{}, without}) {
      const auto refused = open_store(files, "/run", options);
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().kind(), ErrorKind::not_found);
      EXPECT_NE(refused.error().message().find("no store found"), std::string::npos);
      EXPECT_EQ(refused.error().message().find("repair"), std::string::npos) << refused.error().message();
    }
  }
  save_steps(*open(files), 1, 1);
}

TEST(Store, IsNotRecreatedIfItsRunRecordIsLost) {
  os::FakeFileSystem files;
  save_steps(*open(files), 1, 3);
  ASSERT_TRUE(files.remove("/run/bitsnap.json"));
  const std::vector<std::string> before = files.all_files();
  for (const StoreAccess access : {StoreAccess::read, StoreAccess::write, StoreAccess::shared}) {
    StoreOptions options;
    options.access = access;
    const auto refused = open_store(files, "/run", options);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind(), ErrorKind::not_found);
    EXPECT_NE(refused.error().message().find("bitsnap.json is missing; repair the store to rebuild it"),
              std::string::npos)
        << refused.error().message();
    EXPECT_EQ(files.all_files(), before);
  }
  // It is not recreated either if all remaining checkpoints are retired.
  for (const char* step : {"0000000001", "0000000002", "0000000003"}) {
    const std::string directory = std::string("/run/checkpoints/") + step;
    ASSERT_TRUE(files.rename(directory + "/commit.json", directory + "/retired.json"));
  }
  EXPECT_FALSE(open_store(files, "/run", writing()));
  // Uncommitted steps are no checkpoints, so the creation continues.
  for (const char* step : {"0000000001", "0000000002", "0000000003"}) {
    ASSERT_TRUE(files.remove(std::string("/run/checkpoints/") + step + "/retired.json"));
  }
  save_steps(*open(files), 1, 2);
}

TEST(Store, StartsAKeyframeAfterMaxDepthLinks) {
  os::FakeFileSystem files;
  StoreOptions options = writing();
  options.settings.max_depth = 3;
  const auto store = open(files, options);
  save_steps(*store, 1, 9);
  const auto list = store->checkpoints().value();
  std::vector<std::uint32_t> links;
  for (const Checkpoint& info : list) links.push_back(info.links);
  EXPECT_EQ(links, (std::vector<std::uint32_t>{0, 1, 2, 3, 0, 1, 2, 3, 0}));
  EXPECT_EQ(list[1].base, 1U);
  EXPECT_EQ(list[4].base, std::nullopt);
  for (const Checkpoint& info : list) EXPECT_LE(info.depth, 3U);
}

TEST(Store, KeepsLossRulesThatAHandleMayOverride) {
  os::FakeFileSystem files;
  StoreOptions options = writing();
  options.settings.loss = {parse_loss_rule("*=exact").value()};
  EXPECT_EQ(open(files, options)->settings().loss, options.settings.loss);
  EXPECT_EQ(open(files)->settings().loss, options.settings.loss);
  StoreOptions others = writing();
  others.settings.loss.emplace();
  EXPECT_TRUE(open(files, others)->settings().loss->empty());
  EXPECT_EQ(open(files, StoreOptions{})->settings().loss, options.settings.loss);
  StoreOptions other = writing();
  other.settings.policy = Policy::raw;
  EXPECT_TRUE(open(files, other)->settings().loss->empty()) << "a policy comes without the rules of another";
  other.settings.policy = Policy::lossless;
  EXPECT_EQ(open(files, other)->settings().loss, options.settings.loss) << "it is the run's own";
}

TEST(Store, FirstLossRulesPrecedeAllOthers) {
  const auto rules = [](std::initializer_list<std::string_view> texts) {
    std::vector<LossRule> parsed;
    for (const std::string_view text : texts) parsed.push_back(parse_loss_rule(text).value());
    return parsed;
  };
  os::FakeFileSystem files;
  StoreOptions options = writing();
  options.first_loss = rules({"master=exact"});
  options.settings.loss = rules({"exp_avg=exact"});
  EXPECT_EQ(open(files, options)->settings().loss, rules({"master=exact", "exp_avg=exact"}));
  EXPECT_EQ(open(files)->settings().loss, rules({"master=exact", "exp_avg=exact"})) << "the run was made with both";
  StoreOptions more = writing();
  more.first_loss = rules({"exp_avg=mantissa_bits:5"});
  EXPECT_EQ(open(files, more)->settings().loss, rules({"exp_avg=mantissa_bits:5", "master=exact", "exp_avg=exact"}));
  EXPECT_EQ(open(files)->settings().loss, rules({"master=exact", "exp_avg=exact"})) << "of the one handle";
  more.settings.policy = Policy::raw;
  EXPECT_EQ(open(files, more)->settings().loss, more.first_loss);
}

TEST(Store, CodesAgainstTheLastKeyframeIfTheBaseRuleSaysSo) {
  os::FakeFileSystem files;
  StoreOptions options = writing();
  options.settings.max_depth = 3;
  options.settings.base = BaseRule::keyframe;
  const auto store = open(files, options);
  save_steps(*store, 1, 7);
  const auto list = store->checkpoints().value();
  EXPECT_EQ(list[3].base, 1U);
  EXPECT_EQ(list[3].links, 3U);
  EXPECT_EQ(list[3].depth, 1U);
  EXPECT_EQ(list[4].base, std::nullopt);
  EXPECT_EQ(list[6].base, 5U);
  expect_steps(*store, {1, 2, 3, 4, 5, 6, 7});
}

TEST(Store, ShardsAreCodedAgainstTheLastKeyframe) {
  os::FakeFileSystem files;
  StoreOptions options = writing();
  options.access = StoreAccess::shared;
  options.settings.max_depth = 3;
  options.settings.base = BaseRule::keyframe;
  const auto store = open(files, options);
  std::vector<std::optional<std::uint64_t>> bases;
  for (std::uint64_t step = 1; step <= 7; ++step) {
    const TestState state(step);
    ASSERT_TRUE(store->save_shard(step, {0, 1, "a"}, state.state()));
    const auto committed = store->commit(step, 1, "a");
    ASSERT_TRUE(committed && *committed);
    bases.push_back(committed->checkpoint->base);
    EXPECT_FALSE(committed->checkpoint->damage);
  }
  EXPECT_EQ(bases, (std::vector<std::optional<std::uint64_t>>{std::nullopt, 1, 1, 1, std::nullopt, 5, 5}));
  expect_steps(*store, {1, 2, 3, 4, 5, 6, 7});
  // Without the keyframe there is no base, and that is no damage.
  ASSERT_TRUE(files.rename("/run/checkpoints/0000000005", "/run/taken"));
  ASSERT_TRUE(store->save_shard(8, {0, 1, "a"}, TestState(8).state()));
  const auto committed = store->commit(8, 1, "a");
  ASSERT_TRUE(committed && *committed);
  EXPECT_EQ(committed->checkpoint->base, std::nullopt);
}

TEST(Store, WritesTheSameBytesWithTheBaseInMemory) {
  os::FakeFileSystem with_memory;
  os::FakeFileSystem without;
  StoreOptions options = writing();
  options.keep_base_bytes = 0;
  const auto plain = open(without, options);
  options.keep_base_bytes = 1 << 26;
  const auto kept = open(with_memory, options);
  save_steps(*plain, 1, 12);
  save_steps(*kept, 1, 12);
  const auto a = plain->checkpoints().value();
  const auto b = kept->checkpoints().value();
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].raw_bytes, b[i].raw_bytes);
  for (const std::string& file : without.all_files()) {
    if (!file.ends_with(".bsnap")) continue;
    EXPECT_EQ(os::read_file(without, file, 1 << 20).value(), os::read_file(with_memory, file, 1 << 20).value()) << file;
  }
}

// Two tensors of random bytes, so that the stored size depends on the content alone.
State noise(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  State state;
  for (const auto& [name, bytes] : {std::pair("b", &b), std::pair("a", &a)}) {
    state.tensors.push_back(TensorSource::of(name, DType::u8, {bytes->size()}, *bytes).value());
  }
  return state;
}

TEST(Store, DistinguishesCheckpointsOfEqualContent) {
  std::vector<std::vector<std::byte>> a(4);
  std::vector<std::vector<std::byte>> b(4);
  for (std::size_t i = 0; i < 4; ++i) {
    a[i].resize(8192);
    b[i].resize(8192);
    codec::fill_trained_like(DType::f32, a[i], 10 + i);
    codec::fill_trained_like(DType::f32, b[i], 20 + i);
  }
  const std::vector<std::pair<int, int>> history{{1, 1}, {1, 2}, {3, 2}, {1, 2}, {1, 2}};
  for (const bool prunes_each : {false, true}) {
    os::FakeFileSystem files;
    const auto store = open(files);
    Retention retention;
    retention.keep_last = 1;
    std::uint64_t step = 0;
    for (const auto& [ai, bi] : history) {
      const auto& wanted_a = a[static_cast<std::size_t>(ai)];
      const auto& wanted_b = b[static_cast<std::size_t>(bi)];
      ASSERT_TRUE(store->save(++step, noise(wanted_a, wanted_b)));
      if (prunes_each || step == history.size()) {
        ASSERT_TRUE(store->prune(retention));
      }
      const auto snapshot = open(files, {})->snapshot();
      ASSERT_TRUE(snapshot) << step << " " << snapshot.error().message();
      std::vector<std::byte> found(8192);
      ASSERT_TRUE((*snapshot)->read_bytes(1, 0, found));
      EXPECT_EQ(found, wanted_a) << step;
    }
    EXPECT_TRUE(store->verify()->damages.empty());
  }
}

// What is in memory says nothing of the file that later checkpoints need.
TEST(Store, NoticesDamageOfABaseInMemory) {
  os::FakeFileSystem files;
  const std::string file = "/run/checkpoints/0000000003/shard-00000-of-00001.bsnap";
  const auto store = open(files);
  save_steps(*store, 1, 3);
  std::vector<std::byte> bytes = os::read_file(files, file, 1 << 20).value();
  bytes[70] ^= std::byte{1};  // of the first payload
  files.plant(file, bytes);
  const auto saved = store->save(4, TestState(4).state());
  ASSERT_TRUE(saved) << saved.error().message();
  ASSERT_TRUE(saved->damage);
  EXPECT_EQ(saved->damage->kind(), ErrorKind::corrupt);
  EXPECT_FALSE(saved->base);
  EXPECT_EQ(check_step(*store, 4, TestState(4)), "");
}

// Damage below the base is not looked for while the base is in memory.
TEST(Store, ReadsTheFilesBelowABaseOnlyWithoutMemory) {
  for (const bool keeps : {true, false}) {
    os::FakeFileSystem files;
    const std::string file = "/run/checkpoints/0000000001/shard-00000-of-00001.bsnap";
    StoreOptions options = writing();
    if (!keeps) options.keep_base_bytes = 0;
    const auto store = open(files, options);
    save_steps(*store, 1, 3);
    std::vector<std::byte> bytes = os::read_file(files, file, 1 << 20).value();
    bytes[70] ^= std::byte{1};
    files.plant(file, bytes);
    const auto saved = store->save(4, TestState(4).state());
    ASSERT_TRUE(saved) << saved.error().message();
    EXPECT_EQ(saved->damage.has_value(), !keeps);
    EXPECT_FALSE(store->verify()->damages.empty());
    EXPECT_EQ(check_step(*store, 4, TestState(4)).empty(), !keeps);
  }
}

// The same run and process, another handle; what it may keep is its own affair.
TEST(Store, HandsOverWhatTheNextHandleMayKeep) {
  os::FakeFileSystem files;
  const auto kept_bytes = [&](std::uint64_t keep_base_bytes) {
    StoreOptions options = writing();
    options.keep_base_bytes = keep_base_bytes;
    return Store::Impl::of(*open(files, options)).cache().kept_bytes();
  };
  save_steps(*open(files), 1, 3);
  EXPECT_GT(kept_bytes(UINT64_MAX), 0U);  // also of a handle that saves nothing
  EXPECT_GT(kept_bytes(UINT64_MAX), 0U);
  EXPECT_EQ(kept_bytes(100), 0U);
  save_steps(*open(files), 4, 5);
  EXPECT_GT(kept_bytes(UINT64_MAX), 0U);
  EXPECT_EQ(kept_bytes(0), 0U);
  EXPECT_EQ(kept_bytes(UINT64_MAX), 0U);
}

// The shard that this process kept is not the one that was committed.
TEST(Store, DoesNotCodeAgainstAShardOfAnotherAttempt) {
  os::FakeFileSystem files;
  StoreOptions options = writing();
  options.access = StoreAccess::shared;
  const auto store = open(files, options);
  const auto other = open(files, options);
  for (std::uint64_t step = 1; step <= 2; ++step) {
    ASSERT_TRUE(store->save_shard(step, {0, 1, "a"}, TestState(step).state()));
    ASSERT_TRUE(store->commit(step, 1, "a"));
  }
  ASSERT_TRUE(store->save_shard(3, {0, 1, "a"}, TestState(3).state()));
  ASSERT_TRUE(other->save_shard(3, {0, 1, "b"}, TestState(30).state()));
  ASSERT_TRUE(other->commit(3, 1, "b"));
  ASSERT_TRUE(store->save_shard(4, {0, 1, "a"}, TestState(4).state()));
  const auto committed = store->commit(4, 1, "a");
  ASSERT_TRUE(committed && committed->checkpoint);
  EXPECT_FALSE(committed->checkpoint->damage);
  EXPECT_EQ(committed->checkpoint->base, std::optional<std::uint64_t>(3));
  EXPECT_EQ(check_step(*store, 3, TestState(30)), "");
  EXPECT_EQ(check_step(*store, 4, TestState(4)), "");
}

TEST(Store, DoesNotReferToRemovedFilesThatAreStillOpen) {
  for (const std::uint64_t memory : {0U, 1U << 26}) {
    os::FakeFileSystem files;
    StoreOptions options = writing();
    options.keep_base_bytes = memory;
    const auto store = open(files, options);
    save_steps(*store, 1, 2);
    ASSERT_TRUE(files.remove("/run/checkpoints/0000000001/shard-00000-of-00001.bsnap"));
    EXPECT_FALSE(store->verify()->damages.empty());
    const auto saved = store->save(3, TestState(3).state());
    ASSERT_TRUE(saved) << saved.error().message();
    EXPECT_TRUE(saved->damage);
    EXPECT_EQ(check_step(*open(files, {}), 3, TestState(3)), "");
    // A damaged checkpoint does not count as one of the newest.
    save_steps(*store, 4, 4);
    ASSERT_TRUE(files.remove("/run/checkpoints/0000000004/shard-00000-of-00001.bsnap"));
    Retention retention;
    retention.keep_last = 1;
    ASSERT_TRUE(store->prune(retention));
    EXPECT_EQ(check_step(*open(files, {}), 3, TestState(3)), "");
  }
}

TEST(Store, StopsWritingIfItsLockFileIsReplaced) {
  os::FakeFileSystem files;
  const auto store = open(files);
  save_steps(*store, 1, 1);
  ASSERT_TRUE(files.remove("/run/lock"));
  EXPECT_EQ(store->save(2, TestState(2).state()).error().kind(), ErrorKind::busy);
  save_steps(*open(files), 2, 3);
  EXPECT_EQ(store->save(3, TestState(3).state()).error().kind(), ErrorKind::busy);
  expect_steps(*store, {1, 2, 3});
}

TEST(Store, IgnoresForeignFilesWithNamesOfSteps) {
  os::FakeFileSystem files;
  const auto store = open(files);
  save_steps(*store, 1, 2);
  files.plant("/run/checkpoints/20261121214851", as_byte_span("notes"));
  expect_steps(*open(files, {}), {1, 2});
  save_steps(*store, 3, 3);
  EXPECT_TRUE(files.stat("/run/checkpoints/20261121214851")->exists);
}

TEST(Store, IgnoresChangesOfTheWorkingDirectory) {
  const os::TemporaryDirectory directory;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::create_directory(directory / "elsewhere");
  std::filesystem::current_path(directory.path());
  auto opened = Store::open("./run/", writing());
  std::filesystem::current_path(directory / "elsewhere");
  ASSERT_TRUE(opened) << opened.error().message();
  const std::unique_ptr<Store> store = std::move(*opened);
  save_steps(*store, 1, 2);
  expect_steps(*store, {1, 2});
  EXPECT_TRUE(std::filesystem::is_empty("."));
  std::filesystem::current_path(before);
  save_steps(*store, 3, 3);
  expect_steps(*store, {1, 2, 3});
  EXPECT_EQ(std::filesystem::canonical(store->path()), std::filesystem::canonical(directory / "run"));
}

TEST(Store, CommitsWhenAllShardsArePresent) {
  os::FakeFileSystem files;
  StoreOptions options;
  options.access = StoreAccess::shared;
  const auto a = open(files, options);
  const auto b = open(files, options);
  for (std::uint64_t step = 1; step <= 4; ++step) {
    ASSERT_TRUE(a->save_shard(step, {0, 2, "x1"}, TestState(step, 100).state()));
    EXPECT_FALSE(a->commit(step, 2, "x1").value());
    ASSERT_TRUE(b->save_shard(step, {1, 2, "x1"}, TestState(step, 200).state()));
    const auto committed = b->commit(step, 2, "x1").value();
    ASSERT_TRUE(committed);
    EXPECT_EQ(committed.checkpoint->shards, 2U);
    EXPECT_TRUE(committed.missing.empty());
    EXPECT_TRUE(a->commit(step, 2, "x1").value());
    EXPECT_FALSE(a->commit(step, 2, "other"));
    EXPECT_EQ(difference(*a->snapshot(step, 0).value(), TestState(step, 100)), "");
    EXPECT_EQ(difference(*a->snapshot(step, 1).value(), TestState(step, 200)), "");
  }
  EXPECT_EQ(a->checkpoint(4)->links, 3U);
  EXPECT_TRUE(a->verify()->strays.empty());
}

TEST(Store, ReportsMissingShards) {
  os::FakeFileSystem files;
  StoreOptions options;
  options.access = StoreAccess::shared;
  const auto store = open(files, options);
  using Shards = std::vector<std::uint32_t>;
  EXPECT_EQ(store->commit(1, 5, "a").value().missing, (Shards{0, 1, 2, 3, 4}));
  for (const std::uint32_t shard : {3U, 0U}) {
    ASSERT_TRUE(store->save_shard(1, {shard, 5, "a"}, TestState(1, shard).state()));
  }
  // Shards of another attempt do not count.
  ASSERT_TRUE(store->save_shard(1, {1, 5, "b"}, TestState(1, 1).state()));
  ASSERT_TRUE(store->save_shard(1, {1, 2, "c"}, TestState(1, 1).state()));
  const CommitOutcome outcome = store->commit(1, 5, "a").value();
  EXPECT_FALSE(outcome);
  EXPECT_FALSE(outcome.checkpoint);
  EXPECT_EQ(outcome.missing, (Shards{1, 2, 4}));
  // A crash may keep a shard's record and lose its file.
  for (const std::uint32_t shard : {1U, 2U, 4U}) {
    ASSERT_TRUE(store->save_shard(1, {shard, 5, "a"}, TestState(1, shard).state()));
  }
  ASSERT_TRUE(files.remove("/run/checkpoints/0000000001/shard-00002-of-00005.a.bsnap"));
  EXPECT_EQ(store->commit(1, 5, "a").value().missing, Shards{2});
  expect_steps(*store, {});
  ASSERT_TRUE(store->save_shard(1, {2, 5, "a"}, TestState(1, 2).state()));
  EXPECT_TRUE(store->commit(1, 5, "a").value());
}

TEST(Store, RefusesToCommitWhenProcessesExpectDifferentNumbersOfShards) {
  os::FakeFileSystem files;
  StoreOptions options;
  options.access = StoreAccess::shared;
  const auto store = open(files, options);
  for (const std::uint32_t shard : {0U, 1U}) {
    ASSERT_TRUE(store->save_shard(1, {shard, 2, "a"}, TestState(1, shard).state()));
  }
  const auto refused = store->commit(1, 4, "a");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(
      refused.error().message(),
      "/run: step 1: attempt 'a' is to have 4 shards, but there are shards 0, 1 of 2; all processes must give the "
      "same number of shards");
  EXPECT_TRUE(store->commit(1, 2, "a").value());
}

TEST(Store, ALateCommitReportsWhatBecameOfTheStep) {
  os::FakeFileSystem files;
  StoreOptions options;
  options.access = StoreAccess::shared;
  const auto store = open(files, options);
  for (std::uint64_t step = 1; step <= 2; ++step) {
    ASSERT_TRUE(store->save_shard(step, {0, 1, "a"}, TestState(step).state()));
    ASSERT_TRUE(store->commit(step, 1, "a").value());
  }
  Retention retention;
  retention.keep_last = 1;
  PruneOptions pruning;
  pruning.reencode = Reencode::never;
  ASSERT_TRUE(store->prune(retention, pruning));
  const auto text_of = [&](std::uint64_t step, const std::string& attempt) {
    const auto outcome = store->commit(step, 1, attempt);
    EXPECT_FALSE(outcome);
    if (outcome) return std::string();
    EXPECT_EQ(outcome.error().kind(), ErrorKind::invalid_argument);
    return std::string(outcome.error().message());
  };
  EXPECT_EQ(text_of(1, "a"), "/run: step 1 was committed by attempt 'a' and pruned since");
  const std::string expected = "/run: step must be greater than 2, the newest step, got ";
  const std::string unclear = "; it may have been committed and pruned since";
  EXPECT_EQ(text_of(1, "b"), expected + "1" + unclear);
  EXPECT_EQ(text_of(0, "a"), expected + "0" + unclear);
}

}  // namespace
}  // namespace bitsnap::store
