// Identity of this process.
#include "os/process.hpp"

#include <unistd.h>

namespace bitsnap::os {

std::int64_t process_id() noexcept { return ::getpid(); }

}  // namespace bitsnap::os
