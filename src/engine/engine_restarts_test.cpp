// Restarts of a job at one agent, trainers and agents with other settings, interrupted calls, and forked children.
#include <bitsnap/engine.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/agent_process_testing.hpp"
#include "engine/agent_thread_testing.hpp"
#include "engine/engine_fixture_testing.hpp"
#include "engine/messages.hpp"
#include "os/clock.hpp"
#include "os/file_identity.hpp"
#include "os/file_system_faulty.hpp"
#include "os/local_socket.hpp"
#include "os/process.hpp"
#include "os/temporary_directory_testing.hpp"
#include "store/training_testing.hpp"

namespace bitsnap::engine {
namespace {

using store::Training;

using ::testing::HasSubstr;

class EngineRestartsTest : public ::testing::Test {
 protected:
  EngineOptions options(std::uint32_t rank = 0, std::uint32_t world_size = 1) const {
    EngineOptions options;
    options.path = directory_.path() + "/run";
    options.job.name = job_;
    options.job.rank = rank;
    options.job.world_size = world_size;
    options.timeout_ms = kWaitMs;
    options.agent.threads = 2;
    return options;
  }

  os::TemporaryDirectory directory_;
  const std::string job_ = unique_job();
  Training trained_;
};

TEST_F(EngineRestartsTest, ANewSessionRestoresTheMemoryOfTheLastSession) {
  const AgentThread agent(job_);
  for (const std::string session : {"first", "second", ""}) {
    std::vector<std::unique_ptr<Engine>> engines;
    std::vector<std::uint64_t> tickets;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      EngineOptions wanted = options(rank, 2);
      wanted.job.session = session;
      auto engine = Engine::attach(wanted);
      ASSERT_TRUE(engine.has_value()) << engine.error().message();
      engines.push_back(std::move(*engine));
    }
    const std::uint64_t step = session == "first" ? 1 : session == "second" ? 2 : 3;
    if (step > 1) {
      EXPECT_EQ(engines[0]->latest()->value(), step - 1);
      EXPECT_TRUE(engines[1]->restore(step - 1)->from_memory);
    }
    for (const auto& engine : engines) tickets.push_back(engine->save(step, trained_.state())->ticket);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      const auto done = engines[rank]->wait(tickets[rank], SaveStage::persisted, kWaitMs);
      ASSERT_TRUE(done.has_value()) << done.error().message();
      EXPECT_EQ(done->stage, SaveStage::persisted) << (done->error ? done->error->message() : "");
    }
  }
}

TEST_F(EngineRestartsTest, ANewSessionIsRefusedWhileTheLastSessionRuns) {
  const AgentThread agent(job_);
  EngineOptions first = options(0, 2);
  first.job.session = "first";
  auto engine = Engine::attach(first);
  ASSERT_TRUE(engine.has_value());
  EngineOptions second = options(1, 2);
  second.job.session = "second";
  EXPECT_EQ(Engine::attach(second).error().kind(), ErrorKind::invalid_argument);
  // The restart comes while the staged save is still being worked on.
  ASSERT_TRUE((*engine)->save(1, trained_.state()).has_value());
  engine->reset();
  const auto next = Engine::attach(second);
  EXPECT_TRUE(next.has_value()) << next.error().message();
  EXPECT_EQ(Engine::attach(first).error().kind(), ErrorKind::invalid_argument);
}

TEST_F(EngineRestartsTest, AnArenaAboveTheBudgetIsNotReusedAfterARestart) {
  const AgentThread agent(job_);
  auto engine = Engine::attach(options());
  ASSERT_TRUE((*engine)->save(1, trained_.state()).has_value());
  ASSERT_TRUE((*engine)->wait_all(kWaitMs).has_value());
  const std::uint64_t arena = (*engine)->arena_bytes();
  engine->reset();
  for (const std::uint64_t budget : {arena - 1, arena}) {
    EngineOptions wanted = options();
    wanted.memory.budget_bytes = budget;
    engine = Engine::attach(wanted);
    ASSERT_TRUE(engine.has_value()) << engine.error().message();
    EXPECT_EQ((*engine)->arena_bytes(), budget == arena ? arena : 0);
    engine->reset();
  }
}

