// RunLayout: the names in a store, and names that only look like them.
#include "store/run_layout.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace bitsnap::store {
namespace {

constexpr std::uint64_t kLastStep = std::numeric_limits<std::uint64_t>::max();

TEST(RunLayout, StepNamesRoundTrip) {
  EXPECT_EQ(step_name(0), "0000000000");
  EXPECT_EQ(step_name(1000), "0000001000");
  EXPECT_EQ(step_name(12'345'678'901), "12345678901");
  EXPECT_EQ(step_name(kLastStep), "18446744073709551615");
  for (const std::uint64_t step : {std::uint64_t{0}, std::uint64_t{7}, std::uint64_t{9'999'999'999},
                                   std::uint64_t{10'000'000'000}, kLastStep - 1, kLastStep}) {
    EXPECT_EQ(step_from_name(step_name(step)), step);
  }
}

TEST(RunLayout, RejectsOtherNamesOfSteps) {
  for (const char* name :
       {"", "1000", "000001000", "00000001000", "010000000000", "0000001000 ", " 0000001000", "+000001000",
        "-000000001", "000000100a", "0x00001000", "0000001000.tmp", "18446744073709551616", "99999999999999999999",
        "100000000000000000000", "................", "damaged"}) {
    EXPECT_EQ(step_from_name(name), std::nullopt) << name;
  }
}

TEST(RunLayout, NamesShardsWithTheirAttempts) {
  EXPECT_EQ(shard_file_name(0, 1, ""), "shard-00000-of-00001.bsnap");
  EXPECT_EQ(shard_file_name(3, 99'999, "a-1"), "shard-00003-of-99999.a-1.bsnap");
  EXPECT_EQ(shard_record_name(3, 4, "a1"), "shard-00003-of-00004.a1.json");
}

TEST(RunLayout, NamesARewrittenFile) {
  EXPECT_EQ(rewritten_file_name("a.bsnap"), "a.r1.bsnap");
  EXPECT_EQ(rewritten_file_name("a.r1.bsnap"), "a.r2.bsnap");
  EXPECT_EQ(rewritten_file_name("a.r9.bsnap"), "a.r10.bsnap");
  EXPECT_EQ(rewritten_file_name("a.r4294967295.bsnap"), "a.r4294967296.bsnap");
}

TEST(RunLayout, DistinguishesAttemptsFromRewriteNumbers) {
  EXPECT_EQ(rewritten_file_name("shard-00000-of-00002.retry.bsnap"), "shard-00000-of-00002.retry.r1.bsnap");
  EXPECT_EQ(rewritten_file_name("shard-00000-of-00002.r.bsnap"), "shard-00000-of-00002.r.r1.bsnap");
  EXPECT_EQ(rewritten_file_name("shard-00000-of-00002.r1x.bsnap"), "shard-00000-of-00002.r1x.r1.bsnap");
}

TEST(RunLayout, NeverReusesNamesOfRewrittenFiles) {
  const std::string longest = std::string(kMaxFileNameBytes - 6, 'a') + ".bsnap";
  for (std::string name : {std::string("a.bsnap"), std::string("a.r7.bsnap"), std::string("a.r4294967294.bsnap"),
                           std::string("a.r4294967295.bsnap"), std::string("a.r1.r2.bsnap"), longest}) {
    std::string before = name;
    for (int i = 0; i < 4; ++i) {
      name = rewritten_file_name(name);
      EXPECT_NE(name, before);
      EXPECT_TRUE(is_snapshot_file_name(name)) << name;
      before = name;
    }
  }
}

TEST(RunLayout, AcceptsOnlySafeNamesOfSnapshotFiles) {
  const std::string longest = std::string(kMaxFileNameBytes - 6, 'a') + ".bsnap";
  for (const std::string& name : {std::string("a.bsnap"), std::string("A-9..bsnap"), longest}) {
    EXPECT_TRUE(is_snapshot_file_name(name)) << name;
  }
  for (const std::string& name :
       {std::string(), std::string(".bsnap"), std::string("..bsnap"), std::string(".a.bsnap"), std::string("a"),
        std::string("a.bsnap "), std::string("a.BSNAP"), std::string("../a.bsnap"), std::string("x/a.bsnap"),
        std::string("x\\a.bsnap"), std::string("a_b.bsnap"), std::string("a\0.bsnap", 8), std::string("\xc3\xa4.bsnap"),
        "a" + longest}) {
    EXPECT_FALSE(is_snapshot_file_name(name)) << name;
  }
}

TEST(RunLayout, AcceptsOnlySafeNamesOfAttempts) {
  EXPECT_TRUE(is_attempt_name("a"));
  EXPECT_TRUE(is_attempt_name("2024-01-31-x"));
  EXPECT_TRUE(is_attempt_name(std::string(kMaxAttemptBytes, '0')));
  for (const std::string& name : {std::string(), std::string("A"), std::string("a.b"), std::string("a/b"),
                                  std::string("a b"), std::string("a_b"), std::string(kMaxAttemptBytes + 1, '0')}) {
    EXPECT_FALSE(is_attempt_name(name)) << name;
  }
}

TEST(RunLayout, ParsesShardFileNames) {
  for (const char* name : {"shard-00001-of-00002.bsnap", "shard-00001-of-00002.a1.bsnap",
                           "shard-00001-of-00002.a1.r3.bsnap", "shard-00001-of-00002.r3.bsnap"}) {
    const auto parsed = parse_shard_file_name(name);
    ASSERT_TRUE(parsed) << name;
    EXPECT_EQ(parsed->shard, 1U);
    EXPECT_EQ(parsed->shards, 2U);
  }
  for (const char* name :
       {"", ".bsnap", "shard-00002-of-00002.bsnap", "shard-00000-of-00000.bsnap", "shard-0001-of-0002.bsnap",
        "shard-000001-of-000002.bsnap", "shard-0000a-of-00002.bsnap", "shard-+0001-of-00002.bsnap",
        "shard-00001-fo-00002.bsnap", "Shard-00001-of-00002.bsnap", "shard-00001-of-00002.json",
        "shard-00001-of-00002bsnap", "shard-00001-of-00002-a.bsnap", "shard-00001-of-00002"}) {
    EXPECT_FALSE(parse_shard_file_name(name)) << name;
  }
}

TEST(RunLayout, ClaimsOnlyItsOwnFiles) {
  for (const char* name : {"commit.json", "retired.json", "shard-00000-of-00001.bsnap", "shard-00000-of-00001.r1.bsnap",
                           "shard-00000-of-00002.a1.json", "files-0123456789abcdef.bsnap",
                           "files-0123456789abcdef.a1.bsnap", ".commit.json.0123456789abcdef.tmp"}) {
    EXPECT_TRUE(is_own_file_name(name)) << name;
  }
  for (const char* name : {"", "notes.txt", "commit.json.bak", "model.bsnap", "config.json", ".nfs0001", "x.tmp",
                           "shard-notes.txt", "files-0123456789abcdeF.bsnap", "files-0123456789abcde.bsnap",
                           "files-0123456789abcdef.r1.bsnap", "files.bsnap", "files-0123456789abcdef-a.bsnap",
                           "files-0123456789abcdef.a1.json", ".shard-00000-of-00001.bsnap", "bitsnap.json"}) {
    EXPECT_FALSE(is_own_file_name(name)) << name;
  }
}

TEST(RunLayout, MatchesTheSpecifiedPaths) {
  const RunLayout layout("/runs/a");
  EXPECT_EQ(layout.run_record(), "/runs/a/bitsnap.json");
  EXPECT_EQ(layout.lock(), "/runs/a/lock");
  EXPECT_EQ(layout.catalog(), "/runs/a/catalog");
  EXPECT_EQ(layout.damaged(), "/runs/a/damaged");
  EXPECT_EQ(layout.commit(7), "/runs/a/checkpoints/0000000007/commit.json");
  EXPECT_EQ(layout.retired(7), "/runs/a/checkpoints/0000000007/retired.json");
  EXPECT_EQ(layout.step_file(7, "x.bsnap"), "/runs/a/checkpoints/0000000007/x.bsnap");
  EXPECT_EQ(RunLayout::relative_file(7, "x.bsnap"), "checkpoints/0000000007/x.bsnap");
}

}  // namespace
}  // namespace bitsnap::store
