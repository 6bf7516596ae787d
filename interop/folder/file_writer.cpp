#include "interop/folder/file_writer.hpp"

#include <algorithm>
#include <utility>

#include "base/try.hpp"
#include "exec/executor.hpp"

namespace bitsnap::interop {
namespace {

// Tensors are read together up to this size; larger ones are read in slices.
constexpr std::uint64_t kTogetherBytes = std::uint64_t{1} << 28;
constexpr std::uint64_t kSliceBytes = std::uint64_t{1} << 22;

Result<void> write_slices(const Snapshot& snapshot, std::size_t tensor, os::WritableFile& file,
                          exec::Executor& executor) {
  const std::uint64_t bytes = snapshot.tensors()[tensor].size_bytes;
  const auto slices = static_cast<std::size_t>((bytes + kSliceBytes - 1) / kSliceBytes);
  std::vector<std::vector<std::byte>> buffers(executor.default_slots());
  return executor.run_ordered(
      slices, buffers.size(),
      [&](std::size_t slice, std::size_t slot) {
        const std::uint64_t begin = slice * kSliceBytes;
        buffers[slot].resize(static_cast<std::size_t>(std::min(kSliceBytes, bytes - begin)));
        return snapshot.read_bytes(tensor, begin, buffers[slot]);
      },
      [&](std::size_t, std::size_t slot) { return file.append(buffers[slot]); });
}

// The tensors of a file in the order of its bytes, without the rest.
class PieceWriter {
 public:
  PieceWriter(const Folder::Impl& folder, std::size_t entry, os::WritableFile& file, const RunOptions& options)
      : folder_(folder),
        parts_(folder.parts[entry]),
        file_(file),
        options_(options),
        executor_(exec::make_executor(options.threads)) {
    if (parts_.rest) rest_.emplace(*folder.snapshot, *parts_.rest);
  }

  Result<void> run(std::uint64_t size) {
    if (parts_.pieces.empty()) {
      return parts_.rest ? write_slices(*folder_.snapshot, *parts_.rest, file_, *executor_) : Result<void>();
    }
    for (std::size_t first = 0; first < parts_.pieces.size();) {
      std::size_t last = first;
      std::uint64_t bytes = 0;
      while (last < parts_.pieces.size() && (last == first || bytes + size_of(last) <= kTogetherBytes)) {
        bytes += size_of(last++);
      }
      BITSNAP_TRY(bytes > kTogetherBytes ? write_large(first) : write_together(first, last));
      first = last;
    }
    return write_rest(size);
  }

 private:
  [[nodiscard]] std::uint64_t size_of(std::size_t piece) const {
    return folder_.snapshot->tensors()[parts_.pieces[piece].tensor].size_bytes;
  }

  Result<void> write_rest(std::uint64_t end) {
    return file_.size_bytes() == end ? Result<void>() : rest_->write_next(end - file_.size_bytes(), file_);
  }

  Result<void> write_large(std::size_t piece) {
    BITSNAP_TRY(write_rest(parts_.pieces[piece].offset));
    return write_slices(*folder_.snapshot, parts_.pieces[piece].tensor, file_, *executor_);
  }

  Result<void> write_together(std::size_t first, std::size_t last) {
    std::vector<std::vector<std::byte>> buffers(last - first);
    std::vector<Snapshot::ReadRequest> requests;
    for (std::size_t i = first; i < last; ++i) {
      buffers[i - first].resize(static_cast<std::size_t>(size_of(i)));
      requests.push_back({parts_.pieces[i].tensor, buffers[i - first]});
    }
    BITSNAP_TRY(folder_.snapshot->read(requests, {.threads = options_.threads}));
    for (std::size_t i = first; i < last; ++i) {
      BITSNAP_TRY(write_rest(parts_.pieces[i].offset));
      BITSNAP_TRY(file_.append(buffers[i - first]));
    }
    return {};
  }

