// Codes chunks with the kernels for GPUs, emulated.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <bitsnap/dtype.hpp>

#include "base/bytes.hpp"

namespace bitsnap::gpu {

// The payload of float_split; nullopt if the CPU has to code the chunk.
[[nodiscard]] std::optional<std::vector<std::byte>> emulate_encode(DType dtype, ConstByteSpan elements);

// The elements, or nullopt for a payload of another form. Errors: those of plan_decoding(), and corrupt for what only
// the kernels find.
[[nodiscard]] Result<std::optional<std::vector<std::byte>>> emulate_decode(DType dtype, ConstByteSpan payload,
                                                                           std::size_t elements);

}  // namespace bitsnap::gpu
