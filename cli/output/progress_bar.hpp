// A progress bar on standard error. Its callback also cancels the library's work after an interrupt, by returning
// false.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include <bitsnap/snapshot.hpp>

#include "cli/command.hpp"

namespace bitsnap::cli {

// Draws at most ten times a second, and clears its line when it is destroyed. Any thread may report progress.
class ProgressBar {
 public:
  enum class Unit { bytes, share };  // share: of work that is not counted in bytes

  // Draws only if `enabled` and standard error is a terminal; cancels in any case.
  ProgressBar(std::string_view label, bool enabled, Unit unit = Unit::bytes);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // The progress function for the library; must not outlive the bar.
  [[nodiscard]] Progress callback();

  // To run on the threads of the command, with this progress.
  [[nodiscard]] RunOptions run(const CommonOptions& common) { return {common.threads, callback()}; }

  // Clears the line before other output is printed.
  void clear();

  // Changes the label from the next drawing on.
  void set_label(std::string_view label);

  // False once the command has been interrupted.
  bool update(std::uint64_t done, std::uint64_t total);

 private:
  using Clock = std::chrono::steady_clock;

  void draw(std::uint64_t done, std::uint64_t total, Clock::time_point now);

  std::mutex mutex_;
  std::string label_;
  bool enabled_;
  Unit unit_;
  bool drawn_ = false;
  Clock::time_point start_;
  Clock::time_point last_drawn_;
};

}  // namespace bitsnap::cli
