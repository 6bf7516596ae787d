#include "objects/lease.hpp"

#include <array>
#include <chrono>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "json/json_fields.hpp"
#include "objects/object_requests.hpp"
#include "os/clock.hpp"
#include "os/process.hpp"
#include "os/random.hpp"

namespace bitsnap::objects {

static constexpr auto json_fields(std::type_identity<LeaseRecord>) {
  using json::json_field;
  using json::JsonNeed;
  return std::array{json_field<&LeaseRecord::holder>("holder"),
                    json_field<&LeaseRecord::host>("host", JsonNeed::defaulted),
                    json_field<&LeaseRecord::process>("process", JsonNeed::defaulted),
                    json_field<&LeaseRecord::place>("place", JsonNeed::defaulted),
                    json_field<&LeaseRecord::beat>("beat", JsonNeed::defaulted)};
}

namespace {

constexpr std::uint64_t kMillisecond = 1'000'000;
constexpr std::uint64_t kMostBytes = 1 << 16;

// Whether the holder's process has ended, as far as this machine can tell; nullopt if it cannot.
std::optional<bool> has_ended(const LeaseRecord& record) {
  const std::string own = os::process_identity(os::process_id());
  const auto without_start = [](std::string_view identity) { return identity.substr(0, identity.rfind(' ')); };
  if (own.empty() || record.place.empty() || without_start(own) != without_start(record.place)) {
    return std::nullopt;
  }
  return os::process_identity(static_cast<std::int64_t>(record.process)) != record.place;
}

LeaseRecord own_record() {
  const std::int64_t process = os::process_id();
  return {.holder = fmt::format("{:016x}{:016x}", os::random_u64(), os::random_u64()),
          .host = os::machine_name(),
          .process = static_cast<std::uint64_t>(process),
          .place = os::process_identity(process),
          .beat = 0};
}

tl::unexpected<Error> ignores_conditions(const std::string& path, std::string_view which) {
  return fail(ErrorKind::unsupported,
              fmt::format("{}: the service overwrote an object in spite of the condition {}: there, two writers could "
                          "destroy each other's checkpoints; use a service with conditional writes, or keep the run on "
                          "a disk",
                          path, which));
}

tl::unexpected<Error> is_no_lease(const std::string& path, std::uint64_t size_bytes) {
  return fail(
      ErrorKind::unsupported,
      fmt::format("{}: this object of {} bytes is no lease of bitsnap, and is left alone: remove it, or keep the "
                  "run elsewhere",
                  path, size_bytes));
}

// Whether the service refuses what it has to refuse, tried on a lease that was just taken, whose new version it gives.
// A request without an answer shows nothing.
Result<std::string> check_conditions(ObjectStore& store, const std::string& key, const std::string& path,
                                     LeaseRecord& record, const std::string& version) {
  const std::string same = json::serialize_json(record);
  if (const auto again = store.put_if_absent(key, as_byte_span(same)); again && *again) {
    return ignores_conditions(path, "If-None-Match");
  }
  ++record.beat;
  const std::string next = json::serialize_json(record);
  BITSNAP_ASSIGN(const auto changed, replace_object(store, key, as_byte_span(next), version));
  if (!changed) return fail(ErrorKind::busy, fmt::format("{}: another writer was faster", path));
  if (const auto stale = store.put_if_version(key, as_byte_span(next), version); stale && *stale) {
    return ignores_conditions(path, "If-Match");
  }
  return *changed;
}

// Undoes what take() did with an object that was there before, or was not, unless it is another's by now.
void undo(ObjectStore& store, const std::string& key, const LeaseRecord& own, bool was_there) {
  const auto tail = store.read_tail(key, kMostBytes);
  if (!tail) return;
  const auto found = json::parse_json<LeaseRecord>(as_text(tail->bytes));
  if (!found || found->holder != own.holder) return;
  // What is left is an object of bitsnap that tells nobody to wait.
  static_cast<void>(was_there ? store.put(key, as_byte_span(json::serialize_json(LeaseRecord{}))) : store.remove(key));
}

}  // namespace

Lease::Lease(std::shared_ptr<ObjectStore> store, std::string key, LeaseRecord record, std::string version,
             std::uint64_t sent_ns, const LeaseTimes& times)
    : store_(std::move(store)),
      key_(std::move(key)),
      times_(times),
      process_(os::process_id()),
      record_(std::move(record)),
      version_(std::move(version)),
      trusted_until_ns_(sent_ns + times.trust_ms * kMillisecond),
      thread_([this] { keep(); }) {}

std::shared_ptr<Lease> Lease::hold(std::shared_ptr<ObjectStore> store, std::string key, LeaseRecord record,
                                   std::string version, std::uint64_t sent_ns, const LeaseTimes& times) {
  auto* const lease =
      new Lease(std::move(store), std::move(key), std::move(record), std::move(version), sent_ns, times);
  // A forked child leaves it as it is: the thread, and what it waits for, are those of the parent.
  return {lease, [](Lease* held) {
            if (held->process_ == os::process_id()) delete held;
          }};
}

Lease::~Lease() {
  {
    const std::lock_guard guard(mutex_);
    is_ending_ = true;
  }
  ends_.notify_all();
  thread_.join();
  if (!is_held()) return;
  const std::string nobody = json::serialize_json(LeaseRecord{});
  // If this fails, others wait until they see that nobody changes it.
  static_cast<void>(no_throw("lease", [&] { return store_->put_if_version(key_, as_byte_span(nobody), version_); }));
}

bool Lease::is_held() const noexcept {
  return process_ == os::process_id() && os::sleepless_ns() < trusted_until_ns_.load();
}

void Lease::keep() {
  std::uint64_t wait_ms = times_.beat_ms;
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, std::chrono::milliseconds(wait_ms), [this] { return is_ending_; })) {
    lock.unlock();
    const std::uint64_t sent_ns = os::sleepless_ns();
    ++record_.beat;
    const std::string text = json::serialize_json(record_);
    const auto changed = no_throw("lease", [&] { return replace_object(*store_, key_, as_byte_span(text), version_); });
    if (changed && *changed && is_held()) {
      version_ = **changed;
      trusted_until_ns_ = sent_ns + times_.trust_ms * kMillisecond;
    } else if (changed) {
      trusted_until_ns_ = 0;
    }
    wait_ms = changed ? times_.beat_ms : times_.beat_ms / 4;
    lock.lock();
    if (!is_held()) return;
  }
}

