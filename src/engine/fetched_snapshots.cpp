// Files that read from the fetched memory, and fetch absent payloads on demand.
#include "engine/fetched_snapshots.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "container/layout.hpp"
#include "restore/open_snapshot.hpp"

namespace bitsnap::engine {

// One of the files; shares ownership of all of them.
class FetchedSnapshots::File final : public os::RandomAccessFile {
 public:
  File(std::shared_ptr<const FetchedSnapshots> owner, std::size_t number)
      : owner_(std::move(owner)), number_(number), bytes_(owner_->bytes_of(number)) {
    if (number == 0) absent_end_ = container::kHeaderBytes + owner_->fetched_.absent_bytes;
  }

  Result<void> read_at(std::uint64_t offset, ByteSpan out) const override {
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset) {
      return fail(ErrorKind::truncated, fmt::format("{}: {} bytes at offset {} exceed the {} bytes of the file",
                                                    owner_->name_, out.size(), offset, bytes_.size()));
    }
    ConstByteSpan bytes = bytes_;
    std::shared_ptr<const FetchedSnapshots> whole;
    if (offset < absent_end_ && offset + out.size() > container::kHeaderBytes) {
      BITSNAP_ASSIGN(whole, owner_->whole());
      bytes = whole->bytes_of(number_);
    }
    if (!out.empty()) std::memcpy(out.data(), bytes.data() + offset, out.size());
    return {};
  }
  std::uint64_t size_bytes() const noexcept override { return bytes_.size(); }
  const std::string& path() const noexcept override { return owner_->name_; }

 private:
  const std::shared_ptr<const FetchedSnapshots> owner_;
  const std::size_t number_;
  const ConstByteSpan bytes_;
  std::uint64_t absent_end_ = container::kHeaderBytes;  // end of the absent bytes, which begin after the header
};

FetchedSnapshots::FetchedSnapshots(Fetched fetched, os::MappedMemory memory, std::string name,
                                   const DecodeLimits& limits, Completer completer)
    : fetched_(std::move(fetched)),
      memory_(std::move(memory)),
      name_(std::move(name)),
      limits_(limits),
      completer_(std::move(completer)) {}

Result<std::shared_ptr<const FetchedSnapshots>> FetchedSnapshots::make(Fetched fetched, os::MappedMemory memory,
                                                                       std::string name, const DecodeLimits& limits,
                                                                       Completer completer) {
  const std::uint64_t size = memory.bytes().size();
  for (const FetchedFile& file : fetched.files) {
    if (file.offset > size || file.bytes > size - file.offset) {
      return fail(ErrorKind::corrupt,
                  fmt::format("{}: a file of {} bytes at offset {} exceeds the shared memory of {} bytes", name,
                              file.bytes, file.offset, size));
    }
  }
  if (fetched.absent_bytes > fetched.files.front().bytes) {
    return fail(ErrorKind::corrupt, fmt::format("{}: the file has {} bytes, but {} of them are marked as absent", name,
                                                fetched.files.front().bytes, fetched.absent_bytes));
  }
  return std::shared_ptr<const FetchedSnapshots>(
      new FetchedSnapshots(std::move(fetched), std::move(memory), std::move(name), limits, std::move(completer)));
}

ConstByteSpan FetchedSnapshots::bytes_of(std::size_t file) const noexcept {
  const FetchedFile& wanted = fetched_.files[file];
  return memory_.bytes().subspan(static_cast<std::size_t>(wanted.offset), static_cast<std::size_t>(wanted.bytes));
}

Result<std::shared_ptr<const FetchedSnapshots>> FetchedSnapshots::whole() const {
  if (fetched_.absent_bytes == 0) return shared_from_this();
  const std::lock_guard lock(mutex_);
  if (whole_ == nullptr) {
    BITSNAP_ASSIGN(std::shared_ptr<const FetchedSnapshots> found, completer_());
    const FetchedFile& mine = fetched_.files.front();
    const FetchedFile& other = found->fetched_.files.front();
    if (found->fetched_.absent_bytes != 0 || other.id != mine.id || other.bytes != mine.bytes) {
      return fail(ErrorKind::not_found, fmt::format("{}: replaced by another snapshot since it was opened", name_));
    }
    whole_ = std::move(found);
  }
  return whole_;
}

// An opened snapshot owns the provider. The provider keeps no snapshot open, so there is no reference cycle.
Result<std::shared_ptr<const Snapshot>> FetchedSnapshots::open(std::size_t file) const {
  OpenOptions options;
  options.limits = limits_;
  options.bases = shared_from_this();
  BITSNAP_ASSIGN(
      std::shared_ptr<const Snapshot> snapshot,
      restore::open_snapshot(std::make_unique<File>(shared_from_this(), file), options, os::real_file_system()));
  if (snapshot->id() != fetched_.files[file].id) {
    return fail(ErrorKind::corrupt, fmt::format("{}: holds snapshot {}, expected {}", name_, snapshot->id().to_hex(),
                                                fetched_.files[file].id.to_hex()));
  }
  return snapshot;
}

Result<std::shared_ptr<const Base>> FetchedSnapshots::find(const SnapshotId& id) const {
  BITSNAP_ASSIGN(const std::shared_ptr<const FetchedSnapshots> all, whole());
  const auto found = std::ranges::find(all->fetched_.files, id, &FetchedFile::id);
  if (found == all->fetched_.files.end()) {
    return fail(ErrorKind::not_found, fmt::format("{}: snapshot {} is not in memory", name_, id.to_hex()));
  }
  return all->open(static_cast<std::size_t>(found - all->fetched_.files.begin()));
}

}  // namespace bitsnap::engine