TEST_F(EngineRestartsTest, RestoringWithAnotherWorldSizeSaysWhatToDo) {
  const AgentThread agent(job_);
  const auto save_with = [&](std::uint32_t world_size, std::uint64_t step, bool persist) {
    std::vector<std::unique_ptr<Engine>> engines;
    std::vector<std::uint64_t> tickets;
    for (std::uint32_t rank = 0; rank < world_size; ++rank) {
      engines.push_back(Engine::attach(options(rank, world_size)).value());
      tickets.push_back(engines.back()->save(step, trained_.state(), persist)->ticket);
    }
    for (std::uint32_t rank = 0; rank < world_size; ++rank) {
      const SaveStage wanted = persist ? SaveStage::persisted : SaveStage::memory;
      EXPECT_EQ(engines[rank]->wait(tickets[rank], wanted, kWaitMs)->stage, wanted);
    }
  };
  const auto expect_refused = [&](std::uint32_t rank, std::uint32_t world_size, std::uint64_t step,
                                  const std::vector<std::string_view>& texts) {
    const auto engine = Engine::attach(options(rank, world_size));
    ASSERT_TRUE(engine.has_value()) << engine.error().message();
    const auto restored = (*engine)->restore(step);
    ASSERT_FALSE(restored.has_value());
    EXPECT_EQ(restored.error().kind(), ErrorKind::invalid_argument);
    for (const std::string_view text : texts) EXPECT_THAT(restored.error().message(), HasSubstr(text));
  };
  save_with(2, 1, true);
  expect_refused(0, 1, 1, {"saved by 2 ranks", "world_size = 1", "Start 2 ranks", "Store.load(1, shard=1)"});
  expect_refused(1, 3, 1, {"saved by 2 ranks", "world_size = 3", "Start 2 ranks", "Store.load(1, shard=1)"});
  save_with(2, 2, false);
  expect_refused(0, 1, 2, {"world_size = 2", "world_size is 1 now", "as many ranks", "steps of the store"});
  EXPECT_EQ((*Engine::attach(options()))->latest()->value(), 1U);
  // The whole state of one rank serves any number of ranks, from the store.
  save_with(1, 3, true);
  for (const std::uint32_t rank : {0U, 1U}) {
    const auto restored = Engine::attach(options(rank, 2)).value()->restore(3);
    ASSERT_TRUE(restored.has_value()) << restored.error().message();
    EXPECT_EQ(trained_.difference(*restored->snapshot), "");
  }
  save_with(1, 4, false);
  for (const std::uint32_t rank : {0U, 1U}) expect_refused(rank, 2, 4, {"world_size = 1 ", "world_size is 2 now"});
}

