// Working memory for the functions of <bitsnap/codec.hpp>, whose callers bring none.
#pragma once

#include "base/scratch.hpp"

namespace bitsnap::codec {

// The calling thread's own; it keeps what it has grown to (some MiB) for as long as the thread lives.
[[nodiscard]] inline Scratch& thread_scratch() noexcept {
  thread_local Scratch scratch;
  return scratch;
}

}  // namespace bitsnap::codec
