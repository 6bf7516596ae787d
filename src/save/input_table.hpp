// Whom the chunks of a file refer to: the table of bases, the inputs of each stream, and what is to be said of the
// snapshots they name.
//
// Keeps to what the format has room for. A stream may always name its own base: a place is kept for it in the table of
// bases, and in the inputs of its stream. Belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <bitsnap/snapshot.hpp>

#include "container/directory.hpp"
#include "save/base_finder.hpp"
#include "save/peer_finder.hpp"
#include "save/snapshot_writer.hpp"

namespace bitsnap::save {

class InputTable {
 public:
  // Writes into `encoding`, which has its streams and outlives the table. What it has of bases and inputs stays.
  explicit InputTable(container::Encoding& encoding);

  // Keeps a place in the table of bases for a stream's own base; false if there is none left, or if another snapshot of
  // the same id has it: whoever reads the file finds one of the two, and they may be coded in different ways.
  [[nodiscard]] bool keep_place(const Base& base);

  // The number of an input of a stream: `element` of that stream of the base stands beside element 0. `own` is the
  // stream's own base, which always has a place. nullopt where there is no room, or another snapshot of the same id.
  [[nodiscard]] std::optional<std::uint8_t> enter(std::size_t stream, const BaseStream& own, const Base& base,
                                                  std::size_t base_stream, std::uint64_t element);

  // The same for another stream of the file itself.
  [[nodiscard]] std::optional<std::uint8_t> enter_peer(std::size_t stream, const PeerStream& peer);

  // Takes down that a chunk of the stream has this input of a base, and the depth of the chunk that it refers to.
  void note_reference(std::size_t stream, std::uint8_t input, std::uint32_t depth);

  [[nodiscard]] const std::vector<Reference>& references() const noexcept { return references_; }

 private:
  std::uint32_t base_number(const Base& base);

  container::Encoding& encoding_;
  std::map<SnapshotId, std::uint32_t> numbers_;
  std::map<SnapshotId, std::string> kept_;  // bases of streams that nothing refers to yet, and their names
  std::vector<Reference> references_;       // as the table of bases
};

}  // namespace bitsnap::save
