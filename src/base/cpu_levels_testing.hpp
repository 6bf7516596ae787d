// Runs tests at every CPU level of this machine.
#pragma once

#include <gtest/gtest.h>

#include <bitsnap/cpu.hpp>

#include "base/function_ref.hpp"

namespace bitsnap {

// Calls `body` at each CPU level, the scalar one first, until it fails fatally; then restores the detected level.
inline void at_every_level(FunctionRef<void()> body) {
  for (const CpuLevel level : kCpuLevels) {
    if (!force_cpu_level(level)) continue;
    SCOPED_TRACE(cpu_level_name(level));
    body();
    if (testing::Test::HasFatalFailure()) break;
  }
  force_cpu_level(detected_cpu_level());
}

}  // namespace bitsnap
