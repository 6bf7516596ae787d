// The snapshot files of a copy that follows a run: sends them, keeps to a rate, and counts what an update has left that
// ended before a record named it. docs/spec/store.md, "Mirrors".
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/mirror.hpp>

#include "os/file_system.hpp"
#include "os/rate_limit.hpp"
#include "store/mirror_order.hpp"
#include "store/run_layout.hpp"

namespace bitsnap::store {

// One thread at a time uses it. All that the constructor gets outlives it.
class MirrorFiles {
 public:
  MirrorFiles(os::FileSystem& from, const RunLayout& run, os::FileSystem& to, const RunLayout& copy,
              const MirrorOptions& options)
      : from_(from), run_(run), to_(to), copy_(copy), options_(options) {
    rate_.set(options.bytes_per_second);
  }

  // Looks at the files of the copy, whose records are `there`. Removes temporary ones.
  [[nodiscard]] Result<void> find_leftovers(const MirroredSteps& there);

  // From now on, sent_bytes() counts from 0.
  void begin();
  // Tells progress how many bytes are still to be sent.
  void expect(std::uint64_t bytes) { total_bytes_ = sent_bytes_ + bytes; }
  [[nodiscard]] std::uint64_t sent_bytes() const noexcept { return sent_bytes_; }
  // The directory of the step exists. A file that was left is sent again only if it is not the one that is wanted.
  // Returns the error if the file of the run cannot be read, and fails if it is the place, not the file, that fails.
  [[nodiscard]] Result<std::optional<Error>> send(std::uint64_t step, const ShardFile& file);

  // Removes files that updates have left and that nothing has needed. `kept`: steps whose files may
  // be needed later.
  [[nodiscard]] Result<void> drop_leftovers(const MirroredSteps& there, const std::set<std::uint64_t>& kept);

  // Fails with cancelled if the caller wants an end.
  [[nodiscard]] Result<void> check_interrupt() const;
  [[nodiscard]] Result<void> pause(std::uint64_t ms) const;

 private:
  enum class Leftover : std::uint8_t { none, other, whole };
  [[nodiscard]] Result<Leftover> compare(const os::RandomAccessFile& wanted, const std::string& target);
  [[nodiscard]] Result<void> write(const os::RandomAccessFile& source, const std::string& target);
  [[nodiscard]] Result<void> copy(const os::RandomAccessFile& source, os::WritableFile& target);
  [[nodiscard]] Result<void> read(const os::RandomAccessFile& source, std::uint64_t offset, ByteSpan out);
  [[nodiscard]] Result<std::optional<Error>> of_run(Error error) const;
  [[nodiscard]] Result<void> keep_rate(std::size_t bytes);

  os::FileSystem& from_;
  const RunLayout& run_;
  os::FileSystem& to_;
  const RunLayout& copy_;
  const MirrorOptions& options_;
  std::set<std::string> leftovers_;  // snapshot files of the copy that no record may name, by path below checkpoints/
  std::set<std::string> sent_;       // those that this object has written
  std::set<std::uint64_t> waiting_;  // steps of the copy with shards that wait for their commit
  std::uint64_t sent_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;
  os::RateLimit rate_;
  std::optional<Error> unread_;  // why the file that is being sent could not be read
};

}  // namespace bitsnap::store
