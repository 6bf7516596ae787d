// Snapshot files that an agent handed over in one piece of frozen memory. FetchedSnapshots opens the wanted file, and
// serves the others as its bases. Thread-safe; opened snapshots share ownership of it.
//
// If a slot of the arena holds the decoded state, the payloads of the wanted file are absent. When the slot has been
// overwritten and somebody reads a payload, the completer fetches the complete files.
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
  // Fetches the same step with all payloads. One call at a time; not called again after a success.
  using Completer = std::function<Result<std::shared_ptr<const FetchedSnapshots>>()>;

  // corrupt if a file exceeds the memory. `completer` is needed if payloads are absent.
  [[nodiscard]] static Result<std::shared_ptr<const FetchedSnapshots>> make(Fetched fetched, os::MappedMemory memory,
                                                                            std::string name,
                                                                            const DecodeLimits& limits,
                                                                            Completer completer = nullptr);

  // Opens the wanted snapshot; its bases are opened when they are needed.
  [[nodiscard]] Result<std::shared_ptr<const Snapshot>> open_wanted() const { return open(0); }
  // The files with all payloads: this object, or the one that the completer fetched.
  [[nodiscard]] Result<std::shared_ptr<const FetchedSnapshots>> whole() const;
  // The slot that holds the decoded state, if the agent says so.
  [[nodiscard]] std::optional<std::uint32_t> slot() const noexcept { return fetched_.slot; }

  Result<std::shared_ptr<const Base>> find(const SnapshotId& id) const override;

 private:
  class File;

  FetchedSnapshots(Fetched fetched, os::MappedMemory memory, std::string name, const DecodeLimits& limits,
                   Completer completer);

  [[nodiscard]] Result<std::shared_ptr<const Snapshot>> open(std::size_t file) const;
  [[nodiscard]] ConstByteSpan bytes_of(std::size_t file) const noexcept;

  const Fetched fetched_;
  const os::MappedMemory memory_;
  const std::string name_;  // for messages
  const DecodeLimits limits_;
  const Completer completer_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const FetchedSnapshots> whole_;
};

}  // namespace bitsnap::engine
