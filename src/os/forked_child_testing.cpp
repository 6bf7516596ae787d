// fork() without exec: the child has the test's memory and descriptors.
#include "os/forked_child_testing.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>

namespace bitsnap::os {

int returned_by_child(FunctionRef<int()> work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) return -1000;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

LivingChild::LivingChild(FunctionRef<int()> work) {
  int answer[2];
  if (::pipe2(answer, O_CLOEXEC) != 0) return;
  process_ = ::fork();
  if (process_ == 0) {
    const int said = work();
    if (::write(answer[1], &said, sizeof(said)) != sizeof(said)) ::_exit(1);
    for (;;) ::pause();
  }
  ::close(answer[1]);
  if (::read(answer[0], &said_, sizeof(said_)) != sizeof(said_)) said_ = -1;
  ::close(answer[0]);
}

LivingChild::~LivingChild() {
  kill();
  reap();
}

void LivingChild::kill() {
  if (process_ > 0 && !killed_) ::kill(process_, SIGKILL);
  killed_ = true;
}

void LivingChild::reap() {
  if (process_ > 0) ::waitpid(process_, nullptr, 0);
  process_ = 0;
}

std::size_t open_descriptor_count() {
  DIR* const directory = ::opendir("/proc/self/fd");
  if (directory == nullptr) return 0;
  std::size_t count = 0;
  while (::readdir(directory) != nullptr) ++count;
  ::closedir(directory);
  return count;
}

std::string unique_name() {
  static std::atomic<int> calls{0};
  return "bitsnap-test-" + std::to_string(::getpid()) + "-" + std::to_string(calls.fetch_add(1));
}

}  // namespace bitsnap::os
