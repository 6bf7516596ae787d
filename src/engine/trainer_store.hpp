// TrainerStore: the trainer's own look at the store: before it attaches, to report mistakes of the caller at once, and
// for steps to restore. It also knows which steps only a save of this trainer can have added.
//
// The trainer owns it. is_new() and note_step() are for the thread that saves; all others may be called from any
// thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <bitsnap/engine.hpp>

#include "os/file_system.hpp"

namespace bitsnap::engine {

class TrainerStore {
 public:
  // `options` outlive this object; `files` also outlive everything that is read.
  TrainerStore(const EngineOptions& options, os::FileSystem& files) : options_(options), files_(files) {}

  // Opens the store as the agent will, and creates it if it does not exist. Fails if the agent could save nothing there
  // until the caller mends something; a full disk and a read-only mount are no such failures.
  [[nodiscard]] Result<void> check() const;
  // For reading.
  [[nodiscard]] Result<std::unique_ptr<Store>> open() const;
  // The attempt by which the step is in the store; nullopt if the step is not there.
  [[nodiscard]] Result<std::optional<std::string>> committed_attempt(std::uint64_t step) const;
  [[nodiscard]] Result<std::shared_ptr<const Snapshot>> load(std::uint64_t step) const;

  // Whether the store can have this step only from the save that begins now. Called for each save, in their order.
  [[nodiscard]] bool is_new(std::uint64_t step, bool persist);
  // The store may get this step by something else than a save that begins later.
  void note_step(std::uint64_t step) { least_new_step_ = std::max(least_new_step_, step + 1); }

 private:
  const EngineOptions& options_;
  os::FileSystem& files_;
  // Steps below this one may be in the store by something else than the save that begins next.
  std::uint64_t least_new_step_ = 0;
  bool is_known_ = false;  // `least_new_step_` counts what the store had before the first save
};

}  // namespace bitsnap::engine
