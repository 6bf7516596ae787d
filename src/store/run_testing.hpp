// A small training for tests of the store: states that move from step to step like real ones, and a comparison of what
// is read back with what they were. States follow from run, step and seed alone, so that nothing has to be kept.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <bitsnap/store.hpp>

#include "base/bytes.hpp"

namespace bitsnap::store {

// One rank's state. Owns the bytes; the State it makes refers to them.
class TestState {
 public:
  // A frozen tensor, two that change a little with each step, one constant, one that changes every 16 steps, some small
  // ones. About 3 KiB for each unit of `size`.
  explicit TestState(std::uint64_t step, std::uint64_t seed = 0, std::size_t size = 1);

  void add(const std::string& name, DType dtype, std::vector<std::byte> bytes);
  // As a box of a larger tensor: rows [first, first + rows) of so many.
  void add_rows(const std::string& name, DType dtype, std::vector<std::byte> bytes, std::uint64_t columns,
                std::uint64_t first_row, std::uint64_t all_rows);

  [[nodiscard]] State state() const;
  struct Tensor {
    TensorInfo info;
    std::vector<std::byte> bytes;
  };
  [[nodiscard]] const std::vector<Tensor>& tensors() const noexcept { return tensors_; }

  // Without any tensor.
  TestState() = default;

 private:
  std::vector<Tensor> tensors_;
};

// Empty if the snapshot holds exactly this state; else what is different.
[[nodiscard]] std::string difference(const Snapshot& snapshot, const TestState& expected);

// Opens the step and compares; empty if all is well.
[[nodiscard]] std::string check_step(const Store& store, std::uint64_t step, const TestState& expected);

}  // namespace bitsnap::store
