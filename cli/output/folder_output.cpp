#include "cli/output/folder_output.hpp"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include <bitsnap/text.hpp>

#include "cli/output/progress_bar.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

Result<std::size_t> find_entry(const Folder& folder, const std::optional<std::string>& file) {
  const auto entry = folder.find(file.value_or(""));
  if (!entry) {
    return fail(ErrorKind::not_found,
                fmt::format("the checkpoint holds no file '{}'; `bitsnap inspect` lists them", printable(*file)));
  }
  return *entry;
}

}  // namespace

Result<WrittenFolder> write_folder(const Folder& folder, const std::optional<std::string>& file,
                                   const SafetensorsOutput& output, const std::string& label,
                                   const CommonOptions& common, std::span<const std::size_t> left_out) {
  const auto start = std::chrono::steady_clock::now();
  BITSNAP_ASSIGN(const std::size_t entry, find_entry(folder, file));
  const bool is_folder = folder.entries()[entry].kind == EntryKind::directory;
  if (file && is_folder) {
    return fail(ErrorKind::invalid_argument, fmt::format("'{}' is a directory, not a file", printable(*file)));
  }
  if (is_folder && output.to_stdout()) {
    return fail(ErrorKind::invalid_argument, "a folder cannot be written to standard output; --file chooses a file");
  }
  WrittenFolder written;
  for (const FolderEntry& each : folder.entries()) {
    if (!is_folder && &each != &folder.entries()[entry]) continue;
    if (each.kind == EntryKind::hard_link && is_folder) continue;
    if (std::ranges::binary_search(left_out, static_cast<std::size_t>(&each - folder.entries().data()))) continue;
    written.bytes += each.size_bytes;
    written.files += each.kind == EntryKind::directory || each.kind == EntryKind::symbolic_link ? 0 : 1;
  }
  ProgressBar bar(label, !common.quiet);
  RunOptions run;
  run.threads = common.threads;
  run.progress = bar.callback();
  if (output.to_stdout()) {
    BITSNAP_TRY(folder.stream_file(entry, write_to_stdout, run));
  } else if (is_folder) {
    BITSNAP_TRY(folder.extract_without(left_out, output.path, run));
  } else {
    BITSNAP_TRY(folder.extract_file(entry, output.path, output.force, run));
  }
  written.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return written;
}

void add_written(Json& report, const WrittenFolder& written) {
  report["output_bytes"] = written.bytes;
  report["files"] = written.files;
  report["seconds"] = written.seconds;
  report["gbps"] = written.gbps();
}

void print_written_folder(const std::string& input, const Snapshot& snapshot, const SafetensorsOutput& output,
                          const WrittenFolder& written) {
  print_note(fmt::format("{} : {} -> {} in {}  ({})  {}\n", printable(input), format_size(snapshot.file_bytes()),
                         format_size(written.bytes), format_plural(written.files, "file"),
                         format_speed(written.bytes, written.seconds),
                         output.to_stdout() ? "standard output" : printable(output.path)));
}

}  // namespace bitsnap::cli
