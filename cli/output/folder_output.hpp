// Writing what a snapshot of a folder or of a file of any kind holds: shared by `decompress` and `extract`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <bitsnap/error.hpp>
#include <bitsnap/folder.hpp>
#include <bitsnap/snapshot.hpp>

#include "cli/command.hpp"
#include "cli/output/safetensors_output.hpp"

namespace bitsnap::cli {

struct WrittenFolder {
  std::uint64_t bytes = 0;
  std::uint64_t files = 0;
  double seconds = 0;

  [[nodiscard]] double gbps() const noexcept { return static_cast<double>(bytes) / seconds / 1e9; }
};

// The file `file` of a folder, or everything but the entries `left_out`. Shows progress under `label`. invalid_argument
// if the output exists, unless it is a file and `output.force` is set, and for a whole folder on standard output.
[[nodiscard]] Result<WrittenFolder> write_folder(const Folder& folder, const std::optional<std::string>& file,
                                                 const SafetensorsOutput& output, const std::string& label,
                                                 const CommonOptions& common,
                                                 std::span<const std::size_t> left_out = {});

// The keys `output_bytes`, `files`, `seconds` and `gbps`.
void add_written(Json& report, const WrittenFolder& written);

// "IN : 99.5 MB -> 148 MB in 12 files  (81.2 MB/s)  OUT"
void print_written_folder(const std::string& input, const Snapshot& snapshot, const SafetensorsOutput& output,
                          const WrittenFolder& written);

}  // namespace bitsnap::cli
