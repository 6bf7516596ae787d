// Object stores (S3, Google Cloud Storage, Azure and others) as homes of runs: the requests that bitsnap needs of one.
// docs/spec/store.md, "Object stores", says what a run is there.
//
// bitsnap brings no client of its own. The Python package gives one that is made with obstore; a program in C++ gives
// its own to connect_object_stores().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/error.hpp>

namespace bitsnap {

struct ObjectInfo {
  std::uint64_t size_bytes = 0;
  std::string version;           // the ETag or generation: another one after each change of the object
  std::int64_t modified_ns = 0;  // since the Unix epoch, by the clock of the service
};

struct ObjectTail {
  ObjectInfo info;
  std::vector<std::byte> bytes;  // the last ones of the object
};

struct ObjectListing {
  struct Object {
    std::string key;
    ObjectInfo info;
  };
  std::vector<Object> objects;
  std::vector<std::string> prefixes;  // that have objects below, without the slash at the end
};

// An object that is sent in pieces and exists from finish() on. Destroyed without that, it leaves no object. Belongs to
// one thread at a time.
class ObjectUpload {
 public:
  ObjectUpload() = default;
  ObjectUpload(const ObjectUpload&) = delete;
  ObjectUpload& operator=(const ObjectUpload&) = delete;
  virtual ~ObjectUpload() = default;
  [[nodiscard]] virtual Result<void> append(std::span<const std::byte> bytes) = 0;
  [[nodiscard]] virtual Result<void> finish() = 0;
};

// One bucket. Keys have no slash at their beginning. Thread-safe. Errors name the object; what is not said below is io.
// A call may repeat its request after errors. One that changes or removes an object by one request (put, put_if_absent,
// put_if_version, copy, remove) ends within 40 seconds, and changes nothing afterwards: a writer that lost its lease
// may not reach the objects of the next one.
class ObjectStore {
 public:
  ObjectStore() = default;
  ObjectStore(const ObjectStore&) = delete;
  ObjectStore& operator=(const ObjectStore&) = delete;
  virtual ~ObjectStore() = default;

  // nullopt: there is no such object.
  [[nodiscard]] virtual Result<std::optional<ObjectInfo>> find(const std::string& key) = 0;

  // The last `most_bytes` of the object, or all of it if it is smaller. not_found if there is none.
  [[nodiscard]] virtual Result<ObjectTail> read_tail(const std::string& key, std::uint64_t most_bytes) = 0;

  // Fills `out` with the bytes from `offset` on. not_found if there is no object of this version.
  [[nodiscard]] virtual Result<void> read(const std::string& key, const std::string& version, std::uint64_t offset,
                                          std::span<std::byte> out) = 0;

  // Creates or replaces the object.
  [[nodiscard]] virtual Result<void> put(const std::string& key, std::span<const std::byte> bytes) = 0;

  // One request that the service answers by what is there, and the new version of the object: nullopt, with nothing
  // changed, if the object exists, or with `version` if it is not of this version. After an error nobody knows whether
  // the object was changed.
  [[nodiscard]] virtual Result<std::optional<std::string>> put_if_absent(const std::string& key,
                                                                         std::span<const std::byte> bytes) = 0;
  [[nodiscard]] virtual Result<std::optional<std::string>> put_if_version(const std::string& key,
                                                                          std::span<const std::byte> bytes,
                                                                          const std::string& version) = 0;

  [[nodiscard]] virtual Result<std::unique_ptr<ObjectUpload>> upload(const std::string& key) = 0;

  // A copy that the service makes. not_found if there is no such object.
  [[nodiscard]] virtual Result<void> copy(const std::string& from, const std::string& to) = 0;

  // No error if there is no such object.
  [[nodiscard]] virtual Result<void> remove(const std::string& key) = 0;

  // The objects below `prefix` and a slash, in byte order of their keys: all of them, or those of one level, and the
  // prefixes of others. An empty prefix is the bucket.
  [[nodiscard]] virtual Result<ObjectListing> list(const std::string& prefix, bool is_deep) = 0;
};

// Whether a path is the address of an object store, as "s3://bucket/run": a scheme of letters and digits, and "://".
[[nodiscard]] bool is_object_path(std::string_view path) noexcept;

// Makes the client of a bucket, such as "s3://bucket". Called once for each bucket of this process.
using ConnectObjectStore = std::function<Result<std::shared_ptr<ObjectStore>>(const std::string& bucket)>;

// From now on, `connect` is asked for buckets that were not used before. Stores that are open keep their client.
void connect_object_stores(ConnectObjectStore connect);

// The most bytes that this process sends to object stores each second, to all buckets together; 0: no limit, as at the
// beginning.
void limit_object_uploads(std::uint64_t bytes_per_second);

}  // namespace bitsnap
