// The order in which the chunks of a file are read if its streams depend on each other: each chunk right after those
// that it needs, while they are still cached.
//
// A group is a chunk that needs no other chunk of its file, with the chunks that need it; a chunk that needs several
// groups is in the last of them. A batch is what one thread works on at a time: one group, or a few that need each
// other, like those of a flat buffer and its slices. Without dependences the order is that of the chunks, with one
// chunk in each batch. Immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/function_ref.hpp"
#include "container/index.hpp"

namespace bitsnap::restore {

// What ordering needs to know of a stream.
struct OrderedStream {
  std::uint32_t rank = 0;  // streams need others of lower rank, or of the same rank and a lower number
  std::uint64_t chunks = 0;
};

class ChunkGroups {
 public:
  using NeededChunk = FunctionRef<void(std::size_t stream, std::uint64_t chunk)>;
  // Calls its last argument for each chunk that a chunk needs; those that do not come before it are ignored.
  using Needs = FunctionRef<void(std::size_t stream, std::uint64_t chunk, NeededChunk needed)>;

  // Chunks are numbered through: those of stream 0, then those of stream 1, and so on. `needs` may be called for each
  // chunk; it is not kept.
  ChunkGroups(std::span<const OrderedStream> streams, Needs needs);

  [[nodiscard]] std::size_t batches() const noexcept {
    return first_place_.empty() ? chunks_ : first_place_.size() - 1;
  }
  // The positions of a batch in the order.
  struct Batch {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  [[nodiscard]] Batch batch(std::size_t number) const noexcept;
  [[nodiscard]] std::size_t batch_at(std::size_t place) const noexcept;

  // Chunk number by position in the order, and back.
  [[nodiscard]] std::size_t chunk_at(std::size_t place) const noexcept {
    return order_.empty() ? place : order_[place];
  }
  [[nodiscard]] std::size_t place_of(std::size_t chunk) const noexcept {
    return places_.empty() ? chunk : places_[chunk];
  }

 private:
  std::size_t chunks_ = 0;
  // Empty if the order is that of the chunk numbers.
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
