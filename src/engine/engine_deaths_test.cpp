// Agents that are killed or end while the training goes on.
#include <bitsnap/engine.hpp>

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/agent_process_testing.hpp"
#include "engine/agent_thread_testing.hpp"
#include "engine/engine_fixture_testing.hpp"
#include "engine/messages.hpp"
#include "engine/packet.hpp"
#include "os/clock.hpp"
#include "os/file_system_faulty.hpp"
#include "os/local_socket.hpp"
#include "os/process.hpp"
#include "store/training_testing.hpp"

namespace bitsnap::engine {
namespace {

using store::Training;

class EngineDeathsTest : public EngineFixture {};

TEST_F(EngineDeathsTest, TheNextAgentFinishesSavesOfAKilledOne) {
  os::FaultyFileSystem slow(os::real_file_system());
  slow.watch([](const os::FaultyFileSystem::Step& step) {
    if (step.operation == os::FileOperation::append && step.path.ends_with(".bsnap")) ::usleep(200'000);
  });
  auto agent = std::make_unique<AgentThread>(job_, slow);
  const auto engine = attach(options());
  std::vector<std::uint64_t> tickets;
  Training first = trained_;
  for (std::uint64_t step = 1; step <= 2; ++step) {
    trained_.step();
    if (step == 1) first = trained_;
    const auto save = engine->save(step, trained_.state());
    ASSERT_TRUE(save.has_value()) << save.error().message();
    tickets.push_back(save->ticket);
  }
  agent.reset();
  agent = std::make_unique<AgentThread>(job_);
  const auto all = engine->wait_all(kWaitMs);
  ASSERT_TRUE(all.has_value()) << all.error().message();
  for (const std::uint64_t ticket : tickets) {
    const auto save = engine->look(ticket);
    ASSERT_TRUE(save.has_value());
    EXPECT_EQ(save->stage, SaveStage::persisted) << save->step << (save->error ? save->error->message() : "");
  }
  expect_sound({1, 2});
  EXPECT_EQ(first.difference(**(*Store::open(engine->path()))->snapshot(1)), "");
  EXPECT_EQ(trained_.difference(**(*Store::open(engine->path()))->snapshot(2)), "");
}

TEST_F(EngineDeathsTest, StatesForMemoryOnlyAreStagedAgain) {
  auto agent = std::make_unique<AgentThread>(job_);
  const auto engine = attach(options());
  const auto first = engine->save(1, trained_.state());
  ASSERT_TRUE(first.has_value());
  ASSERT_TRUE(engine->wait(first->ticket, SaveStage::persisted, kWaitMs).has_value());
  agent.reset();
  EXPECT_EQ(engine->look(first->ticket)->stage, SaveStage::persisted);
  agent = std::make_unique<AgentThread>(job_);
  trained_.step();
  const auto second = engine->save(2, trained_.state(), false);
  ASSERT_TRUE(second.has_value()) << second.error().message();
  EXPECT_EQ(engine->wait(second->ticket, SaveStage::memory, kWaitMs)->stage, SaveStage::memory);
  const auto restored = engine->restore(2);
  ASSERT_TRUE(restored.has_value()) << restored.error().message();
  EXPECT_EQ(trained_.difference(*restored->snapshot), "");
  EXPECT_FALSE(engine->restore(1)->from_memory);
  EXPECT_TRUE(engine->take_failures().empty());
}

TEST_F(EngineDeathsTest, SnapshotsWithoutTheirBasesAreNotListedInMemory) {
  auto agent = std::make_unique<AgentThread>(job_);
  const auto engine = attach(options());
  const auto in_memory = [&](std::uint64_t step) {
    const auto steps = engine->steps().value();
    const auto found = std::ranges::find(steps, step, &RestorableStep::step);
    return found != steps.end() && found->in_memory;
  };
  const auto saved = [&](std::uint64_t step, bool persist) {
    trained_.step();
    const auto save = engine->save(step, trained_.state(), persist);
    ASSERT_TRUE(save.has_value()) << save.error().message();
    ASSERT_TRUE(engine->wait_all(kWaitMs).has_value());
    EXPECT_TRUE(engine->restore(step)->from_memory) << step;
  };
  saved(1, true);
  agent.reset();
  agent = std::make_unique<AgentThread>(job_);
  // Step 2 is coded against step 1, which this agent never had, so only the held slot makes it readable.
  saved(2, true);
  EXPECT_TRUE(in_memory(2));
  saved(3, false);
  EXPECT_TRUE(in_memory(3));
  EXPECT_EQ(in_memory(2), engine->restore(2)->from_memory);
  EXPECT_FALSE(in_memory(2));
}

TEST_F(EngineDeathsTest, NoSaveIsLostIfTheAgentDiesOnReceivingTheArena) {
  // An agent that answers `hello` and ends at the next message.
  auto listener = os::LocalListener::listen(socket_name(job_));
  ASSERT_TRUE(listener.has_value());
  std::thread passing([&] {
    auto connection = listener->accept(static_cast<std::int64_t>(kWaitMs));
    ASSERT_TRUE(connection.has_value());
    const auto hello = connection->receive(kMaxPacketBytes, 1, static_cast<std::int64_t>(kWaitMs));
    ASSERT_TRUE(hello.has_value());
    const Welcome welcome{.agent_pid = os::process_id(), .version = "0", .slot_bytes = 0, .slots = {}};
    const auto answer =
        serialize_packet({MessageKind::welcome, packet_number((**hello).bytes), serialize_body(welcome)});
    ASSERT_TRUE(connection->send(*answer, {}, static_cast<std::int64_t>(kWaitMs)).has_value());
    EXPECT_TRUE(connection->receive(kMaxPacketBytes, 1, static_cast<std::int64_t>(kWaitMs)).has_value());
    listener = fail(ErrorKind::io, "ended");
  });
  const auto engine = attach(options(agent_program_in(directory_.path())));
  const auto save = engine->save(1, trained_.state());
  passing.join();
  ASSERT_TRUE(save.has_value()) << save.error().message();
  EXPECT_TRUE(engine->wait_all(kWaitMs).has_value());
  EXPECT_EQ(engine->look(save->ticket)->stage, SaveStage::persisted);
}

TEST_F(EngineDeathsTest, SavesSurviveAShortWaitForTheNextAgent) {
  os::FaultyFileSystem slow(os::real_file_system());
  slow.watch([](const os::FaultyFileSystem::Step& step) {
    if (step.operation == os::FileOperation::append && step.path.ends_with(".bsnap")) ::usleep(100'000);
  });
  auto agent = std::make_unique<AgentThread>(job_, slow);
  const auto engine = attach(options());
  ASSERT_TRUE(engine->save(1, trained_.state()).has_value());
  trained_.step();
  const auto save = engine->save(2, trained_.state());
  ASSERT_TRUE(save.has_value());
  agent.reset();
  {
    // Agents that die when a trainer connects.
    const auto listener = os::LocalListener::listen(socket_name(job_)).value();
    std::atomic<bool> is_over = false;
    std::thread passing([&] {
      while (!is_over) static_cast<void>(listener.accept(10));
    });
    for (std::uint64_t i = 0; i < 200; ++i) {
      EXPECT_EQ(engine->wait(save->ticket, SaveStage::persisted, 1 + i % 7).error().kind(), ErrorKind::busy);
      if (HasFailure()) break;
    }
    is_over = true;
    passing.join();
  }
  agent = std::make_unique<AgentThread>(job_);
  EXPECT_TRUE(engine->wait_all(kWaitMs).has_value());
  EXPECT_EQ(engine->look(save->ticket)->stage, SaveStage::persisted);
  EXPECT_TRUE(engine->take_failures().empty());
}

TEST_F(EngineDeathsTest, EveryWaitEndsIfNoAgentStarts) {
  os::FaultyFileSystem slow(os::real_file_system());
  slow.watch([](const os::FaultyFileSystem::Step& step) {
    if (step.operation == os::FileOperation::append && step.path.ends_with(".bsnap")) ::usleep(100'000);
  });
  auto agent = std::make_unique<AgentThread>(job_, slow);
  EngineOptions wanted = options();
  wanted.timeout_ms = 500;
  const auto engine = attach(wanted);
  const auto first = engine->save(1, trained_.state());
  const auto second = engine->save(2, trained_.state());
  ASSERT_TRUE(second.has_value());
  agent.reset();
  const os::Stopwatch stopwatch;
  EXPECT_TRUE(engine->wait_all(kWaitMs).has_value());
  const auto done = engine->wait(second->ticket, SaveStage::persisted, kWaitMs);
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->stage, SaveStage::failed);
  EXPECT_FALSE(engine->take_failures().empty());
  EXPECT_FALSE(engine->save(3, trained_.state()).has_value());
  EXPECT_FALSE(engine->steps().has_value());
  EXPECT_EQ(engine->agent_process(), 0);
  EXPECT_LT(stopwatch.elapsed_seconds(), kSoonSeconds);
}

TEST_F(EngineDeathsTest, DoesNotWaitForAProgramThatExits) {
  EngineOptions wanted = options("/bin/false");
  wanted.agent.log = directory_.path() + "/log";
  const os::Stopwatch stopwatch;
  const auto engine = Engine::attach(wanted);
  EXPECT_LT(stopwatch.elapsed_seconds(), kSoonSeconds);
  ASSERT_FALSE(engine.has_value());
  EXPECT_EQ(engine.error().kind(), ErrorKind::io);
  EXPECT_NE(engine.error().message().find("/bin/false"), std::string::npos) << engine.error().message();
  EXPECT_NE(engine.error().message().find(wanted.agent.log), std::string::npos) << engine.error().message();
}

TEST_F(EngineDeathsTest, StopsWaitingForAnAgentThatAcceptsNoTrainer) {
  RunAgentOptions silent;
  silent.job = job_;
  const auto agent = Agent::start(silent, os::real_file_system());  // its loop does not run
  ASSERT_TRUE(agent.has_value());
  EngineOptions wanted = options();
  wanted.timeout_ms = 300;
  const os::Stopwatch stopwatch;
  const auto engine = Engine::attach(wanted);
  ASSERT_FALSE(engine.has_value());
  EXPECT_EQ(engine.error().kind(), ErrorKind::busy);
  EXPECT_EQ(agent_status(job_, 300).error().kind(), ErrorKind::busy);
  EXPECT_EQ(stop_agent(job_, false, 300).error().kind(), ErrorKind::busy);
  EXPECT_LT(stopwatch.elapsed_seconds(), kSoonSeconds);
}

TEST_F(EngineDeathsTest, TrainingContinuesWhenAgentsAreKilledRepeatedly) {
  const std::string program = agent_program_in(directory_.path());
  const auto engine = attach(options(program));
  ASSERT_NE(engine, nullptr);
  std::mt19937 random(5);
  std::vector<std::uint64_t> steps;
  std::vector<Training> states;
  for (std::uint64_t step = 1; step <= 12; ++step) {
    trained_.step();
    states.push_back(trained_);
    const auto save = engine->save(step, trained_.state());
    ASSERT_TRUE(save.has_value()) << save.error().message();
    ::usleep(static_cast<unsigned>(random() % 60'000));
    if (step % 2 == 0) kill_agent(*engine);
  }
  const auto all = engine->wait_all(kWaitMs);
  ASSERT_TRUE(all.has_value()) << all.error().message();
  const auto store = Store::open(engine->path());
  const auto committed = (*store)->steps().value();
  ASSERT_FALSE(committed.empty());
  EXPECT_EQ(committed.back(), 12u);
  // A save is lost only if it was no longer in a slot and not yet on disk. Exactly the lost saves are reported.
  const std::vector<SaveState> failures = engine->take_failures();
  EXPECT_EQ(committed.size() + failures.size(), 12u);
  for (const SaveState& failed : failures) {
    EXPECT_FALSE(std::ranges::binary_search(committed, failed.step)) << failed.step;
  }
  for (const std::uint64_t step : committed) EXPECT_EQ(states[step - 1].difference(**(*store)->snapshot(step)), "");
  expect_sound(committed);
}

TEST_F(EngineDeathsTest, EarlierCheckpointsAreNotMistakenForThoseOfALostAgent) {
  const std::string program = agent_program_in(directory_.path());
  auto engine = attach(options(program));
  for (std::uint64_t step = 1; step <= 2; ++step) ASSERT_TRUE(engine->save(step, trained_.state()).has_value());
  ASSERT_TRUE(engine->wait_all(kWaitMs).has_value());
  engine.reset();
  engine = attach(options(program));
  trained_.step();
  signal_agent(*engine, SIGSTOP);
  std::thread killing([&] {
    ::usleep(300'000);
    signal_agent(*engine, SIGKILL);
  });
  const auto save = engine->save(2, trained_.state());
  killing.join();
  ASSERT_TRUE(save.has_value()) << save.error().message();
  const auto done = engine->wait(save->ticket, SaveStage::persisted, kWaitMs);
  ASSERT_TRUE(done.has_value()) << done.error().message();
  EXPECT_EQ(done->stage, SaveStage::failed);
  expect_sound({1, 2});
}

TEST_F(EngineDeathsTest, StepsThatALostAgentCommittedArePersisted) {
  auto listener = os::LocalListener::listen(socket_name(job_));
  ASSERT_TRUE(listener.has_value());
  // An agent that accepts a save, commits it, and dies before it reports.
  std::thread dying([&] {
    const auto connection = listener->accept(static_cast<std::int64_t>(kWaitMs));
    for (bool is_alive = true; is_alive;) {
      const auto message = connection->receive(kMaxPacketBytes, 1, static_cast<std::int64_t>(kWaitMs));
      const auto packet = parse_packet((**message).bytes).value();
      const bool is_hello = packet.kind == MessageKind::hello;
      is_alive = packet.kind != MessageKind::staged;
      const auto body = is_hello ? serialize_body(Welcome{os::process_id(), "0", 0, {}}) : "{}";
      const auto answer = serialize_packet({is_hello ? MessageKind::welcome : MessageKind::ok, packet.number, body});
      static_cast<void>(connection->send(*answer, {}, 1000));
    }
    StoreOptions writing;
    writing.access = StoreAccess::write;
    EXPECT_TRUE((*Store::open(directory_.path() + "/run", writing))->save(0, trained_.state()).has_value());
    listener = fail(ErrorKind::io, "ended");
  });
  const auto engine = attach(options(agent_program_in(directory_.path())));
  const auto save = engine->save(0, trained_.state());
  ASSERT_TRUE(save.has_value()) << save.error().message();
  dying.join();
  const auto done = engine->wait(save->ticket, SaveStage::persisted, kWaitMs);
  ASSERT_TRUE(done.has_value()) << done.error().message();
  EXPECT_EQ(done->stage, SaveStage::persisted) << (done->error ? done->error->message() : "");
  expect_sound({0});
}

TEST_F(EngineDeathsTest, ASaveThatKillsAgentsFails) {
  const auto listener = os::LocalListener::listen(socket_name(job_)).value();
  int deaths = 0;
  std::thread dying([&] {
    while (const auto connection = listener.accept(3000)) {
      play_agent(*connection, [&](const Packet& packet) -> std::optional<Packet> {
        if (packet.kind != MessageKind::staged) return Packet{MessageKind::ok, packet.number, "{}"};
        ++deaths;
        return std::nullopt;
      });
    }
  });
  auto engine = attach(options());
  const auto save = engine->save(1, trained_.state());
  ASSERT_TRUE(save.has_value()) << save.error().message();
  const auto done = engine->wait(save->ticket, SaveStage::persisted, kWaitMs);
  ASSERT_TRUE(done.has_value()) << done.error().message();
  EXPECT_EQ(done->stage, SaveStage::failed);
  EXPECT_EQ(engine->take_failures().size(), 1U);
  engine.reset();
  dying.join();
  EXPECT_EQ(deaths, 10);
}

TEST_F(EngineDeathsTest, AnAgentDoesNotEndWhileTrainersAreConnected) {
  EngineOptions wanted = options(agent_program_in(directory_.path()));
  wanted.agent.linger_ms = 0;
  const auto engine = attach(wanted);
  const std::int64_t process = engine->agent_process();
  for (std::uint64_t step = 1; step <= 3; ++step) {
    const auto save = engine->save(step, trained_.state());
    ASSERT_TRUE(save.has_value()) << save.error().message();
    EXPECT_EQ(engine->wait(save->ticket, SaveStage::persisted, kWaitMs)->stage, SaveStage::persisted);
    ::usleep(20'000);
    EXPECT_EQ(engine->agent_process(), process);
    trained_.step();
  }
}

}  // namespace
}  // namespace bitsnap::engine
