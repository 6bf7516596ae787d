#include "store/mirror_place.hpp"

#include <string_view>
#include <vector>

#include <bitsnap/object_store.hpp>

#include <fmt/format.h>

#include "base/try.hpp"
#include "store/missing_store.hpp"
#include "store/run_layout.hpp"
#include "store/run_marker.hpp"

namespace bitsnap::store {

Result<void> check_run_address(const std::string& path) {
  if (!is_object_path(path)) return {};
  const std::size_t bucket = path.find("://") + 3;
  const std::size_t slash = path.find('/', bucket);
  if (path.find_first_not_of('/', slash) == std::string::npos) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("{}: names a bucket and no run in it: expected a key after the bucket, as in {}/run", path,
                            path.substr(0, slash)));
  }
  const std::size_t repeated = path.find("//", slash);
  if (repeated == std::string::npos || path.find_first_not_of('/', repeated) == std::string::npos) return {};
  return fail(ErrorKind::invalid_argument, fmt::format("{}: expected a key with single slashes, found '//' after {}",
                                                       path, path.substr(0, repeated)));
}

Result<void> check_copy_place(os::FileSystem& files, const std::string& root) {
  BITSNAP_TRY(check_run_address(root));
  BITSNAP_ASSIGN(const RunMarker marker, find_marker(files, RunLayout(root)));
  if (marker != RunMarker::none) return {};
  BITSNAP_TRY(check_new_store_name(files, root));
  BITSNAP_ASSIGN(const os::FileInfo info, files.stat(root));
  if (!info.exists) return {};
  bool is_free = info.is_directory;
  if (is_free) {
    BITSNAP_ASSIGN(const std::vector<std::string> names, files.list_directory(root));
    is_free = is_unfinished_store(names);
  }
  if (is_free) return {};
  return fail(ErrorKind::invalid_argument,
              fmt::format("{}: is no run, and none can be made there: {}; name an empty or new directory", root,
                          describe_no_store(files, root)));
}

}  // namespace bitsnap::store
