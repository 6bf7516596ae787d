// The form of all records of a store: a JSON object, called the body, with the key of its kind and the hash of the
// body's bytes. docs/spec/store.md, "Records". commit_record.hpp has what the bodies contain.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <bitsnap/error.hpp>

#include "base/function_ref.hpp"
#include "json/json_reader.hpp"
#include "os/file_system.hpp"

namespace bitsnap::store {

inline constexpr std::uint64_t kMaxRecordBytes = std::uint64_t{1} << 28;
inline constexpr std::uint32_t kStoreFormat = 0;

// The text of a record. `body` is the text of a JSON object without white space around it.
[[nodiscard]] std::string seal_json(std::string_view key, std::string_view body);

// The body, which is a part of `text`. corrupt if form, hash or JSON are wrong, unsupported for another format.
[[nodiscard]] Result<std::string_view> unseal_json(std::string_view key, std::string_view text);

// Reads a record file: `read` gets the body and reads it as one value. Errors name the file.
using ReadBody = FunctionRef<Result<void>(json::JsonReader& in)>;
[[nodiscard]] Result<void> read_sealed_json(os::FileSystem& file_system, const std::string& path, std::string_view key,
                                            ReadBody read);

// Writes a record file, completely or not at all. Returns whether the directory could be synced.
[[nodiscard]] Result<bool> write_sealed_json(os::FileSystem& file_system, const std::string& path, std::string_view key,
                                             std::string_view body, bool overwrite);

}  // namespace bitsnap::store
