#include "cli/input/checkpoint_input.hpp"

#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <bitsnap/safetensors.hpp>
#include <bitsnap/store.hpp>
#include <bitsnap/text.hpp>

#include "cli/input/references.hpp"
#include "cli/input/run_path.hpp"
#include "cli/operating_system.hpp"

namespace bitsnap::cli {

namespace {

// A Progress.
bool until_interrupted(std::uint64_t, std::uint64_t) { return interrupt_signal() == 0; }

// invalid_argument for snapshots, runs, what lies in a run, and what is held by one.
Result<void> check_input(const std::string& path, std::string_view command) {
  if (!is_store(path)) BITSNAP_TRY(check_holds_itself(path, command));
  BITSNAP_TRY(check_no_run(path));
  BITSNAP_TRY(check_in_no_run(path));
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return {};
  BITSNAP_ASSIGN(const FileKind kind, detect_file_kind(path));
  if (kind == FileKind::snapshot) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("{}: is a snapshot already; `{}` takes what a training wrote", path, command));
  }
  return {};
}

// "a torch file"; empty if its format is not known.
std::string describe_format(const std::string& path) {
  const auto opened = open_folder(path, {.step = {}, .as_safetensors = true, .limits = {}});
  const std::string_view format = opened ? std::string_view(opened->container) : "";
  if (format.starts_with("torch")) return "a torch file";
  if (format.starts_with("np")) return "a numpy file";
  return format.empty() ? "" : fmt::format("a {} file", format);
}

}  // namespace

Result<FolderState> open_input(const std::string& path, std::string_view command, std::optional<std::uint64_t> step) {
  BITSNAP_TRY(check_input(path, command));
  return open_folder(path, {.step = step, .as_safetensors = true, .limits = {}});
}

Result<std::optional<FolderState>> find_input(const std::string& path, const DecodeLimits& limits) {
  std::error_code error;
  const bool is_directory = std::filesystem::is_directory(path, error);
  if (!is_directory) {
    BITSNAP_ASSIGN(const FileKind kind, detect_file_kind(path));
    if (kind == FileKind::snapshot) return std::optional<FolderState>();
  }
  BITSNAP_ASSIGN(FolderState input, open_folder(path, {.step = {}, .as_safetensors = true, .limits = limits}));
  if (!is_directory && input.container.empty()) {
    if (!input.notes.empty()) return fail(ErrorKind::corrupt, input.notes.front());
    return std::optional<FolderState>();
  }
  return std::optional(std::move(input));
}

Result<std::shared_ptr<const Snapshot>> open_snapshot(const std::string& path, const OpenOptions& options) {
  constexpr std::string_view kReaders =
      "`bitsnap inspect` shows its tensors, `bitsnap compress` makes a snapshot of it, and `bitsnap add` stores it in "
      "a "
      "run";
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    BITSNAP_TRY(check_in_no_run(path));
    return fail(ErrorKind::invalid_argument, fmt::format("{}: is a directory, not a snapshot; {}", path, kReaders));
  }
  Result<std::shared_ptr<const Snapshot>> opened = Snapshot::open(path, options);
  if (opened || (opened.error().kind() != ErrorKind::corrupt && opened.error().kind() != ErrorKind::truncated)) {
    return opened;
  }
  const auto kind = detect_file_kind(path);
  if (!kind || *kind == FileKind::snapshot) return opened;
  const std::string format = describe_format(path);
  if (format.empty()) return opened;
  return fail(ErrorKind::invalid_argument, fmt::format("{}: is {}, not a snapshot; {}", path, format, kReaders));
}

Result<FolderState> open_raw_input(const std::string& path, std::string_view command, std::uint64_t step) {
  BITSNAP_TRY(check_input(path, command));
  return open_folder(path, {.step = step, .as_safetensors = false, .limits = {}});
}

void warn_of_plain_files(const FolderState& input) {
  for (const std::string& note : input.notes) {
    print_warning(fmt::format("{}; it is stored as plain bytes", printable(note)),
                  error_kind_name(ErrorKind::unsupported));
  }
}

Result<void> check_decodes(const Snapshot& snapshot, unsigned threads) {
  BITSNAP_ASSIGN(const std::vector<Damage> damages, snapshot.verify(true, {threads, until_interrupted}));
  if (damages.empty()) return {};
  return tl::unexpected(Error(damages.front().error).within(damages.front().where));
}

Result<void> check_written(const FolderState& input, const Snapshot& written, unsigned threads) {
  return input.check_written(written, {threads, until_interrupted});
}

}  // namespace bitsnap::cli
