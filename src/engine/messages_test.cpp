// Every message to JSON and back; what lacks a key, or has another type under it, is refused by that key's name.
#include "engine/messages.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/packet.hpp"

namespace bitsnap::engine {
namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

using Json = nlohmann::ordered_json;

template <typename Message>
Json to_json(const Message& message) {
  return Json::parse(serialize_body(message));
}

template <typename Message>
Result<Message> parse(const Json& body) {
  return parse_body<Message>(body.dump());
}

// As it comes out of a packet.
Json sent(const Json& body) {
  const auto bytes = serialize_packet({MessageKind::hello, 1, body.dump()});
  EXPECT_TRUE(bytes.has_value());
  const auto packet = bytes ? parse_packet(*bytes) : Result<Packet>(tl::unexpected(bytes.error()));
  EXPECT_TRUE(packet.has_value()) << (packet ? "" : packet.error().message());
  return packet ? Json::parse(packet->body) : Json();
}

Hello full_hello() {
  Hello hello;
  hello.job = "run-7_b.x";
  hello.store = "/data/r\xC3\xBCn";
  hello.place = os::FoundFile{"/data", {.device = kMost, .inode = kMost - 1}};
  hello.rank = 3;
  hello.world_size = 8;
  hello.session = "a-1";
  hello.settings = {.coding = {.policy = Policy::bounded,
                               .objective = Objective::speed,
                               .store_speed = 2'000'000'000,
                               .base = BaseRule::keyframe,
                               .max_depth = 4,
                               .loss = std::vector<LossRule>{*parse_loss_rule("exp_avg_sq=mantissa_bits:3"),
                                                             *parse_loss_rule("*:*.router.*=exact")},
                               .codec = "zstd"},
                    .retention = {.keep_last = 5, .keep_every = 100}};
  hello.budget_bytes = kMost;
  hello.memory_snapshots = 3;
  hello.linger_ms = 60'000;
  hello.threads = 12;
  hello.upload_bytes_per_second = 5'000'000;
  return hello;
}

ProgressEvent full_progress() {
  return {.ticket = kMost,
          .free = 1,
          .stage = Stage::persisted,
          .error = std::nullopt,
          .raw_bytes = 1,
          .stored_bytes = 2,
          .encode_us = 3,
          .write_us = 4,
          .base = 0};
}

TEST(Messages, HelloRoundTrips) {
  const Hello hello = full_hello();
  const auto read = parse<Hello>(sent(to_json(hello)));
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(read->job, hello.job);
  EXPECT_EQ(read->store, hello.store);
  EXPECT_EQ(read->place, hello.place);
  EXPECT_EQ(read->rank, hello.rank);
  EXPECT_EQ(read->world_size, hello.world_size);
  EXPECT_EQ(read->session, hello.session);
  EXPECT_EQ(read->settings, hello.settings);
  EXPECT_EQ(read->budget_bytes, hello.budget_bytes);
  EXPECT_EQ(read->memory_snapshots, hello.memory_snapshots);
  EXPECT_EQ(read->linger_ms, hello.linger_ms);
  EXPECT_EQ(read->threads, hello.threads);
}

TEST(Messages, AbsentFieldsStayAbsent) {
  Hello hello;
  hello.job = "j";
  hello.store = "/";
  const Json json = sent(to_json(hello));
  EXPECT_EQ(json["settings"], Json::object());
  EXPECT_EQ(parse<Hello>(json)->settings, WriteSettings());
  hello.settings.coding.loss.emplace();  // no rules is something else than nothing said
  EXPECT_EQ(parse<Hello>(sent(to_json(hello)))->settings, hello.settings);
}

TEST(Messages, SmallMessagesRoundTrip) {
  const auto welcome = parse<Welcome>(sent(to_json(Welcome{-1, "1.2.3", 8192, {HeldSlot{}, HeldSlot{true, kMost}}})));
  ASSERT_TRUE(welcome.has_value()) << welcome.error().message();
  EXPECT_EQ(welcome->agent_pid, -1);
  EXPECT_EQ(welcome->version, "1.2.3");
  EXPECT_EQ(welcome->slot_bytes, 8192u);
  ASSERT_EQ(welcome->slots.size(), 2u);
  EXPECT_FALSE(welcome->slots[0].is_held);
  EXPECT_TRUE(welcome->slots[1].is_held);
  EXPECT_EQ(welcome->slots[1].step, kMost);

  EXPECT_FALSE(welcome->decides);
  EXPECT_TRUE(parse<Welcome>(sent(to_json(Welcome{-1, "1.2.3", 0, {}, true})))->decides);

  const auto decide = parse<DecideRequest>(sent(to_json(DecideRequest{kMost, 2})));
  EXPECT_EQ(decide->step, kMost);
  EXPECT_EQ(decide->slots, 2u);
  for (const bool save : {false, true}) EXPECT_EQ(parse<Decided>(sent(to_json(Decided{save})))->save, save);

  const auto arena = parse<ArenaOffer>(sent(to_json(ArenaOffer{2, kMost})));
  EXPECT_EQ(arena->slots, 2u);
  EXPECT_EQ(arena->slot_bytes, kMost);

  const auto staged = parse<Staged>(sent(to_json(Staged{kMost, 1, 9, 8, false, true})));
  EXPECT_EQ(staged->ticket, kMost);
  EXPECT_EQ(staged->slot, 1u);
  EXPECT_EQ(staged->step, 9u);
  EXPECT_EQ(staged->bytes, 8u);
  EXPECT_FALSE(staged->persist);
  EXPECT_TRUE(staged->again);

  EXPECT_EQ(parse<ListRequest>(sent(to_json(ListRequest{77})))->wait_ms, 77u);
  EXPECT_EQ(parse<FetchRequest>(sent(to_json(FetchRequest{kMost})))->step, kMost);
  EXPECT_EQ(parse<FetchRequest>(sent(to_json(FetchRequest{1, false, "a-1"})))->attempt, "a-1");
  EXPECT_EQ(parse<TextSize>(sent(to_json(TextSize{5})))->bytes, 5u);
  EXPECT_TRUE(parse<StopRequest>(sent(to_json(StopRequest{true})))->abandon);
  const StepList steps{{{1, true, false}, {kMost, false, true, "a-1", 3}}};
  EXPECT_EQ(parse<StepList>(sent(to_json(steps)))->steps, steps.steps);
}

TEST(Messages, FetchedRoundTrips) {
  const SnapshotId id = *SnapshotId::from_hex("00112233445566778899aabbccddeeff");
  for (const auto slot : {std::optional<std::uint32_t>(), std::optional<std::uint32_t>(1)}) {
    const auto read = parse<Fetched>(sent(to_json(Fetched{{{id, 0, 5}, {id, 5, kMost}}, slot})));
    ASSERT_TRUE(read.has_value()) << read.error().message();
    ASSERT_EQ(read->files.size(), 2u);
    EXPECT_EQ(read->files[1].id, id);
    EXPECT_EQ(read->files[1].offset, 5u);
    EXPECT_EQ(read->files[1].bytes, kMost);
    EXPECT_EQ(read->slot, slot);
  }
  EXPECT_EQ(parse<Fetched>(sent(to_json(Fetched{}))).error().kind(), ErrorKind::corrupt);
}

TEST(Messages, ProgressRoundTripsAtEachStage) {
  for (const Stage stage : {Stage::memory, Stage::persisted, Stage::failed}) {
    ProgressEvent event = full_progress();
    event.stage = stage;
    if (stage == Stage::failed) event.error = Error(ErrorKind::io, "no space");
    const auto read = parse<ProgressEvent>(sent(to_json(event)));
    ASSERT_TRUE(read.has_value()) << read.error().message();
    EXPECT_EQ(read->ticket, event.ticket);
    EXPECT_EQ(read->free, event.free);
    EXPECT_EQ(read->stage, event.stage);
    EXPECT_EQ(read->error.has_value(), stage == Stage::failed);
    EXPECT_EQ(read->raw_bytes, 1u);
    EXPECT_EQ(read->stored_bytes, 2u);
    EXPECT_EQ(read->encode_us, 3u);
    EXPECT_EQ(read->write_us, 4u);
    EXPECT_EQ(read->base, 0u);
  }
  ProgressEvent freed;
  freed.free = 0;
  const auto read = parse<ProgressEvent>(sent(to_json(freed)));
  EXPECT_EQ(read->free, 0u);
  EXPECT_FALSE(read->stage.has_value());
  EXPECT_FALSE(read->base.has_value());
}

TEST(Messages, ErrorsKeepKindAndMessage) {
  for (int kind = 1; kind <= static_cast<int>(ErrorKind::internal); ++kind) {
    const Error error = parse_error(sent(to_json(Error(static_cast<ErrorKind>(kind), "why \"not\"\n"))).dump());
    EXPECT_EQ(error.kind(), static_cast<ErrorKind>(kind));
    EXPECT_EQ(error.message(), "why \"not\"\\x0a") << "printable";
  }
  const Error needed = parse_error(
      sent(to_json(Error(ErrorKind::invalid_argument, "why").with_code(ErrorCode::adam_needed).about("exp_avg.w")))
          .dump());
  EXPECT_EQ(needed.code(), ErrorCode::adam_needed);
  EXPECT_EQ(needed.field(), "exp_avg.w");
  for (const char* const odd : {"{}", R"({"kind":"odd","message":"m"})", R"({"kind":"io"})", "[]", "7"}) {
    EXPECT_EQ(parse_error(odd).kind(), ErrorKind::internal) << odd;
  }
}

TEST(Messages, ReadsTheErrorOfAFailedSaveFromALaterVersion) {
  Json failed = to_json(full_progress());
  failed["stage"] = "failed";
  failed["error"] = Json{{"kind", "odd"}, {"message", "m"}};
  EXPECT_EQ(parse<ProgressEvent>(failed).value().error->kind(), ErrorKind::internal);
  failed["error"].erase("message");
  EXPECT_EQ(parse<ProgressEvent>(failed).error().kind(), ErrorKind::corrupt);
}

TEST(Messages, CutsErrorsThatDoNotFitIntoAPacket) {
  for (const char letter : {'x', '\x01', '"', '\xff'}) {
    ProgressEvent event = full_progress();
    event.stage = Stage::failed;
    event.error = Error(ErrorKind::io, std::string(100'000, letter));
    const auto bytes = serialize_packet({MessageKind::progress, 0, serialize_body(event)});
    EXPECT_TRUE(bytes.has_value()) << static_cast<int>(letter);
  }
}

// Takes away each key, and puts something of each other type there. `optional`: may be missing.
void expect_strict(const Json& good, const std::vector<std::string>& optional,
                   const std::function<Result<void>(const Json&)>& parse) {
  ASSERT_TRUE(parse(good).has_value());
  for (const auto& [key, value] : good.items()) {
    const bool may_lack = std::ranges::find(optional, key) != optional.end();
    Json without = good;
    without.erase(key);
    const auto parsed = parse(without);
    EXPECT_EQ(parsed.has_value(), may_lack) << key;
    if (!parsed) {
      EXPECT_EQ(parsed.error().kind(), ErrorKind::corrupt);
      EXPECT_NE(parsed.error().message().find("'" + key + "'"), std::string::npos) << parsed.error().message();
    }
    for (const Json& other : {Json(), Json(true), Json(-1), Json(1.5), Json(1U), Json("text"), Json::array({Json()}),
                              Json::object({{"other", 1}})}) {
      if (other.type() == value.type()) continue;
      if (value.is_number() && other.is_number_unsigned()) continue;
      if (key == "agent_pid" && other.is_number_integer()) continue;
      Json wrong = good;
      wrong[key] = other;
      const auto refused = parse(wrong);
      ASSERT_FALSE(refused.has_value()) << key << " " << other.dump();
      EXPECT_EQ(refused.error().kind(), ErrorKind::corrupt) << key << " " << other.dump();
      EXPECT_NE(refused.error().message().find("'" + key + "'"), std::string::npos) << refused.error().message();
    }
  }
  Json more = good;
  more["a key of a later version"] = Json::array({1, "x"});
  EXPECT_TRUE(parse(more).has_value());
}

template <typename Message>
Result<void> check(const Json& body) {
  auto parsed = parse<Message>(body);
  if (!parsed) return tl::unexpected(std::move(parsed).error());
  return {};
}

TEST(Messages, RejectsMissingKeysAndWrongTypes) {
  expect_strict(to_json(full_hello()), {"place"}, check<Hello>);
  expect_strict(to_json(Welcome{1, "1", 8192, {}}), {}, check<Welcome>);
  expect_strict(to_json(ArenaOffer{1, 4096}), {}, check<ArenaOffer>);
  expect_strict(to_json(Staged{1, 1, 1, 1, true, true}), {"persist", "again"}, check<Staged>);
  expect_strict(to_json(ListRequest{1}), {}, check<ListRequest>);
  expect_strict(to_json(StepList{}), {}, check<StepList>);
  expect_strict(to_json(FetchRequest{1, true, "a"}),
                {"whole", "attempt", "available_bytes", "threads", "in_place", "reads_store"}, check<FetchRequest>);
  expect_strict(to_json(TextSize{1}), {}, check<TextSize>);
  expect_strict(to_json(StopRequest{true}), {"abandon"}, check<StopRequest>);
  expect_strict(to_json(full_progress()), {"free", "stage", "base"}, check<ProgressEvent>);
}

TEST(Messages, RejectsAnIncompletePlace) {
  const Json good = to_json(full_hello());
  expect_strict(good["place"], {}, [&](const Json& place) {
    Json hello = good;
    hello["place"] = place;
    return check<Hello>(hello);
  });
  Json relative = good;
  relative["place"]["path"] = "data";
  EXPECT_FALSE(parse<Hello>(relative).has_value());
}

TEST(Messages, RejectsMissingKeysAndWrongTypesInRows) {
  const auto row_of = [](const Json& body, const char* list, const std::function<Result<void>(const Json&)>& parse) {
    return [body, list, parse](const Json& row) {
      Json whole = body;
      whole[list] = Json::array({row});
      return parse(whole);
    };
  };
  const SnapshotId id = *SnapshotId::from_hex("00112233445566778899aabbccddeeff");
  const Json fetched = to_json(Fetched{{{id, 1, 2}}, std::nullopt});
  expect_strict(fetched["files"][0], {}, row_of(fetched, "files", check<Fetched>));
  const Json steps = to_json(StepList{{{1, true, true, "a", 2, {0}}}});
  expect_strict(steps["steps"][0], {"memory", "everywhere", "attempt", "earlier_ranks", "held_ranks"},
                row_of(steps, "steps", check<StepList>));
  const Json welcome = to_json(Welcome{1, "1", 8192, {HeldSlot{true, 1}}});
  expect_strict(welcome["slots"][0], {}, row_of(welcome, "slots", check<Welcome>));
  for (const Json& row : {Json(), Json(1), Json("x"), Json::array()}) {
    EXPECT_EQ(row_of(fetched, "files", check<Fetched>)(row).error().kind(), ErrorKind::corrupt);
    EXPECT_EQ(row_of(steps, "steps", check<StepList>)(row).error().kind(), ErrorKind::corrupt);
    EXPECT_EQ(row_of(welcome, "slots", check<Welcome>)(row).error().kind(), ErrorKind::corrupt);
  }
  const Json settings = to_json(full_hello());
  expect_strict(settings["settings"],
                {"policy", "objective", "store_speed", "codec", "base", "max_depth", "keep_last", "keep_every", "loss"},
                [&](const Json& row) {
                  Json whole = settings;
                  whole["settings"] = row;
                  return check<Hello>(whole);
                });
}

TEST(Messages, RejectsInvalidValuesAndNamesTheKey) {
  const auto expect_bad = [](Json body, const std::string& key, const Json& value, const auto& parse) {
    body[key] = value;
    const auto parsed = parse(body);
    ASSERT_FALSE(parsed.has_value()) << key << " " << value.dump();
    EXPECT_EQ(parsed.error().kind(), ErrorKind::corrupt);
    EXPECT_NE(parsed.error().message().find("'" + key + "'"), std::string::npos) << parsed.error().message();
  };
  const Json hello = to_json(full_hello());
  for (const std::string& job : {std::string(), std::string(65, 'a'), std::string("a/b"), std::string("a b"),
                                 std::string("\xC3\xA4"), std::string("a\0b", 3)}) {
    EXPECT_FALSE(is_job_name(job));
    expect_bad(hello, "job", job, parse<Hello>);
  }
  EXPECT_TRUE(is_job_name(std::string(64, 'a')));
  expect_bad(hello, "store", "run", parse<Hello>);
  expect_bad(hello, "store", "", parse<Hello>);
  expect_bad(hello, "rank", 8, parse<Hello>);
  expect_bad(hello, "rank", std::uint64_t{1} << 32, parse<Hello>);
  expect_bad(hello, "world_size", 0, [](const Json& body) {
    const auto parsed = parse<Hello>(body);
    // Either of the two keys may be called wrong: the rank is not below.
    return parsed || parsed.error().message().find("'rank'") == std::string::npos
               ? parsed
               : Result<Hello>(fail(parsed.error().kind(), "key 'world_size'"));
  });
  for (const char* const key : {"policy", "objective", "base"}) {
    Json settings = hello;
    settings["settings"][key] = "of a later version";
    const auto parsed = parse<Hello>(settings);
    ASSERT_FALSE(parsed.has_value());
    EXPECT_NE(parsed.error().message().find(std::string("'") + key + "'"), std::string::npos);
  }
  Json rules = hello;
  rules["settings"]["loss"] = Json::array({"nonsense"});
  const auto parsed = parse<Hello>(rules);
  ASSERT_FALSE(parsed.has_value());
  EXPECT_EQ(parsed.error().kind(), ErrorKind::unsupported);
  EXPECT_NE(parsed.error().message().find("'loss'"), std::string::npos) << parsed.error().message();

  expect_bad(to_json(ArenaOffer{1, 1}), "slots", 0, parse<ArenaOffer>);
  expect_bad(to_json(ArenaOffer{1, 1}), "slots", 3, parse<ArenaOffer>);
  expect_bad(to_json(Welcome{}), "slots", Json::array({1, 2, 3}), parse<Welcome>);
  expect_bad(to_json(full_progress()), "stage", "lost", parse<ProgressEvent>);
  Json failed = to_json(full_progress());
  failed["stage"] = "failed";
  EXPECT_NE(parse<ProgressEvent>(failed).error().message().find("'error'"), std::string::npos);
}

TEST(Messages, TheSocketNameContainsTheUser) {
  EXPECT_EQ(socket_name("a").substr(0, 6), "agent-");
  EXPECT_EQ(socket_name("a").size(), 22u);
  EXPECT_NE(socket_name("a"), socket_name("b"));
}

}  // namespace
}  // namespace bitsnap::engine
