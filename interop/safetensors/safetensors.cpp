// Opens safetensors files as states, and writes snapshots as safetensors files. Thread-safe.
#include <bitsnap/safetensors.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "interop/safetensors/safetensors_contents.hpp"
#include "interop/safetensors/safetensors_header.hpp"
#include "os/atomic_file.hpp"
#include "os/file_system.hpp"

namespace bitsnap {
namespace {

using interop::kLengthBytes;

constexpr std::array<std::byte, 8> kSnapshotMagic{std::byte{0x89}, std::byte{'B'}, std::byte{'S'},  std::byte{'N'},
                                                  std::byte{'A'},  std::byte{'P'}, std::byte{'\r'}, std::byte{'\n'}};

// For public functions: no exceptions, and errors that begin with the file's name.
template <typename Body>
std::invoke_result_t<Body> guarded(const std::string& file, Body&& body) {
  auto result = no_throw("safetensors", std::forward<Body>(body));
  if (!result) return tl::unexpected(name_file(std::move(result).error(), file));
  return result;
}

Result<State> open_state(const std::string& path, const DecodeLimits& limits) {
  BITSNAP_ASSIGN(std::shared_ptr<const os::RandomAccessFile> file,
                 os::real_file_system().open(path, os::AccessPattern::sequential));
  const interop::FileBytes bytes(file->size_bytes(),
                                 [file](std::uint64_t offset, ByteSpan out) { return file->read_at(offset, out); });
  BITSNAP_ASSIGN(interop::SafetensorsParts parts, interop::read_safetensors_parts(bytes, limits));

  State state;
  state.metadata = std::move(parts.header.metadata);
  state.safetensors_header = std::move(parts.text);
  state.tensors.reserve(parts.header.tensors.size());
  std::uint64_t offset = parts.data_offset;
  for (TensorInfo& info : parts.header.tensors) {
    const std::uint64_t begin = offset;
    offset += info.size_bytes;
    state.tensors.push_back({std::move(info), nullptr, [file, begin](std::uint64_t at, std::span<std::byte> out) {
                               return file->read_at(begin + at, out);
                             }});
  }
  return state;
}

// A header that a snapshot keeps must describe its tensors; otherwise the file would name or place them differently.
Result<void> check_header(const Snapshot& snapshot, const std::string& header) {
  const std::span<const TensorInfo> tensors = snapshot.tensors();
  std::uint64_t data_bytes = 0;
  for (const TensorInfo& info : tensors) data_bytes += info.size_bytes;
  BITSNAP_ASSIGN(const interop::SafetensorsHeader parsed,
                 interop::parse_safetensors_header(header, data_bytes, DecodeLimits()));
  const bool agree = std::ranges::equal(parsed.tensors, tensors, [](const TensorInfo& a, const TensorInfo& b) {
    return a.name == b.name && a.dtype_name == b.dtype_name && a.shape == b.shape && a.size_bytes == b.size_bytes;
  });
  if (!agree) return fail(ErrorKind::corrupt, "the safetensors header does not match the tensors");
  return {};
}

using Metadata = std::vector<std::pair<std::string, std::string>>;

// For a file of these tensors.
Result<std::string> new_header(const Snapshot& snapshot, std::span<const std::size_t> tensors, Metadata metadata,
                               const std::optional<Value>& tree) {
  interop::SafetensorsHeader header;
  header.metadata = std::move(metadata);
  for (const std::size_t tensor : tensors) header.tensors.push_back(snapshot.tensors()[tensor]);
  BITSNAP_TRY(interop::put_tree(header, tree));
  return interop::make_safetensors_header(header);
}

Result<std::string> whole_header(const Snapshot& snapshot, std::span<const std::size_t> tensors) {
  if (const auto& kept = snapshot.safetensors_header()) {
    BITSNAP_TRY(check_header(snapshot, *kept));
    return *kept;
  }
  BITSNAP_ASSIGN(const std::optional<Value> tree, snapshot.tree());
  return new_header(snapshot, tensors, snapshot.metadata(), tree);
}

Result<ExportSummary> stream(const Snapshot& snapshot, const std::string& header, std::span<const std::size_t> tensors,
                             const Snapshot::Sink& sink, const RunOptions& options) {
  BITSNAP_ASSIGN(std::uint64_t bytes, interop::write_safetensors_header(header, sink));
  for (const std::size_t tensor : tensors) bytes += snapshot.tensors()[tensor].size_bytes;
  BITSNAP_TRY(snapshot.stream_tensors(tensors, sink, options));
  return ExportSummary{bytes};
}

Result<ExportSummary> stream_file(const Snapshot& snapshot, std::span<const std::size_t> left_out,
                                  const Snapshot::Sink& sink, const RunOptions& options) {
  std::vector<std::size_t> tensors;
  for (std::size_t tensor = 0; tensor < snapshot.tensors().size(); ++tensor) {
    if (!std::ranges::binary_search(left_out, tensor)) tensors.push_back(tensor);
  }
  BITSNAP_ASSIGN(const std::string header, left_out.empty()
                                               ? whole_header(snapshot, tensors)
                                               : new_header(snapshot, tensors, snapshot.metadata(), std::nullopt));
  return stream(snapshot, header, tensors, sink, options);
}

Result<ExportSummary> stream_one(const Snapshot& snapshot, std::size_t tensor, const Snapshot::Sink& sink) {
  if (tensor >= snapshot.tensors().size()) {
    return fail(ErrorKind::invalid_argument, fmt::format("there is no tensor {}", tensor));
  }
  const std::array tensors{tensor};
  BITSNAP_ASSIGN(const std::string header, new_header(snapshot, tensors, {}, std::nullopt));
  return stream(snapshot, header, tensors, sink, {});
}

// `write` passes the bytes of the file to a sink.
template <typename Write>
Result<ExportSummary> write_atomically(const Snapshot& snapshot, const std::string& path, bool overwrite,
                                       const Write& write) {
  if (overwrite) BITSNAP_TRY(snapshot.check_not_needed(path));
  BITSNAP_ASSIGN(os::AtomicFile file, os::AtomicFile::create(os::real_file_system(), path, overwrite));
  BITSNAP_ASSIGN(const ExportSummary summary,
                 write([&file](std::span<const std::byte> piece) { return file.file().append(piece); }));
  BITSNAP_TRY(file.commit());
  return summary;
}

}  // namespace

Result<State> open_safetensors(const std::string& path, const DecodeLimits& limits) {
  return guarded(path, [&] { return open_state(path, limits); });
}

Result<ExportSummary> stream_safetensors(const Snapshot& snapshot, const Snapshot::Sink& sink,
                                         const RunOptions& options, std::span<const std::size_t> left_out) {
  return guarded(snapshot.name(), [&] { return stream_file(snapshot, left_out, sink, options); });
}

Result<ExportSummary> export_safetensors(const Snapshot& snapshot, const std::string& path, bool overwrite,
                                         const RunOptions& options, std::span<const std::size_t> left_out) {
  return guarded(path, [&] {
    return write_atomically(snapshot, path, overwrite,
                            [&](const Snapshot::Sink& sink) { return stream_file(snapshot, left_out, sink, options); });
  });
}

Result<ExportSummary> stream_tensor(const Snapshot& snapshot, std::size_t tensor, const Snapshot::Sink& sink) {
  return guarded(snapshot.name(), [&] { return stream_one(snapshot, tensor, sink); });
}

Result<ExportSummary> export_tensor(const Snapshot& snapshot, std::size_t tensor, const std::string& path,
                                    bool overwrite) {
  return guarded(path, [&] {
    return write_atomically(snapshot, path, overwrite,
                            [&](const Snapshot::Sink& sink) { return stream_one(snapshot, tensor, sink); });
  });
}

Result<FileKind> detect_file_kind(const std::string& path) {
  return guarded(path, [&]() -> Result<FileKind> {
    BITSNAP_ASSIGN(const auto file, os::real_file_system().open(path));
    std::array<std::byte, kLengthBytes + 1> start{};
    if (file->size_bytes() < start.size()) return FileKind::other;
    BITSNAP_TRY(file->read_at(0, start));
    if (std::equal(kSnapshotMagic.begin(), kSnapshotMagic.end(), start.begin())) return FileKind::snapshot;
    const bool is_other = !interop::looks_like_safetensors(as_text(start), file->size_bytes());
    return is_other ? FileKind::other : FileKind::safetensors;
  });
}

}  // namespace bitsnap
