// Writes values and tensors as torch.save pickles them, so that torch.load reads them with weights_only=True. Pure
// functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/tensor.hpp>
#include <bitsnap/value.hpp>

#include "interop/pickle/pickle_writer.hpp"

namespace bitsnap::interop {

// Pushes a tensor whose elements are all of the storage with this key, row-major. unsupported if torch has no such
// dtype.
[[nodiscard]] Result<void> push_tensor(PickleWriter& out, const TensorInfo& info, std::string_view storage_key);

// Pushes a value; `push` pushes the tensor of an index. unsupported, with the place of the value, for what
// weights_only=True refuses: types of other libraries, and integers of more than 64 bits.
using PushTensor = std::function<Result<void>(PickleWriter& out, std::size_t tensor)>;
[[nodiscard]] Result<void> push_value(PickleWriter& out, const Value& value, const PushTensor& push);

// Pushes torch.Size.
void push_size(PickleWriter& out, const std::vector<std::uint64_t>& size);

}  // namespace bitsnap::interop
