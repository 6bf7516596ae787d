#include "store/sealed_json.hpp"

#include <array>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/hash.hpp"
#include "base/try.hpp"
#include "json/json_fields.hpp"
#include "os/atomic_file.hpp"

namespace bitsnap::store {

// The key that all bodies have. It is checked before all others.
struct BodyFormat {
  std::uint64_t format = kStoreFormat;
};

static constexpr auto json_fields(std::type_identity<BodyFormat>) {
  return std::array{json::json_field<&BodyFormat::format>("format")};
}

namespace {

constexpr std::string_view kHashKey = ",\"hash\":\"";
constexpr std::string_view kEnd = "\"}\n";
constexpr std::size_t kHashDigits = 16;
constexpr std::size_t kJsonNesting = 64;

std::string prefix_of(std::string_view key) { return fmt::format("{{\"{}\":", key); }

std::string hash_of(std::string_view body) { return fmt::format("{:016x}", hash64(as_byte_span(body))); }

}  // namespace

std::string seal_json(std::string_view key, std::string_view body) {
  return prefix_of(key).append(body).append(kHashKey).append(hash_of(body)).append(kEnd);
}

Result<std::string_view> unseal_json(std::string_view key, std::string_view text) {
  const std::string prefix = prefix_of(key);
  const std::size_t tail = kHashKey.size() + kHashDigits + kEnd.size();
  if (text.size() < prefix.size() + tail || !text.starts_with(prefix) || !text.ends_with(kEnd) ||
      text.substr(text.size() - tail, kHashKey.size()) != kHashKey) {
    return fail(ErrorKind::corrupt,
                fmt::format("expected a record {{\"{}\":...,\"hash\":...}}, found {} other bytes", key, text.size()));
  }
  const std::string_view body = text.substr(prefix.size(), text.size() - prefix.size() - tail);
  const std::string_view stated = text.substr(text.size() - kHashDigits - kEnd.size(), kHashDigits);
  const std::string found = hash_of(body);
  if (found != stated) {
    return fail(ErrorKind::corrupt, fmt::format("the record's hash is {}, expected {}", found, stated));
  }
  // The reader would skip white space around the object.
  if (!body.starts_with('{') || !body.ends_with('}')) {
    return fail(ErrorKind::corrupt, "the record's body is not a JSON object");
  }
  BITSNAP_ASSIGN(const BodyFormat version, json::parse_json<BodyFormat>(body, kJsonNesting));
  if (version.format != kStoreFormat) {
    return fail(ErrorKind::unsupported,
                fmt::format("the record has format version {}, this version of bitsnap supports {}", version.format,
                            kStoreFormat));
  }
  return body;
}

Result<void> read_sealed_json(os::FileSystem& file_system, const std::string& path, std::string_view key,
                              ReadBody read) {
  BITSNAP_ASSIGN(const std::vector<std::byte> bytes, os::read_file(file_system, path, kMaxRecordBytes));
  const auto read_text = [&]() -> Result<void> {
    BITSNAP_ASSIGN(const std::string_view body, unseal_json(key, as_text(bytes)));
    return json::read_whole_json(body, read, kJsonNesting);
  };
  Result<void> done = read_text();
  if (!done) return tl::unexpected(std::move(done).error().within(path));
  return done;
}

Result<bool> write_sealed_json(os::FileSystem& file_system, const std::string& path, std::string_view key,
                               std::string_view body, bool overwrite) {
  const std::string text = seal_json(key, body);
  BITSNAP_ASSIGN(os::AtomicFile file, os::AtomicFile::create(file_system, path, overwrite));
  BITSNAP_TRY(file.file().append(as_byte_span(text)));
  BITSNAP_TRY(file.commit());
  return file.directory_synced();
}

}  // namespace bitsnap::store
