// Snapshot files in memory that another process handed over, one behind another, and frozen: as files that can be
// opened, and as the bases of each other. Thread-safe.
//
// Where a slot of the arena stands for the payloads of the wanted file, they are not there: who reads them all the
// same, as the slot has been written since, has the files fetched whole.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include <bitsnap/limits.hpp>
#include <bitsnap/snapshot.hpp>

#include "engine/messages.hpp"
#include "os/file_system.hpp"
#include "os/shared_memory.hpp"

namespace bitsnap::engine {

class FetchedSnapshots final : public BaseProvider, public std::enable_shared_from_this<FetchedSnapshots> {
 public:
  // Gets the same step whole, from wherever it is. Called at most once at a time, and not again once it gave something.
  using Completer = std::function<Result<std::shared_ptr<const FetchedSnapshots>>()>;

  // corrupt where a file leaves the memory. `completer`: for what is not whole.
  [[nodiscard]] static Result<std::shared_ptr<const FetchedSnapshots>> make(Fetched fetched, os::MappedMemory memory,
                                                                            std::string name,
                                                                            const DecodeLimits& limits,
                                                                            Completer completer = nullptr);

  // The one that was asked for; what it depends on is opened as it is needed.
  [[nodiscard]] Result<std::shared_ptr<const Snapshot>> open_wanted() const { return open(0); }
  // Gets what is not there yet.
  [[nodiscard]] Result<void> complete() const;

  Result<std::shared_ptr<const Base>> find(const SnapshotId& id) const override;

 private:
  class File;

  FetchedSnapshots(Fetched fetched, os::MappedMemory memory, std::string name, const DecodeLimits& limits,
                   Completer completer);

  [[nodiscard]] Result<std::shared_ptr<const Snapshot>> open(std::size_t file) const;
  [[nodiscard]] ConstByteSpan bytes_of(std::size_t file) const noexcept;
  // The same, whole.
  [[nodiscard]] Result<std::shared_ptr<const FetchedSnapshots>> whole() const;

  const Fetched fetched_;
  const os::MappedMemory memory_;
  const std::string name_;  // for messages
  const DecodeLimits limits_;
  const Completer completer_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const FetchedSnapshots> whole_;
};

}  // namespace bitsnap::engine
