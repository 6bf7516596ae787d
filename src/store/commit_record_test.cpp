// Records: what is written is read again, and what breaks a rule of docs/spec/store.md is refused, with a reason.
#include "store/commit_record.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/bytes.hpp"
#include "base/hash.hpp"
#include "os/file_system_fake.hpp"
#include "store/sealed_json.hpp"

namespace bitsnap::store {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kStep = 40;
const RunLayout kLayout("/run");
const std::string kShardPath = kLayout.step_file(kStep, "shard-00001-of-00002.a1.json");

ConstByteSpan as_bytes(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

// A body that need not be what seal_json would write, with the hash that belongs to it.
std::string seal_text(std::string_view key, std::string_view body) {
  const std::string hash = fmt::format("{:016x}", hash64(as_bytes(body)));
  return "{\"" + std::string(key) + "\":" + std::string(body) + ",\"hash\":\"" + hash + "\"}\n";
}

CommitRecord full_record() {
  CommitRecord record;
  record.step = kStep;
  record.time_unix_ms = 1'795'292'680'123;
  record.policy = "lossless";
  record.attempt = "a1";
  record.base = 30;
  record.links = 3;
  record.directory_sync = false;
  for (std::uint32_t shard = 0; shard < 2; ++shard) {
    ShardFile& file = record.shards.emplace_back();
    file.file = shard_file_name(shard, 2, "a1");
    file.id = {shard, 7};
    file.bytes = 100 + shard;
    file.raw_bytes = 1000 + shard;
    file.depth = 3;
    file.references = {{{1, 2}, 30, shard, false}, {{3, 4}, 10, shard, true}};
  }
  return record;
}

Json body_of(const CommitRecord& record) {
  return Json::parse(unseal_json("commit", serialize_commit_record(record)).value());
}

Result<CommitRecord> read_text(const std::string& text, std::uint64_t step = kStep) {
  os::FakeFileSystem files;
  files.plant(kLayout.commit(step), as_bytes(text));
  return read_commit_record(files, kLayout, step);
}
Result<CommitRecord> read_body(const Json& body) { return read_text(seal_json("commit", body.dump())); }

// `what` has to be part of the message, and so does the file.
template <typename T>
void expect_refused(const Result<T>& result, ErrorKind kind, const std::string& what) {
  ASSERT_FALSE(result) << what;
  EXPECT_EQ(result.error().kind(), kind) << result.error().message();
  EXPECT_NE(result.error().message().find(what), std::string::npos) << result.error().message();
  EXPECT_NE(result.error().message().find("/run/"), std::string::npos) << result.error().message();
}

// One change of a body: the place as a JSON pointer, and what is to stand there; a discarded value removes it.
struct Fault {
  const char* place;
  Json value;
  const char* message;
};

const Json kMissing = Json(Json::value_t::discarded);

Json changed(Json body, const Fault& fault) {
  const Json::json_pointer place(fault.place);
  if (fault.value.is_discarded()) {
    body.at(place.parent_pointer()).erase(place.back());
  } else {
    body[place] = fault.value;
  }
  return body;
}

TEST(SealedJson, MatchesTheSpecification) {
  const std::string text = seal_json("store", R"({"format":0})");
  EXPECT_EQ(text, seal_text("store", R"({"format":0})"));
  EXPECT_EQ(unseal_json("store", text), R"({"format":0})");
}

TEST(SealedJson, RejectsEveryChangedByteAndTruncation) {
  const std::string good = serialize_commit_record(full_record());
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const int mask : {1, 0x20, 0x80}) {
      std::string damaged = good;
      damaged[at] = static_cast<char>(damaged[at] ^ mask);
      const auto read = unseal_json("commit", damaged);
      ASSERT_FALSE(read) << "byte " << at;
      EXPECT_EQ(read.error().kind(), ErrorKind::corrupt);
    }
    ASSERT_FALSE(unseal_json("commit", std::string_view(good).substr(0, at))) << "cut off at " << at;
    ASSERT_FALSE(unseal_json("commit", std::string_view(good).substr(at + 1))) << "begins at " << at + 1;
  }
  EXPECT_FALSE(unseal_json("commit", good + "\n"));
  EXPECT_FALSE(unseal_json("commit", good + good));
  EXPECT_FALSE(unseal_json("shard", good)) << "a record of another kind";
}

