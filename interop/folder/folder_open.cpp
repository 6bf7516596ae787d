// Opens a folder as a state: finds the tensors of its files, and describes where every byte of them is.
#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include <bitsnap/safetensors.hpp>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "interop/container/unique_names.hpp"
#include "interop/folder/container_kinds.hpp"
#include "interop/folder/folder_description.hpp"
#include "interop/folder/folder_source.hpp"
#include "interop/safetensors/safetensors_header.hpp"
#include "os/file_system.hpp"

namespace bitsnap {
namespace {

using interop::Contents;
using interop::DescribedEntry;
using interop::FileBytes;
using interop::FilePiece;
using interop::FileView;
using interop::FoundTensor;
using interop::Recognized;
using interop::TensorView;

// The name of all bytes of a single file that are in no tensor.
constexpr std::string_view kRestName = "file";
// What stable_name() and UniqueNames may add to a name.
constexpr std::size_t kMostBytesOfAByte = 4;
constexpr std::size_t kMostBytesOfANumber = 32;

class FolderReader {
 public:
  FolderReader(std::shared_ptr<const FolderState::Source> source, const FolderOptions& options)
      : source_(std::move(source)),
        options_(options),
        recognizer_([this](const std::string& path) { return open(path); }, options.limits) {}

  Result<FolderState> read(std::string name) {
    description_.name = std::move(name);
    for (std::size_t node = 0; node < source_->nodes().size(); ++node) {
      BITSNAP_ASSIGN(DescribedEntry entry, read_entry(node));
      description_.entries.push_back(std::move(entry));
    }
    state_.container = description_.entries.front().entry.container;
    state_.state.tree = interop::describe_folder(description_);
    state_.source = source_;
    return std::move(state_);
  }

 private:
  FileBytes bytes_of(std::size_t node) const {
    return {source_->nodes()[node].attributes.size_bytes, [source = source_, node](std::uint64_t offset, ByteSpan out) {
              return source->read_at(node, offset, out);
            }};
  }

  Result<std::optional<FileBytes>> open(const std::string& path) const {
    const auto& nodes = source_->nodes();
    const auto found = std::ranges::lower_bound(nodes, path, {}, &os::TreeNode::path);
    if (found == nodes.end() || found->path != path || found->attributes.kind != os::NodeKind::file) {
      return std::optional<FileBytes>();
    }
    return bytes_of(static_cast<std::size_t>(found - nodes.begin()));
  }

  Result<DescribedEntry> read_entry(std::size_t node) {
    const os::TreeNode& listed = source_->nodes()[node];
    const os::FileAttributes& attributes = listed.attributes;
    DescribedEntry described;
    FolderEntry& entry = described.entry;
    entry.path = listed.path;
    entry.mode = attributes.mode;
    entry.modified_ns = attributes.modified_ns;
    entry.target = listed.target;
    switch (attributes.kind) {
      case os::NodeKind::directory: entry.kind = EntryKind::directory; return described;
      case os::NodeKind::symbolic_link: entry.kind = EntryKind::symbolic_link; return described;
      case os::NodeKind::file: break;
      case os::NodeKind::other:
        return fail(ErrorKind::unsupported,
                    fmt::format("{}: it is a pipe, a socket or a device, and no file", source_->path_of(node)));
    }
    if (attributes.names > 1) {
      const auto [first, is_new] = first_names_.try_emplace({attributes.device, attributes.file_id}, listed.path);
      if (!is_new) {
        entry.kind = EntryKind::hard_link;
        entry.target = first->second;
        return described;
      }
    }
    entry.size_bytes = attributes.size_bytes;
    state_.bytes += entry.size_bytes;
    ++state_.files;
    if (entry.size_bytes > 0) BITSNAP_TRY(read_file(node, described));
    return described;
  }

  Result<void> read_file(std::size_t node, DescribedEntry& described) {
    FolderEntry& entry = described.entry;
    BITSNAP_ASSIGN(Recognized file, recognizer_.recognize(entry.path, bytes_of(node)));
    const auto is_too_long = [&](const FoundTensor& found) {
      return entry.path.size() * kMostBytesOfAByte + found.info.name.size() + kMostBytesOfANumber >
             options_.limits.name_bytes;
    };
    if (std::ranges::any_of(file.contents.tensors, is_too_long)) {
      file = {"", {}, fmt::format("the name of a tensor has more than {} bytes", options_.limits.name_bytes)};
    }
    entry.container = std::move(file.container);
    if (!file.note.empty()) {
      state_.notes.push_back(fmt::format("{}: {}", source_->path_of(node), file.note));
      entry.note = std::move(file.note);
    }
    described.parts.name = interop::stable_name(entry.path, options_.step);
    const std::string file_name(entry.path.empty() ? description_.name : os::file_name(entry.path));
    add_rest(node, file.contents, described);
    for (FoundTensor& found : file.contents.tensors) {
      described.parts.pieces.push_back({state_.state.tensors.size(), found.offset, 0});
      // The name of the file tells what the tensors are ("optimizer.pt"), those of directories ("master") do not.
      const Role role = guess_role(within(file_name, found.info.name), found.info.dtype);
      found.info.name = names_.add(within(described.parts.name, found.info.name));
      found.info.role = role;
      add_tensor(std::move(found.info), [source = source_, node, begin = found.offset](std::uint64_t at, ByteSpan out) {
        return source->read_at(node, begin + at, out);
      });
    }
    for (TensorView& view : file.contents.views) add_view(std::move(view), described);
    return {};
  }

