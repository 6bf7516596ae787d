// How an agent opens the store of a job. A trainer opens it in the same way before it starts an agent, so that a
// mistake ends the caller's first call and not every save.
#pragma once

#include <cstdint>

#include <bitsnap/error.hpp>
#include <bitsnap/store.hpp>

#include "engine/messages.hpp"

namespace bitsnap::engine {

// How long a save waits for another writer of the store.
inline constexpr std::uint64_t kLockWaitMs = 10'000;

[[nodiscard]] inline StoreOptions store_options(const WriteSettings& settings, std::uint32_t rank,
                                                std::uint32_t world_size) {
  StoreOptions options;
  options.access = world_size > 1 ? StoreAccess::shared : StoreAccess::write;
  options.settings = settings.coding;
  options.retention = settings.retention;
  options.prunes = rank == 0;
  return options;
}

// Whether a store fails because of its disk, which may recover without the caller: it is full or mounted read-only.
[[nodiscard]] inline bool is_disk_unwritable(const Error& error) noexcept {
  return error.code() == ErrorCode::no_space || error.code() == ErrorCode::read_only;
}

}  // namespace bitsnap::engine
