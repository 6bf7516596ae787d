// Checkpoints as frameworks write them: folders, or single files, of any kind. Every file comes back byte for byte.
//
// The tensors in the files of known formats (safetensors, torch's zip and older format, DCP, npy, npz) become tensors
// of the state; all other bytes become tensors of bytes. docs/spec/folder.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/tensor.hpp>
#include <bitsnap/writer.hpp>

namespace bitsnap {

enum class EntryKind : std::uint8_t { file, directory, symbolic_link, hard_link };

// "file", "directory", "symlink", "hardlink"
[[nodiscard]] std::string_view entry_kind_name(EntryKind kind) noexcept;

// A tensor of a file. Its elements are in row-major order unless it has strides.
struct FileTensor {
  std::string name;  // in the file
  DType dtype = DType::opaque;
  std::string dtype_name;
  std::uint64_t element_bytes = 1;    // of an opaque dtype, as the file says; 0: unknown
  std::vector<std::uint64_t> shape;   // elements
  std::vector<std::uint64_t> stride;  // elements, in each dimension; empty: row-major
  std::size_t tensor = 0;             // in Snapshot::tensors(), that holds its bytes
  std::uint64_t offset = 0;           // of element 0 in that tensor, bytes
};

struct FolderEntry {
  std::string path;  // relative, with '/' between names; empty: the folder itself, or the only file
  EntryKind kind = EntryKind::file;
  std::uint32_t mode = 0;           // permission bits
  std::int64_t modified_ns = 0;     // since the Unix epoch
  std::uint64_t size_bytes = 0;     // of a file
  std::string target;               // of a link: what it says; of a hard link: the path of an entry of this folder
  std::string container;            // the format of the file: "torch-zip"; empty: it is stored as plain bytes
  std::string note;                 // why a file that looks like a container is stored as plain bytes
  std::vector<FileTensor> tensors;  // of a file; a hard link has those of its target
};

// A folder, or a file, that is ready to be saved.
struct FolderState {
  State state;              // reads the files when the save needs them
  std::uint64_t bytes = 0;  // of all files
  std::uint64_t files = 0;  // hard links are not counted again
  // "FILE: why it is stored as plain bytes"
  std::vector<std::string> notes;

  std::string container;  // of a single file: its format, as FolderEntry::container; otherwise empty

  // invalid_argument, naming a file, if the folder has changed since it was opened: what was saved is then perhaps no
  // state that ever existed. Call it after the save.
  [[nodiscard]] Result<void> check_unchanged() const;
  // The same, and decodes everything that was written: every byte must have the hash of the byte that was read. For
  // Store::save() and SaveOptions::check.
  [[nodiscard]] Result<void> check_written(const Snapshot& written, const RunOptions& options = {}) const;

  class Source;
  std::shared_ptr<const Source> source;
};

struct FolderOptions {
  // Of the checkpoint. Names such as "global_step1000" then have the same names of tensors at every step.
  std::optional<std::uint64_t> step = std::nullopt;
  // A safetensors file alone becomes the state that open_safetensors() makes, without its name, permissions and time.
  bool as_safetensors = false;
  DecodeLimits limits = {};
};

// Opens a folder or a file. Nothing in it is executed, and no symbolic link in it is followed. not_found or io if it
// cannot be read; unsupported for pipes, sockets and devices.
[[nodiscard]] Result<FolderState> open_folder(const std::string& path, const FolderOptions& options = {});

// Whether the state was a folder or a file of another kind than safetensors.
[[nodiscard]] bool is_folder(const Snapshot& snapshot) noexcept;

// The folder that a snapshot holds. Immutable and thread-safe.
//
// Of files that were saved with loss, all bytes are as before except those of the tensors that lost something, and the
// checksums of these tensors in archives of torch and numpy.
class Folder {
 public:
  // invalid_argument if the snapshot holds no folder; corrupt if its description is malformed.
  [[nodiscard]] static Result<std::shared_ptr<const Folder>> open(std::shared_ptr<const Snapshot> snapshot);
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  [[nodiscard]] const std::string& name() const noexcept;  // when it was saved: "checkpoint-1000"
  // By path; the first one is the folder itself, or the only file.
  [[nodiscard]] std::span<const FolderEntry> entries() const noexcept;
  [[nodiscard]] std::optional<std::size_t> find(std::string_view path) const noexcept;
  [[nodiscard]] const std::shared_ptr<const Snapshot>& snapshot() const noexcept;

  // Bytes [offset, offset + out.size()) of a file, decoded on the calling thread; of a hard link, those of its file.
  // invalid_argument if the entry has no such bytes.
  [[nodiscard]] Result<void> read(std::size_t entry, std::uint64_t offset, std::span<std::byte> out) const;

  // Fails if a file cannot be put together although all tensors can be read.
  [[nodiscard]] Result<void> check() const;

  // Writes the folder, or the only file, to `path`, which appears complete or not at all. Symbolic links are written as
  // they are, wherever they lead; nothing is written through one. invalid_argument if `path` exists.
  [[nodiscard]] Result<void> extract(const std::string& path, const RunOptions& options = {}) const;

  // A file that cannot be put together, and why.
  struct DamagedFile {
    std::size_t entry = 0;
    Error error;
  };
  // The files that cannot be read if these tensors cannot, by entry, with the hard links to them. Every byte of all
  // others can.
  [[nodiscard]] std::vector<DamagedFile> damaged_files(std::span<const DamagedTensor> damaged) const;
  // extract() without some files, whose entries are given in ascending order. Symbolic links to them stay.
  [[nodiscard]] Result<void> extract_without(std::span<const std::size_t> left_out, const std::string& path,
                                             const RunOptions& options = {}) const;
  // Passes the bytes of a file to `sink`, piece by piece and in order.
  [[nodiscard]] Result<void> stream_file(std::size_t entry, const Snapshot::Sink& sink,
                                         const RunOptions& options = {}) const;
  // Writes one file; with `overwrite`, replaces an existing one.
  [[nodiscard]] Result<void> extract_file(std::size_t entry, const std::string& path, bool overwrite,
                                          const RunOptions& options = {}) const;

  struct Impl;
  explicit Folder(std::unique_ptr<Impl> impl) noexcept;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace bitsnap
