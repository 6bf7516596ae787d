// How many threads this process can run in parallel.
#pragma once

namespace bitsnap::os {

// The number of CPUs that this process may use: of its affinity mask, or the CPU quota of its control group (rounded
// up) if that is less. At least 1. The quota is that of the first call.
[[nodiscard]] unsigned usable_threads();

}  // namespace bitsnap::os
