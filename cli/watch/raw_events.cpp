#include "cli/watch/raw_events.hpp"

#include <fmt/format.h>

#include <bitsnap/text.hpp>

#include "cli/input/run_path.hpp"
#include "cli/number_option.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

void add_raw_keeping_options(CLI::App& app, RawKeeping& keeping, const std::string& keep_raw_help) {
  CLI::Option* flag =
      app.add_flag("--delete-after-verify", keeping.delete_after_verify,
                   "Delete each raw checkpoint once every byte of its copy in the run is compared with it");
  add_number_option(app, "--keep-raw", keeping.keep_raw, 0, keep_raw_help)->needs(flag);
}

Result<void> RawEvents::saved(const Store& store, const SavedCheckpoint& saved) const {
  if (common_.json) {
    Json line = {{"event", "saved"}};
    line.update(saved_json(run_, saved));
    print_json_line(line);
    return {};
  }
  return common_.quiet ? Result<void>() : print_saved(store, run_, saved, common_);
}

void RawEvents::skipped(const std::string& path, std::optional<std::uint64_t> step, const std::string& reason) const {
  print("skipped", path, step, reason, fmt::format("{} : skipped, {}\n", printable(path), printable(reason)));
}

void RawEvents::deletion(const std::string& path, std::uint64_t step, const RawDeletion& deletion) const {
  if (!deletion.is_deleted) {
    print("kept", path, step, deletion.reason, fmt::format("{} : stays, {}\n", printable(path), deletion.reason));
    return;
  }
  const std::string reason = fmt::format("{} holds all of it", checkpoint_name(run_, step));
  print("deleted", path, step, reason,
        fmt::format("{} : deleted ({}), {}\n", printable(path), format_size(deletion.bytes), printable(reason)));
}

void RawEvents::note(const std::string& path, std::optional<std::uint64_t> step, const std::string& text) const {
  print("note", path, step, text, fmt::format("{} : {}\n", printable(path), text));
}

void RawEvents::warning(const std::string& path, std::optional<std::uint64_t> step, const Error& error) const {
  if (common_.json) {
    print_json_line({{"event", "warning"}, {"run", run_}, {"input", path}, {"step", step}, {"error", error}});
  } else if (!common_.quiet) {
    print_warning(name_file(error, path).message(), error_kind_name(error.kind()));
  }
}

void RawEvents::print(const char* event, const std::string& path, std::optional<std::uint64_t> step,
                      const std::string& reason, const std::string& line) const {
  if (common_.json) {
    print_json_line({{"event", event}, {"run", run_}, {"input", path}, {"step", step}, {"reason", reason}});
  } else if (!common_.quiet) {
    print_note(line);
  }
}

}  // namespace bitsnap::cli
