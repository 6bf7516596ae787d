// Stores that a trainer cannot write to when it attaches: by a mistake of the caller, or because of the disk.
#include <bitsnap/engine.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "engine/engine_fixture_testing.hpp"
#include "os/file_system_fake.hpp"
#include "os/file_system_faulty.hpp"
#include "store/store_impl.hpp"

namespace bitsnap::engine {
namespace {

using os::FaultyFileSystem;
using os::FileOperation;
using ::testing::HasSubstr;

class EngineStoreTest : public EngineFixture {
 protected:
  // The error of attaching, which a Store gives for the same path. No agent is started: there is no program.
  void expect_mistake(const std::string& path, ErrorKind kind) const {
    EngineOptions wanted = options();
    wanted.path = path;
    const auto engine = Engine::attach(wanted);
    ASSERT_FALSE(engine.has_value());
    EXPECT_EQ(engine.error().kind(), kind) << engine.error().message();
    const auto store = Store::open(os::canonical_path(path), {.access = StoreAccess::write});
    ASSERT_FALSE(store.has_value());
    EXPECT_EQ(engine.error().message(), store.error().message());
  }

  Result<std::unique_ptr<Engine>> attach_to(os::FileSystem& files, std::uint32_t world_size = 1) const {
    EngineOptions wanted = options();
    wanted.path = "/run";
    wanted.job.world_size = world_size;
    return attach_on(files, wanted);
  }

  SaveState saved(Engine& engine, std::uint64_t step) {
    const auto save = engine.save(step, trained_.state());
    EXPECT_TRUE(save.has_value()) << save.error().message();
    if (!save) return {};
    const auto done = engine.wait(save->ticket, SaveStage::persisted, kWaitMs);
    EXPECT_TRUE(done.has_value()) << done.error().message();
    return done.value_or(SaveState());
  }

  // The state stays in memory, and the save has the error of the store.
  void expect_kept(Engine& engine, std::uint64_t step, ErrorCode code) {
    const SaveState save = saved(engine, step);
    EXPECT_EQ(save.stage, SaveStage::failed);
    EXPECT_TRUE(save.has_reached_memory);
    ASSERT_TRUE(save.error.has_value());
    EXPECT_EQ(save.error->code(), code) << save.error->message();
    const auto restored = engine.restore(step);
    ASSERT_TRUE(restored.has_value()) << restored.error().message();
    EXPECT_TRUE(restored->from_memory);
    EXPECT_EQ(trained_.difference(*restored->snapshot), "");
  }
};

TEST_F(EngineStoreTest, AMistakeInThePathEndsAttaching) {
  expect_mistake(directory_ / "none/run", ErrorKind::not_found);
  std::ofstream(directory_ / "file") << "no directory";
  expect_mistake(directory_ / "file", ErrorKind::invalid_argument);
  std::filesystem::create_directory(directory_ / "other");
  std::ofstream(directory_ / "other/file") << "something else";
  expect_mistake(directory_ / "other", ErrorKind::invalid_argument);
  std::filesystem::create_symlink(directory_ / "gone/run", directory_ / "link");
  expect_mistake(directory_ / "link", ErrorKind::invalid_argument);
}

TEST_F(EngineStoreTest, AMissingRightEndsAttaching) {
  for (const std::uint32_t world_size : {1U, 2U}) {
    os::FakeFileSystem disk;
    {
      ASSERT_TRUE(store::open_store(disk, "/run", {.access = StoreAccess::write}).has_value());
    }
    FaultyFileSystem files(disk);
    files.fail_at(FileOperation::check_writable, 0, {.kind = ErrorKind::io, .lasting = true});
    const auto engine = attach_to(files, world_size);
    ASSERT_FALSE(engine.has_value());
    EXPECT_EQ(engine.error().kind(), ErrorKind::io);
    EXPECT_THAT(engine.error().message(), HasSubstr("/run/checkpoints"));
  }
}

TEST_F(EngineStoreTest, AnotherWriterOfTheStoreDoesNotEndAttaching) {
  const AgentThread agent(job_);
  auto writer = Store::open(directory_ / "run", {.access = StoreAccess::write});
  ASSERT_TRUE(writer.has_value());
  const auto engine = attach(options());
  ASSERT_NE(engine, nullptr);
  writer->reset();
  EXPECT_EQ(saved(*engine, 1).stage, SaveStage::persisted);
}

TEST_F(EngineStoreTest, StatesStayInMemoryWhileTheDiskIsFull) {
  for (const bool is_new : {true, false}) {
    os::FakeFileSystem disk;
    if (!is_new) {
      ASSERT_TRUE(store::open_store(disk, "/run", {.access = StoreAccess::write}).has_value());
    }
    disk.limit_space(0);
    const AgentThread agent(job_, disk);
    const auto engine = attach_to(disk);
    ASSERT_TRUE(engine.has_value()) << engine.error().message();
    expect_kept(**engine, 1, ErrorCode::no_space);
    trained_.step();
    expect_kept(**engine, 2, ErrorCode::no_space);
    disk.limit_space(UINT64_MAX);
    trained_.step();
    EXPECT_EQ(saved(**engine, 3).stage, SaveStage::persisted);
    const auto steps = (*engine)->steps().value();
    EXPECT_TRUE(steps.back().in_store && steps.back().step == 3);
  }
}

TEST_F(EngineStoreTest, StatesStayInMemoryWhileTheDiskIsMountedReadOnly) {
  os::FakeFileSystem disk;
  FaultyFileSystem files(disk);
  const auto set_read_only = [&] {
    for (const auto operation : {FileOperation::create, FileOperation::lock, FileOperation::create_directory}) {
      files.fail_at(operation, 0, {.kind = ErrorKind::io, .lasting = true, .code = ErrorCode::read_only});
    }
  };
  set_read_only();
  const AgentThread agent(job_, files);
  const auto engine = attach_to(files);
  ASSERT_TRUE(engine.has_value()) << engine.error().message();
  expect_kept(**engine, 1, ErrorCode::read_only);
  files.reset();
  trained_.step();
  EXPECT_EQ(saved(**engine, 2).stage, SaveStage::persisted);
}

}  // namespace
}  // namespace bitsnap::engine
