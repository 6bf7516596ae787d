// The bodies of the messages between trainer and agent: docs/spec/engine.md, "Messages". Each body is a struct with a
// table of its keys. No state, no I/O.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/object_store.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/store.hpp>

#include "engine/packet.hpp"
#include "json/json_fields.hpp"
#include "os/file_identity.hpp"

namespace bitsnap::os {

template <auto kMember>
struct IdentityFormat {
  static Result<void> read(json::JsonReader& in, FileIdentity& to) { return read_json(in, to.*kMember); }
  static void write(json::JsonWriter& out, const FileIdentity& from) { write_json(out, from.*kMember); }
};

constexpr auto json_fields(std::type_identity<FoundFile>) {
  using json::json_field;
  return std::array{json_field<&FoundFile::path>("path").must(
                        "an absolute path", [](const FoundFile& file) { return file.path.starts_with('/'); }),
                    json_field<&FoundFile::identity, IdentityFormat<&FileIdentity::device>>("device"),
                    json_field<&FoundFile::identity, IdentityFormat<&FileIdentity::inode>>("inode")};
}

}  // namespace bitsnap::os

namespace bitsnap::engine {

using json::json_field;
using json::JsonName;
using json::JsonNeed;
using json::JsonReader;
using json::JsonWriter;

inline constexpr std::size_t kMaxJobBytes = 64;
inline constexpr std::uint32_t kMaxSlots = 2;

// One year. Longer times count as this, so that sums of times do not overflow.
inline constexpr std::uint64_t kLongestWaitMs = std::uint64_t{365} * 86'400'000;

[[nodiscard]] inline std::int64_t wait_of(std::uint64_t milliseconds) {
  return static_cast<std::int64_t>(std::min(milliseconds, kLongestWaitMs));
}

// 1 to 64 of the characters A-Z a-z 0-9 . _ -
[[nodiscard]] bool is_job_name(std::string_view name) noexcept;
// invalid_argument if it is none.
[[nodiscard]] Result<void> check_job_name(std::string_view name);
// The file name of the socket on which the agent of a job listens.
[[nodiscard]] std::string socket_name(std::string_view job);

// A body as text. `Message` is a struct of this file with a table.
template <typename Message>
[[nodiscard]] std::string serialize_body(const Message& message) {
  return json::serialize_json(message);
}
// corrupt, naming the key, if a key is missing or has a value that the document does not allow. Unknown keys are
// ignored.
template <typename Message>
[[nodiscard]] Result<Message> parse_body(std::string_view body) {
  return json::parse_json<Message>(body, kMaxBodyNesting);
}

// The body of `refused`.
[[nodiscard]] std::string serialize_body(const Error& error);
// The error in the body of `refused`; internal if this version cannot read it.
[[nodiscard]] Error parse_error(std::string_view body);

// How the store is written: the same for all ranks of a job.
struct WriteSettings {
  CodingSettings coding = {};
  Retention retention = {};  // keep_last and keep_every

