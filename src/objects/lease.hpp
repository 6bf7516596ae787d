// A lease: the lock of a run in an object store, which has no locks. An object names the holder and is changed by
// conditional requests only. The holder changes it every few seconds. Whoever sees it unchanged for `take_ms`, by a
// clock of its own, takes it over: the holder has stopped by then, because it trusts its lease for `trust_ms` only, by
// its own clock, from before the last request that succeeded. docs/spec/store.md, "Object stores".
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include <bitsnap/error.hpp>
#include <bitsnap/object_store.hpp>

#include "os/file_system.hpp"

namespace bitsnap::objects {

struct LeaseTimes {
  std::uint64_t beat_ms = 10'000;  // between two changes by the holder
  std::uint64_t trust_ms = 30'000;
  // A request that was sent while the lease was trusted has ended by then: ObjectStore says how long one may last.
  std::uint64_t take_ms = 75'000;
  std::uint64_t ask_ms = 250;  // between two questions to the service about a lease that another holds
};

// What the object says.
struct LeaseRecord {
  std::string holder;  // empty: nobody holds it
  std::string host;
  std::uint64_t process = 0;
  std::string place;  // of the process: its machine's boot and its namespace of process numbers
  std::uint64_t beat = 0;
};

// A lease that this process holds. The destructor, on any thread, gives it back.
class Lease final : public os::FileLock {
 public:
  [[nodiscard]] static std::shared_ptr<Lease> hold(std::shared_ptr<ObjectStore> store, std::string key,
                                                   LeaseRecord record, std::string version, std::uint64_t sent_ns,
                                                   const LeaseTimes& times);
  ~Lease() override;

  // False from when another writer may have taken it, and in a forked child.
  bool is_held() const noexcept override;

 private:
  Lease(std::shared_ptr<ObjectStore> store, std::string key, LeaseRecord record, std::string version,
        std::uint64_t sent_ns, const LeaseTimes& times);
  void keep();

  const std::shared_ptr<ObjectStore> store_;
  const std::string key_;
  const LeaseTimes times_;
  const std::int64_t process_;
  LeaseRecord record_;
  std::string version_;
  std::atomic<std::uint64_t> trusted_until_ns_;  // 0: lost
  std::mutex mutex_;
  std::condition_variable ends_;
  bool is_ending_ = false;
  std::thread thread_;
};

// What a process has seen of a lease that it does not hold.
class SeenLease {
 public:
  // Tries to take the lease, which this process does not hold: busy if another holder lives, or may live. Asks the
  // service at most every few hundred milliseconds. unsupported if the service does not honour conditions, or the
  // object is no lease. `path`: of the lease, for messages.
  [[nodiscard]] Result<std::shared_ptr<Lease>> take(const std::shared_ptr<ObjectStore>& store, const std::string& key,
                                                    const std::string& path, const LeaseTimes& times);
  // unsupported if the service overwrites objects that it has to leave alone: for ranks, which write without the lease.
  // Tried once, by a request that would write the bytes of the lease that are there.
  [[nodiscard]] Result<void> check(ObjectStore& store, const std::string& key, const std::string& path);
  // How long it may take from now until the holder of the last take() is known to live or not; 0: known.
  [[nodiscard]] std::uint64_t doubt_ms(const LeaseTimes& times) const;

 private:
  [[nodiscard]] tl::unexpected<Error> busy(const std::string& path) const;
  // Whether the lease may be taken from the holder that was found.
  [[nodiscard]] bool is_free(LeaseRecord found, const std::string& version, const LeaseTimes& times);

  std::optional<LeaseRecord> record_;  // of the holder, when it was seen last
  std::string version_;
  std::uint64_t since_ns_ = 0;  // that this version has been seen
  std::uint64_t asked_ns_ = 0;  // when the service was asked last
  bool lives_ = false;          // the holder changed the object while it was watched
  bool is_checked_ = false;     // the service honours conditions
  bool creates_once_ = false;   // the first of the two conditions
  std::string own_;             // the holder as which this process took it last; it may have failed to give it back
};

}  // namespace bitsnap::objects
