#include "cli/output/left_out.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <bitsnap/text.hpp>

#include "cli/output/progress_bar.hpp"

namespace bitsnap::cli {

namespace {

Result<std::vector<DamagedTensor>> find_damaged(const Snapshot& snapshot, const std::string& label,
                                                const CommonOptions& common) {
  ProgressBar bar(label, !common.quiet);
  RunOptions run;
  run.threads = common.threads;
  run.progress = bar.callback();
  return snapshot.damaged_tensors(run);
}

}  // namespace

void add_partial_option(CLI::App& app, bool& partial) {
  app.add_flag("--partial", partial,
               "Leave out what is damaged, name it, and write the rest; the exit status is then 15");
}

Result<LeftOut> find_left_out(const Snapshot& snapshot, const std::string& label, const CommonOptions& common) {
  BITSNAP_ASSIGN(const auto damaged, find_damaged(snapshot, label, common));
  if (!damaged.empty() && damaged.size() == snapshot.tensors().size()) return tl::unexpected(damaged.front().error);
  LeftOut left_out;
  for (const DamagedTensor& each : damaged) {
    left_out.numbers.push_back(each.tensor);
    left_out.errors.emplace_back(snapshot.tensors()[each.tensor].name, each.error);
  }
  return left_out;
}

Result<LeftOut> find_left_out(const Folder& folder, const std::string& label, const CommonOptions& common) {
  BITSNAP_ASSIGN(const auto damaged, find_damaged(*folder.snapshot(), label, common));
  const std::vector<Folder::DamagedFile> files = folder.damaged_files(damaged);
  const auto is_file = [](const FolderEntry& entry) {
    return entry.kind == EntryKind::file || entry.kind == EntryKind::hard_link;
  };
  if (!files.empty() && std::cmp_equal(files.size(), std::ranges::count_if(folder.entries(), is_file))) {
    return tl::unexpected(files.front().error);
  }
  LeftOut left_out{.kind = "file", .errors = {}};
  for (const Folder::DamagedFile& each : files) {
    left_out.numbers.push_back(each.entry);
    left_out.errors.emplace_back(folder.entries()[each.entry].path, each.error);
  }
  return left_out;
}

void add_left_out(Json& report, const LeftOut& left_out) {
  report["left_out"] = Json::array();
  for (const auto& [name, error] : left_out.errors)
    report["left_out"].push_back({{left_out.kind, name}, {"error", error}});
}

int report_left_out(const LeftOut& left_out) {
  for (const auto& [name, error] : left_out.errors) {
    print_warning(fmt::format("{} '{}' is left out: {}", left_out.kind, printable(name), error.message()),
                  error_kind_name(error.kind()));
  }
  return left_out.errors.empty() ? kExitOk : exit_code(ErrorKind::corrupt);
}

Error suggest_partial(Error error) {
  if (error.kind() != ErrorKind::corrupt && error.kind() != ErrorKind::truncated) return error;
  return Error(error.kind(), fmt::format("{}; --partial writes what can be read", error.message()));
}

}  // namespace bitsnap::cli
