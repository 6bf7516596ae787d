// Tests with real programs: what they inherit, where their output goes, and errors if they do not run.
#include "os/process_start.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "os/descriptor_closing_posix.hpp"
#include "os/forked_child_testing.hpp"
#include "os/process_watch.hpp"
#include "os/temporary_directory_testing.hpp"

namespace bitsnap::os {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// The output of a shell script, after its end.
std::string said_by(const std::string& script, DetachedProgram program = {}) {
  const TemporaryDirectory directory;
  program.program = "/bin/sh";
  program.arguments = {"-c", script};
  program.log_path = directory / "log";
  const auto process = start_detached(program);
  if (!process) return process.error().message();
  const auto watch = ProcessWatch::open(*process);
  if (watch && !watch->wait(20000).value_or(false)) return "it does not end";
  return read(directory / "log");
}

TEST(StartDetached, RunsAProgramWithItsArgumentsAndAppendsItsOutputToTheLog) {
  const TemporaryDirectory directory;
  const std::string log = directory / "log";
  std::ofstream(log) << "before\n";
  const auto process =
      start_detached({"/bin/sh", {"-c", "echo $$ \"$1\"; echo error >&2; cat", "sh", "a  b"}, {}, log});
  ASSERT_TRUE(process) << process.error().message();
  if (const auto watch = ProcessWatch::open(*process)) {
    ASSERT_TRUE(*watch->wait(20000));
  }
  EXPECT_EQ(read(log), "before\n" + std::to_string(*process) + " a  b\nerror\n");
}

TEST(StartDetached, DetachesTheProgram) {
  const std::string said = said_by("cat /proc/$$/stat; pwd");
  std::istringstream words(said);
  std::string process, name, state, parent, group, session, terminal, directory;
  words >> process >> name >> state >> parent >> group >> session >> terminal;
  EXPECT_NE(parent, std::to_string(::getpid())) << said;
  EXPECT_NE(session, std::to_string(::getsid(0)));
  EXPECT_NE(session, process) << "a leader of a session could come by a terminal";
  EXPECT_EQ(group, session);
  EXPECT_EQ(terminal, "0");
  EXPECT_THAT(said, testing::EndsWith("\n/\n"));
  EXPECT_EQ(::waitpid(-1, nullptr, __WALL | WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(StartDetached, PassesOnlyTheStandardDescriptors) {
  // Includes a descriptor that is not closed on exec, and a high one.
  const int kept = ::dup(0);
  const int high = ::fcntl(0, F_DUPFD, 900);
  const std::size_t before = open_descriptor_count();
  EXPECT_EQ(said_by("ls /proc/$$/fd; true"), "0\n1\n2\n");
  EXPECT_EQ(open_descriptor_count(), before);
  EXPECT_EQ(::fcntl(kept, F_GETFD), 0) << "the caller's own are left alone";
  ::close(kept);
  ::close(high);
}

TEST(StartDetached, WorksForACallerWhoseStandardDescriptorsAreClosed) {
  const TemporaryDirectory directory;
  const std::string log = directory / "log";
  const int child = returned_by_child([&] {
    for (int fd = 0; fd < 3; ++fd) ::close(fd);
    const auto process = start_detached({"/bin/sh", {"-c", "echo out; echo err >&2; cat"}, {}, log});
    if (!process) return 1;
    const auto watch = ProcessWatch::open(*process);
    return !watch || watch->wait(20000).value_or(false) ? 0 : 2;
  });
  EXPECT_EQ(child, 0);
  EXPECT_EQ(read(log), "out\nerr\n");
}

TEST(StartDetached, ReportsThatNoDescriptorsAreLeft) {
  const int child = returned_by_child([] {
    const rlimit few{9, 9};
    if (::setrlimit(RLIMIT_NOFILE, &few) != 0) return 1;
    ::close(3);  // makes room for some descriptors
    ::close(4);
    ::close(5);
    ::close(6);
    const auto process = start_detached({"/bin/true", {}, {}, {}});
    return !process && process.error().message() == "start /bin/true: too many open files" ? 0 : 2;
  });
  EXPECT_EQ(child, 0);
}

TEST(StartDetached, ResetsSignalsThatTheCallerBlocksIgnoresOrHandles) {
  sigset_t blocked, before;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGTERM);
  ::sigaddset(&blocked, SIGUSR1);
  ASSERT_EQ(::pthread_sigmask(SIG_BLOCK, &blocked, &before), 0);
  void (*const handler)(int) = ::signal(SIGUSR2, SIG_IGN);
  const std::string said = said_by("grep Sig /proc/self/status");
  ::signal(SIGUSR2, handler);
  sigset_t after;
  ASSERT_EQ(::pthread_sigmask(SIG_SETMASK, &before, &after), 0);
  EXPECT_THAT(said, HasSubstr("SigBlk:\t0000000000000000\n"));
  // The C library reserves the first two real-time signals, 32 and 33: nobody can set or reset them.
  EXPECT_THAT(said, testing::ContainsRegex("SigIgn:\t0000000[01][08]0000000\n"));
  EXPECT_EQ(::sigismember(&after, SIGTERM), 1) << "the caller's mask is as it was";
  EXPECT_EQ(::sigismember(&after, SIGCHLD), 0);
}

TEST(StartDetached, AddsToTheEnvironmentAndReplacesInIt) {
  ::setenv("BITSNAP_TEST_KEPT", "kept", 1);
  ::setenv("BITSNAP_TEST_REPLACED", "old", 1);
  DetachedProgram program;
  program.environment = {"BITSNAP_TEST_REPLACED=new", "BITSNAP_TEST_ADDED=a=b"};
  const std::string said = said_by("env", program);
  ::unsetenv("BITSNAP_TEST_KEPT");
  ::unsetenv("BITSNAP_TEST_REPLACED");
  EXPECT_THAT(said, HasSubstr("BITSNAP_TEST_KEPT=kept\n"));
  EXPECT_THAT(said, HasSubstr("BITSNAP_TEST_REPLACED=new\n"));
  EXPECT_THAT(said, HasSubstr("BITSNAP_TEST_ADDED=a=b\n"));
  EXPECT_THAT(said, Not(HasSubstr("=old\n")));
}

TEST(StartDetached, ReportsWhyAProgramCouldNotBeStarted) {
  const TemporaryDirectory directory;
  const std::size_t before = open_descriptor_count();
  const auto missing = start_detached({directory / "missing", {}, {}, {}});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().kind(), ErrorKind::not_found);
  EXPECT_THAT(missing.error().message(), HasSubstr("start " + (directory / "missing") + ": no such file"));
  std::ofstream(directory / "text") << "text";
  const auto text = start_detached({directory / "text", {}, {}, {}});
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().kind(), ErrorKind::io);
  EXPECT_THAT(text.error().message(), HasSubstr("permission denied"));
  const auto log = start_detached({"/bin/sh", {"-c", "true"}, {}, directory / "missing/log"});
  ASSERT_FALSE(log);
  EXPECT_THAT(log.error().message(), HasSubstr("open the log " + (directory / "missing/log")));
  EXPECT_FALSE(start_detached({}));
  EXPECT_EQ(open_descriptor_count(), before);
  EXPECT_EQ(::waitpid(-1, nullptr, __WALL | WNOHANG), -1);
}

TEST(StartDetached, SurvivesItsStarter) {
  const TemporaryDirectory directory;
  const std::string fifo = directory / "fifo";
  const std::string log = directory / "log";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const LivingChild caller([&] {
    const auto process = start_detached({"/bin/sh", {"-c", "cat " + fifo}, {}, log});
    return process ? static_cast<int>(*process) : 0;
  });
  ASSERT_GT(caller.said(), 0);
  const auto watch = ProcessWatch::open(caller.said());
  ASSERT_TRUE(watch) << watch.error().message();
  ::kill(caller.process(), SIGKILL);
  std::ofstream(fifo) << "still here\n";
  EXPECT_TRUE(*watch->wait(20000));
  EXPECT_EQ(read(log), "still here\n");
}

TEST(CloseDescriptors, ClosesAllFromANumberOnBothWays) {
  for (void (*const close_from)(int) :
       {+[](int first) { close_descriptors_from(first); }, +[](int first) { close_descriptors_by_listing(first); }}) {
    const int child = returned_by_child([&] {
      for (int i = 0; i < 300; ++i) {
        if (::dup(0) < 0) return 1;
      }
      if (::fcntl(0, F_DUPFD, 1000) < 0) return 2;
      close_from(5);
      for (int fd = 5; fd <= 1010; ++fd) {
        if (::fcntl(fd, F_GETFD) >= 0) return 3;
      }
      return ::fcntl(2, F_GETFD) >= 0 ? 0 : 4;
    });
    EXPECT_EQ(child, 0);
  }
}

}  // namespace
}  // namespace bitsnap::os
