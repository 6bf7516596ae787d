// Executors of a process that works in the background: their threads have a lower priority than those that call them,
// except while the work is urgent. A thread that has lowered its priority may not raise it again without privileges, so
// other threads take over. The state belongs to the process; any thread may call.
#pragma once

#include <memory>

#include "exec/executor.hpp"

namespace bitsnap::exec {

// From now on, make_executor() makes background executors. Their threads add `nice_increment` to their niceness.
void work_in_background(int nice_increment) noexcept;
[[nodiscard]] bool is_in_background() noexcept;

// While the work is urgent, threads with the priority of the caller do it; the others first finish their items.
void set_urgent(bool is_urgent) noexcept;
[[nodiscard]] bool is_urgent() noexcept;

// Uses plain threads, started for each call; the calling thread only waits unless the work is urgent.
[[nodiscard]] std::unique_ptr<Executor> make_background_executor(unsigned threads);

}  // namespace bitsnap::exec
