// What a training saved, as named tensors and values, from any file, folder or checkpoint of a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <bitsnap/convert.hpp>
#include <bitsnap/error.hpp>

namespace bitsnap::cli {

// `shard`: of a run; nullopt: those of all ranks together. `bases`: as in OpenOptions.
[[nodiscard]] Result<TrainingState> open_training(const std::string& path, const std::vector<std::string>& bases,
                                                  std::optional<std::uint64_t> shard);

}  // namespace bitsnap::cli
