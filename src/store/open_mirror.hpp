// Mirrors between file systems that the caller gives.
#pragma once

#include <bitsnap/error.hpp>
#include <bitsnap/mirror.hpp>

#include "store/home.hpp"

namespace bitsnap::store {

// As Mirror::open().
[[nodiscard]] Result<Mirror> open_mirror(const Home& from, const Home& to, MirrorOptions options);

}  // namespace bitsnap::store
