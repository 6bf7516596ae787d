// What trainer and agent say to each other: docs/spec/engine.md, "Messages". One struct for each body that has anything
// in it, with its way to JSON and back; parsing gives `corrupt` naming the key. No state, no I/O.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/store.hpp>

#include "engine/packet.hpp"
#include "os/file_identity.hpp"

namespace bitsnap::engine {

inline constexpr std::size_t kMaxJobBytes = 64;
inline constexpr std::uint32_t kMaxSlots = 2;

// Times that are longer are taken for this: a year, with which one can reckon.
inline constexpr std::uint64_t kLongestWaitMs = std::uint64_t{365} * 86'400'000;

[[nodiscard]] inline std::int64_t wait_of(std::uint64_t milliseconds) {
  return static_cast<std::int64_t>(std::min(milliseconds, kLongestWaitMs));
}

// 1 to 64 of the characters A-Z a-z 0-9 . _ -
[[nodiscard]] bool is_job_name(std::string_view name) noexcept;
// Where the agent of a job listens, without the zero byte before it.
[[nodiscard]] std::string socket_name(std::uint32_t uid, std::string_view job);

// How the store is written: the same for all ranks of a job.
struct WriteSettings {
  CodingSettings coding = {};
  Retention retention = {};  // keep_last and keep_every

  friend bool operator==(const WriteSettings&, const WriteSettings&) = default;
};

struct Hello {
  std::string job;
  std::string store;  // absolute
  // What the trainer sees at the store's path, or the nearest above it that is there; nullopt where it says nothing.
  std::optional<os::FoundFile> place;
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  std::string session;
  WriteSettings settings;
  std::uint64_t budget_bytes = 0;
  std::uint32_t memory_snapshots = 1;
  std::uint64_t linger_ms = 0;
  std::uint32_t threads = 0;
};

// A setting that two ranks have said differently, as text; "none" for one that was not said.
struct SettingDifference {
  std::string name, expected, found;
};
[[nodiscard]] std::optional<SettingDifference> first_difference(const WriteSettings& expected,
                                                                const WriteSettings& found);

struct HeldSlot {
  std::optional<std::uint64_t> step;  // nullopt: free
};

struct Welcome {
  std::int64_t agent_pid = 0;
  std::string version;
  std::uint64_t slot_bytes = 0;  // 0: there is no arena
  std::vector<HeldSlot> slots;
};

struct ArenaOffer {
  std::uint32_t slots = 0;
  std::uint64_t slot_bytes = 0;
};

struct Staged {
  std::uint64_t ticket = 0;
  std::uint32_t slot = 0;
  std::uint64_t step = 0;
  std::uint64_t bytes = 0;
  bool persist = true;
  bool again = false;  // it was handed to an agent that has gone, which may have persisted it
};

struct ListRequest {
  std::uint64_t wait_ms = 0;
};

struct MemoryStep {
  std::uint64_t step = 0;
  bool memory = false;
  bool everywhere = false;
  std::string attempt = {};  // of several ranks

  friend bool operator==(const MemoryStep&, const MemoryStep&) = default;
};

struct StepList {
  std::vector<MemoryStep> steps;
};

struct FetchRequest {
  std::uint64_t step = 0;
  bool whole = true;         // otherwise a slot may stand for the payloads
  std::string attempt = {};  // of several ranks, the one that is wanted; empty: whichever is there
};

struct FetchedFile {
  SnapshotId id;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

struct Fetched {
  std::vector<FetchedFile> files;  // the one that was asked for first
  std::optional<std::uint32_t> slot;
  std::uint64_t absent_bytes = 0;  // of the first file behind its header, which are not there, nor other files
};

// Of what comes in shared memory: a report, or a StepList.
struct TextSize {
  std::uint64_t bytes = 0;
};

struct StopRequest {
  bool abandon = false;
};

enum class Stage : std::uint8_t { memory, persisted, failed };

struct ProgressEvent {
  std::uint64_t ticket = 0;
  std::optional<std::uint32_t> free;
  std::optional<Stage> stage;
  std::optional<Error> error;
  std::uint64_t raw_bytes = 0;
  std::uint64_t stored_bytes = 0;
  std::uint64_t encode_us = 0;
  std::uint64_t write_us = 0;
  std::optional<std::uint64_t> base;
};

[[nodiscard]] Json to_json(const Hello& hello);
[[nodiscard]] Json to_json(const Welcome& welcome);
[[nodiscard]] Json to_json(const ArenaOffer& arena);
[[nodiscard]] Json to_json(const Staged& staged);
[[nodiscard]] Json to_json(const ListRequest& list);
[[nodiscard]] Json to_json(const StepList& steps);
[[nodiscard]] Json to_json(const FetchRequest& fetch);
[[nodiscard]] Json to_json(const Fetched& fetched);
[[nodiscard]] Json to_json(const TextSize& text);
[[nodiscard]] Json to_json(const StopRequest& stop);
[[nodiscard]] Json to_json(const ProgressEvent& progress);
// The body of `refused`.
[[nodiscard]] Json to_json(const Error& error);

[[nodiscard]] Result<Hello> parse_hello(const Json& body);
[[nodiscard]] Result<Welcome> parse_welcome(const Json& body);
[[nodiscard]] Result<ArenaOffer> parse_arena(const Json& body);
[[nodiscard]] Result<Staged> parse_staged(const Json& body);
[[nodiscard]] Result<ListRequest> parse_list(const Json& body);
[[nodiscard]] Result<StepList> parse_steps(const Json& body);
[[nodiscard]] Result<FetchRequest> parse_fetch(const Json& body);
[[nodiscard]] Result<Fetched> parse_fetched(const Json& body);
[[nodiscard]] Result<TextSize> parse_text_size(const Json& body);
[[nodiscard]] Result<StopRequest> parse_stop(const Json& body);
[[nodiscard]] Result<ProgressEvent> parse_progress(const Json& body);
// What was refused, or why that could not be read.
[[nodiscard]] Error parse_error(const Json& body);

}  // namespace bitsnap::engine