TEST(SealedJson, RejectsABodyThatIsNotABareObject) {
  for (const char* body : {"", "1", "null", "[]", "\"format\"", "{", "{}}", "{\"format\":0", " {\"format\":0}",
                           "{\"format\":0} ", "{\"format\":0}\n", "{'format':0}", "{\"format\":0,}", "{\"format\":0}{}",
                           "\xEF\xBB\xBF{\"format\":0}", "{\"format\":0,\"x\":\"\xFF\"}",
                           "{\"format\":0,\"x\":\"\\ud800\"}", "{\"format\":0,\"x\":NaN}", "{\"format\":0/**/}"}) {
    const auto read = unseal_json("commit", seal_text("commit", body));
    ASSERT_FALSE(read) << body;
    EXPECT_EQ(read.error().kind(), ErrorKind::corrupt) << body;
  }
}

TEST(SealedJson, ChecksTheFormatFirst) {
  for (const char* body : {R"({"format":1})", R"({"step":"x","format":4294967296})"}) {
    const auto read = unseal_json("commit", seal_text("commit", body));
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().kind(), ErrorKind::unsupported) << body;
  }
  for (const char* body : {"{}", R"({"format":"0"})", R"({"format":-1})", R"({"format":0.0})", R"({"format":null})"}) {
    const auto read = unseal_json("commit", seal_text("commit", body));
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().kind(), ErrorKind::corrupt) << body;
  }
}

TEST(SealedJson, IgnoresNestedValuesAndRejectsDeepNesting) {
  const auto nested = [](std::size_t depth) {
    const std::string body =
        R"({"format":0,"y":"[[\"[","x":)" + std::string(depth, '[') + std::string(depth, ']') + "}";
    return unseal_json("commit", seal_text("commit", body));
  };
  EXPECT_TRUE(nested(63));
  EXPECT_FALSE(nested(64));
  const auto deep = nested(1'000'000);
  ASSERT_FALSE(deep);
  EXPECT_EQ(deep.error().kind(), ErrorKind::corrupt);
}

TEST(CommitRecord, RoundTrips) {
  os::FakeFileSystem files;
  files.plant(kLayout.step_file(kStep, "x"), {});
  for (const bool retired : {false, true}) {
    ASSERT_TRUE(replace_commit_record(files, kLayout, full_record(), retired));
    const auto read = read_commit_record(files, kLayout, kStep, retired);
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_EQ(*read, full_record());
  }
}

TEST(CommitRecord, RoundTripsAtTheLimits) {
  CommitRecord record = full_record();
  record.step = std::numeric_limits<std::uint64_t>::max();
  record.base = record.step - 1;
  record.links = std::numeric_limits<std::uint32_t>::max();
  record.attempt.clear();
  record.directory_sync = true;
  record.policy = "\"\\\n\xC3\xA4";
  record.shards.pop_back();
  record.shards[0].bytes = (std::uint64_t{1} << 62) - 1000;
  record.shards[0].references[0].step = record.step - 1;
  for (const std::int64_t time : {std::numeric_limits<std::int64_t>::min(), std::int64_t{-1}, std::int64_t{0},
                                  std::numeric_limits<std::int64_t>::max()}) {
    record.time_unix_ms = time;
    const auto read = read_text(serialize_commit_record(record), record.step);
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_EQ(*read, record);
  }
}

TEST(CommitRecord, UsesTheSpecifiedDefaults) {
  Json body = body_of(full_record());
  EXPECT_FALSE(body["shards"][0].contains("link"));
  body.erase("base");
  body.erase("attempt");
  body.erase("directory_sync");
  body["shards"][0]["references"][1].erase("standalone");
  const auto read = read_body(body);
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->base, std::nullopt);
  EXPECT_EQ(read->attempt, "");
  EXPECT_TRUE(read->directory_sync);
  EXPECT_FALSE(read->shards[0].references[1].standalone);
}

