// How many threads it makes sense to run here.
#pragma once

namespace bitsnap::os {

// The CPUs this process may use: its affinity, or the CPU quota of its control group (rounded up) if that is less. At
// least 1. Asked anew at each call; costs some reads of small files.
[[nodiscard]] unsigned usable_threads();

}  // namespace bitsnap::os
