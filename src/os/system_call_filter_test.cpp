// Each call that a filter of system calls takes away has something in its place.
#include "os/system_call_filter_testing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "os/file_system.hpp"
#include "os/forked_child_testing.hpp"
#include "os/local_socket.hpp"
#include "os/poll_set.hpp"
#include "os/process_start.hpp"
#include "os/process_watch.hpp"
#include "os/shared_memory.hpp"
#include "os/temporary_directory_testing.hpp"

namespace bitsnap::os {
namespace {

constexpr std::uint64_t kSize = 1 << 16;

bool can_signal() {
  const auto signal = EventSignal::create();
  if (!signal) return false;
  const auto is_raised = [&] {
    PollSet set;
    set.watch(signal->descriptor(), 1);
    const auto events = set.wait(0);
    return events && !events->empty();
  };
  if (is_raised()) return false;
  for (int i = 0; i < 100'000; ++i) signal->raise();
  if (!is_raised()) return false;
  signal->clear();
  return !is_raised();
}

bool can_connect() {
  const std::string name = unique_name();
  const auto listener = LocalListener::listen(name);
  const auto connection = LocalConnection::connect(name, 5000);
  if (!listener || !connection) return false;
  const auto accepted = listener->accept(5000);
  const std::byte byte{7};
  return accepted && accepted->send({&byte, 1}, {}, 5000) && connection->receive(1, 0, 5000);
}

// Memory that another process is given, which keeps what is written and can be frozen.
bool can_share() {
  auto memory = SharedMemory::create("test", kSize);
  auto once = SharedMemory::create_for_writing_once("test", kSize);
  if (!memory || !once) return false;
  {
    const auto mapped = memory->map(MemoryAccess::read_write);
    const auto written = once->map(MemoryAccess::read_write);
    if (!mapped || !written || !mapped->populate(0, kSize)) return false;
    mapped->writable_bytes().back() = std::byte{1};
    written->writable_bytes().back() = std::byte{2};
  }
  if (once->is_frozen() || !once->freeze() || !once->is_frozen() || memory->is_frozen()) return false;
  const auto taken = SharedMemory::adopt(memory->duplicate().value(), kSize);
  const auto frozen = SharedMemory::adopt(once->duplicate().value(), kSize);
  if (!taken || !frozen || !frozen->is_frozen() || frozen->map(MemoryAccess::read_write)) return false;
  const auto first = taken->map(MemoryAccess::read);
  const auto second = frozen->map(MemoryAccess::read);
  return first && second && first->bytes().back() == std::byte{1} && second->bytes().back() == std::byte{2} &&
         first->populate(0, kSize) && second->populate(0, kSize);
}

bool can_watch() {
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  const auto watch = ProcessWatch::open(child);
  if (!watch || !watch->is_alive() || watch->wait(10).value_or(true)) return false;
  if (!watch->ask_to_end() || !watch->wait(5000).value_or(false) || watch->is_alive()) return false;  // a zombie
  const bool is_refused = !watch->kill() && !ProcessWatch::open(child);
  ::waitpid(child, nullptr, 0);
  return is_refused && !watch->is_alive() && !ProcessWatch::open(child);
}

bool can_start(const std::string& directory) {
  const std::string path = directory + "/started";
  const auto process = start_detached(
      {.program = "/bin/sh", .arguments = {"-c", "echo here > " + path}, .environment = {}, .log_path = ""});
  if (!process) return false;
  for (int i = 0; i < 5000 && ::access(path.c_str(), F_OK) != 0; ++i) ::usleep(1000);
  return ::access(path.c_str(), F_OK) == 0;
}

bool can_rename(const std::string& directory) {
  const std::string from = directory + "/from";
  const std::string to = directory + "/to";
  const std::shared_ptr<FileSystem> confined = real_file_system().without_links(directory);
  const auto can_rename_with = [&](FileSystem& files) {
    return files.create(from) && files.rename_no_replace(from, to) && files.create(from) &&
           !files.rename_no_replace(from, to) && files.remove(from) && files.remove(to);
  };
  return can_rename_with(real_file_system()) && can_rename_with(*confined);
}

TEST(SystemCallFilter, NoRefusedCallIsMissed) {
  for (const RefusedCall& call : refusable_calls()) {
    for (const int error : {EPERM, ENOSYS}) {
      const TemporaryDirectory directory;
      const int said = returned_by_child([&]() -> int {
        if (!refuse_call(call, error)) return 100;
        if (!can_signal()) return 1;
        if (!can_connect()) return 2;
        if (!can_share()) return 3;
        if (!can_watch()) return 4;
        if (!can_start(directory.path())) return 5;
        return can_rename(directory.path()) ? 0 : 6;
      });
      if (said == 100) GTEST_SKIP() << "the system refuses filters of system calls";
      EXPECT_EQ(said, 0) << call.name << ", error " << error;
    }
  }
}

TEST(SystemCallFilter, MemoryWithoutSealsIsRefusedWhereThereAreSeals) {
  const std::vector<RefusedCall> calls = refusable_calls();
  const auto call = std::ranges::find(calls, "memfd_create", &RefusedCall::name);
  const auto name = unique_name();
  const auto listener = LocalListener::listen(name);
  const LivingChild child([&]() -> int {
    const auto connection = LocalConnection::connect(name, 5000);
    if (!refuse_call(*call, EPERM)) return 100;
    const auto memory = SharedMemory::create("test", kSize);
    const std::byte byte{1};
    const int descriptor = memory ? memory->descriptor() : -1;
    return memory && connection->send({&byte, 1}, {&descriptor, 1}, 5000) ? 0 : 1;
  });
  if (child.said() == 100) GTEST_SKIP() << "the system refuses filters of system calls";
  ASSERT_EQ(child.said(), 0);
  auto message = listener->accept(5000)->receive(1, 1, 5000);
  ASSERT_TRUE(message && *message && (*message)->descriptors.size() == 1);
  const auto taken = SharedMemory::adopt(std::move((*message)->descriptors.front()), kSize);
  ASSERT_FALSE(taken);
  EXPECT_THAT(taken.error().message(), ::testing::HasSubstr("not sealed"));
}

// What a network file system says of an open file that its server has forgotten.
TEST(StaleFile, IsReadAgainByItsName) {
  const TemporaryDirectory directory;
  const std::string path = directory / "file";
  const auto read_stale = [&](const std::string& then) {
    return returned_by_child([&]() -> int {
      std::ofstream(path) << "whole";
      const int descriptor = ::dup(0);  // the number that the file gets
      ::close(descriptor);
      const auto file = real_file_system().open(path);
      if (!file) return 1;
      std::ofstream(path) << then;
      const RefusedCall stale{"pread64", SYS_pread64, 0, static_cast<std::uint32_t>(descriptor)};
      if (!refuse_call(stale, ESTALE)) return 100;
      std::vector<std::byte> bytes(5);
      for (int again = 0; again < 2; ++again) {
        const auto read = (*file)->read_at(0, bytes);
        if (!read) return 10 + static_cast<int>(read.error().kind());
      }
      return as_text(bytes) == "whole" ? 0 : 2;
    });
  };
  const int said = read_stale("whole");
  if (said == 100) GTEST_SKIP() << "the system refuses filters of system calls";
  EXPECT_EQ(said, 0);
  // Another file is not read in its place, and its size is no damage.
  EXPECT_EQ(read_stale("other file"), 10 + static_cast<int>(ErrorKind::io));
}

TEST(StaleFile, IsNotLookedForWithoutEnd) {
  const int said = returned_by_child([]() -> int {
    if (!refuse_call({"openat", SYS_openat}, ESTALE)) return 100;
    const auto file = real_file_system().open("/proc/self/stat");
    return file ? 1 : 10 + static_cast<int>(file.error().kind());
  });
  if (said == 100) GTEST_SKIP() << "the system refuses filters of system calls";
  EXPECT_EQ(said, 10 + static_cast<int>(ErrorKind::io));
}

}  // namespace
}  // namespace bitsnap::os