TEST(CommitRecord, IgnoresKeysOfALaterVersion) {
  Json body = body_of(full_record());
  body["later"] = Json::parse(R"([{"x":null}])");
  body["shards"][0]["later"] = 1.5;
  body["shards"][0]["references"][0]["later"] = "x";
  const auto read = read_body(body);
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(*read, full_record());
}

TEST(CommitRecord, RejectsMissingKeysAndWrongTypes) {
  CommitRecord linked = full_record();
  linked.shards[0].is_link = true;
  const Json body = body_of(linked);
  ASSERT_TRUE(read_body(body));
  for (const char* place :
       {"/step", "/time_unix_ms", "/policy", "/links", "/shards", "/shards/0/file", "/shards/0/id", "/shards/0/bytes",
        "/shards/0/raw_bytes", "/shards/0/depth", "/shards/0/references", "/shards/0/references/0/id",
        "/shards/0/references/0/step", "/shards/0/references/0/shard"}) {
    const std::string key = Json::json_pointer(place).back();
    const Json faults[] = {kMissing, nullptr, true, "1", 1.5, Json::array(), Json::object()};
    for (const Json& value : faults) {
      if (value.type() == body.at(Json::json_pointer(place)).type()) continue;
      expect_refused(read_body(changed(body, {place, value, ""})), ErrorKind::corrupt, "'" + key + "'");
    }
  }
  for (const char* place :
       {"/attempt", "/base", "/directory_sync", "/shards/0/references/1/standalone", "/shards/0/link"}) {
    const std::string key = Json::json_pointer(place).back();
    for (const Json& value : {Json(nullptr), Json(1.5), Json::array(), Json::object()}) {
      expect_refused(read_body(changed(body, {place, value, ""})), ErrorKind::corrupt, "'" + key + "'");
    }
  }
  for (const char* place : {"/shards/0", "/shards/0/references/0"}) {
    for (const Json& value : {Json(nullptr), Json(1), Json("x"), Json::array()}) {
      expect_refused(read_body(changed(body, {place, value, ""})), ErrorKind::corrupt, "key");
    }
  }
}

TEST(CommitRecord, RejectsInvalidValues) {
  const Fault faults[] = {
      {"/step", 41, "names step 41, expected 40"},
      {"/step", -40, "'step'"},
      {"/time_unix_ms", std::numeric_limits<std::uint64_t>::max(), "'time_unix_ms'"},
      {"/time_unix_ms", std::uint64_t{1} << 63, "'time_unix_ms'"},
      {"/attempt", "", "'attempt'"},
      {"/attempt", "A", "'attempt'"},
      {"/attempt", "../x", "'attempt'"},
      {"/attempt", std::string(65, 'a'), "'attempt'"},
      {"/base", 40, "base 40 of step 40"},
      {"/base", 40, "base 40 of step 40"},
      {"/base", -1, "'base'"},
      {"/links", std::uint64_t{1} << 32, "'links'"},
      {"/links", -1, "'links'"},
      {"/shards", Json::array(), "1 to 99999"},
      {"/shards/0/file", "", "'file'"},
      {"/shards/0/file", "../../../etc/a.bsnap", "'file'"},
      {"/shards/0/file", ".a.bsnap", "'file'"},
      {"/shards/0/file", "commit.json", "'file'"},
      {"/shards/0/file", std::string(200, 'a') + ".bsnap", "'file'"},
      {"/shards/1/file", "shard-00000-of-00002.a1.bsnap", "two shards name the file 'shard-00000-of-00002.a1.bsnap'"},
      {"/shards/0/id", "", "'id'"},
      {"/shards/0/id", std::string(31, '0'), "'id'"},
      {"/shards/0/id", std::string(33, '0'), "'id'"},
      {"/shards/0/id", std::string(32, 'A'), "'id'"},
      {"/shards/0/bytes", (std::uint64_t{1} << 62) + 1, "2^62"},
      {"/shards/0/raw_bytes", std::uint64_t{1} << 62, "2^62"},
      {"/shards/0/raw_bytes", std::numeric_limits<std::uint64_t>::max(), "2^62"},
      {"/shards/0/depth", std::uint64_t{1} << 32, "'depth'"},
      {"/shards/0/references/0/id", std::string(32, 'g'), "'id'"},
      {"/shards/0/references/0/step", 40, "step 40 refers to step 40, expected another step"},
      {"/shards/0/references/0/shard", std::uint64_t{1} << 32, "'shard'"},
      {"/shards/0/references/0/shard", -1, "'shard'"},
  };
  const Json body = body_of(full_record());
  for (const Fault& fault : faults) expect_refused(read_body(changed(body, fault)), ErrorKind::corrupt, fault.message);
}

