// Tells files whose reads cost requests what an operation is going to read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <bitsnap/snapshot.hpp>

#include "os/file_system.hpp"

namespace bitsnap::restore {

// The payloads that an operation will read, by files, in that order. Errors are left to those who read.
class NeededPayloads {
 public:
  // A chunk, by its number in the file. `with_inputs`: and those that decoding it needs, before it, also in bases.
  // Costs nothing if reads of the file cost no requests.
  void add(const Snapshot::Impl& impl, std::size_t number, bool with_inputs);

 private:
  friend class ReadsAhead;
  struct File {
    std::vector<bool> is_known;  // by chunk
    std::vector<os::FileRange> ranges;
  };

  void add(const Snapshot::Impl& impl, std::size_t number, bool with_inputs, std::uint32_t depth);
  void add_inputs(const Snapshot::Impl& impl, std::size_t number, std::uint32_t depth);

  std::map<const Snapshot::Impl*, File> files_;
  std::vector<std::shared_ptr<const Base>> bases_;
};

// Reads ahead while it lives, with about 128 MiB in memory for all files together.
class ReadsAhead {
 public:
  explicit ReadsAhead(NeededPayloads needed);

 private:
  std::vector<std::shared_ptr<const Base>> bases_;
  std::vector<std::unique_ptr<os::ReadAhead>> reads_;
};

}  // namespace bitsnap::restore
