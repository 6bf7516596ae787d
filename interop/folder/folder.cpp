// Reads the folder that a snapshot holds.
#include <bitsnap/folder.hpp>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/no_throw.hpp"
#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "interop/folder/folder_impl.hpp"
#include "interop/folder/folder_writer.hpp"

namespace bitsnap {
namespace {

// The name of a tensor in its file.
std::string name_in_file(const std::string& file, const std::string& tensor) {
  const bool is_within =
      !file.empty() && tensor.size() > file.size() + 1 && tensor.starts_with(file) && tensor[file.size()] == '/';
  return is_within ? tensor.substr(file.size() + 1) : tensor;
}

std::vector<FileTensor> tensors_of(const interop::FileParts& parts, std::span<const TensorInfo> tensors) {
  std::vector<FileTensor> listed;
  listed.reserve(parts.pieces.size() + parts.views.size());
  for (const interop::FilePiece& piece : parts.pieces) {
    const TensorInfo& info = tensors[piece.tensor];
    FileTensor tensor;
    tensor.name = name_in_file(parts.name, info.name);
    tensor.dtype = info.dtype;
    tensor.dtype_name = info.dtype_name;
    tensor.element_bytes = info.dtype == DType::opaque ? 0 : element_size(info.dtype);
    tensor.shape = info.shape;
    tensor.tensor = piece.tensor;
    listed.push_back(std::move(tensor));
  }
  for (const interop::FileView& view : parts.views) {
    FileTensor tensor = view.tensor;
    tensor.tensor = parts.pieces[view.piece].tensor;
    tensor.offset = view.offset;
    listed.push_back(std::move(tensor));
  }
  return listed;
}

}  // namespace

Folder::Folder(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Folder::~Folder() = default;

bool is_folder(const Snapshot& snapshot) noexcept {
  if (!snapshot.has_tree()) return false;
  const auto is_typed = no_throw("folder", [&]() -> Result<bool> {
    BITSNAP_ASSIGN(const std::optional<Value> tree, snapshot.tree());
    const auto* typed = tree ? std::get_if<ValueTyped>(&tree->get()) : nullptr;
    return typed != nullptr && typed->type == interop::kFolderType;
  });
  return is_typed && *is_typed;
}

Result<std::shared_ptr<const Folder>> Folder::open(std::shared_ptr<const Snapshot> snapshot) {
  return no_throw("opening a folder", [&]() -> Result<std::shared_ptr<const Folder>> {
    BITSNAP_ASSIGN(const std::optional<Value> tree, snapshot->tree());
    auto parsed = interop::parse_folder(tree.value_or(Value()), snapshot->tensors());
    if (!parsed) return tl::unexpected(name_file(std::move(parsed).error(), snapshot->name()));
    auto impl = std::make_unique<Impl>();
    impl->snapshot = std::move(snapshot);
    impl->name = std::move(parsed->name);
    for (interop::DescribedEntry& described : parsed->entries) {
      described.entry.tensors = tensors_of(described.parts, impl->snapshot->tensors());
      impl->entries.push_back(std::move(described.entry));
      impl->parts.push_back(std::move(described.parts));
    }
    // Hard links tell what their file is.
    for (FolderEntry& entry : impl->entries) {
      if (entry.kind != EntryKind::hard_link) continue;
      const FolderEntry& file = *std::ranges::lower_bound(impl->entries, entry.target, {}, &FolderEntry::path);
      entry.mode = file.mode;
      entry.modified_ns = file.modified_ns;
      entry.size_bytes = file.size_bytes;
      entry.container = file.container;
    }
    return std::make_shared<const Folder>(std::move(impl));
  });
}

const std::string& Folder::name() const noexcept { return impl_->name; }
std::span<const FolderEntry> Folder::entries() const noexcept { return impl_->entries; }
const std::shared_ptr<const Snapshot>& Folder::snapshot() const noexcept { return impl_->snapshot; }

std::optional<std::size_t> Folder::find(std::string_view path) const noexcept {
  const auto found = std::ranges::lower_bound(impl_->entries, path, {}, &FolderEntry::path);
  if (found == impl_->entries.end() || found->path != path) return std::nullopt;
  return static_cast<std::size_t>(found - impl_->entries.begin());
}

Result<std::size_t> Folder::Impl::file_of(std::size_t entry) const {
  if (entry < entries.size()) {
    const FolderEntry& found = entries[entry];
    if (found.kind == EntryKind::file) return entry;
    if (found.kind == EntryKind::hard_link) {
      const auto file = std::ranges::lower_bound(entries, found.target, {}, &FolderEntry::path);
      return static_cast<std::size_t>(file - entries.begin());
    }
  }
  return fail(ErrorKind::invalid_argument, entry < entries.size()
                                               ? fmt::format("{} is a {}, not a file", quote_name(entries[entry].path),
                                                             entry_kind_name(entries[entry].kind))
                                               : fmt::format("there is no entry {}", entry));
}

Result<void> Folder::read(std::size_t entry, std::uint64_t offset, std::span<std::byte> out) const {
  return no_throw("reading a file", [&]() -> Result<void> {
    BITSNAP_ASSIGN(const std::size_t file, impl_->file_of(entry));
    const std::uint64_t size = impl_->entries[file].size_bytes;
    if (offset > size || out.size() > size - offset) {
      return fail(ErrorKind::invalid_argument,
                  fmt::format("{} has {} bytes, not bytes {} to {}", quote_name(impl_->entries[entry].path), size,
                              offset, offset + out.size()));
    }
    BITSNAP_TRY(impl_->read_saved(file, offset, out));
    BITSNAP_ASSIGN(const Impl::Patches patches, impl_->patches_of(file));
    interop::apply_patches(*patches, offset, out);
    return {};
  });
}

Result<void> Folder::check() const {
  return no_throw("checking a folder", [&]() -> Result<void> {
    for (std::size_t file = 0; file < impl_->entries.size(); ++file) {
      if (auto patches = impl_->patches_of(file); !patches) {
        return tl::unexpected(name_file(std::move(patches).error(), impl_->entries[file].path));
      }
    }
    return {};
  });
}

std::vector<Folder::DamagedFile> Folder::damaged_files(std::span<const DamagedTensor> damaged) const {
  const auto error_of = [&](std::size_t tensor) -> const Error* {
    const auto found = std::ranges::lower_bound(damaged, tensor, {}, &DamagedTensor::tensor);
    return found != damaged.end() && found->tensor == tensor ? &found->error : nullptr;
  };
  std::vector<DamagedFile> files;
  for (std::size_t entry = 0; entry < impl_->entries.size(); ++entry) {
    const Result<std::size_t> file = impl_->file_of(entry);
    if (!file) continue;
    const interop::FileParts& parts = impl_->parts[*file];
    const Error* error = parts.rest ? error_of(*parts.rest) : nullptr;
    for (const interop::FilePiece& piece : parts.pieces) {
      if (error == nullptr) error = error_of(piece.tensor);
    }
    if (error != nullptr) {
      files.push_back({entry, *error});
    } else if (auto patches = impl_->patches_of(*file); !patches) {
      files.push_back({entry, std::move(patches).error()});
    }
  }
  return files;
}

Result<void> Folder::stream_file(std::size_t entry, const Snapshot::Sink& sink, const RunOptions& options) const {
  return no_throw("reading a file", [&]() -> Result<void> {
    BITSNAP_ASSIGN(const std::size_t file, impl_->file_of(entry));
    return interop::stream_file(*impl_, file, sink, options);
  });
}

}  // namespace bitsnap
