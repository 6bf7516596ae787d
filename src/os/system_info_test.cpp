// Tests of memory, CPU and time information.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <limits>
#include <map>
#include <set>
#include <thread>
#include <vector>

#include "os/cgroup.hpp"
#include "os/clock.hpp"
#include "os/memory.hpp"
#include "os/process.hpp"
#include "os/random.hpp"

namespace bitsnap::os {
namespace {

TEST(Memory, CountsTouchedAllocations) {
  const auto before = process_memory();
  ASSERT_TRUE(before) << before.error().message();
  EXPECT_GT(before->resident_bytes, 0u);
  EXPECT_GE(before->peak_resident_bytes, before->resident_bytes);
  constexpr std::size_t kTouchedBytes = std::size_t{64} << 20;
  {
    std::vector<char> block(kTouchedBytes);
    volatile char* const touched = block.data();
    for (std::size_t i = 0; i < kTouchedBytes; i += 4096) touched[i] = 1;
    const auto during = process_memory();
    ASSERT_TRUE(during);
    EXPECT_GE(during->anonymous_bytes, before->anonymous_bytes + kTouchedBytes * 9 / 10);
    EXPECT_GE(during->peak_resident_bytes, kTouchedBytes);
  }
  EXPECT_GE(process_memory()->peak_resident_bytes, kTouchedBytes);
}

TEST(Memory, HasPagesOfAPowerOfTwo) {
  const std::size_t size = page_size_bytes();
  EXPECT_GE(size, 4096u);
  EXPECT_EQ(size & (size - 1), 0u);
}

TEST(Clock, NeverRunsBackwardsAndMeasuresASleep) {
  const Stopwatch watch;
  std::uint64_t last = monotonic_ns();
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t now = monotonic_ns();
    ASSERT_GE(now, last);
    last = now;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_GE(watch.elapsed_ns(), 10000000u);
  EXPECT_GE(watch.elapsed_seconds(), 0.01);
}

TEST(Deadline, CountsDownToItsEndAndNeverBelowZero) {
  EXPECT_EQ(Deadline(0).left_ms(), 0);
  EXPECT_EQ(Deadline(kNoTimeout).left_ms(), -1);
  const Deadline soon(500);
  const int left_ms = soon.left_ms();
  EXPECT_GT(left_ms, 0);
  EXPECT_LE(left_ms, 500);
  std::this_thread::sleep_for(std::chrono::milliseconds(left_ms));
  EXPECT_EQ(soon.left_ms(), 0) << "who waits for what is left is not early";
  for (const std::int64_t far : {std::int64_t{1} << 40, std::numeric_limits<std::int64_t>::max()}) {
    EXPECT_EQ(Deadline(far).left_ms(), 3'600'000);
  }
}

TEST(Clock, KnowsTheDate) {
  const std::int64_t now_ms = unix_time_ms();
  EXPECT_GE(now_ms, 1'600'000'000'000) << "before September 2020";
  EXPECT_NEAR(static_cast<double>(now_ms) / 1000, static_cast<double>(std::time(nullptr)), 2);
}

TEST(Process, HasAnIdentity) { EXPECT_EQ(process_id(), ::getpid()); }

TEST(Random, DoesNotRepeatItself) {
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(random_u64());
  EXPECT_EQ(seen.size(), 1000u);
}

// The variable is read once in a process, so each case is one of its own.
TEST(ThreadCountDeathTest, IsLimitedByTheVariable) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto exits = [](const char* text) {
    ::setenv("BITSNAP_THREADS", text, 1);
    std::_Exit(static_cast<int>(usable_threads()));
  };
  // Called here, where the variable is not set.
  const auto has_all = [](int status) {
    return WIFEXITED(status) && WEXITSTATUS(status) == static_cast<int>(usable_threads());
  };
  EXPECT_EXIT(exits("1"), testing::ExitedWithCode(1), "");
  for (const char* const text : {"", "0", "-1", "1x", "x", "99999999999"}) {
    EXPECT_EXIT(exits(text), has_all, "") << text;
  }
}

TEST(ThreadCount, FollowsTheAffinityOfTheProcess) {
  EXPECT_GE(usable_threads(), 1u);
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(before), &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &before)) {
      CPU_SET(cpu, &one);
      break;
    }
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(usable_threads(), 1u);
  ::sched_setaffinity(0, sizeof(before), &before);
}

