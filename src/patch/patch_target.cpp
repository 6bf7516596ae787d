// Finding the tensors of a patch, and reading slabs through earlier patches.
#include "patch/patch_target.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "base/quote_name.hpp"
#include "base/try.hpp"

namespace bitsnap::patch {
namespace {

Result<TargetTensor> find_target(const Patch::Tensor& tensor, const WeightTable& weights) {
  TargetTensor target;
  const WeightMemory* first = nullptr;
  for (const std::string& name : tensor.names) {
    const WeightMemory* const own = weights.find(name);
    if (own == nullptr) continue;
    if (dtype_name_of(*own) != tensor.dtype_name || own->shape != tensor.shape ||
        own->size_bytes != tensor.size_bytes) {
      return fail(ErrorKind::invalid_argument,
                  fmt::format("{}: the weights have {}, the patch changes {}", quote_tensor(name),
                              describe(dtype_name_of(*own), own->shape), describe(tensor.dtype_name, tensor.shape)));
    }
    if (first == nullptr) {
      first = own;
      target.memory = own->memory;
    } else if (own->memory != first->memory) {
      target.copies.push_back(own->memory);
    }
  }
  if (first == nullptr) {
    return fail(ErrorKind::not_found,
                fmt::format("{} of the patch is missing in the weights", quote_tensor(tensor.names.front())));
  }
  return target;
}

// Writes the changes of a layer to the elements of `piece`, which are `out`; `tensor` is its number in the layer.
void overlay(const SlabReader::Layer& layer, std::size_t tensor, const Piece& piece, std::size_t element_bytes,
             ByteSpan out) {
  const std::uint64_t end = piece.first_element + piece.elements;
  const SlabTable::Range slabs = layer.patch->table.slabs_of(tensor, piece.first_element, piece.elements);
  for (std::uint64_t slab = slabs.first; slab <= slabs.last; ++slab) {
    if (layer.patch->slabs[slab].payload.empty()) continue;
    std::size_t at = 0;  // of a piece in its slab, in elements
    for (const Piece& own : layer.patch->table.pieces(slab)) {
      const std::uint64_t from = std::max(own.first_element, piece.first_element);
      const std::uint64_t to = std::min(own.first_element + own.elements, end);
      if (own.tensor == tensor && from < to) {
        const std::uint64_t before = from - own.first_element;
        const Piece common{.tensor = tensor,
                           .first_element = from,
                           .elements = to - from,
                           .first_place = own.first_place + static_cast<std::uint32_t>(before)};
        write_changes(layer.slabs[slab], common, at + static_cast<std::size_t>(before), element_bytes,
                      out.subspan(static_cast<std::size_t>(from - piece.first_element) * element_bytes,
                                  static_cast<std::size_t>(to - from) * element_bytes));
      }
      at += static_cast<std::size_t>(own.elements);
    }
  }
}

}  // namespace

Result<Targets> find_targets(const OpenedPatch& patch, const WeightTable& weights) {
  Targets targets;
  std::map<const std::byte*, std::size_t> seen;
  for (std::size_t i = 0; i < patch.description.tensors.size(); ++i) {
    BITSNAP_ASSIGN(TargetTensor target, find_target(patch.description.tensors[i], weights));
    for (const std::byte* const memory : target.all()) {
      const auto [at, is_new] = seen.try_emplace(memory, i);
      if (is_new || at->second == i) continue;
      return fail(ErrorKind::invalid_argument,
                  fmt::format("{} and {} are the same memory here, but the patch changes them apart",
                              quote_tensor(patch.description.tensors[at->second].names.front()),
                              quote_tensor(patch.description.tensors[i].names.front())));
    }
    targets.push_back(std::move(target));
  }
  return targets;
}

Result<ConstByteSpan> SlabReader::read_piece(const Piece& piece, std::size_t element_bytes, const std::byte* memory,
                                             Scratch& scratch) const {
  const ConstByteSpan own = bytes_of(piece, element_bytes, memory);
  ByteSpan copy;
  for (const Layer& layer : layers_) {
    const auto at = layer.tensors.find(memory);
    if (at == layer.tensors.end()) continue;
    if (copy.empty()) {
      BITSNAP_ASSIGN(copy, scratch.take(own.size()));
      std::ranges::copy(own, copy.begin());
    }
    overlay(layer, at->second, piece, element_bytes, copy);
  }
  return copy.empty() ? own : ConstByteSpan(copy);
}

Result<void> SlabReader::read(std::uint64_t slab, Scratch& scratch, Read& to) const {
  to.pieces = patch_.table.pieces(slab);
  to.bytes.clear();
  to.untied.reset();
  const DType dtype = patch_.table.stream_of(slab).dtype;
  const std::size_t element_bytes = element_size(dtype);
  for (const Piece& piece : to.pieces) {
    BITSNAP_ASSIGN(const ConstByteSpan own, read_piece(piece, element_bytes, targets_[piece.tensor].memory, scratch));
    to.bytes.push_back(own);
    for (const std::byte* const tied : targets_[piece.tensor].copies) {
      BITSNAP_ASSIGN(const ConstByteSpan other, read_piece(piece, element_bytes, tied, scratch));
      if (!std::ranges::equal(own, other)) to.untied = piece.tensor;
    }
  }
  to.memory = {.dtype = dtype, .pieces = to.pieces, .bytes = to.bytes};
  return {};
}

std::uint64_t hash_slab(std::span<const ConstByteSpan> pieces) {
  SlabHasher hasher;
  for (const ConstByteSpan piece : pieces) hasher.add(piece);
  return hasher.digest();
}

}  // namespace bitsnap::patch
