// The element types of torch, by the names that pickles use for them. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <bitsnap/dtype.hpp>

namespace bitsnap::interop {

struct TorchType {
  DType dtype = DType::opaque;
  std::string_view name = "UNKNOWN";  // as in TensorInfo::dtype_name
  std::uint8_t bytes = 0;             // of one element; 0 if it is unknown or not a whole number
  bool is_untyped = false;            // of a storage: its tensors say what it holds

  friend bool operator==(const TorchType&, const TorchType&) = default;
};

// "FloatStorage": for unknown names, the type without a size.
[[nodiscard]] TorchType torch_storage_type(std::string_view class_name);
// "float32" of torch.float32.
[[nodiscard]] TorchType torch_dtype(std::string_view name);
// The name in torch of a type as TensorInfo::dtype_name has it: "float32" of "F32". Empty if torch has none, if its
// elements are no whole bytes, and for quantized types.
[[nodiscard]] std::string_view torch_dtype_name(std::string_view dtype_name);
// "FloatStorage" of "float32", the name that torch_dtype_name() gives; empty if torch has no such class.
[[nodiscard]] std::string_view torch_storage_class(std::string_view torch_name);
// The type of elements whose bytes are in the other order: opaque, "F32_BE", unless an element is one byte.
[[nodiscard]] std::string big_endian_name(const TorchType& type);

}  // namespace bitsnap::interop