using Files = std::map<std::string, std::string>;

std::optional<unsigned> cpus(const Files& files) {
  return cgroup_cpus([&](const std::string& path) -> std::optional<std::string> {
    const auto file = files.find(path);
    if (file == files.end()) return std::nullopt;
    return file->second;
  });
}

constexpr const char* kUnifiedMount =
    "22 1 0:20 / /proc rw - proc proc rw\n"
    "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

TEST(Cgroup, TakesTheSmallestQuotaOfTheGroups) {
  Files files = {{"/proc/self/cgroup", "0::/a/b\n"},
                 {"/proc/self/mountinfo", kUnifiedMount},
                 {"/sys/fs/cgroup/a/b/cpu.max", "max 100000\n"}};
  EXPECT_EQ(cpus(files), std::nullopt);
  files["/sys/fs/cgroup/a/cpu.max"] = "400000 100000\n";
  EXPECT_EQ(cpus(files), 4u);
  files["/sys/fs/cgroup/a/b/cpu.max"] = "150000 100000\n";
  EXPECT_EQ(cpus(files), 2u) << "rounded up";
  files["/sys/fs/cgroup/cpu.max"] = "5000 100000\n";
  EXPECT_EQ(cpus(files), 1u);
}

TEST(Cgroup, FindsTheQuotaInsideAContainer) {
  EXPECT_EQ(cpus({{"/proc/self/cgroup", "0::/\n"},
                  {"/proc/self/mountinfo", kUnifiedMount},
                  {"/sys/fs/cgroup/cpu.max", "300000 100000\n"}}),
            3u);
  // The same without a cgroup namespace: the path is the machine's, the mount shows the container's.
  const std::string mount = "30 22 0:26 /docker/x /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
  for (const char* const group : {"0::/docker/x\n", "0::/elsewhere\n", "0::/docker/xy\n", "0::/../y\n"}) {
    EXPECT_EQ(cpus({{"/proc/self/cgroup", group},
                    {"/proc/self/mountinfo", mount},
                    {"/sys/fs/cgroup/cpu.max", "300000 100000\n"}}),
              3u)
        << group;
  }
}

TEST(Cgroup, ReadsVersionOne) {
  Files files = {{"/proc/self/cgroup", "12:memory:/m\n4:cpu,cpuacct:/job/1\n1:name=systemd:/x\n"},
                 {"/proc/self/mountinfo",
                  "40 22 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
                  "41 22 0:31 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"},
                 {"/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n"},
                 {"/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n"},
                 {"/sys/fs/cgroup/cpu,cpuacct/job/1/cpu.cfs_quota_us", "250000\n"},
                 {"/sys/fs/cgroup/cpu,cpuacct/job/1/cpu.cfs_period_us", "50000\n"}};
  EXPECT_EQ(cpus(files), 5u);
  files["/sys/fs/cgroup/cpu,cpuacct/job/1/cpu.cfs_quota_us"] = "-1\n";
  EXPECT_EQ(cpus(files), std::nullopt);
}

TEST(Cgroup, IgnoresMalformedTexts) {
  EXPECT_EQ(cpus({}), std::nullopt);
  EXPECT_EQ(
      cpus({{"/proc/self/cgroup", "\n:\n::\nx\n0::/a\n"}, {"/proc/self/mountinfo", "- \n\n - - - -\n1 2 3 4 -\n"}}),
      std::nullopt);
  for (const char* const max : {"", "max", "x y", "100000", "100000 0", "0 100000", "-5 100000", "1e5 100000"}) {
    EXPECT_EQ(
        cpus({{"/proc/self/cgroup", "0::/"}, {"/proc/self/mountinfo", kUnifiedMount}, {"/sys/fs/cgroup/cpu.max", max}}),
        std::nullopt)
        << max;
  }
}

}  // namespace
}  // namespace bitsnap::os
