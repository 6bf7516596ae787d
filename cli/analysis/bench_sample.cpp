// The chunks that `bench` measures on.
#include "cli/analysis/bench_runner.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "cli/command.hpp"

namespace bitsnap::cli {

namespace {

// For each tensor of the file, the base's tensor of the same name, dtype and size.
std::vector<std::optional<std::size_t>> match_tensors(const TensorFile& file, const TensorFile* base) {
  std::vector<std::optional<std::size_t>> matches(file.tensors.size());
  if (base == nullptr) return matches;
  std::unordered_map<std::string_view, std::size_t> by_name;
  for (std::size_t i = 0; i < base->tensors.size(); ++i) by_name.emplace(base->tensors[i].name, i);
  for (std::size_t i = 0; i < matches.size(); ++i) {
    const TensorInfo& tensor = file.tensors[i];
    const auto found = by_name.find(tensor.name);
    if (found == by_name.end()) continue;
    const TensorInfo& other = base->tensors[found->second];
    if (other.dtype_name == tensor.dtype_name && other.size_bytes == tensor.size_bytes) matches[i] = found->second;
  }
  return matches;
}

Result<std::span<const std::byte>> read_piece(const TensorFile& file, std::size_t tensor, std::uint64_t offset,
                                              std::uint64_t bytes, BenchSample& sample) {
  const auto size = static_cast<std::size_t>(bytes);
  const std::span<std::byte> out(sample.memory.emplace_back(std::make_unique_for_overwrite<std::byte[]>(size)).get(),
                                 size);
  BITSNAP_TRY(file.read(tensor, offset, out));
  return std::span<const std::byte>(out);
}

}  // namespace

Result<BenchSample> load_sample(const TensorFile& file, const TensorFile* base, std::uint64_t limit_bytes) {
  BenchSample sample;
  for (const TensorInfo& tensor : file.tensors) sample.total_bytes += tensor.alias_of ? 0 : tensor.size_bytes;
  const double share = sample.total_bytes <= limit_bytes
                           ? 1.0
                           : static_cast<double>(limit_bytes) / static_cast<double>(sample.total_bytes);
  const auto matches = match_tensors(file, base);
  std::uint64_t passed = 0;
  for (std::size_t i = 0; i < matches.size(); ++i) {
    const TensorInfo& tensor = file.tensors[i];
    const std::uint64_t chunk_bytes = kChunkElements * element_size(tensor.dtype);
    for (std::uint64_t offset = 0; !tensor.alias_of && offset < tensor.size_bytes; offset += chunk_bytes) {
      const std::uint64_t size = std::min(chunk_bytes, tensor.size_bytes - offset);
      // Spread evenly: a chunk is taken if the bytes taken so far lag behind the sample's share of the bytes passed.
      const bool is_taken = static_cast<double>(sample.bytes) <= static_cast<double>(passed) * share;
      passed += size;
      if (!is_taken) continue;
      CoderChunk chunk{.dtype = tensor.dtype, .role = tensor.role, .data = {}, .base = {}};
      BITSNAP_ASSIGN(chunk.data, read_piece(file, i, offset, size, sample));
      sample.bytes += size;
      if (matches[i]) {
        BITSNAP_ASSIGN(chunk.base, read_piece(*base, *matches[i], offset, size, sample));
        sample.based_bytes += size;
      }
      sample.chunks.push_back(chunk);
    }
  }
  return sample;
}

}  // namespace bitsnap::cli
