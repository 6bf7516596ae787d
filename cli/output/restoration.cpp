#include "cli/output/restoration.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <bitsnap/convert.hpp>
#include <bitsnap/folder.hpp>
#include <bitsnap/safetensors.hpp>
#include <bitsnap/text.hpp>

#include "cli/file_paths.hpp"
#include "cli/operating_system.hpp"
#include "cli/output/progress_bar.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

// The tensors, or the files of a folder, that cannot be read.
struct LeftOut {
  const char* kind = "tensor";
  std::vector<std::size_t> numbers = {};              // of tensors, or of entries of the folder; ascending
  std::vector<std::pair<std::string, Error>> errors;  // by name, in the same order

  void add(std::size_t number, const std::string& name, const Error& error) {
    numbers.push_back(number);
    errors.emplace_back(name, error);
  }
};

struct Written {
  std::uint64_t bytes = 0;
  std::optional<std::uint64_t> files;  // of a folder
  bool exact = false;                  // byte for byte the safetensors file that the snapshot was made from
  double seconds = 0;
};

Result<void> write_to_stdout(std::span<const std::byte> piece) {
  errno = 0;
  if (std::fwrite(piece.data(), 1, piece.size(), stdout) == piece.size()) return {};
  return fail(ErrorKind::io, fmt::format("standard output: {}", std::generic_category().message(errno)));
}

// Returns the first error if nothing can be read.
Result<LeftOut> find_left_out(const Snapshot& snapshot, const Folder* folder, const RunOptions& run) {
  BITSNAP_ASSIGN(const auto damaged, snapshot.damaged_tensors(run));
  LeftOut left_out;
  std::size_t all = snapshot.tensors().size();
  if (folder == nullptr) {
    for (const DamagedTensor& each : damaged) {
      left_out.add(each.tensor, snapshot.tensors()[each.tensor].name, each.error);
    }
  } else {
    left_out.kind = "file";
    for (const Folder::DamagedFile& each : folder->damaged_files(damaged)) {
      left_out.add(each.entry, folder->entries()[each.entry].path, each.error);
    }
    all = static_cast<std::size_t>(std::ranges::count_if(folder->entries(), [](const FolderEntry& entry) {
      return entry.kind == EntryKind::file || entry.kind == EntryKind::hard_link;
    }));
  }
  if (!left_out.errors.empty() && left_out.errors.size() == all) return tl::unexpected(left_out.errors.front().second);
  return left_out;
}

Error no_such_tensor(const std::string& name) {
  return {ErrorKind::not_found, fmt::format("there is no tensor '{}'; `bitsnap inspect` lists them", printable(name))};
}

// The state of several shards, or one tensor of it.
Result<Written> write_state(const Restoration& what, const RestoreOutput& output, const RunOptions& run) {
  State one;
  if (what.tensor) {
    const auto found = std::ranges::find(what.state->tensors, *what.tensor,
                                         [](const TensorSource& tensor) { return std::string_view(tensor.info.name); });
    if (found == what.state->tensors.end()) return tl::unexpected(no_such_tensor(*what.tensor));
    one.tensors.push_back(*found);
    one.tensors.front().info.alias_of.reset();
  }
  const State& state = what.tensor ? one : *what.state;
  BITSNAP_ASSIGN(const ExportSummary summary, output.to_stdout()
                                                  ? stream_state(state, write_to_stdout, run)
                                                  : export_state(state, StateFormat::safetensors, output.path,
                                                                 {.overwrite = output.force, .run = run}));
  return Written{.bytes = summary.bytes, .files = {}};
}

Result<Written> write_tensors(const Restoration& what, const RestoreOutput& output,
                              std::span<const std::size_t> left_out, const RunOptions& run) {
  const Snapshot& snapshot = *what.snapshot;
  const auto write = [&]() -> Result<ExportSummary> {
    if (!what.tensor) {
      return output.to_stdout() ? stream_safetensors(snapshot, write_to_stdout, run, left_out)
                                : export_safetensors(snapshot, output.path, output.force, run, left_out);
    }
    const std::optional<std::size_t> index = snapshot.find(*what.tensor);
    if (!index) return tl::unexpected(no_such_tensor(*what.tensor));
    return output.to_stdout() ? stream_tensor(snapshot, *index, write_to_stdout)
                              : export_tensor(snapshot, *index, output.path, output.force);
  };
  BITSNAP_ASSIGN(const ExportSummary summary, write());
  return Written{.bytes = summary.bytes,
                 .files = {},
                 .exact = !what.tensor && left_out.empty() && snapshot.safetensors_header().has_value()};
}

// One file of the folder, or everything but the entries `left_out`.
Result<Written> write_files(const Folder& folder, const Restoration& what, const RestoreOutput& output,
                            std::span<const std::size_t> left_out, const RunOptions& run) {
  const auto entry = folder.find(what.file.value_or(""));
  if (!entry) {
    return fail(ErrorKind::not_found,
                fmt::format("the checkpoint holds no file '{}'; `bitsnap inspect` lists them", printable(*what.file)));
  }
  const bool is_folder = folder.entries()[*entry].kind == EntryKind::directory;
  if (what.file && is_folder) {
    return fail(ErrorKind::invalid_argument, fmt::format("'{}' is a directory, not a file", printable(*what.file)));
  }
  if (is_folder && output.to_stdout()) {
    return fail(ErrorKind::invalid_argument, "a folder cannot be written to standard output; --file chooses a file");
  }
  Written written{.files = 0};
  for (std::size_t i = 0; i < folder.entries().size(); ++i) {
    const FolderEntry& each = folder.entries()[i];
    if (!is_folder && i != *entry) continue;
    if (each.kind == EntryKind::hard_link && is_folder) continue;
    if (std::ranges::binary_search(left_out, i)) continue;
    written.bytes += each.size_bytes;
    *written.files += each.kind == EntryKind::directory || each.kind == EntryKind::symbolic_link ? 0 : 1;
  }
  if (output.to_stdout()) {
    BITSNAP_TRY(folder.stream_file(*entry, write_to_stdout, run));
  } else if (is_folder) {
    BITSNAP_TRY(folder.extract_without(left_out, output.path, run));
  } else {
    BITSNAP_TRY(folder.extract_file(*entry, output.path, output.force, run));
  }
  return written;
}

