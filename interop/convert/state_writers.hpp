// Writes a training state in one format each, to files that exist only under temporary names yet.
#pragma once

#include <cstdint>
#include <string>

#include <bitsnap/convert.hpp>
#include <bitsnap/error.hpp>
#include <bitsnap/writer.hpp>

#include "interop/convert/tensor_stream.hpp"

namespace bitsnap::interop {

// Each returns the bytes that it wrote.
[[nodiscard]] Result<std::uint64_t> write_torch_file(const State& state, TensorStream& tensors,
                                                     const TensorStream::Sink& sink);
[[nodiscard]] Result<std::uint64_t> write_safetensors_file(const State& state, TensorStream& tensors,
                                                           const TensorStream::Sink& sink);
// To an existing folder.
[[nodiscard]] Result<std::uint64_t> write_safetensors_folder(const State& state, std::uint64_t max_file_bytes,
                                                             TensorStream& tensors, const std::string& folder);
[[nodiscard]] Result<std::uint64_t> write_dcp_folder(const State& state, TensorStream& tensors,
                                                     const std::string& folder);

}  // namespace bitsnap::interop
