// Reads the ranges of an object that will be needed: neighbours by one request, several requests at a time, within a
// limit of memory.
//
// Ranges with a small gap between them form an extent, which one request reads. Threads of its own fetch extents in
// the order in which they will be needed, as long as there is room for them. Who asks for a range whose extent nobody
// has begun to fetch does so himself, or reads his range alone if there is no room, so that no reader ever waits for
// room. Who asks again, or for something else, reads it alone, and so do all after a request has failed. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include <bitsnap/error.hpp>

#include "base/bytes.hpp"
#include "os/file_system.hpp"

namespace bitsnap::objects {

// What one request reads.
struct Extent {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::size_t ranges = 0;
};

// An extent has neighbouring ranges with small gaps, and at most `most_bytes`, or one range. It is read with its gaps,
// which take an eighth of it at most, because a request costs as much time as 100 KB. Neighbours that are needed at
// different times are two extents, so that none waits in memory. The extents come in the order of their first ranges.
[[nodiscard]] std::vector<Extent> extents_of(std::span<const os::FileRange> ranges, std::uint64_t most_bytes);

class ExtentReader {
 public:
  using ReadObject = std::function<Result<void>(std::uint64_t offset, ByteSpan out)>;

  // `read` is called on several threads at once. `most_bytes`: in memory.
  ExtentReader(ReadObject read, std::span<const os::FileRange> ranges, std::uint64_t most_bytes);
  ExtentReader(const ExtentReader&) = delete;
  ExtentReader& operator=(const ExtentReader&) = delete;
  ~ExtentReader();

  // Fills `out` with bytes of an extent, and waits for them if need be. False: the caller has to read them alone.
  [[nodiscard]] bool take(std::uint64_t offset, ByteSpan out);

 private:
  enum class State : std::uint8_t { waiting, fetching, ready, done };
  using Buffer = std::unique_ptr<std::byte[]>;
  struct Fetched {
    Extent extent;
    State state = State::waiting;
    std::shared_ptr<Buffer> bytes;
  };

  [[nodiscard]] bool has_room_for(const Fetched& one) const;  // the caller holds mutex_
  void run();
  void fetch(Fetched& one, std::unique_lock<std::mutex>& lock);  // `lock` is open meanwhile
  void finish(Fetched& one);                                     // the caller holds mutex_

  const ReadObject read_;
  const std::uint64_t most_bytes_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Fetched> extents_;
  std::vector<std::size_t> by_offset_;
  std::size_t next_ = 0;          // the first extent that may wait
  std::uint64_t held_bytes_ = 0;  // of extents that are being fetched, or ready
  bool is_stopping_ = false;      // the readers are gone, or a request has failed
  std::vector<std::thread> threads_;
};

}  // namespace bitsnap::objects
