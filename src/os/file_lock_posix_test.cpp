// Tests of locks between real processes: mutual exclusion, and the effect of a holder's death and of fork.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "os/file_system.hpp"
#include "os/process.hpp"
#include "os/temporary_directory_testing.hpp"

namespace bitsnap::os {
namespace {

using testing::HasSubstr;

Result<std::unique_ptr<FileLock>> lock(const std::string& path, LockKind kind) {
  return real_file_system().lock(path, kind);
}

// A forked process that does its work, reports the result in one character, and waits to be killed.
class Child {
 public:
  explicit Child(const std::function<char()>& work) {
    int answer[2];
    EXPECT_EQ(::pipe2(answer, O_CLOEXEC), 0);
    process_ = ::fork();
    if (process_ == 0) {
      const char said = work();
      if (::write(answer[1], &said, 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    ::close(answer[1]);
    EXPECT_EQ(::read(answer[0], &said_, 1), 1) << "the child died";
    ::close(answer[0]);
  }
  ~Child() { kill(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  char said() const { return said_; }
  pid_t process() const { return process_; }
  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = 0;
  }

 private:
  pid_t process_ = 0;
  char said_ = '?';
};

// The result of a separate process that tries to take the lock: 'l' for locked, 'b' for busy, 'e' for another error.
char found_by_another_process(const std::string& path, LockKind kind) {
  return Child([&] {
           const auto tried = lock(path, kind);
           return tried ? 'l' : tried.error().kind() == ErrorKind::busy ? 'b' : 'e';
         })
      .said();
}

// Holds the lock until it is killed; reports 'l' when it has the lock.
std::unique_ptr<Child> holder(const std::string& path, LockKind kind) {
  return std::make_unique<Child>([&] {
    static std::unique_ptr<FileLock> kept;
    auto held = lock(path, kind);
    if (!held) return 'b';
    kept = std::move(held).value();
    return 'l';
  });
}

TEST(PosixLock, ExcludesOtherProcessesAndNamesTheHolder) {
  const TemporaryDirectory directory;
  const std::string path = directory / "lock";
  for (const LockKind held : {LockKind::shared, LockKind::exclusive}) {
    const auto child = holder(path, held);
    ASSERT_EQ(child->said(), 'l');
    for (const LockKind wanted : {LockKind::shared, LockKind::exclusive}) {
      const auto tried = lock(path, wanted);
      EXPECT_EQ(tried.has_value(), held == LockKind::shared && wanted == LockKind::shared);
      if (tried) continue;
      EXPECT_EQ(tried.error().kind(), ErrorKind::busy);
      EXPECT_THAT(tried.error().message(), HasSubstr("process " + std::to_string(child->process()) + " holds it"));
      EXPECT_THAT(tried.error().message(), HasSubstr(held == LockKind::shared ? "it (shared)" : "it (exclusive)"));
    }
  }
}

TEST(PosixLock, IsReleasedWhenItsHolderIsKilled) {
  const TemporaryDirectory directory;
  const std::string path = directory / "lock";
  for (const LockKind held : {LockKind::shared, LockKind::exclusive}) {
    const auto child = holder(path, held);
    ASSERT_EQ(child->said(), 'l');
    EXPECT_FALSE(lock(path, LockKind::exclusive));
    child->kill();
    EXPECT_TRUE(lock(path, LockKind::exclusive));
  }
}

TEST(PosixLock, IsNeitherInheritedNorReleasedByAForkedChild) {
  const TemporaryDirectory directory;
  const std::string path = directory / "lock";
  for (const LockKind kind : {LockKind::shared, LockKind::exclusive}) {
    auto held = lock(path, kind);
    ASSERT_TRUE(held);
    // The child neither has the lock nor can use it; it destroys the inherited handle of its parent.
    Child child([&] {
      if ((*held)->is_held()) return 'h';
      if (lock(path, LockKind::exclusive)) return 'l';
      held->reset();
      return 'n';
    });
    EXPECT_EQ(child.said(), 'n');
    EXPECT_TRUE((*held)->is_held());
    EXPECT_EQ(found_by_another_process(path, LockKind::exclusive), 'b');
    child.kill();
    EXPECT_EQ(found_by_another_process(path, LockKind::exclusive), 'b');
    held->reset();
    EXPECT_EQ(found_by_another_process(path, LockKind::exclusive), 'l');
  }
}

TEST(PosixLock, SurvivesInAChildThatClosesTheParentsHandle) {
  const TemporaryDirectory directory;
  const std::string path = directory / "lock";
  auto held = lock(path, LockKind::shared);
  ASSERT_TRUE(held);
  static std::unique_ptr<FileLock> own;
  Child child([&] {
    auto taken = lock(path, LockKind::shared);
    if (!taken) return 'b';
    own = std::move(taken).value();
    held->reset();  // closing its descriptor would release the child's own lock
    return 'l';
  });
  ASSERT_EQ(child.said(), 'l');
  held->reset();
  EXPECT_EQ(found_by_another_process(path, LockKind::exclusive), 'b');
}

TEST(PosixLock, SurvivesAFailedSecondLockAndAStatInTheSameProcess) {
  const TemporaryDirectory directory;
  const std::string path = directory / "lock";
  ASSERT_EQ(::symlink("lock", (directory / "alias").c_str()), 0);
  const auto held = lock(path, LockKind::exclusive);
  ASSERT_TRUE(held);
  for (const std::string& name : {path, directory / "alias", directory / "./lock"}) {
    for (const LockKind kind : {LockKind::shared, LockKind::exclusive}) {
      const auto tried = lock(name, kind);
      ASSERT_FALSE(tried) << name;
      EXPECT_THAT(tried.error().message(), HasSubstr("this process, " + std::to_string(process_id()) + ", holds it"));
    }
    EXPECT_TRUE(real_file_system().stat(name));
  }
  EXPECT_EQ(found_by_another_process(path, LockKind::shared), 'b');
}

// Like a program that copies the directory of a store.
void open_and_close(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  ::close(fd);
}

TEST(PosixLock, SurvivesOpeningAndClosingItsFile) {
  const TemporaryDirectory directory;
  const std::string path = directory / "lock";
  for (const LockKind held : {LockKind::shared, LockKind::exclusive}) {
    auto kept = lock(path, held);
    ASSERT_TRUE(kept);
    open_and_close(path);
    // The record lock is gone, and with it the process number of the holder.
    const Child other([&] {
      struct ::flock record{};
      record.l_type = F_WRLCK;
      record.l_len = 1;
      const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
      if (::fcntl(fd, F_GETLK, &record) != 0 || record.l_type != F_UNLCK) return 'r';
      ::close(fd);
      const auto tried = lock(path, LockKind::exclusive);
      if (tried) return 'l';
      const std::string expected =
          held == LockKind::shared ? "another process holds it (shared)" : "another process holds it (exclusive)";
      if (tried.error().message().find(expected) == std::string::npos) return 'm';
      return tried.error().kind() == ErrorKind::busy ? 'b' : 'e';
    });
    EXPECT_EQ(other.said(), 'b');
    EXPECT_EQ(found_by_another_process(path, LockKind::shared), held == LockKind::shared ? 'l' : 'b');
    kept->reset();
    EXPECT_EQ(found_by_another_process(path, LockKind::exclusive), 'l');
  }
}

TEST(PosixLock, IsReleasedWhileAForkedChildLivesOn) {
  const TemporaryDirectory directory;
  const std::string path = directory / "lock";
  for (const LockKind kind : {LockKind::shared, LockKind::exclusive}) {
    // The holder's child reports when it runs (until then it has what it inherited), and lives until the pipe to it is
    // closed.
    int life[2];
    int runs[2];
    ASSERT_EQ(::pipe2(life, O_CLOEXEC), 0);
    ASSERT_EQ(::pipe2(runs, O_CLOEXEC), 0);
    Child holder([&] {
      static std::unique_ptr<FileLock> kept;
      auto held = lock(path, kind);
      if (!held) return 'b';
      kept = std::move(held).value();
      ::close(life[1]);
      const pid_t grandchild = ::fork();
      char one = 0;
      if (grandchild == 0) ::_exit(::write(runs[1], &one, 1) == 1 ? static_cast<int>(::read(life[0], &one, 1)) : 1);
      return grandchild > 0 && ::read(runs[0], &one, 1) == 1 ? 'l' : 'f';
    });
    ASSERT_EQ(holder.said(), 'l');
    EXPECT_EQ(found_by_another_process(path, LockKind::exclusive), 'b');
    holder.kill();
    EXPECT_EQ(found_by_another_process(path, LockKind::exclusive), 'l');
    for (const int end : {life[0], life[1], runs[0], runs[1]}) ::close(end);
  }
}

// A child by clone() without fork handlers: it keeps the open file.
TEST(PosixLock, IsReleasedIfAnotherProcessInheritedItsDescriptor) {
  const TemporaryDirectory directory;
  const std::string path = directory / "lock";
  auto held = lock(path, LockKind::exclusive);
  ASSERT_TRUE(held);
  const auto child = static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  if (child == 0) {
    for (;;) ::pause();
  }
  ASSERT_GT(child, 0);
  EXPECT_EQ(found_by_another_process(path, LockKind::exclusive), 'b');
  held->reset();
  EXPECT_EQ(found_by_another_process(path, LockKind::exclusive), 'l');
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(PosixLock, IsHeldUntilTheLastHolderInAProcessReleasesIt) {
  const TemporaryDirectory directory;
  const std::string path = directory / "lock";
  const auto first = lock(path, LockKind::shared);
  ASSERT_TRUE(first);
  {
    EXPECT_TRUE(lock(path, LockKind::shared));
  }
  EXPECT_EQ(found_by_another_process(path, LockKind::exclusive), 'b');
  EXPECT_EQ(found_by_another_process(path, LockKind::shared), 'l');
}

TEST(PosixLock, ExcludesThreadsFromEachOther) {
  const TemporaryDirectory directory;
  const std::string path = directory / "lock";
  std::atomic<int> inside{0};
  std::atomic<int> taken{0};
  std::atomic<int> collisions{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        const auto held = lock(path, LockKind::exclusive);
        if (!held) continue;
        ++taken;
        if (inside.fetch_add(1) != 0) ++collisions;
        inside.fetch_sub(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(taken, 0);
  EXPECT_EQ(collisions, 0);
}

TEST(PosixLock, LeavesNoDescriptorOpen) {
  const TemporaryDirectory directory;
  const int lowest = ::dup(0);
  ::close(lowest);
  {
    const auto child = holder(directory / "other", LockKind::exclusive);
    EXPECT_FALSE(lock(directory / "other", LockKind::exclusive));
    const auto held = lock(directory / "lock", LockKind::shared);
    const auto again = lock(directory / "lock", LockKind::shared);
    EXPECT_EQ(::fcntl(lowest, F_GETFD), FD_CLOEXEC);
    EXPECT_EQ(::fcntl(lowest + 1, F_GETFD), -1) << "one descriptor for all holders";
  }
  const int lowest_after = ::dup(0);
  ::close(lowest_after);
  EXPECT_EQ(lowest_after, lowest);
}

TEST(PosixLock, RejectsNonFilesWithoutWaiting) {
  const TemporaryDirectory directory;
  ASSERT_EQ(::mkfifo((directory / "pipe").c_str(), 0600), 0);
  for (const LockKind kind : {LockKind::shared, LockKind::exclusive}) {
    const auto tried = lock(directory / "pipe", kind);
    ASSERT_FALSE(tried);
    EXPECT_EQ(tried.error().kind(), ErrorKind::invalid_argument);
    EXPECT_THAT(tried.error().message(), HasSubstr("not a regular file"));
  }
}

TEST(PosixLock, IsSharedWithReadAccessOnly) {
  const TemporaryDirectory directory;
  const std::string path = directory / "lock";
  ASSERT_TRUE(real_file_system().create(path));
  ASSERT_EQ(::chmod(path.c_str(), 0444), 0);
  ASSERT_EQ(::chmod(directory.path().c_str(), 0555), 0);
  const Child reader([&] {
    constexpr uid_t kNobody = 65534;
    if (::geteuid() == 0 && ::setuid(kNobody) != 0) return 'r';  // root may write everything
    if (!lock(path, LockKind::shared)) return 's';
    const auto refused = lock(path, LockKind::exclusive);
    if (refused || refused.error().kind() != ErrorKind::io) return 'x';
    const auto not_made = lock(directory / "none", LockKind::shared);
    if (not_made || not_made.error().message().find("permission denied") == std::string::npos) return 'm';
    return 'o';
  });
  EXPECT_EQ(reader.said(), 'o');
  ASSERT_EQ(::chmod(directory.path().c_str(), 0755), 0);
}

}  // namespace
}  // namespace bitsnap::os
