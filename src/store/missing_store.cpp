#include "store/missing_store.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/quote_name.hpp"
#include "base/similar_names.hpp"
#include "base/try.hpp"
#include "os/atomic_file.hpp"
#include "store/label_record.hpp"
#include "store/run_layout.hpp"
#include "store/run_marker.hpp"

namespace bitsnap::store {
namespace {

// Of a directory that may hold anything, as many entries are looked at.
constexpr std::size_t kMostLookedAt = 1000;
constexpr std::size_t kMostListed = 3;
// The files of a store are not deeper below it.
constexpr int kDeepestInStore = 5;

bool has_run_record(os::FileSystem& files, const std::string& path) {
  const auto marker = find_marker(files, RunLayout(path));
  return marker && *marker == RunMarker::run_record;
}

std::vector<std::string> names_in(os::FileSystem& files, const std::string& directory) {
  std::vector<std::string> names = files.list_directory(directory).value_or(std::vector<std::string>());
  names.resize(std::min(names.size(), kMostLookedAt));
  return names;
}

std::vector<std::string> stores_in(os::FileSystem& files, const std::string& directory) {
  std::vector<std::string> found;
  if (!files.has_lasting_locks()) return found;  // each name would be a request to a service
  for (const std::string& name : names_in(files, directory)) {
    const std::string path = os::join_path(directory, name);
    if (has_run_record(files, path)) found.push_back(path);
  }
  return found;
}

// "'a', 'b', 'c' and 4 others"
std::string listed(const std::vector<std::string>& names) {
  std::vector<std::string> quoted;
  for (const std::string& name : names) {
    if (quoted.size() == kMostListed) break;
    quoted.push_back(quote_name(name));
  }
  const std::size_t others = names.size() - quoted.size();
  const std::string more = others == 0 ? "" : fmt::format(" and {} other{}", others, others == 1 ? "" : "s");
  return fmt::format("{}{}", fmt::join(quoted, ", "), more);
}

std::optional<std::string> store_around(os::FileSystem& files, const std::string& root) {
  std::string above = os::parent_directory(root);
  for (int depth = 0; depth < kDeepestInStore; ++depth) {
    if (has_run_record(files, above)) return above;
    above = os::parent_directory(above);
  }
  return std::nullopt;
}

// What a name that ends in @STEP, @LABEL or :BRANCH means; `text` is what follows the '@' or the ':'.
struct NamedPart {
  std::string run;
  std::string text;
};

std::optional<NamedPart> part_after(const std::string& root, char separator) {
  const std::size_t at = root.rfind(separator);
  if (at == std::string::npos || at + 1 == root.size()) return std::nullopt;
  NamedPart part{root.substr(0, at), root.substr(at + 1)};
  if (part.text.find('/') != std::string::npos || os::file_name(part.run).empty()) return std::nullopt;
  return part;
}

// Whether it can only mean a checkpoint: RUN@20, RUN@-2 or RUN@latest. Directories may have other names with an '@'.
bool is_checkpoint_name(std::string_view text) {
  if (text == "latest") return true;
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// "; did you mean 'run'?", or the stores that are there.
std::string stores_beside(os::FileSystem& files, const std::string& root) {
  std::string similar = similar_stores(files, root);
  if (!similar.empty()) return similar;
  const std::vector<std::string> stores = stores_in(files, os::parent_directory(root));
  return stores.empty() ? "" : fmt::format("; runs beside it: {}", listed(stores));
}

std::string describe_missing(os::FileSystem& files, const std::string& root) {
  const auto of_step = part_after(root, '@');
  if (of_step && has_run_record(files, of_step->run)) {
    return fmt::format(
        "this names a checkpoint of the run {0}, expected the run alone: open {0}, and load {1} of it", of_step->run,
        of_step->text.find_first_not_of("0123456789") == std::string::npos ? of_step->text : quote_name(of_step->text));
  }
  if (of_step && is_checkpoint_name(of_step->text)) {
    return fmt::format("this names a checkpoint of {}, and no run is there{}", of_step->run,
                       stores_beside(files, of_step->run));
  }
  if (const auto part = part_after(root, ':'); part && is_branch_name(part->text)) {
    return fmt::format("this names the branch {} of {}, and no run is there{}", quote_name(part->text), part->run,
                       stores_beside(files, part->run));
  }
  const std::string above = os::parent_directory(root);
  const auto parent = files.stat(above);
  if (parent && !parent->exists && files.has_lasting_locks())
    return fmt::format("the directory {} does not exist", above);
  const std::string beside = stores_beside(files, root);
  return fmt::format("the path does not exist{}",
                     beside.empty() ? "; a run exists once something is saved to it" : beside);
}

std::string describe_directory(os::FileSystem& files, const std::string& root) {
  if (const auto around = store_around(files, root)) {
    return fmt::format("the directory lies in the run {0}: open {0}", *around);
  }
  const std::vector<std::string> names = names_in(files, root);
  if (names.empty()) return "the directory is empty; it becomes a run once something is saved to it";
  if (const std::vector<std::string> stores = stores_in(files, root); !stores.empty()) {
    return fmt::format(
        "the directory is no run itself, and holds {}: name {}",
        stores.size() == 1 ? fmt::format("the run {}", listed(stores)) : fmt::format("the runs {}", listed(stores)),
        stores.size() == 1 ? "that one" : "one of them");
  }
  return fmt::format(
      "the directory holds {}, and not the file {} of a run; if these are checkpoints of a framework, `bitsnap ingest "
      "RUN {}` stores them in a run",
      listed(names), kRunRecordName, root);
}

}  // namespace

std::string similar_stores(os::FileSystem& files, const std::string& root) {
  const std::string above = os::parent_directory(root);
  std::vector<std::string> names;
  for (const std::string& path : stores_in(files, above)) names.emplace_back(os::file_name(path));
  std::erase(names, os::file_name(root));
  std::vector<std::string> paths;
  for (const std::string& name : similar_names(names, os::file_name(root))) paths.push_back(os::join_path(above, name));
  for (const std::string& name : names) {  // letters in another order
    if (!paths.empty() || !std::ranges::is_permutation(name, os::file_name(root))) continue;
    paths.push_back(os::join_path(above, name));
  }
  return paths.empty() ? "" : fmt::format("; did you mean {}?", listed(paths));
}

std::string describe_no_store(os::FileSystem& files, const std::string& root) {
  const auto info = files.stat(root);
  if (!info) return info.error().message();
  if (!info->exists) return describe_missing(files, root);
  return info->is_directory ? describe_directory(files, root) : "this is a file, expected the directory of a run";
}

Error no_store_error(os::FileSystem& files, const std::string& root) {
  return {ErrorKind::not_found, fmt::format("{}: no store found: {}", root, describe_no_store(files, root))};
}

bool is_unfinished_store(const std::vector<std::string>& names) {
  return std::ranges::all_of(names, [](const std::string& name) {
    return name == kLockName || name == kCheckpointsName || name == kCatalogName || name == kDamagedName ||
           name == kLabelsName || name == kBranchesName || name == kMirrorSourceName || name == kMirrorIdName ||
           os::AtomicFile::is_temporary_name(name);
  });
}

Result<void> check_new_store_name(os::FileSystem& files, const std::string& root) {
  BITSNAP_ASSIGN(const os::FileInfo own, files.stat(root));
  if (own.exists) return {};
  if (const auto part = part_after(root, '@');
      part && (is_checkpoint_name(part->text) || has_run_record(files, part->run))) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("{}: this names a checkpoint of the run {}, expected the run alone", root, part->run));
  }
  // "run-12:30:00" names no branch.
  if (const auto part = part_after(root, ':'); part && is_branch_name(part->text)) {
    const std::string similar = similar_stores(files, part->run);
    const std::string advice = fmt::format(
        "; save the first checkpoints to {0} itself, and `bitsnap branch {0}@STEP {1}` then begins the "
        "branch. For a run with a colon in its name, make its directory first",
        part->run, part->text);
    return fail(ErrorKind::invalid_argument,
                fmt::format("{}: this names the branch {} of the run {}, and there is no such run{}", root,
                            quote_name(part->text), part->run, similar.empty() ? advice : similar));
  }
  return {};
}

}  // namespace bitsnap::store
