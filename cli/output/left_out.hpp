// What `extract --partial` and `decompress --partial` leave out: the tensors, or the files of a folder, that cannot be
// read.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <bitsnap/folder.hpp>
#include <bitsnap/snapshot.hpp>

#include "cli/command.hpp"

namespace bitsnap::cli {

struct LeftOut {
  const char* kind = "tensor";                        // or "file"
  std::vector<std::size_t> numbers = {};              // of tensors, or of entries of the folder; ascending
  std::vector<std::pair<std::string, Error>> errors;  // by name, in the same order
};

// `partial` must outlive the parsing.
void add_partial_option(CLI::App& app, bool& partial);

// Decodes everything to find what cannot be read. Shows progress under `label`. Returns the first error if nothing can
// be read.
[[nodiscard]] Result<LeftOut> find_left_out(const Snapshot& snapshot, const std::string& label,
                                            const CommonOptions& common);
[[nodiscard]] Result<LeftOut> find_left_out(const Folder& folder, const std::string& label,
                                            const CommonOptions& common);

// The key `left_out`.
void add_left_out(Json& report, const LeftOut& left_out);
// Prints a warning for each, also with --quiet. Returns the exit status of the command.
[[nodiscard]] int report_left_out(const LeftOut& left_out);

// An error of damage, with the advice to use --partial.
[[nodiscard]] Error suggest_partial(Error error);

}  // namespace bitsnap::cli
