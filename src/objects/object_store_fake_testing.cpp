#include "objects/object_store_fake.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "base/try.hpp"

namespace bitsnap::objects {

FakeObjectStore::FakeObjectStore() : objects_(std::make_shared<Objects>()) {}

FakeObjectStore::FakeObjectStore(const FakeObjectStore& other)
    : ObjectStore(), list_lag(other.list_lag), has_conditions(other.has_conditions), objects_(other.objects_) {}

std::vector<std::string> FakeObjectStore::keys() const {
  const std::lock_guard guard(objects_->mutex);
  std::vector<std::string> keys;
  for (const auto& [key, object] : objects_->by_key) keys.push_back(key);
  return keys;
}

std::uint64_t FakeObjectStore::requests() const {
  const std::lock_guard guard(objects_->mutex);
  return objects_->requests;
}

void FakeObjectStore::set_fault(FaultOf fault_of) {
  const std::lock_guard guard(objects_->mutex);
  fault_of_ = std::move(fault_of);
}

template <typename Work>
auto FakeObjectStore::request(std::string_view kind, const std::string& key, Work&& work) -> decltype(work()) {
  std::unique_lock guard(objects_->mutex);
  const FaultOf fault_of = fault_of_;
  guard.unlock();
  RequestFault found = fault_of ? fault_of(kind, key) : RequestFault::none;
  guard.lock();
  if (is_dead_) found = RequestFault::dead;
  ++objects_->requests;
  is_dead_ = is_dead_ || found == RequestFault::dead || found == RequestFault::dead_after;
  const auto error = [&] {
    return fail(is_dead_ ? ErrorKind::internal : ErrorKind::io, std::string(kind) + " " + key + ": no answer");
  };
  if (found == RequestFault::refused || found == RequestFault::dead) return error();
  auto done = work();
  if (found == RequestFault::lost_answer || found == RequestFault::dead_after) return error();
  return done;
}

ObjectInfo FakeObjectStore::info_of(const Object& object) {
  return {.size_bytes = object.bytes.size(),
          .version = "v" + std::to_string(object.version),
          .modified_ns = static_cast<std::int64_t>(object.version)};
}

std::optional<std::string> FakeObjectStore::set(const std::string& key, std::span<const std::byte> bytes) {
  objects_->before.push_back(objects_->by_key);
  Object& object = objects_->by_key[key];
  object = {{bytes.begin(), bytes.end()}, ++objects_->changes};
  return info_of(object).version;
}

Result<std::optional<ObjectInfo>> FakeObjectStore::find(const std::string& key) {
  return request("find", key, [&]() -> Result<std::optional<ObjectInfo>> {
    const auto found = objects_->by_key.find(key);
    if (found == objects_->by_key.end()) return std::nullopt;
    return info_of(found->second);
  });
}

Result<ObjectTail> FakeObjectStore::read_tail(const std::string& key, std::uint64_t most_bytes) {
  return request("read_tail", key, [&]() -> Result<ObjectTail> {
    const auto found = objects_->by_key.find(key);
    if (found == objects_->by_key.end()) return fail(ErrorKind::not_found, key + ": no such object");
    const std::vector<std::byte>& bytes = found->second.bytes;
    const auto size = static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(most_bytes, bytes.size()));
    return ObjectTail{info_of(found->second), {bytes.end() - size, bytes.end()}};
  });
}

Result<void> FakeObjectStore::read(const std::string& key, const std::string& version, std::uint64_t offset,
                                   std::span<std::byte> out) {
  return request("read", key, [&]() -> Result<void> {
    const auto found = objects_->by_key.find(key);
    if (found == objects_->by_key.end() || info_of(found->second).version != version) {
      return fail(ErrorKind::not_found, key + ": no such version");
    }
    const std::vector<std::byte>& bytes = found->second.bytes;
    if (offset + out.size() > bytes.size()) return fail(ErrorKind::io, key + ": no such range");
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    return {};
  });
}

Result<void> FakeObjectStore::put(const std::string& key, std::span<const std::byte> bytes) {
  return request("put", key, [&]() -> Result<void> {
    set(key, bytes);
    return {};
  });
}

Result<std::optional<std::string>> FakeObjectStore::put_if_absent(const std::string& key,
                                                                  std::span<const std::byte> bytes) {
  return request("put_if_absent", key, [&]() -> Result<std::optional<std::string>> {
    if (has_conditions && objects_->by_key.contains(key)) return std::nullopt;
    return set(key, bytes);
  });
}

Result<std::optional<std::string>> FakeObjectStore::put_if_version(const std::string& key,
                                                                   std::span<const std::byte> bytes,
                                                                   const std::string& version) {
  return request("put_if_version", key, [&]() -> Result<std::optional<std::string>> {
    const auto found = objects_->by_key.find(key);
    const bool is_it = found != objects_->by_key.end() && info_of(found->second).version == version;
    if (has_conditions && !is_it) return std::nullopt;
    return set(key, bytes);
  });
}

class FakeObjectStore::Upload final : public ObjectUpload {
 public:
  Upload(FakeObjectStore& store, std::string key) : store_(store), key_(std::move(key)) {}
  Result<void> append(std::span<const std::byte> bytes) override {
    return store_.request("append", key_, [&]() -> Result<void> {
      bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
      return {};
    });
  }
  Result<void> finish() override {
    return store_.request("finish", key_, [&]() -> Result<void> {
      store_.set(key_, bytes_);
      return {};
    });
  }

 private:
  FakeObjectStore& store_;
  const std::string key_;
  std::vector<std::byte> bytes_;
};

Result<std::unique_ptr<ObjectUpload>> FakeObjectStore::upload(const std::string& key) {
  return request("upload", key,
                 [&]() -> Result<std::unique_ptr<ObjectUpload>> { return std::make_unique<Upload>(*this, key); });
}

Result<void> FakeObjectStore::copy(const std::string& from, const std::string& to) {
  return request("copy", from, [&]() -> Result<void> {
    const auto found = objects_->by_key.find(from);
    if (found == objects_->by_key.end()) return fail(ErrorKind::not_found, from + ": no such object");
    const std::vector<std::byte> bytes = found->second.bytes;
    set(to, bytes);
    return {};
  });
}

Result<void> FakeObjectStore::remove(const std::string& key) {
  return request("remove", key, [&]() -> Result<void> {
    objects_->before.push_back(objects_->by_key);
    objects_->by_key.erase(key);
    return {};
  });
}

Result<ObjectListing> FakeObjectStore::list(const std::string& prefix, bool is_deep) {
  return request("list", prefix, [&]() -> Result<ObjectListing> {
    ObjectListing listing;
    std::set<std::string> prefixes;
    const std::string begin = prefix.empty() ? "" : prefix + "/";
    const auto& before = objects_->before;
    const auto& seen =
        list_lag == 0 || before.empty() ? objects_->by_key : before[before.size() - std::min(list_lag, before.size())];
    for (auto it = seen.lower_bound(begin); it != seen.end() && it->first.starts_with(begin); ++it) {
      const std::size_t slash = it->first.find('/', begin.size());
      if (is_deep || slash == std::string::npos) {
        listing.objects.push_back({it->first, info_of(it->second)});
      } else {
        prefixes.insert(it->first.substr(0, slash));
      }
    }
    listing.prefixes.assign(prefixes.begin(), prefixes.end());
    return listing;
  });
}

}  // namespace bitsnap::objects
