// Sealing, unsealing, and typed access to members.
#include "store/sealed_json.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/hash.hpp"
#include "base/try.hpp"

namespace bitsnap::store {
namespace {

constexpr std::string_view kHashKey = ",\"hash\":\"";
constexpr std::string_view kEnd = "\"}\n";
constexpr std::size_t kHashDigits = 16;

std::string prefix_of(std::string_view key) { return fmt::format("{{\"{}\":", key); }

std::string hash_of(std::string_view body) {
  return fmt::format("{:016x}", hash64(std::as_bytes(std::span(body.data(), body.size()))));
}

// Deeper values would be copied and freed by recursion.
constexpr std::size_t kMaxNesting = 64;

tl::unexpected<Error> wrong_type(const char* key, const char* expected) {
  return fail(ErrorKind::corrupt, fmt::format("key \"{}\": expected {}", key, expected));
}

}  // namespace

std::string seal_json(std::string_view key, const Json& body) {
  const std::string text = body.dump();
  return prefix_of(key).append(text).append(kHashKey).append(hash_of(text)).append(kEnd);
}

Result<Json> unseal_json(std::string_view key, std::string_view text) {
  const std::string prefix = prefix_of(key);
  const std::size_t tail = kHashKey.size() + kHashDigits + kEnd.size();
  if (text.size() < prefix.size() + tail || !text.starts_with(prefix) || !text.ends_with(kEnd) ||
      text.substr(text.size() - tail, kHashKey.size()) != kHashKey) {
    return fail(ErrorKind::corrupt,
                fmt::format("{} bytes that are no record of the form {{\"{}\":...,\"hash\":...}}", text.size(), key));
  }
  const std::string_view body = text.substr(prefix.size(), text.size() - prefix.size() - tail);
  const std::string_view stated = text.substr(text.size() - kHashDigits - kEnd.size(), kHashDigits);
  const std::string found = hash_of(body);
  if (found != stated) {
    return fail(ErrorKind::corrupt, fmt::format("the record's hash is {}, expected {}", found, stated));
  }
  if (json_nesting(body) > kMaxNesting) {
    return fail(ErrorKind::corrupt, fmt::format("the record is nested more than {} deep", kMaxNesting));
  }
  // The parser would let white space pass that belongs to no object.
  const bool is_bare = body.starts_with('{') && body.ends_with('}');
  Json json = is_bare ? Json::parse(body.begin(), body.end(), nullptr, false) : Json();
  if (!json.is_object()) return fail(ErrorKind::corrupt, "the record is no JSON object");
  BITSNAP_ASSIGN(const std::uint64_t format, json_unsigned(json, "format"));
  if (format != kStoreFormat) {
    return fail(
        ErrorKind::unsupported,
        fmt::format("format {} of the store is not known to this version, which knows {}", format, kStoreFormat));
  }
  return json;
}

Result<Json> read_sealed_json(os::FileSystem& file_system, const std::string& path, std::string_view key) {
  BITSNAP_ASSIGN(const std::vector<std::byte> bytes, os::read_file(file_system, path, kMaxRecordBytes));
  auto json = unseal_json(key, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  if (!json) return tl::unexpected(std::move(json).error().within(path));
  return json;
}

Result<bool> write_sealed_json(os::FileSystem& file_system, const std::string& path, std::string_view key,
                               const Json& body, bool overwrite) {
  const std::string text = seal_json(key, body);
  BITSNAP_ASSIGN(os::AtomicFile file, os::AtomicFile::create(file_system, path, overwrite));
  BITSNAP_TRY(file.file().append(std::as_bytes(std::span(text.data(), text.size()))));
  BITSNAP_TRY(file.commit());
  return file.directory_synced();
}

std::size_t json_nesting(std::string_view text) noexcept {
  std::size_t depth = 0;
  std::size_t deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return deepest;
}

const Json* json_member(const Json& body, const char* key) noexcept {
  const auto* const members = body.get_ptr<const Json::object_t*>();
  if (members == nullptr) return nullptr;
  for (const auto& [name, value] : *members) {
    if (name == key) return &value;
  }
  return nullptr;
}

Result<std::uint64_t> json_unsigned(const Json& body, const char* key) {
  const Json* const found = json_member(body, key);
  if (found == nullptr || !found->is_number_unsigned()) return wrong_type(key, "an unsigned integer");
  return found->get<std::uint64_t>();
}

Result<std::uint32_t> json_unsigned_32(const Json& body, const char* key) {
  BITSNAP_ASSIGN(const std::uint64_t number, json_unsigned(body, key));
  if (number > std::numeric_limits<std::uint32_t>::max()) return wrong_type(key, "an unsigned integer below 2^32");
  return static_cast<std::uint32_t>(number);
}

Result<std::int64_t> json_integer(const Json& body, const char* key) {
  const Json* const found = json_member(body, key);
  const bool fits = found != nullptr && found->is_number_integer() &&
                    (!found->is_number_unsigned() ||
                     found->get<std::uint64_t>() <= std::uint64_t{std::numeric_limits<std::int64_t>::max()});
  if (!fits) return wrong_type(key, "an integer of 64 bits with its sign");
  return found->get<std::int64_t>();
}

Result<std::string> json_string(const Json& body, const char* key) {
  const Json* const found = json_member(body, key);
  if (found == nullptr || !found->is_string()) return wrong_type(key, "a string");
  return found->get<std::string>();
}

Result<const Json::array_t*> json_array(const Json& body, const char* key) {
  const Json* const found = json_member(body, key);
  const auto* const array = found == nullptr ? nullptr : found->get_ptr<const Json::array_t*>();
  if (array == nullptr) return wrong_type(key, "an array");
  return array;
}

Result<bool> json_bool(const Json& body, const char* key, bool otherwise) {
  const Json* const found = json_member(body, key);
  if (found == nullptr) return otherwise;
  if (!found->is_boolean()) return wrong_type(key, "true or false");
  return found->get<bool>();
}

}  // namespace bitsnap::store
