#include "cli/watch/raw_comparison.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <span>

#include <fmt/format.h>

#include <bitsnap/folder.hpp>
#include <bitsnap/safetensors.hpp>

#include "cli/operating_system.hpp"
#include "src/base/try.hpp"

namespace bitsnap::cli {

namespace {

using Found = std::optional<RawDifference>;

// Compares what a sink receives with a file, and ends the work at the first byte that differs.
class FileComparison {
 public:
  FileComparison(const std::string& path, std::string name)
      : path_(path), name_(std::move(name)), in_(path, std::ios::binary), buffer_(kBufferBytes) {}

  Result<void> take(std::span<const std::byte> piece) {
    if (interrupt_signal() != 0) return fail(ErrorKind::cancelled, "interrupted");
    while (!piece.empty()) {
      const std::size_t count = std::min(piece.size(), buffer_.size());
      in_.read(buffer_.data(), static_cast<std::streamsize>(count));
      if (!in_) return fail(ErrorKind::io, fmt::format("{}: cannot be read from byte {} on", path_, at_));
      if (std::memcmp(buffer_.data(), piece.data(), count) != 0) {
        differs_ = true;
        return fail(ErrorKind::cancelled, "a byte differs");
      }
      at_ += count;
      piece = piece.subspan(count);
    }
    return {};
  }

  // `streamed`: what the call that streams the stored file returned.
  Result<Found> finish(const Result<void>& streamed) {
    if (differs_) return Found({fmt::format("{}: its bytes from {} on differ", name_, at_), true});
    if (!streamed) return tl::unexpected(streamed.error());
    if (in_.peek() != std::ifstream::traits_type::eof()) {
      return Found({fmt::format("{}: has more than the {} bytes that the run holds", name_, at_), true});
    }
    return Found();
  }

 private:
  static constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

  const std::string& path_;
  std::string name_;
  std::ifstream in_;
  std::vector<char> buffer_;
  std::uint64_t at_ = 0;
  bool differs_ = false;
};

bool is_file_kind(EntryKind kind) { return kind == EntryKind::file || kind == EntryKind::hard_link; }

bool has_kind(const RawEntry& raw, EntryKind kind) {
  switch (raw.facts.kind) {
    case NodeKind::file: return is_file_kind(kind);
    case NodeKind::directory: return kind == EntryKind::directory;
    case NodeKind::symbolic_link: return kind == EntryKind::symbolic_link;
    case NodeKind::other: break;
  }
  return false;
}

class FolderComparison {
 public:
  FolderComparison(const std::string& path, const std::vector<RawEntry>& tree, const Folder& folder, RawMatch match,
                   unsigned threads)
      : path_(path), tree_(tree), folder_(folder), match_(match), threads_(threads) {}

  Result<Found> run() const {
    if (match_ != RawMatch::remainder) {
      for (const FolderEntry& entry : folder_.entries()) {
        if (find_raw(tree_, entry.path) == nullptr) return Found({name_of(entry.path) + ": is missing", false});
      }
    }
    // Facts of all files come before bytes of any, because they are cheap to compare.
    for (const RawEntry& raw : tree_) {
      if (Found found = compare_facts(raw)) return found;
    }
    for (const RawEntry& raw : tree_) {
      if (raw.facts.kind != NodeKind::file) continue;
      BITSNAP_ASSIGN(Found found, compare_bytes(raw));
      if (found) return found;
    }
    return Found();
  }

 private:
  static std::string name_of(const std::string& path) { return path.empty() ? "the checkpoint itself" : path; }

  Found compare_facts(const RawEntry& raw) const {
    const auto differs = [&](std::string_view how) {
      return Found({fmt::format("{}: {}", name_of(raw.path), how), false});
    };
    const auto index = folder_.find(raw.path);
    if (!index) return differs("the run does not have it");
    const FolderEntry& entry = folder_.entries()[*index];
    if (!has_kind(raw, entry.kind)) return differs("it is of another kind in the run");
    if (raw.target != (entry.kind == EntryKind::symbolic_link ? entry.target : "")) {
      return differs("the link leads to another place in the run");
    }
    if (raw.facts.kind == NodeKind::file && raw.facts.size_bytes != entry.size_bytes) {
      return Found({fmt::format("{}: has {} bytes, and {} in the run", name_of(raw.path), raw.facts.size_bytes,
                                entry.size_bytes),
                    true});
    }
    if (match_ != RawMatch::everything) return std::nullopt;
    if (raw.facts.modified_ns != entry.modified_ns) return differs("its time is another one in the run");
    if (raw.facts.kind != NodeKind::symbolic_link && raw.facts.mode != entry.mode) {
      return differs("its permissions are other ones in the run");
    }
    return has_equal_links(raw, entry) ? std::nullopt : differs("it is a hard link to another file in the run");
  }

  // Whether a hard link of the run is one of the same file here.
  bool has_equal_links(const RawEntry& raw, const FolderEntry& entry) const {
    if (entry.kind != EntryKind::hard_link) return true;
    const RawEntry* first = find_raw(tree_, entry.target);
    return first != nullptr && first->facts.device == raw.facts.device && first->facts.inode == raw.facts.inode;
  }

  Result<Found> compare_bytes(const RawEntry& raw) const {
    const std::string path = raw_path(path_, raw);
    FileComparison comparison(path, name_of(raw.path));
    const auto sink = [&comparison](std::span<const std::byte> piece) { return comparison.take(piece); };
    return comparison.finish(folder_.stream_file(*folder_.find(raw.path), sink, {threads_, nullptr}));
  }

  const std::string& path_;
  const std::vector<RawEntry>& tree_;
  const Folder& folder_;
  RawMatch match_;
  unsigned threads_;
};

// A checkpoint that was saved as a safetensors file has its bytes, but no mode and no time.
Result<Found> compare_safetensors(const std::string& path, const std::vector<RawEntry>& tree, const Snapshot& stored,
                                  RawMatch match, unsigned threads) {
  if (tree.front().facts.kind != NodeKind::file) return Found({"the run holds a safetensors file", false});
  if (match != RawMatch::content) return Found({"the run does not hold its mode and its time", false});
  FileComparison comparison(path, "the file");
  const auto sink = [&comparison](std::span<const std::byte> piece) { return comparison.take(piece); };
  const auto streamed = stream_safetensors(stored, sink, {threads, nullptr});
  return comparison.finish(streamed ? Result<void>() : tl::unexpected(streamed.error()));
}

}  // namespace

Result<std::optional<RawDifference>> compare_raw(const std::string& path, const std::vector<RawEntry>& tree,
                                                 const std::shared_ptr<const Snapshot>& stored, RawMatch match,
                                                 unsigned threads) {
  if (!is_folder(*stored)) return compare_safetensors(path, tree, *stored, match, threads);
  BITSNAP_ASSIGN(const auto folder, Folder::open(stored));
  return FolderComparison(path, tree, *folder, match, threads).run();
}

bool is_lossy(const Snapshot& snapshot) noexcept {
  for (std::size_t stream = 0; stream < snapshot.streams().size(); ++stream) {
    if (snapshot.quantizer(stream)) return true;
  }
  return false;
}

}  // namespace bitsnap::cli
