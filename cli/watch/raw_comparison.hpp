// Compares a raw checkpoint, as a training wrote it, with what a run gives back, byte for byte and in small memory.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>

#include "cli/watch/raw_tree.hpp"

namespace bitsnap::cli {

enum class RawMatch {
  content,     // names, kinds, bytes and targets of links
  everything,  // also modes, times and which names are hard links to one file
  remainder,   // the content of the files that exist; a deletion may have removed others
};

struct RawDifference {
  std::string what;  // "model.pt: byte 4096 differs"
  bool is_in_bytes = false;
};

// nullopt if they match. `tree` is that of the checkpoint at `path`. Fails if the raw checkpoint cannot be read, if the
// stored one cannot be decoded, and with cancelled after an interrupt.
[[nodiscard]] Result<std::optional<RawDifference>> compare_raw(const std::string& path,
                                                               const std::vector<RawEntry>& tree,
                                                               const std::shared_ptr<const Snapshot>& stored,
                                                               RawMatch match, unsigned threads);

// Whether any tensor was stored with loss.
[[nodiscard]] bool is_lossy(const Snapshot& snapshot) noexcept;

}  // namespace bitsnap::cli
