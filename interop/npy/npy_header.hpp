// The header of a .npy file: a Python literal that names the element type and the shape. It is parsed as exactly the
// literal that numpy writes, and never evaluated. interop/npy/spec.md. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>

namespace bitsnap::interop {

struct NpyHeader {
  std::string type;  // as numpy names it: "<f4"; "|V24" for a structured type of 24 bytes
  std::uint64_t element_bytes = 0;
  bool is_fortran_order = false;
  std::vector<std::uint64_t> shape;
  std::uint64_t size_bytes = 0;  // of the array; below 2^63
};

// corrupt unless `text` is one such literal, followed by white space only; unsupported if elements are Python objects.
[[nodiscard]] Result<NpyHeader> parse_npy_header(std::string_view text, const DecodeLimits& limits);

}  // namespace bitsnap::interop
