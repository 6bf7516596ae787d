#include "interop/folder/folder_writer.hpp"

#include <algorithm>
#include <utility>

#include "base/try.hpp"

namespace bitsnap::interop {

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

FolderWriter::FolderWriter(const Folder::Impl& folder, std::vector<std::size_t> files, Begin begin, Finish finish)
    : folder_(folder), files_(std::move(files)), begin_(std::move(begin)), finish_(std::move(finish)) {
  for (std::size_t file = 0; file < files_.size(); ++file) {
    const FileParts& parts = folder.parts[files_[file]];
    if (parts.pieces.empty() && parts.rest) uses_.push_back({*parts.rest, file});
    for (std::size_t i = 0; i < parts.pieces.size(); ++i) uses_.push_back({parts.pieces[i].tensor, file, i});
    total_bytes_ += folder.entries[files_[file]].size_bytes;
  }
}

Result<void> FolderWriter::run(const RunOptions& options) {
  progress_ = options.progress;
  std::vector<std::size_t> tensors;
  for (const Use& use : uses_) tensors.push_back(use.tensor);
  auto use = uses_.begin();
  std::uint64_t taken = 0;  // of this tensor
  const auto sink = [&](ConstByteSpan bytes) -> Result<void> {
    while (!bytes.empty()) {
      const std::uint64_t left = folder_.snapshot->tensors()[use->tensor].size_bytes - taken;
      const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), left));
      if (count > 0) BITSNAP_TRY(take(*use, bytes.first(count)));
      bytes = bytes.subspan(count);
      taken += count;
      if (count < left) continue;
      ++use;
      taken = 0;
    }
    return {};
  };
  BITSNAP_TRY(folder_.snapshot->stream_tensors(tensors, sink, {.threads = options.threads, .progress = nullptr}));
  return go_to(files_.size());
}

Result<void> FolderWriter::take(const Use& use, ConstByteSpan bytes) {
  BITSNAP_TRY(go_to(use.file));
  // Nothing, except before the first bytes of the piece.
  if (use.piece) BITSNAP_TRY(assembler_->add_rest_until(folder_.parts[files_[use.file]].pieces[*use.piece].offset));
  return assembler_->add(bytes);
}

Result<void> FolderWriter::go_to(std::size_t file) {
  while (present_ != file) {
    if (assembler_) {
      BITSNAP_TRY(assembler_->add_rest_until(folder_.entries[files_[present_]].size_bytes));
      assembler_.reset();
      BITSNAP_TRY(finish_(files_[present_]));
    }
    if (++present_ == files_.size()) continue;  // SIZE_MAX + 1 is 0
    BITSNAP_ASSIGN(Folder::Impl::Patches patches, folder_.patches_of(files_[present_]));
    BITSNAP_ASSIGN(Snapshot::Sink sink, begin_(files_[present_]));
    const auto report = [this, sink = std::move(sink)](ConstByteSpan bytes) -> Result<void> {
      BITSNAP_TRY(sink(bytes));
      done_bytes_ += bytes.size();
      if (!progress_ || progress_(done_bytes_, total_bytes_)) return {};
      return fail(ErrorKind::cancelled, "cancelled by the caller");
    };
    assembler_.emplace(folder_, files_[present_], std::move(patches), report);
  }
  return {};
}

Result<void> stream_file(const Folder::Impl& folder, std::size_t entry, const Snapshot::Sink& sink,
                         const RunOptions& options) {
  const auto begin = [&sink](std::size_t) -> Result<Snapshot::Sink> { return sink; };
  return FolderWriter(folder, {entry}, begin, [](std::size_t) { return Result<void>(); }).run(options);
}

}  // namespace bitsnap::interop
