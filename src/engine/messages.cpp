#include "engine/messages.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "base/hash.hpp"
#include "base/try.hpp"
#include "store/settings_json.hpp"

namespace bitsnap::engine {
namespace {

using store::json_array;
using store::json_bool;
using store::json_integer;
using store::json_member;
using store::json_string;
using store::json_unsigned;
using store::json_unsigned_32;

tl::unexpected<Error> bad_key(std::string_view key, std::string_view expected) {
  return fail(ErrorKind::corrupt, fmt::format("key \"{}\": expected {}", key, expected));
}

Result<std::optional<std::uint64_t>> maybe_unsigned(const Json& body, const char* key) {
  if (json_member(body, key) == nullptr) return std::optional<std::uint64_t>();
  BITSNAP_ASSIGN(const std::uint64_t value, json_unsigned(body, key));
  return std::optional(value);
}

Result<std::optional<std::string>> maybe_string(const Json& body, const char* key) {
  if (json_member(body, key) == nullptr) return std::optional<std::string>();
  BITSNAP_ASSIGN(std::string value, json_string(body, key));
  return std::optional(std::move(value));
}

template <typename T>
void put(Json& to, const char* key, const std::optional<T>& value) {
  if (value) to[key] = *value;
}

Json to_json(const WriteSettings& settings) {
  Json json = Json::object();
  store::put_settings(json, settings.coding, store::SettingsToWrite::all);
  put(json, "keep_last", settings.retention.keep_last);
  put(json, "keep_every", settings.retention.keep_every);
  return json;
}

Result<WriteSettings> parse_settings(const Json& body) {
  const Json* const json = json_member(body, "settings");
  if (json == nullptr || !json->is_object()) return bad_key("settings", "an object");
  WriteSettings settings;
  BITSNAP_TRY(store::take_settings(*json, settings.coding));
  BITSNAP_ASSIGN(settings.retention.keep_last, maybe_unsigned(*json, "keep_last"));
  BITSNAP_ASSIGN(settings.retention.keep_every, maybe_unsigned(*json, "keep_every"));
  return settings;
}

Result<std::optional<os::FoundFile>> parse_place(const Json& body) {
  const Json* const json = json_member(body, "place");
  if (json == nullptr) return std::optional<os::FoundFile>();
  if (!json->is_object()) return bad_key("place", "an object");
  os::FoundFile place;
  BITSNAP_ASSIGN(place.path, json_string(*json, "path"));
  if (!place.path.starts_with('/')) return bad_key("path", "an absolute path");
  BITSNAP_ASSIGN(place.identity.device, json_unsigned(*json, "device"));
  BITSNAP_ASSIGN(place.identity.inode, json_unsigned(*json, "inode"));
  return std::optional(std::move(place));
}

constexpr std::array<std::string_view, 3> kStages = {"memory", "persisted", "failed"};

}  // namespace

bool is_job_name(std::string_view name) noexcept {
  const auto is_allowed = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  return !name.empty() && name.size() <= kMaxJobBytes && std::ranges::all_of(name, is_allowed);
}

std::string socket_name(std::uint32_t uid, std::string_view job) {
  return fmt::format("bitsnap-{}-{:016x}", uid, hash64(as_byte_span(job)));
}

std::optional<SettingDifference> first_difference(const WriteSettings& expected, const WriteSettings& found) {
  const Json one = to_json(expected);
  const Json other = to_json(found);
  const auto text_of = [](const Json& settings, const std::string& name) {
    const auto value = settings.find(name);
    return value == settings.end() ? std::string("none") : value->dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  for (const Json* const settings : {&one, &other}) {
    for (const auto& [name, value] : settings->items()) {
      std::string in_one = text_of(one, name);
      std::string in_other = text_of(other, name);
      if (in_one != in_other) return SettingDifference{name, std::move(in_one), std::move(in_other)};
    }
  }
  return std::nullopt;
}

Json to_json(const Hello& hello) {
  Json json{{"job", hello.job},
            {"store", hello.store},
            {"rank", hello.rank},
            {"world_size", hello.world_size},
            {"session", hello.session},
            {"settings", to_json(hello.settings)},
            {"budget_bytes", hello.budget_bytes},
            {"memory_snapshots", hello.memory_snapshots},
            {"linger_ms", hello.linger_ms},
            {"threads", hello.threads}};
  if (hello.place) {
    const os::FoundFile& place = *hello.place;
    json["place"] = Json{{"path", place.path}, {"device", place.identity.device}, {"inode", place.identity.inode}};
  }
  return json;
}

Result<Hello> parse_hello(const Json& body) {
  Hello hello;
  BITSNAP_ASSIGN(hello.job, json_string(body, "job"));
  if (!is_job_name(hello.job)) return bad_key("job", "1 to 64 of the characters A-Z a-z 0-9 . _ -");
  BITSNAP_ASSIGN(hello.store, json_string(body, "store"));
  if (!hello.store.starts_with('/')) return bad_key("store", "an absolute path");
  BITSNAP_ASSIGN(hello.place, parse_place(body));
  BITSNAP_ASSIGN(hello.rank, json_unsigned_32(body, "rank"));
  BITSNAP_ASSIGN(hello.world_size, json_unsigned_32(body, "world_size"));
  if (hello.rank >= hello.world_size) return bad_key("rank", "a number below world_size");
  BITSNAP_ASSIGN(hello.session, json_string(body, "session"));
  BITSNAP_ASSIGN(hello.settings, parse_settings(body));
  BITSNAP_ASSIGN(hello.budget_bytes, json_unsigned(body, "budget_bytes"));
  BITSNAP_ASSIGN(hello.memory_snapshots, json_unsigned_32(body, "memory_snapshots"));
  BITSNAP_ASSIGN(hello.linger_ms, json_unsigned(body, "linger_ms"));
  BITSNAP_ASSIGN(hello.threads, json_unsigned_32(body, "threads"));
  return hello;
}

Json to_json(const Welcome& welcome) {
  Json slots = Json::array();
  for (const HeldSlot& slot : welcome.slots) {
    slots.push_back(slot.step ? Json{{"state", "held"}, {"step", *slot.step}} : Json{{"state", "free"}});
  }
  return Json{{"agent_pid", welcome.agent_pid},
              {"version", welcome.version},
              {"slot_bytes", welcome.slot_bytes},
              {"slots", std::move(slots)}};
}

Result<Welcome> parse_welcome(const Json& body) {
  Welcome welcome;
  BITSNAP_ASSIGN(welcome.agent_pid, json_integer(body, "agent_pid"));
  BITSNAP_ASSIGN(welcome.version, json_string(body, "version"));
  BITSNAP_ASSIGN(welcome.slot_bytes, json_unsigned(body, "slot_bytes"));
  BITSNAP_ASSIGN(const Json::array_t* const slots, json_array(body, "slots"));
  if (slots->size() > kMaxSlots) return bad_key("slots", "at most 2");
  for (const Json& slot : *slots) {
    BITSNAP_ASSIGN(const std::string state, json_string(slot, "state"));
    HeldSlot held;
    if (state == "held") {
      BITSNAP_ASSIGN(held.step, json_unsigned(slot, "step"));
    } else if (state != "free") {
      return bad_key("state", "free or held");
    }
    welcome.slots.push_back(held);
  }
  return welcome;
}

Json to_json(const ArenaOffer& arena) { return Json{{"slots", arena.slots}, {"slot_bytes", arena.slot_bytes}}; }

Result<ArenaOffer> parse_arena(const Json& body) {
  ArenaOffer arena;
  BITSNAP_ASSIGN(arena.slots, json_unsigned_32(body, "slots"));
  if (arena.slots == 0 || arena.slots > kMaxSlots) return bad_key("slots", "1 or 2");
  BITSNAP_ASSIGN(arena.slot_bytes, json_unsigned(body, "slot_bytes"));
  return arena;
}

Json to_json(const Staged& staged) {
  return Json{{"ticket", staged.ticket}, {"slot", staged.slot},       {"step", staged.step},
              {"bytes", staged.bytes},   {"persist", staged.persist}, {"again", staged.again}};
}

Result<Staged> parse_staged(const Json& body) {
  Staged staged;
  BITSNAP_ASSIGN(staged.ticket, json_unsigned(body, "ticket"));
  BITSNAP_ASSIGN(staged.slot, json_unsigned_32(body, "slot"));
  BITSNAP_ASSIGN(staged.step, json_unsigned(body, "step"));
  BITSNAP_ASSIGN(staged.bytes, json_unsigned(body, "bytes"));
  BITSNAP_ASSIGN(staged.persist, json_bool(body, "persist", true));
  BITSNAP_ASSIGN(staged.again, json_bool(body, "again", false));
  return staged;
}

Json to_json(const ListRequest& list) { return Json{{"wait_ms", list.wait_ms}}; }

Result<ListRequest> parse_list(const Json& body) {
  ListRequest list;
  BITSNAP_ASSIGN(list.wait_ms, json_unsigned(body, "wait_ms"));
  return list;
}

Json to_json(const StepList& steps) {
  Json rows = Json::array();
  for (const MemoryStep& step : steps.steps) {
    rows.push_back(Json{{"step", step.step}, {"memory", step.memory}, {"everywhere", step.everywhere}});
    if (!step.attempt.empty()) rows.back()["attempt"] = step.attempt;
  }
  return Json{{"steps", std::move(rows)}};
}

Result<StepList> parse_steps(const Json& body) {
  StepList list;
  BITSNAP_ASSIGN(const Json::array_t* const rows, json_array(body, "steps"));
  for (const Json& row : *rows) {
    MemoryStep step;
    BITSNAP_ASSIGN(step.step, json_unsigned(row, "step"));
    BITSNAP_ASSIGN(step.memory, json_bool(row, "memory", false));
    BITSNAP_ASSIGN(step.everywhere, json_bool(row, "everywhere", false));
    BITSNAP_ASSIGN(std::optional<std::string> attempt, maybe_string(row, "attempt"));
    step.attempt = std::move(attempt).value_or("");
    list.steps.push_back(step);
  }
  return list;
}

Json to_json(const FetchRequest& fetch) {
  Json body{{"step", fetch.step}, {"whole", fetch.whole}};
  if (!fetch.attempt.empty()) body["attempt"] = fetch.attempt;
  return body;
}

Result<FetchRequest> parse_fetch(const Json& body) {
  FetchRequest fetch;
  BITSNAP_ASSIGN(fetch.step, json_unsigned(body, "step"));
  BITSNAP_ASSIGN(fetch.whole, json_bool(body, "whole", true));
  BITSNAP_ASSIGN(std::optional<std::string> attempt, maybe_string(body, "attempt"));
  fetch.attempt = std::move(attempt).value_or("");
  return fetch;
}

Json to_json(const Fetched& fetched) {
  Json files = Json::array();
  for (const FetchedFile& file : fetched.files) {
    files.push_back(Json{{"id", file.id.to_hex()}, {"offset", file.offset}, {"bytes", file.bytes}});
  }
  Json json{{"files", std::move(files)}};
  put(json, "slot", fetched.slot);
  if (fetched.absent_bytes != 0) json["absent_bytes"] = fetched.absent_bytes;
  return json;
}

Result<Fetched> parse_fetched(const Json& body) {
  Fetched fetched;
  BITSNAP_ASSIGN(const Json::array_t* const files, json_array(body, "files"));
  if (files->empty()) return bad_key("files", "at least one");
  for (const Json& row : *files) {
    FetchedFile file;
    BITSNAP_ASSIGN(const std::string id, json_string(row, "id"));
    const std::optional<SnapshotId> parsed = SnapshotId::from_hex(id);
    if (!parsed) return bad_key("id", "32 hexadecimal digits");
    file.id = *parsed;
    BITSNAP_ASSIGN(file.offset, json_unsigned(row, "offset"));
    BITSNAP_ASSIGN(file.bytes, json_unsigned(row, "bytes"));
    fetched.files.push_back(file);
  }
  if (json_member(body, "slot") != nullptr) {
    BITSNAP_ASSIGN(fetched.slot, json_unsigned_32(body, "slot"));
  }
  BITSNAP_ASSIGN(const std::optional<std::uint64_t> absent, maybe_unsigned(body, "absent_bytes"));
  fetched.absent_bytes = absent.value_or(0);
  return fetched;
}

Json to_json(const TextSize& text) { return Json{{"bytes", text.bytes}}; }

Result<TextSize> parse_text_size(const Json& body) {
  TextSize text;
  BITSNAP_ASSIGN(text.bytes, json_unsigned(body, "bytes"));
  return text;
}

Json to_json(const StopRequest& stop) { return Json{{"abandon", stop.abandon}}; }

Result<StopRequest> parse_stop(const Json& body) {
  StopRequest stop;
  BITSNAP_ASSIGN(stop.abandon, json_bool(body, "abandon", false));
  return stop;
}

Json to_json(const Error& error) {
  // A message may name thousands of things; what a packet holds of it is enough, each letter as "\\u0001" at worst.
  constexpr std::size_t kMaxMessage = 4096;
  return Json{{"kind", error_kind_name(error.kind())}, {"message", error.message().substr(0, kMaxMessage)}};
}

Error parse_error(const Json& body) {
  const auto kind = json_string(body, "kind");
  const auto message = json_string(body, "message");
  for (auto number = static_cast<int>(ErrorKind::invalid_argument);
       kind && message && number <= static_cast<int>(ErrorKind::internal); ++number) {
    if (*kind == error_kind_name(static_cast<ErrorKind>(number))) return {static_cast<ErrorKind>(number), *message};
  }
  return {ErrorKind::internal, fmt::format("an error of another version: {}", body.dump())};
}

Json to_json(const ProgressEvent& progress) {
  Json json{{"ticket", progress.ticket}};
  put(json, "free", progress.free);
  if (!progress.stage) return json;
  json["stage"] = kStages[static_cast<std::size_t>(*progress.stage)];
  if (progress.error) json["error"] = to_json(*progress.error);
  json["raw_bytes"] = progress.raw_bytes;
  json["stored_bytes"] = progress.stored_bytes;
  json["encode_us"] = progress.encode_us;
  json["write_us"] = progress.write_us;
  put(json, "base", progress.base);
  return json;
}

Result<ProgressEvent> parse_progress(const Json& body) {
  ProgressEvent progress;
  BITSNAP_ASSIGN(progress.ticket, json_unsigned(body, "ticket"));
  if (json_member(body, "free") != nullptr) {
    BITSNAP_ASSIGN(progress.free, json_unsigned_32(body, "free"));
  }
  BITSNAP_ASSIGN(const std::optional<std::string> stage, maybe_string(body, "stage"));
  if (!stage) return progress;
  const auto* const found = std::ranges::find(kStages, *stage);
  if (found == kStages.end()) return bad_key("stage", "memory, persisted or failed");
  progress.stage = static_cast<Stage>(found - kStages.begin());
  if (const Json* const error = json_member(body, "error")) progress.error = parse_error(*error);
  if (*progress.stage == Stage::failed && !progress.error) return bad_key("error", "why it failed");
  BITSNAP_ASSIGN(progress.raw_bytes, json_unsigned(body, "raw_bytes"));
  BITSNAP_ASSIGN(progress.stored_bytes, json_unsigned(body, "stored_bytes"));
  BITSNAP_ASSIGN(progress.encode_us, json_unsigned(body, "encode_us"));
  BITSNAP_ASSIGN(progress.write_us, json_unsigned(body, "write_us"));
  BITSNAP_ASSIGN(progress.base, maybe_unsigned(body, "base"));
  return progress;
}

}  // namespace bitsnap::engine
