#include "interop/folder/folder_writer.hpp"

#include <algorithm>
#include <utility>

#include "base/try.hpp"
#include "exec/executor.hpp"

namespace bitsnap::interop {
namespace {

// Small tensors are read together, up to about this size; large ones are read in slices.
constexpr std::uint64_t kTogetherBytes = std::uint64_t{1} << 28;
constexpr std::uint64_t kSliceBytes = std::uint64_t{1} << 22;

Result<void> add_slices(const Snapshot& snapshot, std::size_t tensor, FileAssembler& file, exec::Executor& executor) {
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
      [&](std::size_t, std::size_t slot) { return file.add(buffers[slot]); });
}

// The pieces [first, last), decoded together.
Result<void> add_together(const Folder::Impl& folder, const FileParts& parts, std::size_t first, std::size_t last,
                          FileAssembler& file, const RunOptions& options) {
  std::vector<std::vector<std::byte>> buffers(last - first);
  std::vector<Snapshot::ReadRequest> requests;
  for (std::size_t i = first; i < last; ++i) {
    const std::size_t tensor = parts.pieces[i].tensor;
    buffers[i - first].resize(static_cast<std::size_t>(folder.snapshot->tensors()[tensor].size_bytes));
    requests.push_back({tensor, buffers[i - first]});
  }
  BITSNAP_TRY(folder.snapshot->read(requests, {.threads = options.threads, .progress = nullptr}));
  for (std::size_t i = first; i < last; ++i) {
    BITSNAP_TRY(file.add_rest_until(parts.pieces[i].offset));
    BITSNAP_TRY(file.add(buffers[i - first]));
  }
  return {};
}

}  // namespace

FileAssembler::FileAssembler(const Folder::Impl& folder, std::size_t entry, Folder::Impl::Patches patches,
                             Snapshot::Sink sink)
    : folder_(folder), entry_(entry), patches_(std::move(patches)), sink_(std::move(sink)) {}

Result<void> FileAssembler::add(ConstByteSpan bytes) {
  if (patches_->empty()) {
    BITSNAP_TRY(sink_(bytes));
  } else {
    std::vector<std::byte> patched(bytes.begin(), bytes.end());
    apply_patches(*patches_, at_, patched);
    BITSNAP_TRY(sink_(patched));
  }
  at_ += bytes.size();
  return {};
}

Result<void> FileAssembler::add_rest_until(std::uint64_t offset) {
  while (at_ < offset) {
    const std::size_t rest = *folder_.parts[entry_].rest;
    if (rest_at_ >= block_begin_ + block_.size()) {
      const std::uint64_t size = folder_.snapshot->tensors()[rest].size_bytes;
      block_begin_ = rest_at_;
      block_.resize(static_cast<std::size_t>(std::min(kBlockBytes, size - rest_at_)));
      BITSNAP_TRY(folder_.snapshot->read_bytes(rest, rest_at_, block_));
    }
    const auto skipped = static_cast<std::size_t>(rest_at_ - block_begin_);
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(offset - at_, block_.size() - skipped));
    BITSNAP_TRY(add(ConstByteSpan(block_).subspan(skipped, count)));
    rest_at_ += count;
  }
  return {};
}

Result<void> stream_file(const Folder::Impl& folder, std::size_t entry, const Snapshot::Sink& sink,
                         const RunOptions& options) {
  const FileParts& parts = folder.parts[entry];
  const std::span<const TensorInfo> tensors = folder.snapshot->tensors();
  const auto executor = exec::make_executor(options.threads);
  BITSNAP_ASSIGN(Folder::Impl::Patches patches, folder.patches_of(entry));
  std::uint64_t done = 0;
  const std::uint64_t total = folder.entries[entry].size_bytes;
  const auto report = [&](ConstByteSpan bytes) -> Result<void> {
    BITSNAP_TRY(sink(bytes));
    done += bytes.size();
    if (!options.progress || options.progress(done, total)) return {};
    return fail(ErrorKind::cancelled, "cancelled by the caller");
  };
  FileAssembler file(folder, entry, std::move(patches), report);
  if (parts.pieces.empty() && parts.rest) return add_slices(*folder.snapshot, *parts.rest, file, *executor);
  for (std::size_t first = 0; first < parts.pieces.size();) {
    std::size_t last = first;
    std::uint64_t bytes = 0;
    while (last < parts.pieces.size() && (last == first || bytes < kTogetherBytes)) {
      bytes += tensors[parts.pieces[last++].tensor].size_bytes;
    }
    if (last == first + 1) {
      BITSNAP_TRY(file.add_rest_until(parts.pieces[first].offset));
      BITSNAP_TRY(add_slices(*folder.snapshot, parts.pieces[first].tensor, file, *executor));
    } else {
      BITSNAP_TRY(add_together(folder, parts, first, last, file, options));
    }
    first = last;
  }
  return file.add_rest_until(total);
}

FolderWriter::FolderWriter(const Folder::Impl& folder, Create create, Finish finish)
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

Result<void> FolderWriter::run(const RunOptions& options) {
  const std::span<const TensorInfo> tensors = folder_.snapshot->tensors();
  std::size_t tensor = 0;
  std::uint64_t taken = 0;  // of this tensor
  const auto sink = [&](ConstByteSpan bytes) -> Result<void> {
    while (!bytes.empty()) {
      while (taken == tensors[tensor].size_bytes) {
        ++tensor;
        taken = 0;
      }
      const std::uint64_t left = tensors[tensor].size_bytes - taken;
      const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), left));
      BITSNAP_TRY(take(tensor, bytes.first(count)));
      taken += count;
      bytes = bytes.subspan(count);
    }
    return {};
  };
  BITSNAP_TRY(folder_.snapshot->stream_all(sink, options));
  return go_to(folder_.entries.size());
}

Result<void> FolderWriter::take(std::size_t tensor, ConstByteSpan bytes) {
  const Use& use = uses_[tensor];
  if (use.entry == SIZE_MAX) return {};
  BITSNAP_TRY(go_to(use.entry));
  const FileParts& parts = folder_.parts[use.entry];
  if (!use.piece) return parts.pieces.empty() ? assembler_->add(bytes) : Result<void>();
  // Nothing, except before the first bytes of the piece.
  BITSNAP_TRY(assembler_->add_rest_until(parts.pieces[*use.piece].offset));
  return assembler_->add(bytes);
}

Result<void> FolderWriter::go_to(std::size_t entry) {
  while (present_ != entry) {
    BITSNAP_TRY(end());
    if (next_ == folder_.entries.size()) return {};
    BITSNAP_TRY(begin(next_++));
  }
  return {};
}

Result<void> FolderWriter::begin(std::size_t entry) {
  present_ = entry;
  if (folder_.entries[entry].kind != EntryKind::file) return {};
  BITSNAP_ASSIGN(Folder::Impl::Patches patches, folder_.patches_of(entry));
  BITSNAP_ASSIGN(file_, create_(entry));
  assembler_.emplace(folder_, entry, std::move(patches), [this](ConstByteSpan bytes) { return file_->append(bytes); });
  return {};
}

Result<void> FolderWriter::end() {
  if (file_ == nullptr) return {};
  BITSNAP_TRY(assembler_->add_rest_until(folder_.entries[present_].size_bytes));
  assembler_.reset();
  BITSNAP_TRY(file_->close());
  file_.reset();
  return finish_(present_);
}

}  // namespace bitsnap::interop
