// The parts of a safetensors file: the text of its header, and its tensors with their places in the file.
#pragma once

#include <cstdint>
#include <string>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>

#include "interop/container/contents.hpp"
#include "interop/container/file_bytes.hpp"
#include "interop/safetensors/safetensors_header.hpp"

namespace bitsnap::interop {

struct SafetensorsParts {
  std::string text;  // of the header
  SafetensorsHeader header;
  std::uint64_t data_offset = 0;  // of the first tensor in the file; the others follow without holes
};

// Fails as parse_safetensors_header() does, and with truncated or corrupt if there is no header.
[[nodiscard]] Result<SafetensorsParts> read_safetensors_parts(const FileBytes& bytes, const DecodeLimits& limits);

// Leaves out tensors without bytes.
[[nodiscard]] Result<Contents> read_safetensors(const FileBytes& bytes, const DecodeLimits& limits);

}  // namespace bitsnap::interop
