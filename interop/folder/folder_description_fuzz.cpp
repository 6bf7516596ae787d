// Fuzz target: any JSON as the description of a folder is refused, or describes files whose pieces are within them and
// have their bytes, below the folder; and is written as the same description again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "interop/folder/folder_description.hpp"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // The first byte is the number of tensors, and the next ones are their sizes.
  if (size == 0 || size < 1U + data[0] % 16U) return 0;
  std::vector<bitsnap::TensorInfo> tensors(data[0] % 16U);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].dtype = bitsnap::DType::u8;
    tensors[i].dtype_name = "U8";
    tensors[i].size_bytes = data[1 + i];
    tensors[i].shape = {tensors[i].size_bytes};
  }
  const std::string_view json(reinterpret_cast<const char*>(data) + 1 + tensors.size(), size - 1 - tensors.size());
  const auto value = bitsnap::parse_value(json, tensors.size());
  if (!value) return 0;
  const auto folder = bitsnap::interop::parse_folder(*value, tensors);
  if (!folder) return 0;
  for (const bitsnap::interop::DescribedEntry& each : folder->entries) {
    require(!each.entry.path.starts_with('/') && !each.entry.path.starts_with("../"));
    std::uint64_t end = 0;
    std::uint64_t bytes = each.parts.rest ? tensors[*each.parts.rest].size_bytes : 0;
    for (const bitsnap::interop::FilePiece& piece : each.parts.pieces) {
      require(piece.offset >= end);
      end = piece.offset + tensors[piece.tensor].size_bytes;
      bytes += tensors[piece.tensor].size_bytes;
    }
    require(end <= each.entry.size_bytes && bytes == each.entry.size_bytes);
  }
  const auto text = bitsnap::serialize_value(bitsnap::interop::describe_folder(*folder));
  require(text.has_value());
  const auto again = bitsnap::parse_value(*text, tensors.size());
  require(again.has_value());
  const auto same = bitsnap::interop::parse_folder(*again, tensors);
  require(same.has_value());
  require(bitsnap::serialize_value(bitsnap::interop::describe_folder(*same)).value() == *text);
  return 0;
}
