// A directory in which only this user can create names, for sockets: bitsnap-UID, or bitsnap-UID-RANDOM if another user
// has taken that name, in /tmp, else in /dev/shm, else in /var/tmp. Keeps no state; any thread may call.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <bitsnap/error.hpp>

#include "os/descriptor.hpp"

namespace bitsnap::os {

// The directories of the machine in which every user can create names, the first choice first.
[[nodiscard]] std::span<const std::string_view> shared_directories() noexcept;

// This user's directory in `above`; nullopt if there is none. Not a link, and nobody else has rights on it.
[[nodiscard]] std::optional<std::string> find_private_directory(std::string_view above);

// The same, but creates it if there is none.
[[nodiscard]] Result<std::string> make_private_directory(std::string_view above);

// Excludes other processes that lock the directory, until the descriptor is closed. busy if it takes longer than that.
[[nodiscard]] Result<Descriptor> lock_directory(const std::string& directory, std::int64_t timeout_ms);

}  // namespace bitsnap::os
