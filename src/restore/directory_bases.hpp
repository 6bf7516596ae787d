// Finds bases among files: the default BaseProvider. Searches the given files and directories for a snapshot's id,
// which the footer of each file has, and opens each snapshot once.
//
// Owns the snapshots that it opened and provides their bases, too; each snapshot that it returns keeps it, and so all
// of them, alive. It does not search again for a base that it did not find, unless a system error prevented the search.
// Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>
#include <bitsnap/snapshot.hpp>

#include "container/layout.hpp"
#include "os/file_system.hpp"

namespace bitsnap::restore {

class DirectoryBases final : public BaseProvider, public std::enable_shared_from_this<DirectoryBases> {
 public:
  // Searches `paths`, then the folders of those that are files, then `folder`.
  DirectoryBases(os::FileSystem& file_system, const std::vector<std::string>& paths, const std::string& folder,
                 const DecodeLimits& limits);
  ~DirectoryBases() override;

  Result<std::shared_ptr<const Base>> find(const SnapshotId& id) const override;

  // The same for the bases of a snapshot: after the caller's paths, a file named `wanted.name` is tried first. The
  // asking file itself, which may hold the same content, is never returned.
  Result<std::shared_ptr<const Base>> find_for(const BaseReference& wanted, const container::Footer& asker) const;

 private:
  struct Candidate {
    std::string path;
    std::optional<container::Footer> footer;  // nullopt: not read yet, or not readable
    bool is_no_snapshot = false;
  };
  // A directory, listed when it is first needed, or one file.
  struct Place {
    std::string path;
    bool is_named_by_caller = false;
    bool is_known = false;
    bool is_directory = false;
    std::vector<Candidate> candidates;
    std::string problem;  // why there are none
  };
  struct Search;

  Result<const Snapshot*> search(const BaseReference& wanted, const container::Footer* asker) const;
  void try_candidate(Candidate& candidate, Search& search) const;
  void list(Place& place) const;
  // A file with the stored name is considered whatever its extension.
  void add_unlisted(Place& place, std::string_view name) const;
  [[nodiscard]] Error not_found(const Search& search) const;

  os::FileSystem& file_system_;
  const DecodeLimits limits_;
  mutable std::mutex mutex_;
  mutable std::vector<Place> places_;
  mutable std::map<std::string, std::shared_ptr<const Snapshot>> opened_;  // by path
  // Earlier results by id, file name (files of the same content may have different bases) and, if a snapshot asks for
  // its own content, the hash of its index.
  using Wanted = std::tuple<SnapshotId, std::string, std::uint64_t>;
  mutable std::map<Wanted, Result<const Snapshot*>> found_;
};

}  // namespace bitsnap::restore
