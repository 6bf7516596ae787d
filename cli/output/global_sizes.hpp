// Stored bytes and codecs of the global tensors of a checkpoint, with what each of its shards has of them. Nothing is
// decoded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/global_tensor.hpp>

#include "cli/command.hpp"
#include "cli/input/training_input.hpp"
#include "cli/output/stored_sizes.hpp"

namespace bitsnap::cli {

// Bytes are those of all shards, also of tensors that several shards hold alike; tensors count once.
struct GlobalSizes : Sizes {
  struct Tensor {
    StreamSizes streams;  // of all parts; no chunks if these lie in the pools, are aliases or empty
    std::uint64_t raw_bytes = 0;
    bool is_alias = false;
    std::string reason = {};  // of the first part: why it is stored so
  };

  std::vector<Tensor> tensors;  // as in WholeCheckpoint::tensors
  std::uint64_t file_bytes = 0;
  std::uint32_t depth = 0;
};

// Of a checkpoint of several shards.
[[nodiscard]] Result<GlobalSizes> measure_sizes(const WholeCheckpoint& checkpoint);

// The keys of `inspect --json`, without the tree.
[[nodiscard]] Json global_json(const WholeCheckpoint& checkpoint, const GlobalSizes& sizes);

// A table of the tensors.
[[nodiscard]] std::string render_global(const WholeCheckpoint& checkpoint, const GlobalSizes& sizes,
                                        const CommonOptions& common);

}  // namespace bitsnap::cli
