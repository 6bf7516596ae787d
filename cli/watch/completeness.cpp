#include "cli/watch/completeness.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include <fmt/format.h>

#include <bitsnap/error.hpp>
#include <bitsnap/safetensors.hpp>

#include "cli/input/checkpoint_names.hpp"
#include "cli/number_option.hpp"
#include "cli/operating_system.hpp"

namespace bitsnap::cli {

namespace {

using std::string_view_literals::operator""sv;

constexpr std::string_view kZipStart = "PK\x03\x04"sv;
constexpr std::string_view kZipEnd = "PK\x05\x06"sv;
constexpr std::size_t kZipEndBytes = 22;  // of an end record without its comment, whose length is in the last two
constexpr std::size_t kMostCommentBytes = 0xffff;

std::string read_piece(std::ifstream& in, std::uint64_t offset, std::uint64_t bytes) {
  std::string piece(bytes, '\0');
  in.seekg(static_cast<std::streamoff>(offset));
  in.read(piece.data(), static_cast<std::streamsize>(bytes));
  piece.resize(static_cast<std::size_t>(std::max<std::streamsize>(in.gcount(), 0)));
  return piece;
}

// Whether an end record with its comment ends where the tail ends.
bool has_zip_end(std::string_view tail) {
  for (std::size_t at = tail.rfind(kZipEnd); at != std::string_view::npos; at = tail.rfind(kZipEnd, at - 1)) {
    const std::size_t bytes = tail.size() - at;
    const auto byte = [&](std::size_t index) { return std::size_t{static_cast<unsigned char>(tail[at + index])}; };
    if (bytes >= kZipEndBytes && byte(20) + (byte(21) << 8) == bytes - kZipEndBytes) return true;
    if (at == 0) break;
  }
  return false;
}

bool is_cut_zip(const std::string& path, std::uint64_t size) {
  std::ifstream in(path, std::ios::binary);
  if (size < kZipStart.size() || read_piece(in, 0, kZipStart.size()) != kZipStart) return false;
  const auto tail_bytes = std::min<std::uint64_t>(size, kZipEndBytes + kMostCommentBytes);
  const std::string tail = read_piece(in, size - tail_bytes, tail_bytes);
  return tail.size() == tail_bytes && !has_zip_end(tail);
}

bool is_cut_safetensors(const std::string& path) {
  const auto state = open_safetensors(path);
  return !state && state.error().kind() == ErrorKind::truncated;
}

}  // namespace

std::string find_cut_file(const std::string& path, const std::vector<RawEntry>& tree) {
  if (tree.front().facts.kind == NodeKind::file && tree.front().facts.size_bytes == 0) return "it is empty";
  for (const RawEntry& entry : tree) {
    if (entry.facts.kind != NodeKind::file) continue;
    const std::string file = raw_path(path, entry);
    // A .distcp file holds many archives; .metadata says that it is complete.
    const bool is_cut = (!file.ends_with(".distcp") && is_cut_zip(file, entry.facts.size_bytes)) ||
                        (file.ends_with(".safetensors") && is_cut_safetensors(file));
    if (is_cut) return fmt::format("{} is cut off", entry.path.empty() ? "it" : entry.path);
  }
  return {};
}

namespace {

constexpr std::string_view kMegatronMarker = "latest_checkpointed_iteration.txt";
constexpr std::string_view kDeepspeedMarker = "latest";
constexpr std::string_view kDcpMetadata = ".metadata";
constexpr std::string_view kTransformersState = "trainer_state.json";
constexpr std::string_view kTransformersPrefix = "checkpoint-";
constexpr std::size_t kMarkerBytes = 4096;

// Even with a marker, a checkpoint must have been unchanged for this long: some programs add a file after the marker.
constexpr std::chrono::seconds kMarkerSettle(2);

std::string name_of_raw(const std::string& path) { return std::filesystem::path(path).filename().string(); }

// The text of a regular file without the space around it; nullopt if there is none.
std::optional<std::string> read_marker_text(const std::string& path, std::int64_t& modified_ns) {
  const auto facts = read_facts(path);
  if (!facts || !*facts || (*facts)->kind != NodeKind::file || (*facts)->size_bytes > kMarkerBytes) return std::nullopt;
  modified_ns = (*facts)->modified_ns;
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const std::size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  const std::size_t end = text.find_last_not_of(" \t\r\n");
  return begin == text.size() ? std::string() : text.substr(begin, end + 1 - begin);
}

std::optional<TrainingMarker> read_megatron(const std::string& directory) {
  TrainingMarker marker{std::string(kMegatronMarker), "iter_", {}, 0};
  const auto text = read_marker_text(fmt::format("{}/{}", directory, kMegatronMarker), marker.modified_ns);
  if (!text) return std::nullopt;
  marker.step = parse_decimal(*text);
  return marker.step || text->empty() ? std::optional(marker) : std::nullopt;
}

std::optional<TrainingMarker> read_deepspeed(const std::string& directory) {
  TrainingMarker marker{std::string(kDeepspeedMarker), "global_step", {}, 0};
  const auto text = read_marker_text(fmt::format("{}/{}", directory, kDeepspeedMarker), marker.modified_ns);
  if (!text || text->empty()) return text ? std::optional(marker) : std::nullopt;
  marker.step = step_of_name(*text);
  if (!marker.step) return std::nullopt;
  const std::size_t last_digit = text->find_last_of("0123456789");
  const std::size_t before = text->find_last_not_of("0123456789", last_digit);
  marker.prefix = before == std::string::npos ? "" : text->substr(0, before + 1);
  return marker;
}

std::string_view directory_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

std::string path_in(std::string_view directory, std::string_view name) {
  return directory.empty() ? std::string(name) : fmt::format("{}/{}", directory, name);
}

bool is_directory(const RawEntry& entry) { return entry.facts.kind == NodeKind::directory; }

bool has_state_of_transformers(const RawCheckpoint& checkpoint) {
  if (!name_of_raw(checkpoint.path).starts_with(kTransformersPrefix)) return false;
  const auto facts = read_facts(fmt::format("{}/{}", checkpoint.path, kTransformersState));
  return facts && *facts && (*facts)->kind == NodeKind::file && (*facts)->size_bytes > 0;
}

// Why the checkpoint lacks something that its framework writes; empty if it lacks nothing.
std::string find_missing(const std::vector<RawEntry>& tree, bool is_transformers) {
  if (std::ranges::all_of(tree, is_directory)) return "it holds no file";
  for (const RawEntry& entry : tree) {
    if (!entry.path.ends_with(".distcp")) continue;
    const std::string marker = path_in(directory_of(entry.path), kDcpMetadata);
    const RawEntry* metadata = find_raw(tree, marker);
    if (metadata == nullptr) return marker + " is missing";
    if (entry.facts.modified_ns > metadata->facts.modified_ns) {
      return fmt::format("{} is newer than {}", entry.path, marker);
    }
  }
  const RawEntry* arguments = find_raw(tree, "training_args.bin");
  const RawEntry* state = find_raw(tree, kTransformersState);
  if ((is_transformers || arguments != nullptr) && state == nullptr) return "trainer_state.json is missing";
  if (arguments != nullptr && state->facts.size_bytes == 0) return "trainer_state.json is empty";
  if (arguments != nullptr && arguments->facts.modified_ns > state->facts.modified_ns) {
    return "training_args.bin is newer than trainer_state.json";
  }
  return {};
}

// Rank 0 writes these before the marker.
bool is_of_rank_0(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name.starts_with("mp_rank_00_") || name.find("pp_rank_0_mp_rank_00") != std::string_view::npos;
}

// Why the marker does not say that the checkpoint is complete; empty if it does.
std::string find_unmarked(const TrainingMarker& marker, std::uint64_t step, const std::vector<RawEntry>& tree,
                          bool only_rank_0) {
  if (!marker.step || step > *marker.step) return fmt::format("{} does not name it yet", marker.name);
  for (const RawEntry& entry : tree) {
    if (only_rank_0 && !is_of_rank_0(entry.path)) continue;
    if (entry.facts.modified_ns > marker.modified_ns) {
      return fmt::format("{} was written before {}", marker.name, entry.path.empty() ? "it" : entry.path);
    }
  }
  return {};
}

// Whether the files are those of a framework that writes a marker beside its first checkpoint, too.
bool has_rank_files(const std::vector<RawEntry>& tree) {
  return std::ranges::any_of(tree, [](const RawEntry& entry) {
    return directory_of(entry.path).empty() &&
           (entry.path.starts_with("mp_rank_") || entry.path.find("_mp_rank_") != std::string::npos);
  });
}

bool is_dcp_complete(const std::vector<RawEntry>& tree) {
  const RawEntry* metadata = find_raw(tree, kDcpMetadata);
  const auto is_older = [&](const RawEntry& entry) {
    return is_directory(entry) || entry.facts.modified_ns <= metadata->facts.modified_ns;
  };
  return metadata != nullptr &&
         std::ranges::any_of(tree,
                             [](const RawEntry& entry) {
                               return entry.path.ends_with(".distcp") && directory_of(entry.path).empty();
                             }) &&
         std::ranges::all_of(tree, is_older);
}

}  // namespace

TrainingMarkers read_markers(const std::string& directory, const std::vector<RawCheckpoint>& checkpoints) {
  return {read_megatron(directory), read_deepspeed(directory),
          std::ranges::any_of(checkpoints, has_state_of_transformers)};
}

Judgement judge(const TrainingMarkers& markers, const RawCheckpoint& checkpoint, const std::vector<RawEntry>& tree,
                std::chrono::nanoseconds unchanged, std::chrono::nanoseconds settle) {
  const std::string name = name_of_raw(checkpoint.path);
  const bool is_folder = is_directory(tree.front());
  const bool is_megatron = is_folder && markers.megatron && name.starts_with(markers.megatron->prefix);
  const bool is_deepspeed =
      is_folder && !is_megatron && markers.deepspeed && name.starts_with(markers.deepspeed->prefix);

  std::string missing =
      find_missing(tree, is_folder && markers.has_transformers && name.starts_with(kTransformersPrefix));
  if (missing.empty() && !is_megatron && !is_deepspeed && has_rank_files(tree)) {
    missing = fmt::format("{} is missing", name.starts_with("iter_") ? kMegatronMarker : kDeepspeedMarker);
  }
  if (missing.empty() && is_megatron) missing = find_unmarked(*markers.megatron, checkpoint.step, tree, false);
  if (missing.empty() && is_deepspeed) missing = find_unmarked(*markers.deepspeed, checkpoint.step, tree, true);
  if (!missing.empty()) return {unchanged < settle ? RawState::changing : RawState::unfinished, std::move(missing)};

  const bool is_marked = is_megatron || (is_dcp_complete(tree) && !is_deepspeed);
  const auto needed = is_marked ? std::min<std::chrono::nanoseconds>(settle, kMarkerSettle) : settle;
  return {unchanged < needed ? RawState::changing : RawState::complete, {}};
}

}  // namespace bitsnap::cli
