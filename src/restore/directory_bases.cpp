// The search for bases among files.
#include "restore/directory_bases.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/no_throw.hpp"
#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "container/file_reader.hpp"
#include "restore/snapshot_impl.hpp"

namespace bitsnap::restore {
namespace {

constexpr std::string_view kSuffix = ".bsnap";

// The depth of the snapshot's deepest chunk.
std::uint32_t depth_of(const Snapshot& snapshot) {
  std::uint32_t deepest = 0;
  for (std::size_t stream = 0; stream < snapshot.streams().size(); ++stream) {
    for (std::uint64_t chunk = 0; chunk < snapshot.streams()[stream].chunk_count(); ++chunk) {
      if (const Result<ChunkInfo> info = snapshot.chunk_info(stream, chunk)) deepest = std::max(deepest, info->depth);
    }
  }
  return deepest;
}

}  // namespace

// One search: what it wants, and what it has found so far.
struct DirectoryBases::Search {
  const BaseReference& wanted;
  const container::Footer* asker = nullptr;
  const Snapshot* found = nullptr;
  std::uint32_t found_depth = 0;
  std::optional<Error> unreadable;   // a file has the id and cannot be opened
  std::optional<std::string> other;  // a file has the name and another id
};

DirectoryBases::DirectoryBases(os::FileSystem& file_system, const std::vector<std::string>& paths,
                               const std::string& folder, const DecodeLimits& limits)
    : file_system_(file_system), limits_(limits) {
  const auto add = [this](const std::string& path, bool is_named_by_caller) {
    const bool is_new = std::none_of(places_.begin(), places_.end(), [&](const Place& p) { return p.path == path; });
    if (!is_new) return;
    Place& place = places_.emplace_back();
    place.path = path;
    place.is_named_by_caller = is_named_by_caller;
  };
  for (const std::string& path : paths) add(path, true);
  for (const std::string& path : paths) {
    const Result<os::FileInfo> info = file_system_.stat(path);
    if (info && info->exists && !info->is_directory) add(os::parent_directory(path), false);
  }
  add(folder, false);
}

DirectoryBases::~DirectoryBases() = default;

Result<std::shared_ptr<const Base>> DirectoryBases::find(const SnapshotId& id) const {
  return no_throw("base", [&]() -> Result<std::shared_ptr<const Base>> {
    const BaseReference wanted{id, ""};
    BITSNAP_ASSIGN(const Snapshot* const found, search(wanted, nullptr));
    return std::shared_ptr<const Base>(shared_from_this(), found);
  });
}

Result<std::shared_ptr<const Base>> DirectoryBases::find_for(const BaseReference& wanted,
                                                             const container::Footer& asker) const {
  BITSNAP_ASSIGN(const Snapshot* const found, search(wanted, &asker));
  return std::shared_ptr<const Base>(shared_from_this(), found);
}

Result<const Snapshot*> DirectoryBases::search(const BaseReference& wanted, const container::Footer* asker) const {
  const std::lock_guard lock(mutex_);
  const bool is_own_content = asker != nullptr && asker->id == wanted.id;
  const Wanted key{wanted.id, wanted.name, is_own_content ? asker->index_hash : 0};
  if (const auto known = found_.find(key); known != found_.end()) return known->second;

  // The caller's places come first, then the file with the stored name, then any. Several files may have the content,
  // and one of them may depend on the asking snapshot. The original base is no deeper than any later one, so the least
  // deep of several is taken.
  Search search{wanted, asker, nullptr, 0, std::nullopt, std::nullopt};
  const std::string_view name = os::file_name(wanted.name);
  const auto try_places = [&](bool named_by_caller, bool of_that_name) {
    for (Place& place : places_) {
      if (place.is_named_by_caller != named_by_caller) continue;
      list(place);
      if (of_that_name) add_unlisted(place, name);
      for (Candidate& candidate : place.candidates) {
        if (!of_that_name || os::file_name(candidate.path) == name) try_candidate(candidate, search);
      }
    }
  };
  try_places(true, false);
  if (search.found == nullptr || search.found_depth > 0) try_places(false, true);
  if (search.found == nullptr) try_places(false, false);
  Result<const Snapshot*> result = search.found;
  if (search.found == nullptr) {
    result = tl::unexpected(search.unreadable ? std::move(*search.unreadable) : not_found(search));
  }
  // A system error may not happen again.
  const bool may_pass =
      !result && (result.error().kind() == ErrorKind::io || result.error().kind() == ErrorKind::resource_exhausted);
  if (!may_pass) found_.emplace(key, result);
  return result;
}

void DirectoryBases::try_candidate(Candidate& candidate, Search& search) const {
  if (!candidate.footer && !candidate.is_no_snapshot) {
    Result<std::unique_ptr<os::RandomAccessFile>> file = file_system_.open(candidate.path);
    Result<container::Footer> footer = file ? container::read_footer(**file) : tl::unexpected(std::move(file).error());
    if (footer) {
      candidate.footer = *footer;
    } else {
      const ErrorKind kind = footer.error().kind();
      candidate.is_no_snapshot = kind != ErrorKind::io && kind != ErrorKind::resource_exhausted;
      // If the file was named, or a system error hides what it is, the reason helps more than "not found".
      const bool is_meant = os::file_name(candidate.path) == os::file_name(search.wanted.name);
      if (!search.unreadable && (is_meant || !candidate.is_no_snapshot)) search.unreadable = std::move(footer).error();
    }
  }
  if (!candidate.footer) return;
  if (candidate.footer->id != search.wanted.id) {
    if (!search.other && os::file_name(candidate.path) == os::file_name(search.wanted.name)) {
      search.other = fmt::format("{} holds snapshot {}", candidate.path, candidate.footer->id.to_hex());
    }
    return;
  }
  if (search.asker != nullptr && *candidate.footer == *search.asker) return;

  std::shared_ptr<const Snapshot>& snapshot = opened_[candidate.path];
  if (!snapshot) {
    Result<std::unique_ptr<os::RandomAccessFile>> file = file_system_.open(candidate.path);
    Result<std::shared_ptr<const Snapshot>> opened =
        file ? open_for(std::move(*file), limits_, *this) : tl::unexpected(std::move(file).error());
    if (!opened) {
      if (!search.unreadable) search.unreadable = std::move(opened).error();
      return;
    }
    snapshot = std::move(*opened);
  }
  if (snapshot->id() != search.wanted.id) return;  // replaced since its footer was read
  const std::uint32_t depth = depth_of(*snapshot);
  if (search.found != nullptr && depth >= search.found_depth) return;
  search.found = snapshot.get();
  search.found_depth = depth;
}

void DirectoryBases::list(Place& place) const {
  if (place.is_known) return;
  place.is_known = true;
  const Result<os::FileInfo> info = file_system_.stat(place.path);
  if (!info || !info->exists) {
    place.problem = info ? "not found" : info.error().message();
    return;
  }
  if (!info->is_directory) {
    place.candidates.emplace_back().path = place.path;
    return;
  }
  place.is_directory = true;
  const Result<std::vector<std::string>> names = file_system_.list_directory(place.path);
  if (!names) {
    place.problem = names.error().message();
    return;
  }
  for (const std::string& name : *names) {
    if (name.ends_with(kSuffix)) place.candidates.emplace_back().path = os::join_path(place.path, name);
  }
}

void DirectoryBases::add_unlisted(Place& place, std::string_view name) const {
  if (name.empty() || name.ends_with(kSuffix) || !place.is_directory) return;
  const std::string path = os::join_path(place.path, name);
  const bool is_known =
      std::any_of(place.candidates.begin(), place.candidates.end(), [&](const Candidate& c) { return c.path == path; });
  if (const Result<os::FileInfo> info = file_system_.stat(path); !is_known && info && info->is_regular) {
    place.candidates.emplace_back().path = path;
  }
}

Error DirectoryBases::not_found(const Search& search) const {
  std::string message = fmt::format("base {}", search.wanted.id.to_hex());
  if (!search.wanted.name.empty()) message += fmt::format(", written as {},", quote_name(search.wanted.name));
  message += " was not found";
  if (search.other) message += fmt::format("; {}", *search.other);
  message += "; looked in";
  for (std::size_t i = 0; i < places_.size(); ++i) {
    message += fmt::format("{} '{}'", i > 0 ? "," : "", places_[i].path);
    if (!places_[i].problem.empty()) message += fmt::format(" ({})", places_[i].problem);
  }
  return Error(ErrorKind::not_found, std::move(message));
}

}  // namespace bitsnap::restore
