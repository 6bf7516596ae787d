// Tensors of floats in another dtype of floats. Pure functions; the results are thread-safe if the tensors are.
#pragma once

#include <bitsnap/dtype.hpp>
#include <bitsnap/writer.hpp>

namespace bitsnap::interop {

// Whether elements of this dtype can be cast: f64, f32, f16 and bf16.
[[nodiscard]] bool is_castable(DType dtype) noexcept;

// The tensor with each element rounded to the nearest of `dtype`, which is f32, f16 or bf16; of two, to the even one,
// as torch rounds. Values that are too large become infinite. Another tensor stays as it is.
[[nodiscard]] TensorSource cast(TensorSource tensor, DType dtype);

}  // namespace bitsnap::interop
