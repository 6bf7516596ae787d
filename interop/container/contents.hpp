// What the parser of a container finds: the tensors of a file, and where their bytes lie. All other bytes of the file
// are its template.
//
// A parser executes nothing and trusts nothing. The same file is made again from template and tensors by putting every
// byte back in its place, so a wrong result of a parser costs space, never a bit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>
#include <bitsnap/tensor.hpp>

#include "interop/container/file_bytes.hpp"

namespace bitsnap::interop {

// A range of the file that becomes a tensor of the snapshot: contiguous, little-endian and row-major.
struct FoundTensor {
  TensorInfo info;           // the name is unique in the container; `size_bytes` is above 0
  std::uint64_t offset = 0;  // of its first byte in the file
};

// A tensor of the file whose bytes are not a range of their own: it shares them with other tensors, or they are not in
// row-major order. In the second case, the view has the name of the tensor in `Contents::tensors` that has its bytes,
// in one dimension.
struct TensorView {
  std::string name;                   // in the container
  std::string dtype_name;             // as in TensorInfo
  std::vector<std::uint64_t> shape;   // elements
  std::vector<std::uint64_t> stride;  // elements from one index to the next, in each dimension
  std::uint64_t offset = 0;           // of element 0 in the file, bytes
  std::uint64_t element_bytes = 0;
};

struct Contents {
  std::vector<FoundTensor> tensors;  // by offset, without overlaps
  std::vector<TensorView> views;     // each lies within the bytes of one tensor of `tensors`
};

// A parser returns corrupt, truncated, unsupported or resource_exhausted, with a message that says where, for a file
// that it cannot take apart, and the error of the file if that cannot be read. Whether the error is of the first sort:
[[nodiscard]] constexpr bool is_fault_of_bytes(ErrorKind kind) noexcept {
  return kind == ErrorKind::corrupt || kind == ErrorKind::truncated || kind == ErrorKind::unsupported ||
         kind == ErrorKind::resource_exhausted;
}

}  // namespace bitsnap::interop
