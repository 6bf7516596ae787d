// What happened to raw checkpoints, one line each, and the options about raw checkpoints: shared by `ingest` and
// `watch`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include <bitsnap/store.hpp>

#include "cli/command.hpp"
#include "cli/watch/checkpoint_saving.hpp"
#include "cli/watch/raw_deletion.hpp"

namespace bitsnap::cli {

struct RawKeeping {
  bool delete_after_verify = false;
  std::optional<std::uint64_t> keep_raw;  // nullopt: the default of the command
};

// --delete-after-verify and --keep-raw. `keeping` must outlive the parsing.
void add_raw_keeping_options(CLI::App& app, RawKeeping& keeping, const std::string& keep_raw_help);

// Prints events as lines for people on standard error, or as JSON lines on standard output. --quiet suppresses the
// lines for people.
class RawEvents {
 public:
  RawEvents(std::string run, const CommonOptions& common) : run_(std::move(run)), common_(common) {}

  [[nodiscard]] Result<void> saved(const Store& store, const SavedCheckpoint& saved) const;
  void skipped(const std::string& path, std::optional<std::uint64_t> step, const std::string& reason) const;
  // Deleted, or why it stays.
  void deletion(const std::string& path, std::uint64_t step, const RawDeletion& deletion) const;
  // A remark that ends nothing.
  void note(const std::string& path, std::optional<std::uint64_t> step, const std::string& text) const;
  // The same about an error, as a warning.
  void warning(const std::string& path, std::optional<std::uint64_t> step, const Error& error) const;

 private:
  void print(const char* event, const std::string& path, std::optional<std::uint64_t> step, const std::string& reason,
             const std::string& line) const;

  std::string run_;
  const CommonOptions& common_;
};

}  // namespace bitsnap::cli
