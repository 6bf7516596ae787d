// JSON objects that carry their own hash: docs/spec/store.md, "Records". All records of a store are such files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <bitsnap/error.hpp>

#include "os/atomic_file.hpp"
#include "os/file_system.hpp"

namespace bitsnap::store {

using Json = nlohmann::ordered_json;

inline constexpr std::uint64_t kMaxRecordBytes = std::uint64_t{1} << 28;
inline constexpr std::uint32_t kStoreFormat = 0;

// The file's text. `body` is an object.
[[nodiscard]] std::string seal_json(std::string_view key, const Json& body);

// The body; corrupt where form or hash are wrong, unsupported for another format.
[[nodiscard]] Result<Json> unseal_json(std::string_view key, std::string_view text);

// The same from a file; errors name it.
[[nodiscard]] Result<Json> read_sealed_json(os::FileSystem& file_system, const std::string& path, std::string_view key);

// Writes a file of that text, whole or not at all. The answer: whether the directory could be synced.
[[nodiscard]] Result<bool> write_sealed_json(os::FileSystem& file_system, const std::string& path, std::string_view key,
                                             const Json& body, bool overwrite);

// How many arrays and objects deep a text is. In what is not JSON at all it may be anything.
[[nodiscard]] std::size_t json_nesting(std::string_view text) noexcept;

// nullptr where there is no such member.
[[nodiscard]] const Json* json_member(const Json& body, const char* key) noexcept;

// Members of a body. corrupt, naming the key, where it is missing or of another type.
[[nodiscard]] Result<std::uint64_t> json_unsigned(const Json& body, const char* key);
[[nodiscard]] Result<std::uint32_t> json_unsigned_32(const Json& body, const char* key);
[[nodiscard]] Result<std::int64_t> json_integer(const Json& body, const char* key);
[[nodiscard]] Result<std::string> json_string(const Json& body, const char* key);
[[nodiscard]] Result<const Json::array_t*> json_array(const Json& body, const char* key);
[[nodiscard]] Result<bool> json_bool(const Json& body, const char* key, bool otherwise);

}  // namespace bitsnap::store
