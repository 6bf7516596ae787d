// In which order chunks are read where several streams of a file depend on each other: each right behind those that it
// needs, so that these are still remembered.
//
// A group is a chunk that needs no other of its file, with those that need it; one that needs several groups stands in
// the last of them. A batch is what one thread works on at a time: a group, or a few that need each other, as those of
// a flat buffer and of its slices do. Without any such dependence the order is that of the chunks, one in each batch.
// Immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/function_ref.hpp"
#include "container/index.hpp"

namespace bitsnap::restore {

// What is needed of a stream to order its chunks.
struct OrderedStream {
  std::uint32_t rank = 0;  // streams need others of lower rank, or of the same rank and a lower number
  std::uint64_t chunks = 0;
};

class ChunkGroups {
 public:
  using NeededChunk = FunctionRef<void(std::size_t stream, std::uint64_t chunk)>;
  // Calls its last argument for each chunk that one needs; what does not come before it is left out of account.
  using Needs = FunctionRef<void(std::size_t stream, std::uint64_t chunk, NeededChunk needed)>;

  // Chunk numbers count up over the chunks of stream 0, then of stream 1, and so on. `needs` may be called for each
  // chunk, and is not kept.
  ChunkGroups(std::span<const OrderedStream> streams, Needs needs);

  [[nodiscard]] std::size_t batches() const noexcept {
    return first_place_.empty() ? chunks_ : first_place_.size() - 1;
  }
  // The places of a batch.
  struct Batch {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  [[nodiscard]] Batch batch(std::size_t number) const noexcept;
  [[nodiscard]] std::size_t batch_at(std::size_t place) const noexcept;

  // Chunk numbers by their places in the order, and the other way round.
  [[nodiscard]] std::size_t chunk_at(std::size_t place) const noexcept {
    return order_.empty() ? place : order_[place];
  }
  [[nodiscard]] std::size_t place_of(std::size_t chunk) const noexcept {
    return places_.empty() ? chunk : places_[chunk];
  }

 private:
  std::size_t chunks_ = 0;
  // Empty where the order is that of the chunks.
  std::vector<std::size_t> order_;
  std::vector<std::size_t> places_;
  std::vector<std::size_t> first_place_;  // of each batch, and the end
};

// The chunks of one file.
[[nodiscard]] ChunkGroups group_chunks(const container::Index& index);

// Calls `needed` for each chunk of the same file that this one needs.
void for_each_peer(const container::Index& index, std::size_t stream, std::uint64_t chunk,
                   ChunkGroups::NeededChunk needed);

}  // namespace bitsnap::restore
