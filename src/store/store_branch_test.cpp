// Branches: what they hold, what they share with their run, and that neither notices what becomes of the other.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "os/file_system_fake.hpp"
#include "os/temporary_directory_testing.hpp"
#include "store/branch_directory.hpp"
#include "store/store_calls_testing.hpp"

namespace bitsnap::store {
namespace {

const RunLayout kBranch("/run/branches/b");

std::unique_ptr<Store> open_branch(os::FileSystem& files, const std::string& name,
                                   const StoreOptions& options = writing()) {
  auto store = open_store(files, "/run/branches/" + name, options);
  EXPECT_TRUE(store) << store.error().message();
  return store ? std::move(*store) : nullptr;
}

Retention keep_newest(std::uint64_t count) {
  Retention retention;
  retention.keep_last = count;
  return retention;
}

TEST(StoreBranch, HoldsItsStepAndSharesTheBytes) {
  for_each_base([](const StoreOptions& options) {
    os::FakeFileSystem files;
    const auto run = open(files, options);
    save_steps(*run, 1, 5);
    const auto made = run->make_branch("b", 3);
    ASSERT_TRUE(made) << made.error().message();
    EXPECT_EQ(made->path, "/run/branches/b");
    EXPECT_EQ(made->origin, (BranchOrigin{run->run_id(), "", 3}));
    EXPECT_EQ(made->checkpoints, 1U);
    EXPECT_EQ(made->copied_bytes, 0U);
    EXPECT_LT(made->own_bytes, 5000U) << "records only";
    EXPECT_GT(made->stored_bytes, 10'000U);
    const auto branch = open_branch(files, "b", options);
    EXPECT_NE(branch->run_id(), run->run_id());
    expect_steps(*branch, {3});
    EXPECT_TRUE(branch->verify()->damages.empty());
    ASSERT_TRUE(branch->save(4, TestState(4).state()));
    const auto saved = branch->save(7, TestState(7).state());
    ASSERT_TRUE(saved);
    EXPECT_FALSE(saved->damage);
    expect_steps(*branch, {3, 4, 7});
    expect_steps(*run, {1, 2, 3, 4, 5});
  });
}

TEST(StoreBranch, OutlivesWhatItsRunRemoves) {
  os::FakeFileSystem files;
  const auto run = open(files);
  save_steps(*run, 1, 6);
  ASSERT_TRUE(run->make_branch("b", 5));
  ASSERT_TRUE(run->make_branch("c", 2));
  ASSERT_TRUE(run->rollback(1));
  ASSERT_TRUE(run->save(2, TestState(20).state()));
  ASSERT_TRUE(run->prune(keep_newest(1), {.reencode = Reencode::always}));
  const auto b = open_branch(files, "b");
  const auto c = open_branch(files, "c");
  expect_steps(*b, {5});
  expect_steps(*c, {2});
  ASSERT_TRUE(b->save(6, TestState(6).state()));
  ASSERT_TRUE(b->prune(keep_newest(1), {.reencode = Reencode::always}));
  expect_steps(*b, {6});
  EXPECT_EQ(check_step(*run, 2, TestState(20)), "");
  for (const Store* store : {run.get(), b.get(), c.get()}) EXPECT_TRUE(store->verify()->damages.empty());
}

TEST(StoreBranch, OfABranchLiesBesideIt) {
  os::FakeFileSystem files;
  const auto run = open(files);
  save_steps(*run, 1, 3);
  ASSERT_TRUE(run->make_branch("b", 2));
  const auto branch = open_branch(files, "b");
  ASSERT_TRUE(branch->save(5, TestState(5).state()));
  const auto made = branch->make_branch("c", 5);
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ(made->path, "/run/branches/c");
  EXPECT_EQ(made->origin, (BranchOrigin{branch->run_id(), "b", 5}));
  expect_steps(*open_branch(files, "c"), {5});
  for (const Store* store : {run.get(), branch.get()}) {
    const auto all = store->branches().value();
    ASSERT_EQ(all.size(), 2U);
    EXPECT_EQ(all[0].name, "b");
    EXPECT_EQ(all[0].newest, 5U);
    EXPECT_EQ(all[0].checkpoints, 2U);
    EXPECT_EQ(all[1].origin->branch, "b");
    EXPECT_LT(all[1].own_bytes, 5000U) << "shared with b and the run";
  }
}

TEST(StoreBranch, CodesAgainWhatNeedsALaterStep) {
  os::FakeFileSystem files;
  StoreOptions options = writing();
  options.settings.max_depth = 3;
  options.retention = keep_newest(3);
  const auto run = open(files, options);
  save_steps(*run, 1, 6);
  const RunLayout layout("/run");
  ASSERT_GT(read_commit_record(files, layout, 4)->base, 4U) << "the test needs a later base";
  ASSERT_TRUE(run->make_branch("b", 4));
  expect_steps(*run, {4, 5, 6});
  const auto branch = open_branch(files, "b");
  expect_steps(*branch, {4});
  EXPECT_TRUE(branch->verify()->damages.empty());
  const std::vector<StepEntry> entries = StepDirectories(files, kBranch).list().value();
  for (const StepEntry& entry : entries) EXPECT_LE(entry.step, 4U);
}

TEST(StoreBranch, CanHaveAllLaterCheckpointsAndTheirLabels) {
  os::FakeFileSystem files;
  const auto run = open(files);
  save_steps(*run, 1, 6);
  ASSERT_TRUE(run->label(2, {"early"}));
  ASSERT_TRUE(run->label(4, {"best"}));
  ASSERT_TRUE(run->make_branch("b", 3, {.with_later = true}));
  ASSERT_TRUE(run->rollback(3));
  expect_steps(*run, {1, 2, 3});
  const auto branch = open_branch(files, "b");
  expect_steps(*branch, {3, 4, 5, 6});
  EXPECT_EQ(branch->labels().value(), (std::vector<StepLabel>{{"best", 4}}));
  EXPECT_EQ(run->labels().value(), (std::vector<StepLabel>{{"early", 2}}));
  EXPECT_EQ(run->branches()->front().origin->step, 3U);
}

TEST(StoreBranch, KeepsShardsAndFiles) {
  os::FakeFileSystem files;
  StoreOptions shared = writing();
  shared.access = StoreAccess::shared;
  const auto run = open(files, shared);
  for (const std::uint64_t step : {1U, 2U}) {
    for (const std::uint32_t shard : {0U, 1U}) {
      ASSERT_TRUE(run->save_shard(step, {shard, 2, "a1"}, TestState(step, shard).state()));
    }
    CommitOptions commit;
    commit.files = {{"config.json", {std::byte{1}, std::byte(step)}}};
    ASSERT_TRUE(run->commit(step, 2, "a1", commit));
  }
  ASSERT_TRUE(run->make_branch("b", 2));
  const auto branch = open_branch(files, "b", shared);
  for (const std::uint32_t shard : {0U, 1U}) {
    EXPECT_EQ(difference(**branch->snapshot(2, shard), TestState(2, shard)), "");
  }
  EXPECT_EQ(branch->files(2)->at(0).bytes, (std::vector<std::byte>{std::byte{1}, std::byte{2}}));
}

TEST(StoreBranch, CopiesWithoutHardLinks) {
  os::FakeFileSystem files;
  files.refuse_links();
  const auto run = open(files);
  save_steps(*run, 1, 3);
  const auto made = run->make_branch("b", 3);
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_GT(made->copied_bytes, 10'000U);
  EXPECT_EQ(made->own_bytes, made->stored_bytes);
  expect_steps(*open_branch(files, "b"), {3});
}

TEST(StoreBranch, NamesWhatIsWrong) {
  os::FakeFileSystem files;
  const auto run = open(files);
  const auto missing = run->make_branch("b", 2);
  EXPECT_EQ(missing.error().message(), "/run: step 2 not found; the store has no checkpoints");
  save_steps(*run, 1, 3);
  EXPECT_EQ(run->make_branch("b", 7).error().kind(), ErrorKind::not_found);
  EXPECT_TRUE(run->branches()->empty());
  for (const std::string name : {"", "500", ".b", "-b", "a/b", "a@b", "a:b", "a\\b", "a\nb"}) {
    EXPECT_EQ(run->make_branch(name, 2).error().kind(), ErrorKind::invalid_argument) << name;
  }
  EXPECT_EQ(run->make_branch(std::string(201, 'a'), 2).error().kind(), ErrorKind::invalid_argument);
  ASSERT_TRUE(run->make_branch("b", 2));
  const auto again = run->make_branch("b", 3);
  EXPECT_EQ(again.error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(again.error().message(), "/run: the branch 'b' exists already");
  expect_steps(*open_branch(files, "b"), {2});
}

TEST(StoreBranch, RefusesDamagedCheckpoints) {
  os::FakeFileSystem files;
  const auto run = open(files);
  save_steps(*run, 1, 3);
  const std::string file = RunLayout("/run").step_file(2, shard_file_name(0, 1, ""));
  const auto bytes = os::read_file(files, file, 1 << 24).value();
  files.plant(file, ConstByteSpan(bytes).first(bytes.size() / 2));
  const auto made = run->make_branch("b", 3);
  ASSERT_FALSE(made);
  EXPECT_TRUE(is_damage(made.error()));
  EXPECT_NE(made.error().message().find("step 3 is damaged, so no branch can have it"), std::string::npos);
  EXPECT_TRUE(run->branches()->empty());
  EXPECT_FALSE(files.stat("/run/branches/.new")->exists);
  EXPECT_TRUE(run->make_branch("c", 1));
}

TEST(StoreBranch, DamageInItStaysInIt) {
  os::FakeFileSystem files;
  const auto run = open(files);
  save_steps(*run, 1, 3);
  ASSERT_TRUE(run->make_branch("b", 3));
  ASSERT_TRUE(files.remove(kBranch.commit(3)));
  ASSERT_TRUE(files.remove(kBranch.run_record()));
  ASSERT_TRUE(repair_store(files, kBranch.root(), {}));
  expect_steps(*open_branch(files, "b"), {3});
  EXPECT_FALSE(run->branches()->front().origin) << "the repair cannot know it";
  expect_steps(*run, {1, 2, 3});
}

TEST(StoreBranch, IsRemovedAlone) {
  os::FakeFileSystem files;
  const auto run = open(files);
  save_steps(*run, 1, 3);
  EXPECT_EQ(run->remove_branch("b").error().kind(), ErrorKind::not_found);
  EXPECT_FALSE(files.stat("/run/branches")->exists);
  ASSERT_TRUE(run->make_branch("b", 2));
  ASSERT_TRUE(run->make_branch("c", 2));
  {
    const auto branch = open_branch(files, "b");
    EXPECT_EQ(run->remove_branch("b").error().kind(), ErrorKind::busy);
    ASSERT_TRUE(branch->save(4, TestState(4).state()));
  }
  files.plant("/run/branches/b/notes.txt", {});
  const auto refused = run->remove_branch("b");
  EXPECT_EQ(refused.error().kind(), ErrorKind::invalid_argument);
  EXPECT_NE(refused.error().message().find("/run/branches/b/notes.txt"), std::string::npos);
  ASSERT_TRUE(files.remove("/run/branches/b/notes.txt"));
  ASSERT_TRUE(run->remove_branch("b"));
  EXPECT_EQ(files.list_directory("/run/branches").value(), (std::vector<std::string>{".lock", "c"}));
  const auto missing = run->remove_branch("d");
  EXPECT_EQ(missing.error().message(), "/run: has no branch 'd'; its branches: 'c'");
  expect_steps(*run, {1, 2, 3});
  expect_steps(*open_branch(files, "c"), {2});
}

TEST(StoreBranch, SurvivesPrunesRepairsAndTheLossOfTheRunRecord) {
  os::FakeFileSystem files;
  {
    const auto run = open(files);
    save_steps(*run, 1, 4);
    ASSERT_TRUE(run->make_branch("b", 2));
    ASSERT_TRUE(run->prune(keep_newest(1)));
  }
  ASSERT_TRUE(files.remove(RunLayout("/run").run_record()));
  ASSERT_TRUE(repair_store(files, "/run", {}));
  expect_steps(*open(files), {4});
  expect_steps(*open_branch(files, "b"), {2});
  EXPECT_EQ(open(files)->branches()->front().name, "b");
}

TEST(StoreBranch, IsMadeByAReaderWhileAWriterHasTheStoreOpen) {
  os::FakeFileSystem files;
  const auto run = open(files);
  save_steps(*run, 1, 3);
  const auto reader = open(files, {});
  ASSERT_TRUE(reader->make_branch("b", 3));
  ASSERT_TRUE(run->save(4, TestState(4).state()));
  expect_steps(*open_branch(files, "b"), {3});
}

TEST(StoreBranch, WritesItsOriginAndRejectsOthers) {
  os::FakeFileSystem files;
  RunRecord record;
  record.id = std::string(32, '1');
  record.origin = RunOrigin{std::string(32, '2'), "lr2", 30};
  const std::string path = RunLayout("/run").run_record();
  const auto written = [&](const RunOrigin& origin) {
    record.origin = origin;
    EXPECT_TRUE(files.create_directory("/run") || files.stat("/run")->exists);
    EXPECT_TRUE(write_run_record(files, path, record, true));
    return read_run_record(files, path);
  };
  for (const RunOrigin& origin : {RunOrigin{std::string(32, '2'), "lr2", 30}, RunOrigin{std::string(32, '0'), "", 0}}) {
    const auto read = written(origin);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->origin, origin);
    const auto bytes = os::read_file(files, path, 1000).value();
    EXPECT_EQ(as_text(bytes).find("\"branch\"") == std::string_view::npos, origin.branch.empty());
  }
  for (const RunOrigin& origin : {RunOrigin{"2", "", 30}, RunOrigin{std::string(32, '2'), "a/b", 30}}) {
    EXPECT_EQ(written(origin).error().kind(), ErrorKind::corrupt);
  }
}

class BranchAddress : public testing::Test {
 protected:
  void SetUp() override {
    const auto store = Store::open(run_, writing()).value();
    save_steps(*store, 1, 2);
    ASSERT_TRUE(store->make_branch("lr2", 1));
    ASSERT_TRUE(store->make_branch("best", 2));
  }

  const os::TemporaryDirectory directory_;
  const std::string run_ = directory_ / "run";
};

TEST_F(BranchAddress, NamesABranchWhereverAPathStands) {
  EXPECT_EQ(resolve_branch(run_), run_);
  EXPECT_EQ(resolve_branch(run_ + ":lr2"), run_ + "/branches/lr2");
  EXPECT_EQ(resolve_branch(run_ + "/branches/lr2:best"), run_ + "/branches/best");
  EXPECT_EQ(resolve_branch(directory_ / "none:lr2"), directory_ / "none:lr2");
  EXPECT_TRUE(is_store(run_ + ":lr2"));
  EXPECT_FALSE(is_store(run_ + ":lr3"));
  EXPECT_EQ(Store::open(run_ + ":lr2").value()->path(), run_ + "/branches/lr2");
  EXPECT_TRUE(Store::repair(run_ + ":lr2"));
}

TEST_F(BranchAddress, APathThatExistsWins) {
  const std::string literal = run_ + ":lr2";
  ASSERT_TRUE(os::real_file_system().create_directory(literal));
  EXPECT_EQ(resolve_branch(literal), literal);
}

TEST_F(BranchAddress, AMissingBranchIsAnErrorThatNamesTheOthers) {
  const auto missing = Store::open(run_ + ":lr3", writing());
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().kind(), ErrorKind::not_found);
  EXPECT_EQ(missing.error().message(),
            run_ + ": has no branch 'lr3'; its branches: 'best', 'lr2'; did you mean 'lr2'?");
}

TEST_F(BranchAddress, FollowsNoLinkInTheRun) {
  ASSERT_EQ(::symlink((directory_ / "elsewhere").c_str(), (run_ + "/branches/linked").c_str()), 0);
  EXPECT_FALSE(Store::open(run_ + ":linked"));
  const auto store = Store::open(run_).value();
  EXPECT_EQ(store->branches()->size(), 2U);
  EXPECT_FALSE(store->make_branch("linked", 1));
}

}  // namespace
}  // namespace bitsnap::store