TEST(CommitRecord, AllowsTheMaximumNumberOfShards) {
  CommitRecord record = full_record();
  record.shards.assign(kMaxShards, record.shards.front());
  for (std::uint32_t shard = 0; shard < kMaxShards; ++shard) {
    record.shards[shard].file = shard_file_name(shard, kMaxShards, "");
    record.shards[shard].references.clear();
  }
  EXPECT_TRUE(read_text(serialize_commit_record(record)));
  record.shards.push_back(record.shards.front());
  expect_refused(read_text(serialize_commit_record(record)), ErrorKind::corrupt, "1 to 99999");
}

TEST(CommitRecord, ProvidesTheCheckpointInfo) {
  const Checkpoint info = checkpoint_info(full_record(), 500);
  EXPECT_EQ(info.step, kStep);
  EXPECT_EQ(info.time_unix_ms, 1'795'292'680'123);
  EXPECT_EQ(info.raw_bytes, 2001U);
  EXPECT_EQ(info.stored_bytes, 701U);
  EXPECT_EQ(info.shards, 2U);
  EXPECT_EQ(info.base, 30U);
  EXPECT_EQ(info.links, 3U);
  EXPECT_EQ(info.depth, 3U);
}

TEST(CommitRecord, CountsAFileThatEqualShardsShareOnce) {
  CommitRecord record = full_record();
  record.shards[1] = record.shards[0];
  record.shards[1].file = shard_file_name(1, 2, "a1");
  record.shards[1].is_link = true;
  EXPECT_EQ(checkpoint_info(record, 500).stored_bytes, 600U);
  EXPECT_EQ(checkpoint_info(record, 500).raw_bytes, 2000U);
  EXPECT_EQ(*read_text(serialize_commit_record(record)), record);
  record.shards[0].is_link = true;
  settle_links(record);
  EXPECT_EQ(checkpoint_info(record, 500).stored_bytes, 600U);
  EXPECT_FALSE(record.shards[0].is_link);
  EXPECT_TRUE(record.shards[1].is_link);
  EXPECT_EQ(body_of(record)["shards"][1]["link"], true);
  EXPECT_FALSE(body_of(record)["shards"][0].contains("link"));
}

TEST(CommitRecord, IsNotFoundIfAbsent) {
  os::FakeFileSystem files;
  expect_refused(read_commit_record(files, kLayout, kStep), ErrorKind::not_found, "commit.json");
  expect_refused(read_commit_record(files, kLayout, kStep, true), ErrorKind::not_found, "retired.json");
}

TEST(CommitRecord, DoesNotReplaceAnExistingRecord) {
  os::FakeFileSystem files;
  files.plant(kLayout.commit(kStep), {});
  const auto written = write_commit_record(files, kLayout, full_record());
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(files.stat(kLayout.commit(kStep))->size_bytes, 0U);
}

ShardRecord shard_record() {
  const CommitRecord record = full_record();
  ShardRecord shard;
  static_cast<CommitHeader&>(shard) = static_cast<const CommitHeader&>(record);
  shard.shard = 1;
  shard.shards = 2;
  shard.file = record.shards[1];
  return shard;
}

Result<ShardRecord> read_shard_body(const Json& body) {
  os::FakeFileSystem files;
  files.plant(kShardPath, as_bytes(seal_json("shard", body.dump())));
  return read_shard_record(files, kShardPath);
}