  friend bool operator==(const WriteSettings&, const WriteSettings&) = default;
};

// One object with the settings that have a value, by the table of bitsnap/settings.hpp, and those of the retention.
struct WriteSettingsFormat {
  static Result<void> read(JsonReader& in, WriteSettings& to);
  static void write(JsonWriter& out, const WriteSettings& from);
};

// The first setting for which two ranks have different values, as JSON; "none" for a missing value.
struct SettingDifference {
  std::string name, expected, found;
};
[[nodiscard]] std::optional<SettingDifference> first_difference(const WriteSettings& expected,
                                                                const WriteSettings& found);

struct Hello {
  std::string job;
  std::string store;  // absolute
  // What the trainer finds at the path of the store, or at the nearest existing directory above it.
  std::optional<os::FoundFile> place;
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  std::string session;
  WriteSettings settings;
  std::uint64_t budget_bytes = 0;
  std::uint32_t memory_snapshots = 1;
  std::uint64_t linger_ms = 0;
  std::uint32_t threads = 0;
  std::uint64_t upload_bytes_per_second = 0;
};

constexpr auto json_fields(std::type_identity<Hello>) {
  return std::array{json_field<&Hello::job>("job").must("1 to 64 of the characters A-Z a-z 0-9 . _ -",
                                                        [](const Hello& hello) { return is_job_name(hello.job); }),
                    json_field<&Hello::store>("store").must(
                        "an absolute path",
                        [](const Hello& hello) { return hello.store.starts_with('/') || is_object_path(hello.store); }),
                    json_field<&Hello::rank>("rank").must(
                        "a number below world_size", [](const Hello& hello) { return hello.rank < hello.world_size; }),
                    json_field<&Hello::world_size>("world_size"),
                    json_field<&Hello::session>("session"),
                    json_field<&Hello::settings, WriteSettingsFormat>("settings"),
                    json_field<&Hello::budget_bytes>("budget_bytes"),
                    json_field<&Hello::memory_snapshots>("memory_snapshots"),
                    json_field<&Hello::linger_ms>("linger_ms"),
                    json_field<&Hello::threads>("threads"),
                    json_field<&Hello::upload_bytes_per_second>("upload_bytes_per_second"),
                    json_field<&Hello::place>("place", JsonNeed::optional)};
}

struct HeldSlot {
  bool is_held = false;
  std::uint64_t step = 0;  // of a held slot
};

inline constexpr std::array<std::string_view, 2> kSlotStates = {"free", "held"};

constexpr auto json_fields(std::type_identity<HeldSlot>) {
  return std::array{json_field<&HeldSlot::is_held, JsonName<kSlotStates>>("state"),
                    json_field<&HeldSlot::step>("step").only_if([](const HeldSlot& slot) { return slot.is_held; })};
}

struct Welcome {
  std::int64_t agent_pid = 0;
  std::string version;
  std::uint64_t slot_bytes = 0;  // 0: there is no arena
  std::vector<HeldSlot> slots;
  bool decides = false;  // the agent knows `decide`
  bool hurries = false;  // and `hurry`
  bool rotates = false;  // and `rotate`
};

constexpr auto json_fields(std::type_identity<Welcome>) {
  return std::array{json_field<&Welcome::agent_pid>("agent_pid"),
                    json_field<&Welcome::version>("version"),
                    json_field<&Welcome::decides>("decides", JsonNeed::optional),
                    json_field<&Welcome::hurries>("hurries", JsonNeed::optional),
                    json_field<&Welcome::rotates>("rotates", JsonNeed::optional),
                    json_field<&Welcome::slot_bytes>("slot_bytes"),
                    json_field<&Welcome::slots>("slots").must(
                        "at most 2 slots", [](const Welcome& welcome) { return welcome.slots.size() <= kMaxSlots; })};
}

struct ArenaOffer {
  std::uint32_t slots = 0;
  std::uint64_t slot_bytes = 0;
};

constexpr auto json_fields(std::type_identity<ArenaOffer>) {
  return std::array{json_field<&ArenaOffer::slots>("slots").must(
                        "1 or 2", [](const ArenaOffer& offer) { return offer.slots >= 1 && offer.slots <= kMaxSlots; }),
                    json_field<&ArenaOffer::slot_bytes>("slot_bytes")};
}

struct Staged {
  std::uint64_t ticket = 0;
  std::uint32_t slot = 0;
  std::uint64_t step = 0;
  std::uint64_t bytes = 0;
  bool persist = true;
  bool again = false;  // the state was already given to an agent that has gone, which may have persisted it
};

constexpr auto json_fields(std::type_identity<Staged>) {
  return std::array{json_field<&Staged::ticket>("ticket"),
                    json_field<&Staged::slot>("slot"),
                    json_field<&Staged::step>("step"),
                    json_field<&Staged::bytes>("bytes"),
                    json_field<&Staged::persist>("persist", JsonNeed::defaulted),
                    json_field<&Staged::again>("again", JsonNeed::defaulted)};
}

// Asks whether the ranks of this agent save a step.
struct DecideRequest {
  std::uint64_t step = 0;
  std::uint32_t slots = 1;  // of this rank's arena; those of a rank that has none yet are taken to be as many
};

constexpr auto json_fields(std::type_identity<DecideRequest>) {
  return std::array{json_field<&DecideRequest::step>("step"), json_field<&DecideRequest::slots>("slots")};
}

struct Decided {
  bool save = true;
};

constexpr auto json_fields(std::type_identity<Decided>) { return std::array{json_field<&Decided::save>("save")}; }

// Whether the trainer waits for a slot.
struct Hurry {
  bool waits = false;
};

constexpr auto json_fields(std::type_identity<Hurry>) { return std::array{json_field<&Hurry::waits>("waits")}; }

// What the caller of a trainer keeps and removes itself, as a framework does that rotates its checkpoints.
struct Rotation {
  std::vector<std::uint64_t> removed;      // steps that are not needed any more
  std::optional<std::uint64_t> keep_last;  // how many stay; nullopt: many, or all
};

constexpr auto json_fields(std::type_identity<Rotation>) {
  return std::array{json_field<&Rotation::removed>("removed"),
                    json_field<&Rotation::keep_last>("keep_last", JsonNeed::optional)
                        .must("at least 1", [](const Rotation& rotation) { return rotation.keep_last != 0; })};
}

struct ListRequest {
  std::uint64_t wait_ms = 0;
};

constexpr auto json_fields(std::type_identity<ListRequest>) {
  return std::array{json_field<&ListRequest::wait_ms>("wait_ms")};
}

struct MemoryStep {
  std::uint64_t step = 0;
  bool memory = false;
  bool everywhere = false;
  std::string attempt = {};         // empty with one rank
  std::uint32_t earlier_ranks = 0;  // of an earlier job with another world size, which saved the step to memory
  std::vector<std::uint32_t> held_ranks = {};  // of these, those whose states of the attempt this agent still has

