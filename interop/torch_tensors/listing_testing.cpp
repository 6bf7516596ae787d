#include "interop/torch_tensors/listing_testing.hpp"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/bytes.hpp"
#include "interop/zip/zip_checksums.hpp"

namespace bitsnap::interop {
namespace {

struct ListedTensor {
  std::string dtype_name;
  std::vector<std::uint64_t> shape;
  std::uint32_t crc = 0;
};

std::uint32_t crc_of(std::string_view bytes) { return crc32(as_byte_span(bytes)); }

// The elements of a view in row-major order.
std::string gather(std::string_view file, const TensorView& view) {
  std::string bytes;
  std::vector<std::uint64_t> at(view.shape.size());
  for (;;) {
    std::uint64_t element = 0;
    for (std::size_t i = 0; i < at.size(); ++i) element += at[i] * view.stride[i];
    bytes += file.substr(view.offset + element * view.element_bytes, view.element_bytes);
    std::size_t dimension = at.size();
    while (dimension > 0 && ++at[dimension - 1] == view.shape[dimension - 1]) at[--dimension] = 0;
    if (dimension == 0) return bytes;
  }
}

// A tensor whose elements are in another order is a view with the name of the bytes.
std::optional<ListedTensor> find_listed(std::string_view file, const Contents& contents, const std::string& name) {
  for (const TensorView& view : contents.views) {
    if (view.name != name) continue;
    return ListedTensor{view.dtype_name, view.shape, crc_of(gather(file, view))};
  }
  for (const FoundTensor& tensor : contents.tensors) {
    if (tensor.info.name != name) continue;
    const std::string_view bytes = file.substr(tensor.offset, tensor.info.size_bytes);
    return ListedTensor{tensor.info.dtype_name, tensor.info.shape, crc_of(bytes)};
  }
  return std::nullopt;
}

}  // namespace

std::string read_interop_file(const std::string& tests_folder, const std::string& path) {
  std::ifstream file(tests_folder + "/../interop/" + path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return std::move(bytes).str();
}

std::string compare_with_listing(std::string_view file, const Contents& contents, const std::string& listing) {
  if (listing.empty()) return "the listing is empty";
  std::istringstream lines(listing);
  std::string line;
  while (std::getline(lines, line)) {
    const std::string name = line.substr(0, line.find('\t'));
    const std::optional<ListedTensor> found = find_listed(file, contents, name);
    if (!found) return fmt::format("there is no {}: {}", name, describe_contents(contents));
    const std::string shape = found->shape.empty() ? "scalar" : fmt::format("{}", fmt::join(found->shape, "x"));
    const std::string expected = fmt::format("{}\t{}\t{}\t{:08x}", name, found->dtype_name, shape, found->crc);
    if (expected != line) return fmt::format("expected {}, found {}", line, expected);
  }
  return "";
}

std::string describe_contents(const Contents& contents) {
  std::string text;
  for (const FoundTensor& tensor : contents.tensors) {
    text += fmt::format("{} {} {}, ", tensor.info.name, tensor.info.dtype_name, tensor.info.shape);
  }
  for (const TensorView& view : contents.views) {
    text += fmt::format("| {} {} {} {}, ", view.name, view.dtype_name, view.shape, view.stride);
  }
  return text.substr(0, text.size() - std::min<std::size_t>(text.size(), 2));
}

}  // namespace bitsnap::interop