  const Folder::Impl& folder_;
  const FileParts& parts_;
  os::WritableFile& file_;
  const RunOptions& options_;
  const std::unique_ptr<exec::Executor> executor_;
  std::optional<RestReader> rest_;
};

}  // namespace

Result<void> RestReader::write_next(std::uint64_t bytes, os::WritableFile& file) {
  const std::uint64_t size = snapshot_->tensors()[tensor_].size_bytes;
  while (bytes > 0) {
    if (at_ >= block_begin_ + block_.size()) {
      block_begin_ = at_;
      block_.resize(static_cast<std::size_t>(std::min(kBlockBytes, size - at_)));
      BITSNAP_TRY(snapshot_->read_bytes(tensor_, at_, block_));
    }
    const auto skipped = static_cast<std::size_t>(at_ - block_begin_);
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, block_.size() - skipped));
    BITSNAP_TRY(file.append(ConstByteSpan(block_).subspan(skipped, count)));
    at_ += count;
    bytes -= count;
  }
  return {};
}

FileWriter::FileWriter(const Folder::Impl& folder, Create create, Finish finish)
    : folder_(folder),
      create_(std::move(create)),
      finish_(std::move(finish)),
      uses_(folder.snapshot->tensors().size()) {
  for (std::size_t entry = 0; entry < folder.parts.size(); ++entry) {
    const FileParts& parts = folder.parts[entry];
    if (parts.rest) uses_[*parts.rest] = {entry, std::nullopt};
    for (std::size_t i = 0; i < parts.pieces.size(); ++i) uses_[parts.pieces[i].tensor] = {entry, i};
  }
}

Result<void> FileWriter::run(const RunOptions& options) {
  const std::span<const TensorInfo> tensors = folder_.snapshot->tensors();
  std::size_t tensor = 0;
  std::uint64_t taken = 0;  // of this tensor
  const auto sink = [&](ConstByteSpan piece) -> Result<void> {
    while (!piece.empty()) {
      while (taken == tensors[tensor].size_bytes) {
        ++tensor;
        taken = 0;
      }
      const std::uint64_t left = tensors[tensor].size_bytes - taken;
      const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), left));
      BITSNAP_TRY(take(tensor, piece.first(count)));
      taken += count;
      piece = piece.subspan(count);
    }
    return {};
  };
  BITSNAP_TRY(folder_.snapshot->stream_all(sink, options));
  return go_to(folder_.entries.size());
}

Result<void> FileWriter::take(std::size_t tensor, ConstByteSpan bytes) {
  const Use& use = uses_[tensor];
  if (use.entry == SIZE_MAX) return {};
  BITSNAP_TRY(go_to(use.entry));
  const FileParts& parts = folder_.parts[use.entry];
  if (!use.piece) return parts.pieces.empty() ? file_->append(bytes) : Result<void>();
  const std::uint64_t begin = parts.pieces[*use.piece].offset;
  if (file_->size_bytes() < begin) BITSNAP_TRY(rest_->write_next(begin - file_->size_bytes(), *file_));
  return file_->append(bytes);
}

Result<void> FileWriter::go_to(std::size_t entry) {
  while (present_ != entry) {
    BITSNAP_TRY(end());
    if (next_ == folder_.entries.size()) return {};
    BITSNAP_TRY(begin(next_++));
  }
  return {};
}

Result<void> FileWriter::begin(std::size_t entry) {
  present_ = entry;
  if (folder_.entries[entry].kind != EntryKind::file) return {};
  BITSNAP_ASSIGN(file_, create_(entry));
  rest_.reset();
  if (folder_.parts[entry].rest) rest_.emplace(*folder_.snapshot, *folder_.parts[entry].rest);
  return {};
}

Result<void> FileWriter::end() {
  if (file_ == nullptr) return {};
  const std::uint64_t size = folder_.entries[present_].size_bytes;
  if (file_->size_bytes() < size) BITSNAP_TRY(rest_->write_next(size - file_->size_bytes(), *file_));
  BITSNAP_TRY(file_->close());
  file_.reset();
  return finish_(present_);
}

Result<void> write_file(const Folder::Impl& folder, std::size_t entry, os::WritableFile& file,
                        const RunOptions& options) {
  return PieceWriter(folder, entry, file, options).run(folder.entries[entry].size_bytes);
}

}  // namespace bitsnap::interop
