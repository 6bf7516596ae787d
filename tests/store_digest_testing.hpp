// Describes the contents of a store as JSON: the expectations beside the golden stores, and what tests compare with
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <bitsnap/store.hpp>

#include "base/hash.hpp"

namespace bitsnap::store {

inline std::string describe_bytes(std::span<const std::byte> bytes) {
  Hasher128 hasher;
  hasher.update(bytes);
  const Hash128 hash = hasher.digest();
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

// A digest of the bytes of each tensor, by name, or the error instead.
inline nlohmann::ordered_json describe_tensors(const Snapshot& snapshot) {
  nlohmann::ordered_json tensors = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < snapshot.tensors().size(); ++i) {
    const TensorInfo& info = snapshot.tensors()[i];
    std::vector<std::byte> bytes(static_cast<std::size_t>(info.size_bytes));
    const Result<void> read = snapshot.read_bytes(i, 0, bytes);
    tensors[info.name] = read ? describe_bytes(bytes) : read.error().message();
  }
  return tensors;
}

inline nlohmann::ordered_json describe_checkpoint(const Store& store, const Checkpoint& info) {
  nlohmann::ordered_json json = {{"step", info.step},
                                 {"time_unix_ms", info.time_unix_ms},
                                 {"raw_bytes", info.raw_bytes},
                                 {"stored_bytes", info.stored_bytes},
                                 {"base", nullptr},
                                 {"links", info.links},
                                 {"depth", info.depth}};
  if (info.base) json["base"] = *info.base;
  json["shards"] = nlohmann::ordered_json::array();
  for (std::uint32_t shard = 0; shard < info.shards; ++shard) {
    const auto snapshot = store.snapshot(info.step, shard);
    if (snapshot) {
      json["shards"].push_back({{"id", (*snapshot)->id().to_hex()}, {"tensors", describe_tensors(**snapshot)}});
    } else {
      json["shards"].push_back(snapshot.error().message());
    }
  }
  if (!info.labels.empty()) json["labels"] = info.labels;
  if (!info.metadata.empty()) json["metadata"] = nlohmann::ordered_json(info.metadata);
  const auto files = store.files(info.step);
  if (!files) json["files"] = files.error().message();
  if (!files || files->empty()) return json;
  for (const CheckpointFile& file : *files) json["files"][file.name] = describe_bytes(file.bytes);
  return json;
}

}  // namespace bitsnap::store
