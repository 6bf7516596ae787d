// Closes descriptors that a started program must not inherit. Used by src/os only. Safe between fork and exec.
#pragma once

namespace bitsnap::os {

// Closes all descriptors of number `first` and above.
void close_descriptors_from(int first) noexcept;

// The same for Linux before 5.9, which has no system call for it.
void close_descriptors_by_listing(int first) noexcept;

}  // namespace bitsnap::os
