// The verification of a run, or of one of its checkpoints, for `bitsnap verify`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <bitsnap/store.hpp>

#include "cli/common_options.hpp"
#include "cli/output.hpp"
#include "cli/run_path.hpp"

namespace bitsnap::cli {

struct RunReport {
  std::string path;  // as the user named it
  std::string run;
  std::optional<Error> error;  // the run could not be opened, or verification could not go on
  std::map<std::uint64_t, std::vector<StoreDamage>> checkpoints;  // by step; empty lists are whole checkpoints
  std::uint64_t bytes = 0;
  std::vector<std::string> strays;
  double seconds = 0;

  [[nodiscard]] std::size_t damaged() const noexcept;
  [[nodiscard]] bool ok() const noexcept { return !error && damaged() == 0; }
  [[nodiscard]] ErrorKind kind() const noexcept;  // of the first failure; precondition: !ok()
};

[[nodiscard]] RunReport verify_run(const std::string& path, const RunPath& run, bool decode,
                                   const CommonOptions& common);

// One line per checkpoint and damage; with --quiet only damages.
void print_report(const RunReport& report, const CommonOptions& common);
[[nodiscard]] Json to_json(const RunReport& report);

}  // namespace bitsnap::cli