  friend bool operator==(const MemoryStep&, const MemoryStep&) = default;
};

constexpr auto json_fields(std::type_identity<MemoryStep>) {
  return std::array{json_field<&MemoryStep::step>("step"),
                    json_field<&MemoryStep::memory>("memory", JsonNeed::defaulted),
                    json_field<&MemoryStep::everywhere>("everywhere", JsonNeed::defaulted),
                    json_field<&MemoryStep::attempt>("attempt", JsonNeed::optional),
                    json_field<&MemoryStep::earlier_ranks>("earlier_ranks", JsonNeed::optional),
                    json_field<&MemoryStep::held_ranks>("held_ranks", JsonNeed::optional)};
}

// In shared memory, not in a packet.
struct StepList {
  std::vector<MemoryStep> steps;
};

constexpr auto json_fields(std::type_identity<StepList>) { return std::array{json_field<&StepList::steps>("steps")}; }

// Asks the agent to store what it has in memory of a step of the earlier job.
struct PersistRequest {
  std::uint64_t step = 0;
  std::string attempt = {};  // empty if the earlier job had one rank
};

constexpr auto json_fields(std::type_identity<PersistRequest>) {
  return std::array{json_field<&PersistRequest::step>("step"),
                    json_field<&PersistRequest::attempt>("attempt", JsonNeed::optional)};
}

struct FetchRequest {
  std::uint64_t step = 0;
  bool whole = true;         // false: a slot may stand for the payloads
  std::string attempt = {};  // with several ranks, the attempt to fetch; empty: any
  // The memory that the trainer has left for the files, for decoding and, unless it has memory for the state, for the
  // state. If this is too little, the agent gives memory back and refuses. 0: unknown.
  std::uint64_t available_bytes = 0;
  std::uint64_t threads = 0;  // that decode
  bool in_place = false;      // the trainer has memory for the state
  // The trainer fetches nothing: it reads the step from the store, and the agent gives back what is in the store.
  bool reads_store = false;
};

constexpr auto json_fields(std::type_identity<FetchRequest>) {
  return std::array{json_field<&FetchRequest::step>("step"),
                    json_field<&FetchRequest::whole>("whole", JsonNeed::defaulted),
                    json_field<&FetchRequest::attempt>("attempt", JsonNeed::optional),
                    json_field<&FetchRequest::available_bytes>("available_bytes", JsonNeed::defaulted),
                    json_field<&FetchRequest::threads>("threads", JsonNeed::defaulted),
                    json_field<&FetchRequest::in_place>("in_place", JsonNeed::defaulted),
                    json_field<&FetchRequest::reads_store>("reads_store", JsonNeed::defaulted)};
}

struct FetchedFile {
  SnapshotId id;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

constexpr auto json_fields(std::type_identity<FetchedFile>) {
  return std::array{json_field<&FetchedFile::id>("id"), json_field<&FetchedFile::offset>("offset"),
                    json_field<&FetchedFile::bytes>("bytes")};
}

struct Fetched {
  std::vector<FetchedFile> files;  // first the requested one
  std::optional<std::uint32_t> slot;
  // How many bytes after the header of the first file are zeros. If it is not 0, there are no other files.
  std::uint64_t absent_bytes = 0;
};

constexpr auto json_fields(std::type_identity<Fetched>) {
  return std::array{json_field<&Fetched::files>("files").must(
                        "at least one file", [](const Fetched& fetched) { return !fetched.files.empty(); }),
                    json_field<&Fetched::slot>("slot", JsonNeed::optional),
                    json_field<&Fetched::absent_bytes>("absent_bytes", JsonNeed::optional)};
}

// The size of the text that comes in shared memory: a report, or a StepList.
struct TextSize {
  std::uint64_t bytes = 0;
};

constexpr auto json_fields(std::type_identity<TextSize>) { return std::array{json_field<&TextSize::bytes>("bytes")}; }

struct StopRequest {
  bool abandon = false;
};

constexpr auto json_fields(std::type_identity<StopRequest>) {
  return std::array{json_field<&StopRequest::abandon>("abandon", JsonNeed::defaulted)};
}

enum class Stage : std::uint8_t { memory, persisted, failed };
inline constexpr std::array<std::string_view, 3> kStages = {"memory", "persisted", "failed"};

// As in `refused`.
struct ErrorFormat {
  static Result<void> read(JsonReader& in, std::optional<Error>& to);
  static void write(JsonWriter& out, const std::optional<Error>& from);
};

struct ProgressEvent {
  std::uint64_t ticket = 0;
  std::optional<std::uint32_t> free;
  std::optional<Stage> stage;
  std::optional<Error> error;
  bool skipped = false;  // with the stage failed: because not all ranks saved the step
  // With a stage:
  std::uint64_t raw_bytes = 0;
  std::uint64_t stored_bytes = 0;
  std::uint64_t encode_us = 0;
  std::uint64_t write_us = 0;
  std::optional<std::uint64_t> base;
};

constexpr auto json_fields(std::type_identity<ProgressEvent>) {
  using Event = ProgressEvent;
  constexpr auto kHasStage = [](const Event& event) { return event.stage.has_value(); };
  constexpr auto kHasReason = [](const Event& event) { return event.stage != Stage::failed || event.error; };
  return std::array{json_field<&Event::ticket>("ticket"),
                    json_field<&Event::free>("free", JsonNeed::optional),
                    json_field<&Event::stage, JsonName<kStages>>("stage", JsonNeed::optional),
                    json_field<&Event::error, ErrorFormat>("error", JsonNeed::optional)
                        .must("an error with the stage failed", kHasReason),
                    json_field<&Event::skipped>("skipped", JsonNeed::optional),
                    json_field<&Event::raw_bytes>("raw_bytes").only_if(kHasStage),
                    json_field<&Event::stored_bytes>("stored_bytes").only_if(kHasStage),
                    json_field<&Event::encode_us>("encode_us").only_if(kHasStage),
                    json_field<&Event::write_us>("write_us").only_if(kHasStage),
                    json_field<&Event::base>("base", JsonNeed::optional)};
}

}  // namespace bitsnap::engine
