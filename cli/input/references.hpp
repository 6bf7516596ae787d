// References: small JSON files that a training writes in place of a checkpoint which a run holds. A reference is a file
// of its own, such as X.ckpt, or `bitsnap-reference.json` in the folder of the checkpoint; docs/spec/reference.md. It
// has no weights: it is never stored as a checkpoint and never deleted, because the training removes steps to which no
// reference leads any more.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <bitsnap/error.hpp>

namespace bitsnap::cli {

// The names of the reference of a folder: the first one that is there counts. Earlier versions wrote the second one,
// which is also the name of the record of a run.
inline constexpr std::array<std::string_view, 2> kFolderReferences = {"bitsnap-reference.json", "bitsnap.json"};

// A step of the run, and the word in the metadata of its checkpoint, because a step can be removed and saved again. The
// word is empty if the framework saves no step twice.
struct ReferencedSave {
  std::uint64_t step = 0;
  std::string word;
};

struct Reference {
  std::string path;  // of its file
  std::uint64_t version = 0;
  std::string run;  // the directory of the run
  std::string run_id;
  std::vector<ReferencedSave> saves;  // the first one that is committed counts; empty: the reference is damaged
};

// The reference that is the file `path`, or that the folder `path` has; nullopt if there is none. Fails if a file that
// may be one cannot be read.
[[nodiscard]] Result<std::optional<Reference>> read_reference(const std::string& path);

using Metadata = std::vector<std::pair<std::string, std::string>>;

// The word in the metadata of a checkpoint that says in which save to a path it was made; empty if it has none.
[[nodiscard]] std::string saved_word(const Metadata& metadata);

// The metadata of a copy, which no path of a training leads to.
[[nodiscard]] Metadata without_saved_path(Metadata metadata);

// How many files the folder of a reference has that are neither the reference nor lead to the run.
[[nodiscard]] Result<std::uint64_t> count_other_files(const std::string& folder);

// "refers to step 5 of the run a/bitsnap"
[[nodiscard]] std::string describe(const Reference& reference);

// Why the file or folder `path` is no checkpoint to store or to delete: it is or contains a reference, or contains a
// run. nullopt if it is one. No link to a folder is followed. Fails if something cannot be read.
[[nodiscard]] Result<std::optional<std::string>> find_held_elsewhere(const std::string& path);

// Why `ingest` and `watch` leave out what `held` describes and `reference` leads to, with the command that takes it.
[[nodiscard]] std::string skip_reason(const std::string& held, const std::optional<Reference>& reference);

// What find_held_elsewhere() finds, as a reason to leave it out: "it refers to step 5 of the run a/bitsnap; ...".
[[nodiscard]] Result<std::optional<std::string>> find_reason_to_skip(const std::string& path);

// Fails with invalid_argument if find_held_elsewhere() finds something. `command` is what the user called.
[[nodiscard]] Result<void> check_holds_itself(const std::string& path, std::string_view command);

}  // namespace bitsnap::cli
