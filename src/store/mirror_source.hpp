// Which run a copy follows: docs/spec/store.md, "Mirrors".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>

#include "os/file_system.hpp"
#include "store/run_layout.hpp"
#include "store/sealed_json.hpp"

namespace bitsnap::store {

// Of the copy: who has written to it last, and which steps are there from that run.
struct MirrorSource {
  std::uint32_t format = kStoreFormat;
  std::string id;  // empty: no run has been followed yet
  std::string host;
  std::vector<std::uint64_t> steps;

  friend bool operator==(const MirrorSource&, const MirrorSource&) = default;
};

[[nodiscard]] Result<MirrorSource> read_mirror_source(os::FileSystem& files, const RunLayout& copy);
[[nodiscard]] Result<void> write_mirror_source(os::FileSystem& files, const RunLayout& copy,
                                               const MirrorSource& source);

// The id of a run's directory as a source: unlike the id of the run, another one in each copy. Empty: it has none yet.
[[nodiscard]] Result<std::string> find_source_id(os::FileSystem& files, const RunLayout& run);
// Gives it one. Writes to the run.
[[nodiscard]] Result<std::string> make_source_id(os::FileSystem& files, const RunLayout& run);

}  // namespace bitsnap::store
