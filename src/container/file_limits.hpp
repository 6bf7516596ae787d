// What a file may cost, by its size.
#pragma once

#include <cstdint>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>

namespace bitsnap::container {

// `limits`, lowered to what a file of this size may need.
[[nodiscard]] DecodeLimits limits_for(std::uint64_t file_bytes, const DecodeLimits& limits);

// Adds what raises the limit to an error of a limit; returns other errors as they are.
[[nodiscard]] Error with_remedy(Error error, std::uint64_t file_bytes, const DecodeLimits& limits);

}  // namespace bitsnap::container
