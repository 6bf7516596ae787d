// Agents that are told to end, that are stopped by a signal, or that refuse saves: how long calls take, and what
// becomes of the saves.
#include <bitsnap/engine.hpp>

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/agent_process_testing.hpp"
#include "engine/agent_thread_testing.hpp"
#include "engine/engine_fixture_testing.hpp"
#include "engine/messages.hpp"
#include "engine/packet.hpp"
#include "engine/raw_connection_testing.hpp"
#include "engine/shared_text.hpp"
#include "os/clock.hpp"
#include "os/file_system_faulty.hpp"
#include "os/local_socket.hpp"
#include "os/process.hpp"
#include "os/process_watch.hpp"
#include "store/training_testing.hpp"

namespace bitsnap::engine {
namespace {

class EngineEndsTest : public EngineFixture {
 protected:
  // Tells the agent to end. Returns whether it reports that it is stopping, from when on it refuses new saves.
  bool has_begun_to_end() const {
    RawConnection somebody(job_);
    if (!somebody.send(MessageKind::stop, serialize_body(StopRequest{false}))) return false;
    for (const os::Stopwatch stopwatch; stopwatch.elapsed_seconds() < 30; ::usleep(1000)) {
      const auto report = agent_status(job_, kWaitMs);
      if (!report) return false;
      if (report->find("\"stopping\":true") != std::string::npos) return true;
    }
    return false;
  }
};

TEST_F(EngineEndsTest, SavesDuringTheEndOfAnAgentGoToTheNextAgent) {
  std::atomic<bool> is_held = true;
  os::FaultyFileSystem slow(os::real_file_system());
  slow.watch([&](const os::FaultyFileSystem::Step& step) {
    while (is_held && step.operation == os::FileOperation::append && step.path.ends_with(".bsnap")) ::usleep(1000);
  });
  auto agent = std::make_unique<AgentThread>(job_, slow);
  EngineOptions wanted = options(agent_program_in(directory_.path()));
  wanted.memory.when_busy = WhenBusy::skip;
  const auto engine = attach(wanted);
  ASSERT_TRUE(engine->save(1, trained_.state()).has_value());
  ASSERT_TRUE(has_begun_to_end());
  trained_.step();
  const os::Stopwatch stopwatch;
  const auto save = engine->save(2, trained_.state());
  ASSERT_TRUE(save.has_value()) << save.error().message();
  EXPECT_EQ(save->stage, SaveStage::staged);
  EXPECT_LT(stopwatch.elapsed_seconds(), kSoonSeconds);
  is_held = false;
  agent.reset();
  EXPECT_TRUE(engine->wait_all(kWaitMs).has_value());
  const auto done = engine->look(save->ticket);
  EXPECT_EQ(done->stage, SaveStage::persisted) << (done->error ? done->error->message() : "");
  EXPECT_TRUE(engine->take_failures().empty());
  expect_sound({1, 2});
}

TEST_F(EngineEndsTest, ARefusedSaveFailsAndFreesItsSlot) {
  const auto listener = os::LocalListener::listen(socket_name(job_)).value();
  std::thread refusing([&] {
    const auto connection = listener.accept(static_cast<std::int64_t>(kWaitMs));
    ASSERT_TRUE(connection.has_value());
    play_agent(*connection, [](const Packet& packet) {
      if (packet.kind != MessageKind::staged) return Packet{MessageKind::ok, packet.number, "{}"};
      ::usleep(20'000);
      return Packet{MessageKind::refused, packet.number,
                    serialize_body(Error(ErrorKind::invalid_argument, "not this one"))};
    });
  });
  EngineOptions wanted = options();
  wanted.memory.slots = 1;
  auto engine = attach(wanted);
  for (std::uint64_t step = 1; step <= 3; ++step) {
    const auto save = engine->save(step, trained_.state());
    ASSERT_TRUE(save.has_value()) << save.error().message();
    EXPECT_EQ(save->stage, SaveStage::staged);
    const auto done = engine->wait(save->ticket, SaveStage::memory, kWaitMs);
    ASSERT_TRUE(done.has_value()) << done.error().message();
    EXPECT_EQ(done->stage, SaveStage::failed);
    ASSERT_TRUE(done->error.has_value());
    EXPECT_EQ(done->error->kind(), ErrorKind::invalid_argument);
    EXPECT_EQ(done->error->message(), "staging step " + std::to_string(step) + ": not this one");
  }
  EXPECT_EQ(engine->take_failures().size(), 3U);
  engine.reset();
  refusing.join();
}

TEST_F(EngineEndsTest, SavingCopiesWhileTheAgentIsStopped) {
  EngineOptions wanted = options(agent_program_in(directory_.path()));
  wanted.memory.when_busy = WhenBusy::skip;
  const auto engine = attach(wanted);
  ASSERT_TRUE(engine->reserve(trained_.state()).has_value());
  {
    const StoppedAgent stopped(engine->agent_process());
    const os::Stopwatch stopwatch;
    std::vector<SaveStage> stages;
    for (std::uint64_t step = 1; step <= 3; ++step) {
      const auto save = engine->save(step, trained_.state());
      ASSERT_TRUE(save.has_value()) << save.error().message();
      stages.push_back(save->stage);
      trained_.step();
    }
    EXPECT_LT(stopwatch.elapsed_seconds(), kSoonSeconds);
    EXPECT_EQ(stages, (std::vector{SaveStage::staged, SaveStage::staged, SaveStage::skipped}));
  }
  EXPECT_TRUE(engine->wait_all(kWaitMs).has_value());
  EXPECT_TRUE(engine->take_failures().empty());
  expect_sound({1, 2});
}

TEST_F(EngineEndsTest, MessagesOfADeadTrainerAreProcessed) {
  EngineOptions wanted = options(agent_program_in(directory_.path()));
  wanted.agent.linger_ms = kWaitMs;
  const std::int64_t process = attach(wanted)->agent_process();
  {
    RawConnection trainer(job_);
    ASSERT_TRUE(trainer.say_hello(job_, directory_.path()).has_value());
    ASSERT_TRUE(trainer.hand_over_arena(trained_.state()).has_value());
    const StoppedAgent stopped(process);
    for (std::uint32_t slot = 0; slot < 2; ++slot) {
      trainer.fill(slot, trained_.state());
      ASSERT_TRUE(trainer.send(MessageKind::staged, serialize_body(trainer.staged(10 + slot, slot, 1 + slot))));
    }
    const RawConnection gone = std::move(trainer);
  }
  EXPECT_TRUE(stop_agent(job_, false, kWaitMs).has_value());
  expect_sound({1, 2});
}

TEST_F(EngineEndsTest, AnAgentFinishesSavesStagedBeforeItWasStopped) {
  for (const bool by_signal : {true, false}) {
    const std::uint64_t step = by_signal ? 1 : 2;
    auto engine = attach(options(agent_program_in(directory_.path())));
    ASSERT_TRUE(engine->reserve(trained_.state()).has_value());
    const auto watch = os::ProcessWatch::open(engine->agent_process());
    ASSERT_TRUE(watch.has_value());
    {
      const StoppedAgent stopped(watch->process());
      const auto save = engine->save(step, trained_.state());
      ASSERT_TRUE(save.has_value()) << save.error().message();
      if (by_signal) signal_agent(*engine, SIGTERM);
      engine.reset();  // no trainer is left that could stage the state at the next agent
    }
    if (!by_signal) {
      EXPECT_TRUE(stop_agent(job_, false, kWaitMs).has_value());
    }
    EXPECT_TRUE(watch->wait(static_cast<std::int64_t>(kWaitMs)).value_or(false));
    trained_.step();
  }
  expect_sound({1, 2});
}

TEST_F(EngineEndsTest, AListIncludesMessagesThatWereNotReceivedYet) {
  EngineOptions wanted = options(agent_program_in(directory_.path()));
  wanted.job.world_size = 2;
  wanted.agent.linger_ms = kWaitMs;
  const std::int64_t process = attach(wanted)->agent_process();
  RawConnection first(job_);
  RawConnection second(job_);
  std::uint32_t rank = 0;
  for (RawConnection* const peer : {&first, &second}) {
    const auto welcome = peer->say_hello(job_, directory_.path(), rank++, 2);
    ASSERT_TRUE(welcome && welcome->kind == MessageKind::welcome);
    ASSERT_TRUE(peer->hand_over_arena(trained_.state()).has_value());
    peer->fill(0, trained_.state());
  }
  {
    const StoppedAgent stopped(process);
    ASSERT_TRUE(first.send(MessageKind::staged, serialize_body(first.staged(1, 0, 1, false))));
    // More messages than the agent receives from one connection in a turn; then the same step.
    for (int i = 0; i < 40; ++i) ASSERT_TRUE(second.send(MessageKind::status));
    ASSERT_TRUE(second.send(MessageKind::staged, serialize_body(second.staged(1, 0, 1, false))));
    ASSERT_TRUE(first.send(MessageKind::list, serialize_body(ListRequest{kWaitMs})));
  }
  const auto taken = first.receive();
  ASSERT_TRUE(taken && taken->kind == MessageKind::ok);
  const auto answer = first.receive(static_cast<std::int64_t>(kWaitMs));
  ASSERT_TRUE(answer && answer->kind == MessageKind::steps);
  const auto text = read_shared_text(answer->body, std::move(first.descriptors()));
  const auto list = parse_body<StepList>(text.value());
  ASSERT_TRUE(list.has_value()) << list.error().message();
  ASSERT_EQ(list->steps.size(), 1U);
  EXPECT_TRUE(list->steps.front().everywhere);
  EXPECT_TRUE(stop_agent(job_, true, kWaitMs).has_value());
}

TEST_F(EngineEndsTest, AnAgentEndsWhileATrainerKeepsSaving) {
  const auto engine = attach(options(agent_program_in(directory_.path())));
  const std::int64_t process = engine->agent_process();
  std::atomic<bool> is_over = false;
  std::uint64_t saves = 0;
  std::thread training([&] {
    while (!is_over) {
      trained_.step();
      const auto save = engine->save(++saves, trained_.state());
      EXPECT_TRUE(save.has_value()) << save.error().message();
    }
  });
  ::usleep(100'000);
  const auto stopped = stop_agent(job_, false, 10'000);
  EXPECT_TRUE(stopped.has_value()) << stopped.error().message();
  ::usleep(100'000);
  is_over = true;
  training.join();
  ASSERT_TRUE(engine->wait_all(kWaitMs).has_value());
  EXPECT_NE(engine->agent_process(), process);
  EXPECT_TRUE(engine->take_failures().empty());
  const auto store = Store::open(engine->path());
  EXPECT_EQ((*store)->steps()->size(), saves);
}

TEST_F(EngineEndsTest, CallsToAStoppedAgentEndAtTheirTimeout) {
  const std::string program = agent_program_in(directory_.path());
  EngineOptions wanted = options(program);
  const auto engine = attach(wanted);
  ASSERT_NE(engine, nullptr);
  const auto first = engine->save(1, trained_.state());
  ASSERT_TRUE(engine->wait(first->ticket, SaveStage::persisted, kWaitMs).has_value());
  {
    const StoppedAgent stopped(engine->agent_process());
    const os::Stopwatch stopwatch;
    EXPECT_EQ(engine->steps(1000).error().kind(), ErrorKind::busy);
    const auto restored = engine->restore(1, {}, 1000);
    ASSERT_TRUE(restored.has_value()) << restored.error().message();
    EXPECT_FALSE(restored->from_memory);
    EXPECT_TRUE(restored->memory_error.has_value());
    EXPECT_EQ(agent_status(job_, 200).error().kind(), ErrorKind::busy);
    EXPECT_LT(stopwatch.elapsed_seconds(), kSoonSeconds);
  }
  trained_.step();
  const auto second = engine->save(2, trained_.state());
  ASSERT_TRUE(second.has_value()) << second.error().message();
  const auto done = engine->wait(second->ticket, SaveStage::persisted, kWaitMs);
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->stage, SaveStage::persisted) << (done->error ? done->error->message() : "");
  expect_sound({1, 2});
}

TEST_F(EngineEndsTest, AnAgentFinishesItsWorkOnASignal) {
  const std::string program = agent_program_in(directory_.path());
  const auto engine = attach(options(program));
  ASSERT_NE(engine, nullptr);
  const auto first = engine->save(1, trained_.state());
  signal_agent(*engine, SIGTERM);
  const auto done = engine->wait(first->ticket, SaveStage::persisted, kWaitMs);
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->stage, SaveStage::persisted);
  trained_.step();
  const auto second = engine->save(2, trained_.state());
  ASSERT_TRUE(second.has_value()) << second.error().message();
  EXPECT_TRUE(engine->wait_all(kWaitMs).has_value());
  expect_sound({1, 2});
}

TEST_F(EngineEndsTest, AnEndingAgentAcceptsMissingShards) {
  const AgentThread agent(job_);
  std::vector<std::unique_ptr<Engine>> engines;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    EngineOptions wanted = options();
    wanted.job.rank = rank;
    wanted.job.world_size = 2;
    wanted.memory.slots = 1;
    engines.push_back(attach(wanted));
  }
  ASSERT_TRUE(engines[0]->save(1, trained_.state()).has_value());
  ASSERT_TRUE(has_begun_to_end());
  const auto save = engines[1]->save(1, trained_.state());
  ASSERT_TRUE(save.has_value()) << save.error().message();
  for (const auto& engine : engines) {
    EXPECT_TRUE(engine->wait_all(kWaitMs).has_value());
    EXPECT_TRUE(engine->take_failures().empty());
  }
  EXPECT_EQ((*Store::open(engines[0]->path()))->steps().value(), std::vector<std::uint64_t>{1});
}

TEST_F(EngineEndsTest, ATrainerWaitsForTheNextAgentIfOneIsEnding) {
  os::FaultyFileSystem slow(os::real_file_system());
  slow.watch([](const os::FaultyFileSystem::Step& step) {
    if (step.operation == os::FileOperation::append && step.path.ends_with(".bsnap")) ::usleep(500'000);
  });
  auto agent = std::make_unique<AgentThread>(job_, slow);
  auto engine = attach(options());
  ASSERT_TRUE(engine->save(1, trained_.state()).has_value());
  ASSERT_TRUE(has_begun_to_end());
  engine.reset();
  EXPECT_FALSE(agent->has_ended());
  const auto next = attach(options(agent_program_in(directory_.path())));
  ASSERT_NE(next, nullptr);
  EXPECT_NE(next->agent_process(), ::getpid());
  EXPECT_TRUE(agent->has_ended());
  expect_sound({1});
}

}  // namespace
}  // namespace bitsnap::engine
