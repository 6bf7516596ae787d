// The chunks that `bench` measures on.
#include "cli/bench_sample.hpp"
#include "cli/command.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

namespace bitsnap::cli {

namespace {

struct Piece {
  std::size_t tensor = 0;
  std::uint64_t offset = 0;
  std::size_t size = 0;
};

// Spreads the sample evenly: a chunk is taken if the bytes taken so far lag behind the sample's share of the bytes
// passed.
std::vector<Piece> choose_pieces(const std::vector<TensorInfo>& tensors, std::uint64_t total_bytes,
                                 std::uint64_t limit_bytes) {
  const double share =
      total_bytes <= limit_bytes ? 1.0 : static_cast<double>(limit_bytes) / static_cast<double>(total_bytes);
  std::vector<Piece> pieces;
  std::uint64_t passed = 0;
  std::uint64_t taken = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].alias_of) {
      continue;
    }
    const std::uint64_t chunk_bytes = kChunkElements * element_size(tensors[i].dtype);
    for (std::uint64_t offset = 0; offset < tensors[i].size_bytes; offset += chunk_bytes) {
      const std::uint64_t size = std::min(chunk_bytes, tensors[i].size_bytes - offset);
      if (static_cast<double>(taken) <= static_cast<double>(passed) * share) {
        pieces.push_back({i, offset, static_cast<std::size_t>(size)});
        taken += size;
      }
      passed += size;
    }
  }
  return pieces;
}

// For each tensor of the file, the base's tensor of the same name, dtype and size.
std::vector<std::optional<std::size_t>> match_tensors(const TensorFile& file, const TensorFile* base) {
  std::vector<std::optional<std::size_t>> matches(file.tensors().size());
  if (base == nullptr) {
    return matches;
  }
  std::unordered_map<std::string_view, std::size_t> by_name;
  for (std::size_t i = 0; i < base->tensors().size(); ++i) {
    by_name.emplace(base->tensors()[i].name, i);
  }
  for (std::size_t i = 0; i < matches.size(); ++i) {
    const TensorInfo& tensor = file.tensors()[i];
    if (const auto found = by_name.find(tensor.name); found != by_name.end()) {
      const TensorInfo& other = base->tensors()[found->second];
      if (other.dtype_name == tensor.dtype_name && other.size_bytes == tensor.size_bytes) {
        matches[i] = found->second;
      }
    }
  }
  return matches;
}

}  // namespace

Result<BenchSample> load_sample(const TensorFile& file, const TensorFile* base, std::uint64_t limit_bytes) {
  BenchSample sample;
  for (const TensorInfo& tensor : file.tensors()) {
    sample.total_bytes += tensor.alias_of ? 0 : tensor.size_bytes;
  }
  const std::vector<Piece> pieces = choose_pieces(file.tensors(), sample.total_bytes, limit_bytes);
  const auto matches = match_tensors(file, base);
  for (const Piece& piece : pieces) {
    sample.bytes += piece.size;
    sample.based_bytes += matches[piece.tensor] ? piece.size : 0;
  }
  sample.data = std::make_unique_for_overwrite<std::byte[]>(sample.bytes);
  sample.base = std::make_unique_for_overwrite<std::byte[]>(sample.based_bytes);
  std::byte* data = sample.data.get();
  std::byte* base_data = sample.base.get();
  for (const Piece& piece : pieces) {
    CoderChunk chunk;
    chunk.dtype = file.tensors()[piece.tensor].dtype;
    chunk.role = file.tensors()[piece.tensor].role;
    const std::span<std::byte> out(data, piece.size);
    BITSNAP_TRY(file.read(piece.tensor, piece.offset, out));
    chunk.data = out;
    data += piece.size;
    if (const auto match = matches[piece.tensor]) {
      const std::span<std::byte> base_out(base_data, piece.size);
      BITSNAP_TRY(base->read(*match, piece.offset, base_out));
      chunk.base = base_out;
      base_data += piece.size;
    }
    sample.chunks.push_back(chunk);
  }
  return sample;
}

}  // namespace bitsnap::cli