tl::unexpected<Error> SeenLease::busy(const std::string& path) const {
  if (!record_) return fail(ErrorKind::busy, fmt::format("{}: another writer was faster", path));
  return fail(ErrorKind::busy, fmt::format("{}: process {} on {} holds it{}", path, record_->process,
                                           record_->host.empty() ? "another machine" : record_->host,
                                           lives_ ? "" : ", if it still lives"));
}

bool SeenLease::is_free(LeaseRecord found, const std::string& version, const LeaseTimes& times) {
  if (found.holder.empty() || found.holder == own_) return true;
  const std::uint64_t now = os::sleepless_ns();
  if (!record_ || version != version_) {
    lives_ = (record_ && record_->holder == found.holder) || has_ended(found) == false;
    version_ = version;
    since_ns_ = now;
    record_ = std::move(found);
  }
  return has_ended(*record_) == true || now - since_ns_ >= times.take_ms * kMillisecond;
}

std::uint64_t SeenLease::doubt_ms(const LeaseTimes& times) const {
  if (!record_ || lives_) return 0;
  const std::uint64_t seen_ms = (os::sleepless_ns() - since_ns_) / kMillisecond;
  return seen_ms >= times.take_ms ? 1 : times.take_ms - seen_ms;
}

Result<std::shared_ptr<Lease>> SeenLease::take(const std::shared_ptr<ObjectStore>& store, const std::string& key,
                                               const std::string& path, const LeaseTimes& times) {
  const std::uint64_t sent_ns = os::sleepless_ns();
  if (record_ && has_ended(*record_) != true && sent_ns - asked_ns_ < times.ask_ms * kMillisecond) return busy(path);
  asked_ns_ = sent_ns;
  auto tail = store->read_tail(key, kMostBytes);
  if (!tail && tail.error().kind() != ErrorKind::not_found) return tl::unexpected(std::move(tail).error());
  LeaseRecord own = own_record();
  const std::string text = json::serialize_json(own);
  std::optional<std::string> version;
  if (!tail) {
    BITSNAP_ASSIGN(version, create_object(*store, key, as_byte_span(text), [] { return Result<void>(); }));
  } else {
    // The lock of a run on a disk is empty. What is neither that nor a record is an object of somebody else.
    auto found = tail->bytes.empty() ? LeaseRecord{} : json::parse_json<LeaseRecord>(as_text(tail->bytes));
    if (!found) {
      return fail(
          ErrorKind::unsupported,
          fmt::format("{}: this object of {} bytes is no lease of bitsnap, and is left alone: remove it, or keep "
                      "the run elsewhere ({})",
                      path, tail->info.size_bytes, found.error().message()));
    }
    if (!is_free(*std::move(found), tail->info.version, times)) return busy(path);
    BITSNAP_ASSIGN(version, replace_object(*store, key, as_byte_span(text), tail->info.version));
  }
  record_.reset();
  if (!version) return busy(path);
  own_ = own.holder;
  if (!is_checked_) {
    auto checked = check_conditions(*store, key, path, own, *version);
    if (!checked) {
      if (checked.error().kind() == ErrorKind::unsupported) undo(*store, key, own, tail.has_value());
      return tl::unexpected(std::move(checked).error());
    }
    version = *std::move(checked);
    is_checked_ = true;
  }
  return Lease::hold(store, key, std::move(own), *std::move(version), sent_ns, times);
}

Result<void> SeenLease::check(ObjectStore& store, const std::string& key, const std::string& path) {
  if (is_checked_ || creates_once_) return {};
  const std::string nobody = json::serialize_json(LeaseRecord{});
  const auto tail = store.read_tail(key, kMostBytes);
  if (!tail && tail.error().kind() != ErrorKind::not_found) return tl::unexpected(tail.error());
  if (tail && tail->info.size_bytes > kMostBytes) return is_no_lease(path, tail->info.size_bytes);
  if (!tail) BITSNAP_TRY(create_object(store, key, as_byte_span(nobody), [] { return Result<void>(); }));
  // A service that overwrites it writes what is there.
  BITSNAP_ASSIGN(const auto again, store.put_if_absent(key, tail ? ConstByteSpan(tail->bytes) : as_byte_span(nobody)));
  if (again && !tail) BITSNAP_TRY(store.remove(key));
  if (again) return ignores_conditions(path, "If-None-Match");
  creates_once_ = true;
  return {};
}

}  // namespace bitsnap::objects
