// The table of bases and the inputs of each stream of a new file (docs/spec/snapshot.md, "Encoding"), within the limits
// of the format; and the references that follow from them.
//
// A stream can always refer to its own base: a place for it is kept in the table of bases and in the stream's inputs.
// One thread at a time uses an InputTable.
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
  // Writes into `encoding`, which has its streams and outlives the table. Its bases and inputs keep their numbers.
  // `with_names`: the names of further bases are written, too.
  InputTable(container::Encoding& encoding, bool with_names);

  // Keeps a place in the table of bases for a stream's own base. Returns false if the table is full, or if another file
  // with the same id is in it: a reader would find only one of the two, and they may be coded in different ways.
  [[nodiscard]] bool keep_place(const Base& base);

  // Adds an input to a stream unless it has it already, and returns the number of the input. `element` of the base's
  // stream corresponds to element 0. `own` is the stream's own base, which always has a place. Returns nullopt if there
  // is no room, or if another file with the same id is in the table.
  [[nodiscard]] std::optional<std::uint8_t> enter(std::size_t stream, const BaseStream& own, const Base& base,
                                                  std::size_t base_stream, std::uint64_t element);

  // The same for another stream of this file.
  [[nodiscard]] std::optional<std::uint8_t> enter_peer(std::size_t stream, const PeerStream& peer);

  // Notes that a chunk of the stream refers, by this input, to a chunk of a base that has this depth.
  void note_reference(std::size_t stream, std::uint8_t input, std::uint32_t depth);

  [[nodiscard]] const std::vector<Reference>& references() const noexcept { return references_; }

 private:
  std::uint32_t base_number(const Base& base);

  container::Encoding& encoding_;
  const bool with_names_;
  std::map<SnapshotId, std::uint32_t> numbers_;
  std::map<SnapshotId, std::string> kept_;  // names of the bases that have a place and no reference yet
  std::vector<Reference> references_;       // like the table of bases
};

}  // namespace bitsnap::save
