// Writing what a snapshot holds, a folder or a file of any kind, and the report about it: shared by `decompress` and
// `extract`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/writer.hpp>

#include "cli/command.hpp"

namespace bitsnap::cli {

struct RestoreOutput {
  std::string path;  // "-": standard output
  bool force = false;
  bool partial = false;  // leave out what cannot be read

  [[nodiscard]] bool to_stdout() const noexcept { return path == "-"; }
};

// -o, -c and -f. `otherwise` describes the output if neither -o nor -c is given, which leaves the path empty. `output`
// has to outlive the parsing.
void add_output_options(CLI::App& app, RestoreOutput& output, std::string_view otherwise);
void add_partial_option(CLI::App& app, RestoreOutput& output);

// Called before anything is opened: rejects JSON and the file on the same standard output, and binary data on a
// terminal without --force.
[[nodiscard]] Result<void> check_stdout(const RestoreOutput& output, const CommonOptions& common);

struct Restoration {
  std::shared_ptr<const Snapshot> snapshot;  // nullptr: `state` is written
  std::shared_ptr<const State> state = {};   // of several shards
  std::uint64_t state_bytes = 0;             // of its files
  std::string name;                          // what messages call the input
  Json report;                               // what --json prints about it first
  std::optional<std::string> file = {};      // only this file of the folder
  std::optional<std::string> tensor = {};    // only this tensor, as a safetensors file
};

// Writes the snapshot and prints the report: "IN : 99.5 MB -> 148 MB in 12 files  (81.2 MB/s)  OUT". With --partial,
// decodes everything first to find what cannot be read, and warns about it. Returns the exit status. invalid_argument
// for a whole folder on standard output, and if the output exists, unless it is a file and `output.force` is set.
[[nodiscard]] Result<int> restore(const Restoration& what, const RestoreOutput& output, const CommonOptions& common);

// The status, or its error: an error of damage with the advice to use --partial.
[[nodiscard]] Result<int> suggest_partial(Result<int> status);

}  // namespace bitsnap::cli
