// The budget of one read.
#include "restore/read_context.hpp"

#include <fmt/format.h>

#include "base/try.hpp"

namespace bitsnap {

Result<void> ReadContext::enter() {
  // The chunk that was asked for is the beginning of its path, not a step on it.
  if (depth_ > max_depth_) {
    return fail(ErrorKind::corrupt, fmt::format("it is more than {} chunks away from the one that was asked for: bases "
                                                "that depend on each other in a circle, or a chain too long",
                                                max_depth_));
  }
  if (decodes_ >= max_decodes_) {
    return fail(
        ErrorKind::resource_exhausted,
        fmt::format("more than {} chunks would have to be decoded for the one that was asked for", max_decodes_));
  }
  ++depth_;
  ++decodes_;
  return {};
}

}  // namespace bitsnap
