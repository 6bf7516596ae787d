// Working memory for the functions of <bitsnap/codec.hpp>.
#pragma once

#include "base/scratch.hpp"

namespace bitsnap::codec {

// The calling thread's scratch. It keeps its memory (some MiB) until the thread ends.
[[nodiscard]] inline Scratch& thread_scratch() noexcept {
  thread_local Scratch scratch;
  return scratch;
}

}  // namespace bitsnap::codec
