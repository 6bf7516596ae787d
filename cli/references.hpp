// References: small JSON files that a training writes in place of a checkpoint which a run holds. A reference is a file
// of its own, such as X.ckpt, or `bitsnap.json` in the folder of the checkpoint. It has no weights: it is never stored
// as a checkpoint and never deleted, because the training removes steps to which no reference leads any more.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/error.hpp>

namespace bitsnap::cli {

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

// "refers to step 5 of the run a/bitsnap"
[[nodiscard]] std::string describe(const Reference& reference);

// Why the file or folder `path` is no checkpoint to store or to delete: it is or contains a reference, or contains a
// run. nullopt if it is one. No link to a folder is followed. Fails if something cannot be read.
[[nodiscard]] Result<std::optional<std::string>> find_held_elsewhere(const std::string& path);

// Fails with invalid_argument if find_held_elsewhere() finds something. `command` is what the user called.
[[nodiscard]] Result<void> check_holds_itself(const std::string& path, std::string_view command);

}  // namespace bitsnap::cli
