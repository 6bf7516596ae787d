#include "objects/object_requests.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/try.hpp"
#include "os/random.hpp"

namespace bitsnap::objects {
namespace {

constexpr int kAttempts = 5;
constexpr std::uint64_t kFirstWaitMs = 100;

// Half of the time is drawn, so that writers that failed together do not come back together.
void wait_before(int attempt) {
  const std::uint64_t most = kFirstWaitMs << attempt;
  std::this_thread::sleep_for(std::chrono::milliseconds(most / 2 + os::random_u64() % (most / 2)));
}

enum class There { nothing, same, other };

struct Found {
  There there = There::nothing;
  std::string version;
};

Result<Found> look(ObjectStore& store, const std::string& key, ConstByteSpan bytes) {
  auto tail = store.read_tail(key, bytes.size() + 1);
  if (!tail && tail.error().kind() == ErrorKind::not_found) return Found{};
  if (!tail) return tl::unexpected(std::move(tail).error());
  return Found{std::ranges::equal(tail->bytes, bytes) ? There::same : There::other, tail->info.version};
}

using Put = FunctionRef<Result<std::optional<std::string>>()>;

// `may_try_again`: by what is there now, whether the request was not done and may be done still.
Result<std::optional<std::string>> put_until_known(ObjectStore& store, const std::string& key, ConstByteSpan bytes,
                                                   Put put, FunctionRef<bool(const Found&)> may_try_again) {
  for (int attempt = 0;; ++attempt) {
    auto done = put();
    if (done && *done) return done;
    // Refused: perhaps by what an earlier attempt did.
    auto found = look(store, key, bytes);
    if (found && found->there == There::same) return std::optional(std::move(found->version));
    if (done) return std::optional<std::string>();
    if (found && !may_try_again(*found)) return std::optional<std::string>();
    if (attempt + 1 == kAttempts || done.error().kind() != ErrorKind::io) return done;
    wait_before(attempt);
  }
}

}  // namespace

Result<std::optional<std::string>> create_object(ObjectStore& store, const std::string& key, ConstByteSpan bytes,
                                                 FunctionRef<Result<void>()> may_begin) {
  const auto put = [&]() -> Result<std::optional<std::string>> {
    BITSNAP_TRY(may_begin());
    return store.put_if_absent(key, bytes);
  };
  return put_until_known(store, key, bytes, put, [](const Found& found) { return found.there == There::nothing; });
}

Result<std::optional<std::string>> replace_object(ObjectStore& store, const std::string& key, ConstByteSpan bytes,
                                                  const std::string& version) {
  return put_until_known(
      store, key, bytes, [&] { return store.put_if_version(key, bytes, version); },
      [&](const Found& found) { return found.there == There::other && found.version == version; });
}

}  // namespace bitsnap::objects
