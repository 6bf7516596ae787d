// The buckets of this process: their clients, and what all of them share.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <bitsnap/object_store.hpp>

#include "base/try.hpp"
#include "objects/lease.hpp"
#include "objects/local_copies.hpp"
#include "objects/object_file_system.hpp"
#include "os/file_system.hpp"
#include "os/rate_limit.hpp"

namespace bitsnap::objects {

os::RateLimit& upload_rate() {
  static os::RateLimit& rate = *new os::RateLimit;  // NOLINT: open stores may outlive the end of main()
  return rate;
}

namespace {

constexpr double kMostCopiedBytes = 32e9;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): read once
  return value != nullptr ? value : "";
}

// Where the user's programs keep what they can get again; empty: nowhere.
std::string directory_of_copies() {
  if (std::string own = variable("BITSNAP_CACHE"); !own.empty()) return os::absolute_path(own);
  if (const std::string all = variable("XDG_CACHE_HOME"); all.starts_with('/')) return all + "/bitsnap";
  const std::string home = variable("HOME");
  return home.starts_with('/') ? home + "/.cache/bitsnap" : "";
}

// Of this process; nullptr: there are none.
LocalCopies* local_copies() {
  static LocalCopies* const copies = []() -> LocalCopies* {
    const std::string text = variable("BITSNAP_CACHE_BYTES");
    double most = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), most);
    if (error != std::errc() || end != text.data() + text.size() || !(most >= 0)) most = kMostCopiedBytes;
    const std::string directory = directory_of_copies();
    if (most < 1 || directory.empty()) return nullptr;
    // Open stores may outlive the end of main().
    return new LocalCopies(  // NOLINT(cppcoreguidelines-owning-memory)
        os::real_file_system(), directory + "/objects", static_cast<std::uint64_t>(std::min(most, 1e18)));
  }();
  return copies;
}

struct Buckets {
  std::mutex mutex;
  ConnectObjectStore connect;
  std::map<std::string, std::shared_ptr<ObjectFileSystem>> known;
};

Buckets& buckets() {
  static Buckets& all = *new Buckets;  // NOLINT: open stores may outlive the end of main()
  return all;
}

}  // namespace

Result<os::FileSystem*> object_file_system(const std::string& path) {
  const std::size_t begin = path.find("://") + 3;
  const std::string bucket = path.substr(0, path.find('/', begin));
  if (bucket.size() == begin) return fail(ErrorKind::invalid_argument, fmt::format("{}: names no bucket", path));
  Buckets& all = buckets();
  const std::lock_guard guard(all.mutex);
  if (const auto found = all.known.find(bucket); found != all.known.end()) return found->second.get();
  if (all.connect == nullptr) {
    return fail(ErrorKind::unsupported,
                fmt::format("{}: this program has no client for object stores; the Python package has one", path));
  }
  BITSNAP_ASSIGN(std::shared_ptr<ObjectStore> store, all.connect(bucket));
  return (all.known[bucket] =
              std::make_shared<ObjectFileSystem>(bucket, std::move(store), LeaseTimes(), local_copies()))
      .get();
}

}  // namespace bitsnap::objects

namespace bitsnap {

bool is_object_path(std::string_view path) noexcept {
  const std::size_t end = path.find("://");
  return end != std::string_view::npos && end > 0 && std::ranges::all_of(path.substr(0, end), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+';
         });
}

void connect_object_stores(ConnectObjectStore connect) {
  objects::Buckets& all = objects::buckets();
  const std::lock_guard guard(all.mutex);
  all.connect = std::move(connect);
}

void limit_object_uploads(std::uint64_t bytes_per_second) { objects::upload_rate().set(bytes_per_second); }

}  // namespace bitsnap
