// Trainings with Adam whose states are one step apart, for tests of the save layer.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <bitsnap/tensor.hpp>

#include "codec/optimizer_step/trained_step_testing.hpp"
#include "save/state_testing.hpp"

namespace bitsnap::save {

inline constexpr std::size_t kStepElements = kChunkElements + 1000;

// The names of the tensors of one parameter.
struct Names {
  std::string x = "master.w";
  std::string m = "exp_avg.w";
  std::string v = "exp_avg_sq.w";
};

// A training with some parameters of one size, in F32 or BF16. Owns the bytes of its states.
class SteppedTraining {
 public:
  explicit SteppedTraining(std::size_t parameters = 1, std::size_t elements = kStepElements, DType dtype = DType::f32)
      : dtype_(dtype) {
    for (std::size_t i = 0; i < parameters; ++i) {
      codec::TrainedState state = codec::trained_state(elements, 100 + i);
      states_.push_back(dtype == DType::f32 ? state : codec::rounded_state(std::move(state)));
    }
    write();
  }

  void step(const codec::Hyperparameters& hyperparameters = {}) {
    ++steps_;
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const std::uint64_t seed = 1000 * steps_ + i;
      dtype_ == DType::f32 ? codec::take_step(states_[i], hyperparameters, seed)
                           : codec::take_rounded_step(states_[i], hyperparameters, seed);
    }
    write();
  }

  // One in `every` rows has moments and keeps getting gradients.
  void keep_rows(std::size_t row_elements, std::size_t every) {
    for (codec::TrainedState& state : states_) {
      for (std::size_t i = 0; i < state.m.size(); ++i) {
        if (i / row_elements % every != 0) state.m[i] = state.v[i] = 0;
      }
    }
    write();
  }

  // Adds the tensors of one parameter in this order: x the parameter, m the first and v the second moment.
  void add(State& state, const Names& names = {}, std::size_t parameter = 0, std::string_view order = "xmv") const {
    for (const char which : order) {
      const std::string& name = which == 'x' ? names.x : which == 'm' ? names.m : names.v;
      const Bytes& bytes = bytes_of(parameter, which);
      state.tensors.push_back(source(name, dtype_, {bytes.size() / element_size(dtype_)}, bytes));
    }
  }

  [[nodiscard]] const Bytes& bytes_of(std::size_t parameter, char which) const {
    return bytes_[3 * parameter + (which == 'x' ? 0 : which == 'm' ? 1 : 2)];
  }

 private:
  // In place, because states refer to the bytes.
  void write() {
    const auto bytes_of = [this](const codec::Floats& floats) {
      return dtype_ == DType::f32 ? codec::trained_bytes(floats) : codec::bf16_bytes(floats);
    };
    bytes_.resize(3 * states_.size());
    for (std::size_t i = 0; i < states_.size(); ++i) {
      bytes_[3 * i] = bytes_of(states_[i].x);
      bytes_[3 * i + 1] = bytes_of(states_[i].m);
      bytes_[3 * i + 2] = bytes_of(states_[i].v);
    }
  }

  DType dtype_;
  std::vector<codec::TrainedState> states_;
  std::vector<Bytes> bytes_;
  std::uint64_t steps_ = 0;
};

inline bool is_all_stepped(const Snapshot& snapshot, std::string_view name) {
  return codecs_of(snapshot, name) == std::set<std::string>{"optimizer_step"};
}

}  // namespace bitsnap::save
