// Writing a snapshot as a safetensors file, to a file or to standard output: shared by `decompress` and `extract`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

#include <bitsnap/snapshot.hpp>

#include "cli/command.hpp"

namespace bitsnap::cli {

inline constexpr const char* kStdoutName = "-";

struct SafetensorsOutput {
  std::string path;  // kStdoutName: standard output
  bool force = false;

  [[nodiscard]] bool to_stdout() const noexcept { return path == kStdoutName; }
};

// -o, -c and -f. `otherwise` describes the output if neither -o nor -c is given, which leaves the path empty. `output`
// has to outlive the parsing.
void add_output_options(CLI::App& app, SafetensorsOutput& output, std::string_view otherwise);

// Called before anything is opened: rejects JSON and the file on the same standard output, and binary data on a
// terminal without --force.
[[nodiscard]] Result<void> check_stdout(const SafetensorsOutput& output, const CommonOptions& common);

// A Snapshot::Sink.
[[nodiscard]] Result<void> write_to_stdout(std::span<const std::byte> piece);

struct WrittenSafetensors {
  std::uint64_t bytes = 0;
  bool exact = false;  // byte for byte the file that the snapshot was made from
  double seconds = 0;

  [[nodiscard]] double gbps() const noexcept { return static_cast<double>(bytes) / seconds / 1e9; }
};

// Everything but the tensors of `left_out`, or one tensor by its name. Shows progress under `label`.
[[nodiscard]] Result<WrittenSafetensors> write_safetensors(const Snapshot& snapshot,
                                                           const std::optional<std::string>& tensor,
                                                           const SafetensorsOutput& output, const std::string& label,
                                                           const CommonOptions& common,
                                                           std::span<const std::size_t> left_out = {});

// The keys `output_bytes`, `original_header`, `seconds` and `gbps`.
void add_written(Json& report, const WrittenSafetensors& written);

// "IN : 99.5 MB -> 148 MB  (81.2 MB/s)  OUT", and with -v its id and tensors.
void print_written(const std::string& input, const Snapshot& snapshot, const SafetensorsOutput& output,
                   const WrittenSafetensors& written, const CommonOptions& common);

}  // namespace bitsnap::cli
