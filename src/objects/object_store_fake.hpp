// An object store in memory, for tests: versions, conditions, listings, and requests that fail in the ways that real
// ones do.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/object_store.hpp>

namespace bitsnap::objects {

enum class RequestFault : std::uint8_t {
  none,
  refused,      // nothing is done, and the answer is an error
  lost_answer,  // it is done, and the answer is an error
  dead,         // the process ends before the request: this and all later ones are refused
  dead_after,   // the process ends after it
};

class FakeObjectStore final : public ObjectStore {
 public:
  FakeObjectStore();
  // The same objects, seen by another process.
  FakeObjectStore(const FakeObjectStore& other);

  using FaultOf = std::function<RequestFault(std::string_view request, const std::string& key)>;
  // `fault_of` is asked before each request, which waits meanwhile, with its kind, such as "put", and its key.
  void set_fault(FaultOf fault_of);
  std::size_t list_lag = 0;    // how many changes a list does not show yet
  bool has_conditions = true;  // false: put_if_absent() and put_if_version() overwrite

  [[nodiscard]] std::vector<std::string> keys() const;
  [[nodiscard]] std::uint64_t requests() const;

  Result<std::optional<ObjectInfo>> find(const std::string& key) override;
  Result<ObjectTail> read_tail(const std::string& key, std::uint64_t most_bytes) override;
  Result<void> read(const std::string& key, const std::string& version, std::uint64_t offset,
                    std::span<std::byte> out) override;
  Result<void> put(const std::string& key, std::span<const std::byte> bytes) override;
  Result<std::optional<std::string>> put_if_absent(const std::string& key, std::span<const std::byte> bytes) override;
  Result<std::optional<std::string>> put_if_version(const std::string& key, std::span<const std::byte> bytes,
                                                    const std::string& version) override;
  Result<std::unique_ptr<ObjectUpload>> upload(const std::string& key) override;
  Result<void> copy(const std::string& from, const std::string& to) override;
  Result<void> remove(const std::string& key) override;
  Result<ObjectListing> list(const std::string& prefix, bool is_deep) override;

 private:
  struct Object {
    std::vector<std::byte> bytes;
    std::uint64_t version = 0;
  };
  struct Objects {
    std::mutex mutex;
    std::map<std::string, Object> by_key;
    std::vector<std::map<std::string, Object>> before;  // each change
    std::uint64_t changes = 0;
    std::uint64_t requests = 0;
  };
  class Upload;

  // Runs `work` with the objects locked, with the fault of the request.
  template <typename Work>
  auto request(std::string_view kind, const std::string& key, Work&& work) -> decltype(work());
  std::optional<std::string> set(const std::string& key, std::span<const std::byte> bytes);
  [[nodiscard]] static ObjectInfo info_of(const Object& object);

  std::shared_ptr<Objects> objects_;
  // With objects_->mutex locked:
  FaultOf fault_of_;
  bool is_dead_ = false;
};

}  // namespace bitsnap::objects
