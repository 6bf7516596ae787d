// Tests with real processes that live, die and remain zombies.
#include "os/process_watch.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <string>
#include <thread>

#include "os/forked_child_testing.hpp"
#include "os/local_socket.hpp"
#include "os/process.hpp"

namespace bitsnap::os {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kEventMs = 5000;  // enough for an immediate event on a loaded machine

int do_nothing() { return 0; }

TEST(ProcessWatch, ReportsTheEndOfAProcess) {
  LivingChild child(do_nothing);
  const auto watch = ProcessWatch::open(child.process());
  ASSERT_TRUE(watch) << watch.error().message();
  EXPECT_EQ(watch->process(), child.process());
  EXPECT_TRUE(watch->is_alive());
  EXPECT_FALSE(*watch->wait(0));
  EXPECT_FALSE(*watch->wait(20));
  EXPECT_EQ(::fcntl(watch->descriptor(), F_GETFD), FD_CLOEXEC);
  child.kill();
  EXPECT_TRUE(*watch->wait(kEventMs));
  EXPECT_FALSE(watch->is_alive()) << "a zombie is dead";
  child.reap();
  EXPECT_FALSE(watch->is_alive());
  EXPECT_TRUE(*watch->wait(0));
}

TEST(ProcessWatch, RejectsProcessesThatDoNotExist) {
  LivingChild child(do_nothing);
  const pid_t process = child.process();
  const auto watch = ProcessWatch::open(process);
  ASSERT_TRUE(watch);
  child.kill();
  ASSERT_TRUE(*watch->wait(kEventMs));
  const auto zombie = ProcessWatch::open(process);
  ASSERT_FALSE(zombie);
  EXPECT_EQ(zombie.error().kind(), ErrorKind::not_found);
  EXPECT_THAT(zombie.error().message(), HasSubstr("process " + std::to_string(process)));
  child.reap();
  for (const std::int64_t nobody : {std::int64_t{process}, std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 40}) {
    const auto none = ProcessWatch::open(nobody);
    ASSERT_FALSE(none) << nobody;
    EXPECT_EQ(none.error().kind(), ErrorKind::not_found);
  }
}

TEST(ProcessWatch, SignalsOnlyTheProcessItWasOpenedFor) {
  LivingChild child(do_nothing);
  const auto watch = ProcessWatch::open(child.process());
  ASSERT_TRUE(watch);
  ASSERT_TRUE(watch->ask_to_end());
  int status = 0;
  ASSERT_EQ(::waitpid(child.process(), &status, 0), child.process());
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
  for (const auto& late : {watch->ask_to_end(), watch->kill()}) {
    ASSERT_FALSE(late);
    EXPECT_EQ(late.error().kind(), ErrorKind::not_found);
  }
  LivingChild other(do_nothing);
  const auto watch_other = ProcessWatch::open(other.process());
  ASSERT_TRUE(watch_other);
  EXPECT_TRUE(watch_other->kill());
  EXPECT_TRUE(*watch_other->wait(kEventMs));
  const auto to_zombie = watch_other->kill();
  ASSERT_FALSE(to_zombie);
  EXPECT_EQ(to_zombie.error().kind(), ErrorKind::not_found);
}

TEST(ProcessWatch, ReportsTheEndOfAPeerWhoseChildHoldsTheSocket) {
  const std::string name = unique_name();
  const auto listener = LocalListener::listen(name);
  ASSERT_TRUE(listener);
  LivingChild child([&] {
    static std::optional<LocalConnection> kept;
    auto connection = LocalConnection::connect(name, kEventMs);
    if (!connection) return 1;
    kept.emplace(std::move(connection).value());
    const pid_t heir = ::fork();
    if (heir == 0) {
      for (;;) ::pause();
    }
    return static_cast<int>(heir);
  });
  ASSERT_GT(child.said(), 1);
  const auto connection = listener->accept(kEventMs);
  ASSERT_TRUE(connection);
  const auto watch = ProcessWatch::open_peer(*connection);
  ASSERT_TRUE(watch) << watch.error().message();
  EXPECT_EQ(watch->process(), child.process());
  EXPECT_FALSE(*watch->wait(0));
  child.kill();
  EXPECT_TRUE(*watch->wait(kEventMs));
  EXPECT_FALSE(connection->receive(10, 0, 0)) << "the stream goes on";
  ::kill(child.said(), SIGKILL);
  const auto late = ProcessWatch::open_peer(*connection);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().kind(), ErrorKind::not_found);
}

TEST(Process, LowersThePriorityOfTheCallingThread) {
  // In a separate thread, because the change is permanent.
  std::thread([] {
    const int before = ::nice(0);
    const std::vector<Error> refused = lower_priority(5);
    for (const Error& error : refused) ADD_FAILURE() << error.message();
    EXPECT_EQ(::sched_getscheduler(0), SCHED_BATCH);
    errno = 0;
    EXPECT_GE(::nice(0), before + 5);
    for (const Error& error : lower_priority(1000)) ADD_FAILURE() << error.message();
    EXPECT_EQ(::nice(0), 19);
  }).join();
}

TEST(SessionNiceness, AppliesToTheWholeSessionOfItsLeader) {
  // With scheduling groups per session, a niceness of 10 in its own group would have no effect on others.
  const auto session_nice = [] {
    std::ifstream file("/proc/self/autogroup");
    std::string line;
    std::getline(file, line);
    return line;
  };
  if (session_nice().empty()) GTEST_SKIP() << "sessions are no groups here";
  const std::string before = session_nice();
  const int child = returned_by_child([&] {
    ::setsid();
    const int nice = std::min(::nice(0) + 7, 19);
    if (!set_session_niceness(nice)) return 2;
    return session_nice().ends_with("nice " + std::to_string(nice)) ? 0 : 1;
  });
  EXPECT_EQ(child, 0);
  // In a session of another process, nothing changes.
  EXPECT_EQ(returned_by_child([] { return set_session_niceness(7) ? 0 : 1; }), 0);
  EXPECT_EQ(session_nice(), before);
}

}  // namespace
}  // namespace bitsnap::os
