// The description of a folder in a snapshot: a typed tree (docs/spec/folder.md). Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/folder.hpp>
#include <bitsnap/tensor.hpp>
#include <bitsnap/value.hpp>

namespace bitsnap::interop {

// A range of a file that a tensor of the snapshot holds.
struct FilePiece {
  std::size_t tensor = 0;    // in the snapshot
  std::uint64_t offset = 0;  // in the file, bytes
  std::uint64_t rest = 0;    // where the first byte after the piece that is in no piece lies in the rest
};

// A tensor that shares the bytes of a piece.
struct FileView {
  std::size_t piece = 0;     // in FileParts::pieces
  std::uint64_t offset = 0;  // of element 0 in the piece, bytes
  FileTensor tensor;         // without the position of its bytes
};

// How the bytes of a file are put together.
struct FileParts {
  std::string name;                 // what the names of its tensors begin with, before a '/'; empty: nothing
  std::optional<std::size_t> rest;  // the tensor with all bytes that are in no piece, in their order
  std::vector<FilePiece> pieces;    // by offset
  std::vector<FileView> views;
};

struct DescribedEntry {
  FolderEntry entry;  // without `tensors`
  FileParts parts;    // of a file
};

struct FolderDescription {
  std::string name;
  std::vector<DescribedEntry> entries;  // by path
};

// The name of the type in the typed tree.
inline constexpr std::string_view kFolderType = "bitsnap.folder";

[[nodiscard]] Value describe_folder(const FolderDescription& folder);

// Also checks what the description says against the tensors: corrupt unless the pieces and the rest of each file have
// exactly its size, tensors belong to files in their order and to one file only, and paths, kinds and links make a
// folder that lies completely below its root.
[[nodiscard]] Result<FolderDescription> parse_folder(const Value& value, std::span<const TensorInfo> tensors);

// A name of a file for the names of tensors: valid UTF-8, with the step replaced by "{step}" after a word such as
// "step" or "checkpoint", so that a file has the same name at every step.
[[nodiscard]] std::string stable_name(std::string_view path, std::optional<std::uint64_t> step);

}  // namespace bitsnap::interop
