// Closing what a started program is not to have. Of this floor only. Both may be called between fork and exec.
#pragma once

namespace bitsnap::os {

// All descriptors from this number on.
void close_descriptors_from(int first) noexcept;

// The same where the system has no call for it, before Linux 5.9.
void close_descriptors_by_listing(int first) noexcept;

}  // namespace bitsnap::os