  // All bytes that are in no tensor of the file, as one tensor of bytes.
  void add_rest(std::size_t node, const Contents& contents, DescribedEntry& described) {
    // Ranges of the file, and where they begin in the rest.
    struct Range {
      std::uint64_t from = 0;
      std::uint64_t offset = 0;
      std::uint64_t bytes = 0;
    };
    auto ranges = std::make_shared<std::vector<Range>>();
    std::uint64_t at = 0;
    std::uint64_t total = 0;
    const auto add = [&](std::uint64_t end) {
      if (end > at) ranges->push_back({total, at, end - at});
      total += end - at;
    };
    for (const FoundTensor& found : contents.tensors) {
      add(found.offset);
      at = found.offset + found.info.size_bytes;
    }
    add(described.entry.size_bytes);
    if (total == 0) return;
    described.parts.rest = state_.state.tensors.size();
    TensorInfo info;
    info.name = names_.add(described.parts.name.empty() ? std::string(kRestName) : described.parts.name);
    info.dtype = DType::u8;
    info.dtype_name = dtype_name(info.dtype);
    info.shape = {total};
    info.size_bytes = total;
    add_tensor(std::move(info),
               [source = source_, node, ranges = std::shared_ptr<const std::vector<Range>>(std::move(ranges))](
                   std::uint64_t offset, ByteSpan out) -> Result<void> {
                 auto range = std::ranges::upper_bound(*ranges, offset, {}, &Range::from) - 1;
                 for (; !out.empty(); ++range) {
                   const std::uint64_t skipped = offset - range->from;
                   const auto bytes = std::min<std::uint64_t>(out.size(), range->bytes - skipped);
                   const auto count = static_cast<std::size_t>(bytes);
                   BITSNAP_TRY(source->read_at(node, range->offset + skipped, out.first(count)));
                   out = out.subspan(count);
                   offset += bytes;
                 }
                 return {};
               });
  }

  void add_tensor(TensorInfo info, std::function<Result<void>(std::uint64_t, ByteSpan)> read) {
    TensorSource tensor;
    tensor.info = std::move(info);
    tensor.read = std::move(read);
    state_.state.tensors.push_back(std::move(tensor));
  }

  // A view that lies in no piece is only a name; the bytes are in the file all the same.
  void add_view(TensorView view, DescribedEntry& described) {
    const std::vector<FilePiece>& pieces = described.parts.pieces;
    const auto after = std::ranges::upper_bound(pieces, view.offset, {}, &FilePiece::offset);
    if (after == pieces.begin()) return;
    const auto piece = static_cast<std::size_t>(after - pieces.begin()) - 1;
    FileView made;
    made.piece = piece;
    made.offset = view.offset - pieces[piece].offset;
    made.tensor.name = std::move(view.name);
    made.tensor.dtype = dtype_from_name(view.dtype_name);
    made.tensor.dtype_name = std::move(view.dtype_name);
    made.tensor.element_bytes = view.element_bytes;
    made.tensor.shape = std::move(view.shape);
    made.tensor.stride = std::move(view.stride);
    described.parts.views.push_back(std::move(made));
  }

  static std::string within(const std::string& file, const std::string& name) {
    return file.empty() ? name : file + "/" + name;
  }

  std::shared_ptr<const FolderState::Source> source_;
  const FolderOptions& options_;
  interop::ContainerRecognizer recognizer_;
  interop::FolderDescription description_;
  FolderState state_;
  interop::UniqueNames names_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::string> first_names_;
};

}  // namespace

std::string_view entry_kind_name(EntryKind kind) noexcept {
  switch (kind) {
    case EntryKind::file: return "file";
    case EntryKind::directory: return "directory";
    case EntryKind::symbolic_link: return "symlink";
    case EntryKind::hard_link: break;
  }
  return "hardlink";
}

Result<FolderState> open_folder(const std::string& path, const FolderOptions& options) {
  return no_throw("opening a folder", [&]() -> Result<FolderState> {
    const std::string root = os::canonical_path(path);
    BITSNAP_ASSIGN(std::vector<os::TreeNode> nodes, os::read_tree(root, kMostFolderEntries));
    auto source = std::make_shared<const FolderState::Source>(root, std::move(nodes));
    if (options.as_safetensors && source->nodes().front().attributes.kind == os::NodeKind::file) {
      // A header that violates the format is stored with the file, as any other bytes.
      if (auto state = open_safetensors(root, options.limits)) {
        FolderState input;
        input.state = *std::move(state);
        input.bytes = source->nodes().front().attributes.size_bytes;
        input.files = 1;
        input.container = interop::kSafetensors;
        input.source = std::move(source);
        return input;
      }
    }
    const std::size_t slash = root.rfind('/');
    return FolderReader(std::move(source), options).read(root.substr(slash == std::string::npos ? 0 : slash + 1));
  });
}

}  // namespace bitsnap
