// Bases from files: the default BaseProvider. Looks for a snapshot by its id among the files and directories it was
// given, by the footers of the files, and opens it once.
//
// Owns the snapshots it opened, and these ask it for their own bases; what it hands out keeps it, and so all of them,
// alive. What it did not find once it does not look for again, unless the system kept it from looking. Thread-safe.
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
  // Looks in `paths`, then in the folders of those that are files and in `folder`.
  DirectoryBases(os::FileSystem& file_system, const std::vector<std::string>& paths, const std::string& folder,
                 const DecodeLimits& limits);
  ~DirectoryBases() override;

  Result<std::shared_ptr<const Base>> find(const SnapshotId& id) const override;

  // The same for a snapshot that depends on it: after the paths that the caller named, a file called `wanted.name` is
  // tried first, and the asking file, which may hold the very content that it asks for, is never the answer.
  Result<std::shared_ptr<const Base>> find_for(const BaseReference& wanted, const container::Footer& asker) const;

 private:
  struct Candidate {
    std::string path;
    std::optional<container::Footer> footer;  // nullopt: not read yet, or not readable
    bool is_no_snapshot = false;
  };
  // A directory that is listed when it is first needed, or one file.
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
  // A file of the name that was written down is looked at whatever its extension.
  void add_unlisted(Place& place, std::string_view name) const;
  [[nodiscard]] Error not_found(const Search& search) const;

  os::FileSystem& file_system_;
  const DecodeLimits limits_;
  mutable std::mutex mutex_;
  mutable std::vector<Place> places_;
  mutable std::map<std::string, std::shared_ptr<const Snapshot>> opened_;  // by path
  // What was asked for: id, file name (states of one content may stand in several files, each with bases of its own)
  // and, by a snapshot that asks for its own content, the hash of its index.
  using Wanted = std::tuple<SnapshotId, std::string, std::uint64_t>;
  mutable std::map<Wanted, Result<const Snapshot*>> found_;
};

}  // namespace bitsnap::restore
