// TestState: the states of a small training for tests of the store, which change from step to step like real ones, and
// the comparison of a restored state with the original. A state follows from step and seed alone, so tests keep none.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <bitsnap/store.hpp>

#include "base/bytes.hpp"

namespace bitsnap::store {

// The state of one rank. Owns the bytes; the State that it makes refers to them.
class TestState {
 public:
  // A frozen tensor, one that changes a little with each step, one that changes every 3 steps, one that changes every
  // 16 steps, a constant one, and a small one. About 23 KiB for each unit of `size`.
  explicit TestState(std::uint64_t step, std::uint64_t seed = 0, std::size_t size = 1);

  void add(const std::string& name, DType dtype, std::vector<std::byte> bytes);
  // Adds a tensor that is a part of a larger tensor: rows [first_row, first_row + rows) of `all_rows`.
  void add_rows(const std::string& name, DType dtype, std::vector<std::byte> bytes, std::uint64_t columns,
                std::uint64_t first_row, std::uint64_t all_rows);

  [[nodiscard]] State state() const;
  struct Tensor {
    TensorInfo info;
    std::vector<std::byte> bytes;
  };
  [[nodiscard]] const std::vector<Tensor>& tensors() const noexcept { return tensors_; }

  // A state without tensors.
  TestState() = default;

 private:
  std::vector<Tensor> tensors_;
};

// Returns an empty string if the snapshot holds exactly this state, otherwise the difference. The tensors `damaged`
// cannot be read.
[[nodiscard]] std::string difference(const Snapshot& snapshot, const TestState& expected,
                                     const std::set<std::string>& damaged = {});

// Restores the step and compares it. Returns an empty string if it is equal.
[[nodiscard]] std::string check_step(const Store& store, std::uint64_t step, const TestState& expected);

}  // namespace bitsnap::store
