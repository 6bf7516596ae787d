// The fixture of the executors' tests: each test runs with every kind of executor. executor_test.cpp instantiates it.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "exec/executor.hpp"

namespace bitsnap::exec {

struct ExecutorKind {
  const char* name;
  std::unique_ptr<Executor> (*make)(unsigned threads);
};

class ExecutorTest : public testing::TestWithParam<ExecutorKind> {
 protected:
  static std::unique_ptr<Executor> make(unsigned threads) { return GetParam().make(threads); }
};

// A delay determined by the item and the seed: none, a yield, or up to half a millisecond.
inline void delay(std::uint64_t seed, std::size_t item) {
  std::mt19937_64 random(seed * 1000003 + item);
  const std::uint64_t choice = random() % 8;
  if (choice == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
  if (choice == 1) std::this_thread::yield();
}

inline std::string message_of(std::size_t item) { return "item " + std::to_string(item) + " is bad"; }

}  // namespace bitsnap::exec
