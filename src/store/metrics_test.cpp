// Metrics in commit records: kept exactly, taken from the strings of a snapshot, and refused if they are no numbers.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "os/file_system_fake.hpp"
#include "store/commit_record.hpp"
#include "store/sealed_json.hpp"

namespace bitsnap::store {
namespace {

Result<CommitRecord> read_record(const std::string& text) {
  const RunLayout layout("/run");
  os::FakeFileSystem files;
  files.plant(layout.commit(40), std::as_bytes(std::span(text.data(), text.size())));
  return read_commit_record(files, layout, 40);
}

TEST(Metrics, KeepsMetricsToTheLastBit) {
  CommitRecord record;
  record.step = 40;
  record.policy = "lossless";
  record.shards = {{.file = shard_file_name(0, 1, ""), .id = {1, 7}, .bytes = 1, .raw_bytes = 1, .references = {}}};
  const double infinity = std::numeric_limits<double>::infinity();
  record.metrics = {{"loss", 0.1 + 0.2}, {"lr", 1e-300}, {"gap", -infinity}, {"bad", infinity - infinity}};
  const auto read = read_record(serialize_commit_record(record));
  ASSERT_TRUE(read) << read.error().message();
  ASSERT_EQ(read->metrics.size(), 4U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(read->metrics[i], record.metrics[i]);
  EXPECT_TRUE(read->metrics[3].second != read->metrics[3].second);
  auto body = nlohmann::ordered_json::parse(unseal_json("commit", serialize_commit_record(record)).value());
  for (const char* text : {"", "x", "1.5 ", "0x10", "1,5"}) {
    body["metrics"]["loss"] = text;
    const auto refused = read_record(seal_json("commit", body.dump()));
    ASSERT_FALSE(refused) << text;
    EXPECT_EQ(refused.error().kind(), ErrorKind::corrupt);
    EXPECT_NE(refused.error().message().find("the metric 'loss' is no number"), std::string::npos)
        << refused.error().message();
  }
  body["metrics"]["loss"] = 1;
  EXPECT_FALSE(read_record(seal_json("commit", body.dump())));
}

TEST(Metrics, TakesMetricsFromTheStringsOfASnapshot) {
  using Metrics = std::vector<std::pair<std::string, double>>;
  EXPECT_EQ(metrics_of({{"loss", "1"}, {"metrics.loss", "2.5"}, {"metrics.", "3"}, {"metrics.note", "low"}}),
            (Metrics{{"loss", 2.5}}));
}

}  // namespace
}  // namespace bitsnap::store
