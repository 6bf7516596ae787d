// Plays a system that is short of memory.
#pragma once

namespace bitsnap::os {

// Takes all pages back that this process has offered, see offer_pages().
void take_offered_pages();

}  // namespace bitsnap::os
