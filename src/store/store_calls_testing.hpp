// Calls for tests of a store: open the store at /run, save test states, and compare what is restored.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include <bitsnap/store.hpp>

#include "os/file_system.hpp"
#include "store/run_testing.hpp"
#include "store/store_impl.hpp"

namespace bitsnap::store {

inline StoreOptions writing() {
  StoreOptions options;
  options.access = StoreAccess::write;
  return options;
}

inline std::unique_ptr<Store> open(os::FileSystem& files, const StoreOptions& options = writing()) {
  auto store = open_store(files, "/run", options);
  EXPECT_TRUE(store) << store.error().message();
  return store ? std::move(*store) : nullptr;
}

// Calls work(options) for each base rule, with the base in memory and on disk.
template <typename Work>
void for_each_base(const Work& work) {
  for (const std::uint64_t base_memory : {0U, 1U << 20}) {
    for (const BaseRule rule : {BaseRule::previous, BaseRule::keyframe}) {
      StoreOptions options = writing();
      options.keep_base_bytes = base_memory;
      options.settings.base = rule;
      work(options);
    }
  }
}

inline void save_steps(Store& store, std::uint64_t first, std::uint64_t last) {
  for (std::uint64_t step = first; step <= last; ++step) {
    const auto saved = store.save(step, TestState(step).state());
    ASSERT_TRUE(saved) << saved.error().message();
  }
}

inline void expect_steps(const Store& store, const std::vector<std::uint64_t>& expected) {
  EXPECT_EQ(store.steps().value(), expected);
  for (const std::uint64_t step : expected) EXPECT_EQ(check_step(store, step, TestState(step)), "") << step;
}

}  // namespace bitsnap::store