TEST_F(EngineRestartsTest, ARestartWithAnotherWorldSizeWaitsForEarlierSaves) {
  os::FaultyFileSystem slow(os::real_file_system());
  slow.watch([](const os::FaultyFileSystem::Step& step) {
    if (step.operation == os::FileOperation::append && step.path.ends_with(".bsnap")) ::usleep(200'000);
  });
  const AgentThread agent(job_, slow);
  // First a restart with more ranks, then one with larger states in fewer slots.
  auto engine = Engine::attach(options());
  ASSERT_TRUE((*engine)->save(1, trained_.state()).has_value());
  engine->reset();
  engine = Engine::attach(options(1, 2));
  ASSERT_TRUE(engine.has_value()) << engine.error().message();
  ASSERT_TRUE((*engine)->save(2, trained_.state()).has_value());
  engine->reset();
  EngineOptions wanted = options(1, 2);
  wanted.memory.slots = 1;
  engine = Engine::attach(wanted);
  ASSERT_TRUE(engine.has_value()) << engine.error().message();
  State grown = trained_.state();
  const save::Bytes more(1 << 20);
  grown.tensors.push_back(save::source("more", DType::u8, {1 << 20}, more));
  const auto save = (*engine)->save(3, grown);
  EXPECT_TRUE(save.has_value()) << save.error().message();
}

TEST_F(EngineRestartsTest, ALockedStoreDoesNotPreventSavesForMemory) {
  const AgentThread agent(job_);
  StoreOptions writing;
  writing.access = StoreAccess::write;
  const auto locked = Store::open(directory_.path() + "/run", writing);
  ASSERT_TRUE(locked.has_value()) << locked.error().message();
  const auto engine = Engine::attach(options());
  ASSERT_TRUE(engine.has_value()) << engine.error().message();
  const os::Stopwatch stopwatch;
  for (std::uint64_t step = 1; step <= 2; ++step) {
    const auto save = (*engine)->save(step, trained_.state(), false);
    ASSERT_TRUE(save.has_value()) << save.error().message();
    EXPECT_EQ((*engine)->wait(save->ticket, SaveStage::memory, kWaitMs)->stage, SaveStage::memory);
  }
  EXPECT_LT(stopwatch.elapsed_seconds(), kSoonSeconds);
}

TEST_F(EngineRestartsTest, AListIncludesEarlierSavesOfAllRanks) {
  os::FaultyFileSystem slow(os::real_file_system());
  slow.watch([](const os::FaultyFileSystem::Step& step) {
    if (step.operation == os::FileOperation::append && step.path.ends_with(".bsnap")) ::usleep(300'000);
  });
  for (const bool fits : {true, false}) {
    // A list waits until earlier saves are encoded, or stored if they do not fit in memory.
    const std::string job = unique_job();
    const AgentThread agent(job, slow);
    std::vector<std::unique_ptr<Engine>> engines;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      EngineOptions wanted = options(rank, 2);
      wanted.job.name = job;
      wanted.path = directory_.path() + (fits ? "/fits" : "/does-not");
      wanted.memory.slots = fits ? 2 : 1;
      if (!fits) wanted.memory.budget_bytes = 6'400'000;
      auto engine = Engine::attach(wanted);
      ASSERT_TRUE(engine.has_value()) << engine.error().message();
      const auto save = (*engine)->save(1, trained_.state(), !fits);
      ASSERT_TRUE(save.has_value()) << save.error().message();
      engines.push_back(std::move(*engine));
    }
    const auto newest = engines[0]->latest();
    ASSERT_TRUE(newest.has_value()) << newest.error().message();
    EXPECT_EQ(*newest, 1) << fits;
    EXPECT_EQ(engines[1]->latest()->value(), 1u);
  }
}

TEST_F(EngineRestartsTest, StatesFromBeforeAndAfterARestartAreNotMixed) {
  const AgentThread agent(job_);
  const auto attach = [&](std::uint32_t rank) { return std::move(*Engine::attach(options(rank, 2))); };
  const auto save = [&](Engine& engine, std::uint64_t step) {
    const auto staged = engine.save(step, trained_.state(), false);
    EXPECT_TRUE(engine.wait(staged->ticket, SaveStage::memory, kWaitMs).has_value());
  };
  auto first = attach(0);
  auto second = attach(1);
  for (Engine* const engine : {first.get(), second.get()}) save(*engine, 1);
  save(*first, 2);
  first.reset();
  second.reset();
  first = attach(0);
  second = attach(1);
  EXPECT_EQ(first->latest()->value(), 1u);
  trained_.step();
  save(*second, 2);
  // Rank 0 still has a step 2 from before the restart, which does not belong to the step 2 of rank 1.
  EXPECT_EQ(first->latest()->value(), 1u);
  save(*first, 2);
  EXPECT_EQ(first->latest()->value(), 2u);
}

TEST_F(EngineRestartsTest, StoreAndMemoryOfDifferentRestartsAreNotMixed) {
  const AgentThread here(job_);
  const std::string program = agent_program_in(directory_.path());
  const std::string elsewhere = unique_job();
  const auto attach = [&](std::uint32_t rank, const std::string& job) {
    EngineOptions wanted = options(rank, 2);
    wanted.job.name = job;
    wanted.agent.linger_ms = 1000;
    wanted.agent.command = program;
    return std::move(*Engine::attach(wanted));
  };
  // Rank 0 alone saves step 2 with this agent. Then both ranks save step 2 with another agent.
  auto engine = attach(0, job_);
  const Training lost = trained_;
  const auto save = engine->save(2, lost.state());
  ASSERT_TRUE(engine->wait(save->ticket, SaveStage::memory, kWaitMs).has_value());
  ASSERT_EQ(engine->steps()->size(), 1U);
  const std::string attempt = engine->steps()->front().attempt;
  EXPECT_NE(attempt, "");
  // Only the ranks themselves can agree that this attempt is complete.
  EXPECT_EQ(engine->restore(2).error().kind(), ErrorKind::not_found);
  const auto alone = engine->restore(2, attempt);
  ASSERT_TRUE(alone.has_value()) << alone.error().message();
  EXPECT_TRUE(alone->from_memory);
  EXPECT_EQ(engine->restore(2, "another").error().kind(), ErrorKind::not_found);
  engine.reset();
  trained_.step();
  {
    const auto first = attach(0, elsewhere);
    const auto second = attach(1, elsewhere);
    for (Engine* const each : {first.get(), second.get()}) ASSERT_TRUE(each->save(2, trained_.state()).has_value());
    ASSERT_TRUE(first->wait_all(kWaitMs).has_value());
    EXPECT_TRUE(second->restore(2)->from_memory);  // the state in memory has the attempt of the store
  }

  engine = attach(0, job_);
  const auto steps = engine->steps();
  ASSERT_TRUE(steps.has_value()) << steps.error().message();
  EXPECT_EQ(*steps, std::vector<RestorableStep>{(RestorableStep{.step = 2, .in_store = true})});
  const auto restored = engine->restore(2);
  ASSERT_TRUE(restored.has_value()) << restored.error().message();
  EXPECT_FALSE(restored->from_memory);
  EXPECT_EQ(trained_.difference(*restored->snapshot), "");
}

TEST_F(EngineRestartsTest, AllSpellingsOfAPathNameTheSameJob) {
  const std::string root = std::filesystem::canonical(directory_.path());
  std::filesystem::create_directory_symlink(root, root + "/link");
  const std::string plain = root + "/run";
  for (const std::string other : {"/run/", "//run", "/./run", "/none/../run", "/link/run"}) {
    EXPECT_EQ(default_job(root + other), default_job(plain)) << other;
  }
  EXPECT_NE(default_job(root + "/runs"), default_job(plain));
  const AgentThread agent(job_);
  EngineOptions wanted = options(0, 2);
  wanted.path = plain;
  const auto first = Engine::attach(wanted);
  ASSERT_TRUE(first.has_value()) << first.error().message();
  wanted = options(1, 2);
  wanted.path = root + "/link/../" + std::filesystem::path(root).filename().string() + "/link/run/";
  const auto second = Engine::attach(wanted);
  ASSERT_TRUE(second.has_value()) << second.error().message();
  EXPECT_EQ((*second)->path(), plain);
}

TEST_F(EngineRestartsTest, HelloIdentifiesTheNearestExistingDirectory) {
  auto listener = os::LocalListener::listen(socket_name(job_));
  ASSERT_TRUE(listener.has_value()) << listener.error().message();
  // A trainer creates the store, unless the disk is mounted read-only.
  os::FaultyFileSystem disk(os::real_file_system());
  disk.fail_at(os::FileOperation::create_directory, 0, {.code = ErrorCode::read_only});
  const std::jthread trainer([&disk, wanted = options()] { EXPECT_FALSE(attach_on(disk, wanted).has_value()); });
  {
    const os::LocalListener agent = std::move(*listener);
    auto connection = agent.accept(kWaitMs);
    ASSERT_TRUE(connection.has_value()) << connection.error().message();
    const auto message = connection->receive(kMaxPacketBytes, 1, kWaitMs);
    ASSERT_TRUE(message.has_value() && message->has_value());
    const auto hello = parse_body<Hello>(parse_packet((*message)->bytes)->body);
    ASSERT_TRUE(hello.has_value()) << hello.error().message();
    const std::string above = std::filesystem::canonical(directory_.path());
    EXPECT_EQ(hello->store, above + "/run");
    EXPECT_EQ(hello->place, (os::FoundFile{above, *os::identify_file(above)}));
  }
}

TEST_F(EngineRestartsTest, RefusesAPathThatIsNotUtf8) {
  const AgentThread agent(job_);
  EngineOptions wanted = options();
  for (const std::string path : {"/run\xff", "/link/run"}) {
    wanted.path = directory_.path() + path;
    const auto engine = Engine::attach(wanted);
    ASSERT_FALSE(engine.has_value());
    EXPECT_EQ(engine.error().kind(), ErrorKind::invalid_argument);
    EXPECT_NE(engine.error().message().find("must be valid UTF-8"), std::string::npos) << engine.error().message();
    if (path == "/link/run") break;
    std::filesystem::create_directory(wanted.path);
    std::filesystem::create_directory_symlink(wanted.path, directory_.path() + "/link");
  }
}

TEST_F(EngineRestartsTest, RefusesAnUnknownCodecBeforeStartingAnAgent) {
  const AgentThread agent(job_);
  EngineOptions wanted = options();
  for (const std::string& codec : {std::string("gzip"), std::string(40'000, 'x'), std::string("\xff")}) {
    wanted.settings.codec = codec;
    const auto engine = Engine::attach(wanted);
    ASSERT_FALSE(engine.has_value());
    EXPECT_EQ(engine.error().kind(), ErrorKind::invalid_argument);
    EXPECT_NE(engine.error().message().find("codec must be one of raw, "), std::string::npos)
        << engine.error().message();
    EXPECT_LT(engine.error().message().size(), 1000U);
  }
  wanted.settings.codec = "zstd";
  EXPECT_TRUE(Engine::attach(wanted).has_value());
}

TEST_F(EngineRestartsTest, RefusesRanksWithOtherSettings) {
  const AgentThread agent(job_);
  EngineOptions first = options(0, 2);
  first.settings.policy = Policy::bounded;
  first.settings.max_depth = 5;
  first.retention.keep_last = 3;
  auto engine = Engine::attach(first);
  ASSERT_TRUE(engine.has_value()) << engine.error().message();
  const auto refusal = [&](void (*change)(EngineOptions&)) {
    EngineOptions second = first;
    second.job.rank = 1;
    change(second);
    const auto refused = Engine::attach(second);
    if (refused) return std::string("welcome");
    EXPECT_EQ(refused.error().kind(), ErrorKind::invalid_argument);
    return refused.error().message();
  };
  EXPECT_THAT(refusal([](EngineOptions& second) { second.settings.policy = Policy::lossless; }),
              HasSubstr("has policy \"bounded\", but rank 1 has \"lossless\""));
  EXPECT_THAT(refusal([](EngineOptions& second) { second.settings.max_depth = 6; }),
              HasSubstr("max_depth 5, but rank 1 has 6"));
  EXPECT_THAT(refusal([](EngineOptions& second) { second.retention.keep_last.reset(); }),
              HasSubstr("keep_last 3, but rank 1 has none"));
  EXPECT_THAT(refusal([](EngineOptions& second) { second.settings.codec = "zstd"; }),
              HasSubstr("codec none, but rank 1 has \"zstd\""));
  // Options that may differ between ranks.
  EXPECT_EQ(refusal([](EngineOptions& second) { second.memory.snapshots = 7; }), "welcome");
  // After a restart, the settings may differ.
  engine->reset();
  EXPECT_EQ(refusal([](EngineOptions& second) { second.settings.max_depth = 6; }), "welcome");
}

TEST_F(EngineRestartsTest, TicketsDifferAfterARestart) {
  const AgentThread agent(job_);
  std::uint64_t last = 0;
  for (std::uint64_t restart = 1; restart <= 2; ++restart) {
    const auto engine = Engine::attach(options());
    ASSERT_TRUE(engine.has_value());
    const auto save = (*engine)->save(restart, trained_.state());
    ASSERT_TRUE(save.has_value()) << save.error().message();
    EXPECT_NE(save->ticket, last);
    last = save->ticket;
  }
}

TEST_F(EngineRestartsTest, TheLongestTimeoutsDoNotExpireAtOnce) {
  const AgentThread agent(job_);
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  EngineOptions wanted = options();
  wanted.timeout_ms = kMost;
  wanted.agent.linger_ms = kMost;
  const auto engine = Engine::attach(wanted);
  ASSERT_TRUE(engine.has_value()) << engine.error().message();
  const auto save = (*engine)->save(1, trained_.state());
  ASSERT_TRUE(save.has_value()) << save.error().message();
  EXPECT_EQ((*engine)->wait(save->ticket, SaveStage::persisted, kMost)->stage, SaveStage::persisted);
  EXPECT_TRUE((*engine)->wait_all(kMost).has_value());
  EXPECT_EQ((*engine)->latest()->value(), 1U);
  EXPECT_TRUE((*engine)->restore(1)->from_memory);
  EXPECT_TRUE(agent_status(job_, kMost).has_value());
  EXPECT_FALSE(agent.has_ended());
}

TEST_F(EngineRestartsTest, WaitingCallsCanBeInterrupted) {
  const AgentThread agent(job_);
  std::atomic<bool> stop = false;
  EngineOptions wanted = options(0, 2);
  wanted.interrupted = [&] { return stop.load(); };
  const auto engine = Engine::attach(wanted);
  ASSERT_TRUE(engine.has_value());
  const auto save = (*engine)->save(1, trained_.state());
  ASSERT_TRUE(save.has_value());
  stop.store(true);
  // The save is never committed, because rank 1 does not exist.
  EXPECT_EQ((*engine)->wait(save->ticket, SaveStage::persisted, kWaitMs).error().kind(), ErrorKind::cancelled);
  EXPECT_EQ((*engine)->wait_all(kWaitMs).error().kind(), ErrorKind::cancelled);
  stop.store(false);
  EXPECT_TRUE((*engine)->wait(save->ticket, SaveStage::memory, kWaitMs).has_value());
}

TEST_F(EngineRestartsTest, AForkedChildGetsErrorsAndDoesNotDisturbTheParent) {
  const AgentThread agent(job_);
  auto engine = Engine::attach(options());
  ASSERT_TRUE(engine.has_value());
  const auto save = (*engine)->save(1, trained_.state());
  ASSERT_TRUE(save.has_value());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool is_refused = (*engine)->save(2, trained_.state()).error().kind() == ErrorKind::invalid_argument &&
                            (*engine)->look(save->ticket).error().kind() == ErrorKind::invalid_argument &&
                            (*engine)->agent_process() == 0 && (*engine)->take_failures().empty();
    engine->reset();
    ::_exit(is_refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const auto done = (*engine)->wait(save->ticket, SaveStage::persisted, kWaitMs);
  ASSERT_TRUE(done.has_value()) << done.error().message();
  EXPECT_EQ(done->stage, SaveStage::persisted);
  trained_.step();
  EXPECT_TRUE((*engine)->save(2, trained_.state()).has_value());
  EXPECT_TRUE((*engine)->wait_all(kWaitMs).has_value());
}

}  // namespace
}  // namespace bitsnap::engine
