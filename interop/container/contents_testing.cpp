#include "interop/container/contents_testing.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>

#include <bitsnap/limits.hpp>
#include <bitsnap/tensor.hpp>

#include "base/checked.hpp"
#include "base/utf8.hpp"
#include "interop/container/strided_span.hpp"

namespace bitsnap::interop {
namespace {

bool is_tensor_name(const std::string& name) { return name.size() <= DecodeLimits().name_bytes && is_utf8(name); }

// Of a dtype that bitsnap knows, the bytes that the shape needs.
bool has_its_size(const TensorInfo& info) {
  if (dtype_from_name(info.dtype_name) != info.dtype) return false;
  if (info.dtype == DType::opaque) return true;
  const auto bytes = shape_size_bytes(info.dtype, info.shape);
  return bytes.has_value() && *bytes == info.size_bytes;
}

// The bytes from the first to the last element; nullopt if they are no 64-bit number, or an extent is 0.
std::optional<std::uint64_t> view_bytes(const TensorView& view) {
  if (view.stride.size() != view.shape.size()) return std::nullopt;
  const std::optional<std::uint64_t> elements = strided_span(view.shape, view.stride);
  return elements.value_or(0) == 0 ? std::nullopt : checked_multiply(*elements, view.element_bytes);
}

}  // namespace

std::string find_misplaced(const Contents& contents, std::uint64_t file_bytes) {
  std::set<std::string> names;
  std::uint64_t end = 0;
  for (const FoundTensor& tensor : contents.tensors) {
    const std::string& name = tensor.info.name;
    if (!is_tensor_name(name)) return name + " is no name of a tensor";
    if (!names.insert(name).second) return name + " is there twice";
    if (tensor.offset < end) return name + " overlaps";
    if (tensor.info.size_bytes == 0) return name + " is empty";
    if (tensor.offset > file_bytes || tensor.info.size_bytes > file_bytes - tensor.offset) return name + " is outside";
    if (!has_its_size(tensor.info)) return name + " has another size than its dtype and shape";
    end = tensor.offset + tensor.info.size_bytes;
  }
  std::set<std::string> view_names;
  for (const TensorView& view : contents.views) {
    if (!is_tensor_name(view.name)) return view.name + " is no name of a view";
    if (!view_names.insert(view.name).second) return view.name + " is a view twice";
    const auto after = std::ranges::upper_bound(contents.tensors, view.offset, {}, &FoundTensor::offset);
    if (after == contents.tensors.begin()) return view.name + " is in no tensor";
    const FoundTensor& owner = *std::prev(after);
    if (names.contains(view.name) && owner.info.name != view.name) return view.name + " is in another tensor";
    const auto bytes = view_bytes(view);
    if (!bytes || *bytes > owner.offset + owner.info.size_bytes - view.offset) return view.name + " exceeds its tensor";
  }
  return "";
}

}  // namespace bitsnap::interop
