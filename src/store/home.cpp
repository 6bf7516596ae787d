#include "store/home.hpp"

#include <bitsnap/branch.hpp>
#include <bitsnap/object_store.hpp>

#include "base/try.hpp"
#include "objects/object_file_system.hpp"

namespace bitsnap::store {

Result<Home> home_of(const std::string& path) {
  if (!is_object_path(path)) return Home{&os::real_file_system(), os::absolute_path(path)};
  BITSNAP_ASSIGN(os::FileSystem* const files, objects::object_file_system(path));
  return Home{files, path};
}

std::string canonical_home(const std::string& path) {
  if (!is_object_path(path)) return os::canonical_path(path);
  return path.substr(0, path.find_last_not_of('/') + 1);
}

Result<Home> find_home(const std::string& path) { return resolve_branch(path).and_then(home_of); }

}  // namespace bitsnap::store