TEST(ShardRecord, RoundTrips) {
  os::FakeFileSystem files;
  files.plant(kLayout.step_file(kStep, "x"), {});
  ASSERT_TRUE(write_shard_record(files, kShardPath, shard_record()));
  const auto read = read_shard_record(files, kShardPath);
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(static_cast<const CommitHeader&>(*read), static_cast<const CommitHeader&>(full_record()));
  EXPECT_EQ(read->file, full_record().shards[1]);
  EXPECT_EQ(std::pair(read->shard, read->shards), (std::pair<std::uint32_t, std::uint32_t>(1, 2)));
}

TEST(ShardRecord, HasItsKeysInTheOrderOfTheHeaderAndThenItsOwn) {
  os::FakeFileSystem files;
  files.plant(kLayout.step_file(kStep, "x"), {});
  ASSERT_TRUE(write_shard_record(files, kShardPath, shard_record()));
  const auto text = os::read_file(files, kShardPath, kMaxRecordBytes).value();
  EXPECT_EQ(
      as_text(text),
      seal_text("shard", R"({"format":0,"step":40,"time_unix_ms":1795292680123,"policy":"lossless","attempt":"a1",)"
                         R"("base":30,"links":3,"directory_sync":false,"shard":1,"shards":2,"file":)"
                         R"({"file":"shard-00001-of-00002.a1.bsnap","id":"00000000000000070000000000000001",)"
                         R"("bytes":101,"raw_bytes":1001,"depth":3,"references":[)"
                         R"({"id":"00000000000000020000000000000001","step":30,"shard":1},)"
                         R"({"id":"00000000000000040000000000000003","step":10,"shard":1,"standalone":true}]}})"));
}

TEST(ShardRecord, RejectsMissingKeysAndWrongTypes) {
  os::FakeFileSystem files;
  files.plant(kLayout.step_file(kStep, "x"), {});
  ASSERT_TRUE(write_shard_record(files, kShardPath, shard_record()));
  const auto text = os::read_file(files, kShardPath, kMaxRecordBytes).value();
  const Json body = Json::parse(unseal_json("shard", as_text(text)).value());
  ASSERT_TRUE(read_shard_body(body));
  for (const char* place : {"/step", "/time_unix_ms", "/policy", "/links", "/shard", "/shards", "/file", "/file/file",
                            "/file/id", "/file/bytes", "/file/raw_bytes", "/file/depth", "/file/references"}) {
    for (const Json& value : {kMissing, Json(nullptr), Json(1.5), Json(true)}) {
      expect_refused(read_shard_body(changed(body, {place, value, ""})), ErrorKind::corrupt, "key");
    }
  }
  expect_refused(read_shard_body(changed(body, {"/file/references/0/step", kStep, ""})), ErrorKind::corrupt, "refers");
}

constexpr const char* kRunBody =
    R"({"format":0,"id":"00112233445566778899aabbccddeeff","policy":"lmc","objective":"speed",)"
    R"("store_speed":5000000,"base":"keyframe","max_depth":32})";

Result<RunRecord> read_run_body(const Json& body) {
  os::FakeFileSystem files;
  files.plant(kLayout.run_record(), as_bytes(seal_json("store", body.dump())));
  return read_run_record(files, kLayout.run_record());
}

TEST(RunRecord, RoundTrips) {
  os::FakeFileSystem files;
  ASSERT_TRUE(files.create_directory("/run"));
  RunRecord record;
  record.id = "00112233445566778899aabbccddeeff";
  record.settings = {.policy = Policy::lmc,
                     .objective = Objective::speed,
                     .store_speed = 5'000'000,
                     .base = BaseRule::keyframe,
                     .max_depth = kLongestChain};
  ASSERT_TRUE(write_run_record(files, kLayout.run_record(), record, false));
  const auto bytes = os::read_file(files, kLayout.run_record(), 1000).value();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), seal_text("store", kRunBody));
  const auto read = read_run_record(files, kLayout.run_record());
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->id, record.id);
  EXPECT_EQ(read->settings, record.settings);
}

