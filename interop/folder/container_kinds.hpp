// The formats of files that tensors are found in: one table, with a row for each. Whatever bitsnap does by format is a
// member of the row; nothing else looks at the names of formats.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>

#include "interop/container/contents.hpp"
#include "interop/container/file_bytes.hpp"
#include "interop/dcp/distcp.hpp"
#include "interop/state/state_parts.hpp"

namespace bitsnap::interop {

// A file of a folder, to be recognized.
struct ContainerFile {
  const std::string& path;  // in the folder
  std::string_view start;   // its first bytes, at most 32
  const FileBytes& bytes;
  DcpFolder& dcp;  // the files beside it
  const DecodeLimits& limits;
};

struct ContainerKind {
  // On disk, as `container` in the description of a folder: never change or reuse.
  std::string_view name;
  // Whether the file may be of this format.
  bool (*looks_like)(const ContainerFile& file);
  // Where its tensors are. nullopt: it is sound, but of another format that begins likewise.
  Result<std::optional<Contents>> (*read)(const ContainerFile& file);
  // Its tensors and values, for conversions. Null: they are in several files, which are read together.
  Result<StateParts> (*read_state)(const FileBytes& bytes, const DecodeLimits& limits);
  // The file is one ZIP archive, whose checksums must follow its contents.
  bool has_checksums;
};

// In the order in which a file is compared with them.
[[nodiscard]] std::span<const ContainerKind> container_kinds() noexcept;
// Null: there is no such format.
[[nodiscard]] const ContainerKind* find_container_kind(std::string_view name) noexcept;

// What a file turned out to be.
struct Recognized {
  std::string container;  // the name of a format; empty: plain bytes
  Contents contents;
  std::string note;  // why a file that begins like a container is plain bytes
};

// Recognizes the files of one folder. One thread at a time.
class ContainerRecognizer {
 public:
  ContainerRecognizer(DcpFolder::Open open, const DecodeLimits& limits) : dcp_(std::move(open)), limits_(limits) {}

  // Fails only if the file cannot be read.
  [[nodiscard]] Result<Recognized> recognize(const std::string& path, const FileBytes& bytes);

 private:
  [[nodiscard]] Result<Recognized> take_apart(const std::string& path, const FileBytes& bytes);

  DcpFolder dcp_;
  DecodeLimits limits_;
};

}  // namespace bitsnap::interop