void print_report(const Restoration& what, const RestoreOutput& output, const Written& written, const LeftOut& left_out,
                  const CommonOptions& common) {
  const std::string id = what.snapshot == nullptr ? "" : what.snapshot->id().to_hex();
  const std::uint64_t input_bytes = what.snapshot == nullptr ? what.state_bytes : what.snapshot->file_bytes();
  if (common.json) {
    Json report = what.report;
    report["output"] = output.path;
    report["id"] = id.empty() ? Json() : Json(id);
    report["input_bytes"] = input_bytes;
    report["output_bytes"] = written.bytes;
    if (written.files) {
      report["files"] = *written.files;
    } else {
      report["original_header"] = written.exact;
    }
    report["seconds"] = written.seconds;
    report["gbps"] = static_cast<double>(written.bytes) / written.seconds / 1e9;
    if (output.partial) report["left_out"] = Json::array();
    for (const auto& [name, error] : left_out.errors) {
      report["left_out"].push_back({{left_out.kind, name}, {"error", error}});
    }
    return print_json(report);
  }
  if (common.quiet) return;
  print_note(fmt::format(
      "{} : {} -> {}{}  ({})  {}\n", printable(what.name), format_size(input_bytes), format_size(written.bytes),
      written.files ? " in " + format_plural(*written.files, "file") : "", format_speed(written.bytes, written.seconds),
      output.to_stdout() ? "standard output" : printable(output.path)));
  if (common.verbose && !written.files && what.snapshot != nullptr) {
    print_note(fmt::format("id {}, {}, {}\n", id, format_plural(what.snapshot->tensors().size(), "tensor"),
                           written.exact ? "the original file, byte for byte" : "with a new header"));
  }
}

}  // namespace

void add_output_options(CLI::App& app, RestoreOutput& output, std::string_view otherwise) {
  CLI::Option* path =
      app.add_option("-o,--output", output.path, fmt::format("Output file; -: standard output; default: {}", otherwise))
          ->type_name("OUT");
  app.add_flag_callback("-c,--stdout", [&output] { output.path = "-"; }, "Write to standard output")->excludes(path);
  app.add_flag("-f,--force", output.force, "Overwrite the output");
}

void add_partial_option(CLI::App& app, RestoreOutput& output) {
  app.add_flag("--partial", output.partial,
               "Leave out what is damaged, name it, and write the rest; the exit status is then 15");
}

Result<void> check_stdout(const RestoreOutput& output, const CommonOptions& common) {
  if (output.to_stdout() && common.json) {
    return fail(ErrorKind::invalid_argument, "--json and the file cannot both be written to standard output");
  }
  if (output.to_stdout() && is_terminal(stdout) && !output.force) {
    return fail(ErrorKind::invalid_argument, "standard output is a terminal; -f writes the file to it");
  }
  return {};
}

Result<int> restore(const Restoration& what, const RestoreOutput& output, const CommonOptions& common) {
  std::shared_ptr<const Folder> folder;
  if (what.snapshot != nullptr && !what.tensor && is_folder(*what.snapshot)) {
    BITSNAP_ASSIGN(folder, Folder::open(what.snapshot));
  }
  const std::string label = file_name(what.name);
  LeftOut left_out;
  if (output.partial && !what.file && !what.tensor) {
    ProgressBar bar(label, !common.quiet);
    BITSNAP_ASSIGN(left_out, find_left_out(*what.snapshot, folder.get(), bar.run(common)));
  }
  const auto write = [&](const RunOptions& run) {
    if (what.snapshot == nullptr) return write_state(what, output, run);
    return folder != nullptr ? write_files(*folder, what, output, left_out.numbers, run)
                             : write_tensors(what, output, left_out.numbers, run);
  };
  Written written;
  {
    const auto start = std::chrono::steady_clock::now();
    ProgressBar bar(label, !common.quiet && !what.tensor);
    BITSNAP_ASSIGN(written, write(bar.run(common)));
    written.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  print_report(what, output, written, left_out, common);
  for (const auto& [name, error] : left_out.errors) {
    print_warning(fmt::format("{} '{}' is left out: {}", left_out.kind, printable(name), error.message()),
                  error_kind_name(error.kind()));
  }
  return left_out.errors.empty() ? kExitOk : exit_code(ErrorKind::corrupt);
}

Result<int> suggest_partial(Result<int> status) {
  if (status || (status.error().kind() != ErrorKind::corrupt && status.error().kind() != ErrorKind::truncated)) {
    return status;
  }
  return fail(status.error().kind(), fmt::format("{}; --partial writes what can be read", status.error().message()));
}

}  // namespace bitsnap::cli
