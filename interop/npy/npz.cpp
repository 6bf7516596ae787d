// Reads the directory of the archive, and the header of each array.
#include "interop/npy/npz.hpp"

#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/try.hpp"
#include "base/utf8.hpp"
#include "interop/npy/npy.hpp"
#include "interop/zip/zip_directory.hpp"

namespace bitsnap::interop {
namespace {

constexpr std::string_view kNpySuffix = ".npy";

// A snapshot holds tensors with names of UTF-8 only.
bool is_tensor_name(std::string_view name, const DecodeLimits& limits) {
  return !name.empty() && name.size() <= limits.name_bytes && is_utf8(name);
}

void add_array(Contents& to, Contents&& array, std::string_view name, std::uint64_t offset) {
  for (FoundTensor& tensor : array.tensors) {
    tensor.info.name = name;
    tensor.info.role = guess_role(name, tensor.info.dtype);
    tensor.offset += offset;
    to.tensors.push_back(std::move(tensor));
  }
  for (TensorView& view : array.views) {
    view.name = name;
    view.offset += offset;
    to.views.push_back(std::move(view));
  }
}

}  // namespace

Result<Contents> read_npz(const FileBytes& bytes, const DecodeLimits& limits) {
  BITSNAP_ASSIGN(const std::vector<ZipEntry> entries, read_zip_directory(bytes, limits));
  Contents contents;
  for (const ZipEntry& entry : entries) {
    std::string_view name = entry.name;
    if (!entry.is_stored || !name.ends_with(kNpySuffix)) continue;
    name.remove_suffix(kNpySuffix.size());
    if (!is_tensor_name(name, limits)) continue;
    if (contents.tensors.size() >= limits.tensors) {
      return fail(ErrorKind::resource_exhausted, fmt::format("more than {} arrays", limits.tensors));
    }
    BITSNAP_ASSIGN(const FileBytes part, bytes.part(entry.offset, entry.bytes));
    Result<Contents> array = read_npy(part, limits);
    if (array) {
      add_array(contents, std::move(*array), name, entry.offset);
    } else if (!is_fault_of_bytes(array.error().kind())) {
      return tl::unexpected(std::move(array).error().within(entry.name));
    }
  }
  return contents;
}

}  // namespace bitsnap::interop