TEST(RunRecord, RejectsInvalidValues) {
  const Json body = Json::parse(kRunBody);
  ASSERT_TRUE(read_run_body(body));
  for (const char* place : {"/id", "/policy", "/base", "/max_depth"}) {
    for (const Json& value : {kMissing, Json(nullptr), Json(true), Json(1.5), Json::array()}) {
      expect_refused(read_run_body(changed(body, {place, value, ""})), ErrorKind::corrupt, "key");
    }
  }
  expect_refused(read_run_body(changed(body, {"/id", "0011", ""})), ErrorKind::corrupt,
                 "32 lower-case hexadecimal digits");
  expect_refused(read_run_body(changed(body, {"/max_depth", 33, ""})), ErrorKind::corrupt,
                 "max_depth must be 0 to 32, got 33");
  expect_refused(read_run_body(changed(body, {"/policy", "best", ""})), ErrorKind::unsupported, "'best'");
  expect_refused(read_run_body(changed(body, {"/base", "next", ""})), ErrorKind::unsupported, "'next'");
  expect_refused(read_run_body(changed(body, {"/format", 1, ""})), ErrorKind::unsupported, "format version 1");
  expect_refused(read_run_body(changed(body, {"/objective", "best", ""})), ErrorKind::unsupported, "'best'");
  expect_refused(read_run_body(changed(body, {"/objective", 5, ""})), ErrorKind::corrupt, "key");
  for (const std::uint64_t speed : {std::uint64_t{0}, std::uint64_t{999'999}, std::uint64_t{1'000'000'000'001}}) {
    expect_refused(read_run_body(changed(body, {"/store_speed", speed, ""})), ErrorKind::corrupt, "store_speed");
  }
}

TEST(RunRecord, KeepsLossRules) {
  os::FakeFileSystem files;
  ASSERT_TRUE(files.create_directory("/run"));
  RunRecord record;
  record.id = "00112233445566778899aabbccddeeff";
  record.settings.policy = Policy::bounded;
  record.settings.loss = {parse_loss_rule("exp_avg:*.embed*=exact").value(),
                          parse_loss_rule("*=mantissa_bits:9").value()};
  ASSERT_TRUE(write_run_record(files, kLayout.run_record(), record, false));
  const auto read = read_run_record(files, kLayout.run_record());
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->settings.loss, record.settings.loss);
  const Json body = Json::parse(kRunBody);
  EXPECT_TRUE(!read_run_body(body)->settings.loss);
  expect_refused(read_run_body(changed(body, {"/loss", "exact", ""})), ErrorKind::corrupt, "a list of rules");
  expect_refused(read_run_body(changed(body, {"/loss", Json::array({1}), ""})), ErrorKind::corrupt,
                 "expected a string");
  expect_refused(read_run_body(changed(body, {"/loss", Json::array({"exp_avg=less"}), ""})), ErrorKind::unsupported,
                 "exp_avg=less");
}

TEST(RunRecord, IgnoresKeysThatStoresDoNotRemember) {
  for (const Json& codec : {Json("zstd"), Json("of a later version"), Json(5)}) {
    const auto read = read_run_body(changed(Json::parse(kRunBody), {"/codec", codec, ""}));
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_FALSE(read->settings.codec);
  }
}

TEST(RunRecord, WithoutAnObjectiveMeansRatio) {
  const auto read = read_run_body(
      changed(changed(Json::parse(kRunBody), {"/objective", kMissing, ""}), {"/store_speed", kMissing, ""}));
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->settings.objective, Objective::ratio);
  EXPECT_EQ(read->settings.store_speed, std::nullopt);
}

TEST(RunRecord, NamesEachBaseRule) {
  for (const BaseRule rule : {BaseRule::previous, BaseRule::keyframe}) {
    EXPECT_EQ(base_rule_from_name(base_rule_name(rule)), rule);
  }
  EXPECT_EQ(base_rule_from_name(""), std::nullopt);
}

}  // namespace
}  // namespace bitsnap::store
