// Tests of the available memory, from texts of systems with limits in different places.
#include "os/memory_limit.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "os/text_file.hpp"

namespace bitsnap::os {
namespace {

using testing::HasSubstr;

using Files = std::map<std::string, std::string>;

Result<AvailableMemory> available(const Files& files) {
  return available_memory_by([&](const std::string& path) -> std::optional<std::string> {
    const auto file = files.find(path);
    if (file == files.end()) return std::nullopt;
    return file->second;
  });
}

std::string limit_and_bytes(const Files& files) {
  const auto found = available(files);
  if (!found) return found.error().message();
  return found->limit.substr(0, found->limit.find(" is")) + ": " + std::to_string(found->available_bytes);
}

constexpr const char* kMeminfo =
    "MemTotal:       24684092 kB\nMemFree:         9000000 kB\nMemAvailable:      10000 kB\n"
    "CommitLimit:        5000 kB\nCommitted_AS:      1000 kB\n";

Files unified_files() {
  return {{"/proc/meminfo", kMeminfo},
          {"/proc/self/cgroup", "0::/a/b\n"},
          {"/proc/self/mountinfo", "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"},
          {"/sys/fs/cgroup/a/b/memory.max", "max\n"},
          {"/sys/fs/cgroup/a/b/memory.high", "max\n"},
          {"/sys/fs/cgroup/a/b/memory.current", "700000\n"}};
}

TEST(AvailableMemory, IsTheMachinesWithoutLimits) {
  EXPECT_EQ(limit_and_bytes({{"/proc/meminfo", kMeminfo}}), "MemAvailable of /proc/meminfo: 10240000");
  EXPECT_EQ(limit_and_bytes(unified_files()), "MemAvailable of /proc/meminfo: 10240000");
}

TEST(AvailableMemory, IsTheTightestLimitOfTheGroups) {
  Files files = unified_files();
  files["/sys/fs/cgroup/a/memory.max"] = "9000000\n";
  files["/sys/fs/cgroup/a/memory.current"] = "1000000\n";
  EXPECT_EQ(limit_and_bytes(files), "memory.max of /sys/fs/cgroup/a: 8000000");
  files["/sys/fs/cgroup/a/b/memory.max"] = "5000000\n";
  EXPECT_EQ(limit_and_bytes(files), "memory.max of /sys/fs/cgroup/a/b: 4300000");
  files["/sys/fs/cgroup/a/b/memory.high"] = "3000000\n";
  EXPECT_EQ(limit_and_bytes(files), "memory.high of /sys/fs/cgroup/a/b: 2300000");
  files["/sys/fs/cgroup/a/memory.current"] = "9500000\n";
  EXPECT_EQ(limit_and_bytes(files), "memory.max of /sys/fs/cgroup/a: 0") << "beyond its limit";
}

TEST(AvailableMemory, CountsFilePagesThatAGroupCanDrop) {
  Files files = unified_files();
  files["/sys/fs/cgroup/a/b/memory.max"] = "1000000\n";
  files["/sys/fs/cgroup/a/b/memory.stat"] = "anon 5\nshmem 500000\nactive_file 7000\ninactive_file 100000\nslab 3\n";
  EXPECT_EQ(limit_and_bytes(files), "memory.max of /sys/fs/cgroup/a/b: 403500") << "half of the active ones";
  files["/sys/fs/cgroup/a/b/memory.stat"] = "inactive_file_x 1\ninactive_file 99999999\n";
  EXPECT_EQ(limit_and_bytes(files), "memory.max of /sys/fs/cgroup/a/b: 1000000") << "the numbers are of two moments";
  files["/sys/fs/cgroup/a/b/memory.stat"] = "inactive_file\ninactive_file x\n\n";
  EXPECT_EQ(limit_and_bytes(files), "memory.max of /sys/fs/cgroup/a/b: 300000");
}

TEST(AvailableMemory, ReadsGroupsOfVersionOne) {
  Files files = {
      {"/proc/meminfo", kMeminfo},
      {"/proc/self/cgroup", "12:memory:/job/1\n4:cpu,cpuacct:/c\n0::/u\n"},
      {"/proc/self/mountinfo",
       "40 22 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
       "41 22 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"},
      {"/sys/fs/cgroup/memory/job/1/memory.limit_in_bytes", "9223372036854771712\n"},
      {"/sys/fs/cgroup/memory/job/1/memory.usage_in_bytes", "100\n"},
      {"/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1000\n"},
      {"/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "900\n"},
      {"/sys/fs/cgroup/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 200\ntotal_active_file 80\n"}};
  EXPECT_EQ(limit_and_bytes(files), "memory.limit_in_bytes of /sys/fs/cgroup/memory/job: 340");
  files.erase("/sys/fs/cgroup/memory/job/memory.usage_in_bytes");
  EXPECT_EQ(limit_and_bytes(files), "MemAvailable of /proc/meminfo: 10240000");
}

TEST(AvailableMemory, FollowsStrictOvercommit) {
  Files files = {{"/proc/meminfo", kMeminfo}, {"/proc/sys/vm/overcommit_memory", "0\n"}};
  EXPECT_EQ(limit_and_bytes(files), "MemAvailable of /proc/meminfo: 10240000");
  files["/proc/sys/vm/overcommit_memory"] = "2\n";
  EXPECT_EQ(limit_and_bytes(files), "CommitLimit of /proc/meminfo: 4096000");
}

TEST(AvailableMemory, IsUnsupportedWithoutReports) {
  for (const Files& files : {Files{}, Files{{"/proc/meminfo", "MemAvailable 5 kB\nMemAvailable:\n"}},
                             Files{{"/proc/meminfo", "MemAvailable: 99999999999999999999 kB\n"}},
                             Files{{"/proc/meminfo", "MemAvailable: 18446744073709551615 kB\n"}}}) {
    const auto found = available(files);
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().kind(), ErrorKind::unsupported);
  }
}

TEST(AvailableMemory, WorksOnThisSystem) {
  const auto found = available_memory();
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_GT(found->available_bytes, 0u);
  const auto machine_bytes = field_bytes(read_text_file("/proc/meminfo").value_or(""), "MemTotal");
  ASSERT_TRUE(machine_bytes);
  EXPECT_LE(found->available_bytes, *machine_bytes);
  EXPECT_THAT(found->limit, HasSubstr(" is "));
}

}  // namespace
}  // namespace bitsnap::os
