#include "store/checkpoint_files.hpp"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/hash.hpp"
#include "base/no_throw.hpp"
#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "exec/executor.hpp"
#include "os/atomic_file.hpp"
#include "os/plain_name.hpp"
#include "save/snapshot_writer.hpp"
#include "store/blob.hpp"
#include "store/label_record.hpp"

namespace bitsnap::store {
namespace {

// Like the names of labels, and a file in every directory may have such a name.
bool is_file_name(std::string_view name) noexcept {
  return is_label(name) && os::is_plain_name(name) && name.find('\\') == std::string_view::npos;
}

Error invalid_files(std::string message) {
  return Error(ErrorKind::invalid_argument, std::move(message)).about("files");
}

// The file of a checkpoint that a tensor holds.
Result<CheckpointFile> read_file(const Snapshot& snapshot, std::size_t number) {
  const TensorInfo& tensor = snapshot.tensors()[number];
  if (!is_file_name(tensor.name) || tensor.dtype != DType::u8 || tensor.shape.size() != 1) {
    return fail(ErrorKind::corrupt, fmt::format("{}: tensor {} must be a file: bytes with a file name", snapshot.name(),
                                                quote_name(tensor.name)));
  }
  CheckpointFile file{tensor.name, std::vector<std::byte>(static_cast<std::size_t>(tensor.size_bytes))};
  BITSNAP_TRY(snapshot.read_bytes(number, 0, file.bytes));
  return file;
}

}  // namespace

Result<void> check_files(const std::vector<CheckpointFile>& files) {
  if (files.size() > kMaxCheckpointFiles) {
    return tl::unexpected(
        invalid_files(fmt::format("a checkpoint has at most {} files, got {}", kMaxCheckpointFiles, files.size())));
  }
  std::uint64_t bytes = 0;
  std::set<std::string_view> names;
  for (const CheckpointFile& file : files) {
    if (!is_file_name(file.name)) {
      return tl::unexpected(invalid_files(
          fmt::format("the name of a file must have 1 to {} bytes of UTF-8 without '/', '\\' and control characters, "
                      "and must not be '.' or '..', got {}",
                      kMaxLabelBytes, quote_name(file.name))));
    }
    if (!names.insert(file.name).second) {
      return tl::unexpected(invalid_files(fmt::format("the file {} appears twice", quote_name(file.name))));
    }
    bytes += file.bytes.size();
  }
  if (bytes <= kMaxCheckpointFilesBytes) return {};
  return tl::unexpected(invalid_files(
      fmt::format("the files of a checkpoint have at most {} bytes in all, got {}", kMaxCheckpointFilesBytes, bytes)));
}

// The name follows from the bytes. So ranks that commit at the same time, and a checkpoint and its replacement, share a
// file only if its bytes are equal; writing it again then changes nothing.
Result<std::optional<ShardFile>> write_files(StepDirectories& directories, std::uint64_t step,
                                             const std::string& attempt, const CommitOptions& options) {
  if (options.files.empty() && options.metadata.empty()) {
    BITSNAP_TRY(directories.sync_step(step));
    return std::nullopt;
  }
  State state;
  state.metadata = options.metadata;
  for (const CheckpointFile& file : options.files) {
    BITSNAP_ASSIGN(state.tensors.emplace_back(),
                   TensorSource::of(file.name, DType::u8, {file.bytes.size()}, file.bytes));
  }
  std::ranges::sort(state.tensors, {}, [](const TensorSource& tensor) { return std::string_view(tensor.info.name); });
  BlobWriter encoded(directories.layout().step_file(step, "files"));
  const auto executor = exec::make_executor(1);
  BITSNAP_ASSIGN(const save::WriteSummary written,
                 save::write_snapshot(state, {.settings = default_settings()}, nullptr, nullptr, encoded, *executor));
  BITSNAP_TRY(encoded.close());
  const Blob& blob = *encoded.blob();
  std::vector<std::byte> bytes(static_cast<std::size_t>(blob.size_bytes()));
  blob.copy(0, bytes);

  ShardFile file{.file = files_file_name(hash64(bytes), attempt),
                 .id = written.summary.id,
                 .bytes = blob.size_bytes(),
                 .raw_bytes = written.summary.raw_bytes,
                 .depth = written.depth,
                 .references = {}};
  BITSNAP_ASSIGN(os::AtomicFile out, os::AtomicFile::create(directories.file_system(),
                                                            directories.layout().step_file(step, file.file), true));
  BITSNAP_TRY(out.file().append(bytes));
  BITSNAP_TRY(out.commit());  // syncs the directory of the step, too
  directories.note_sync(out.directory_synced());
  return file;
}

Result<std::vector<CheckpointFile>> read_files(const Snapshot& snapshot) {
  std::vector<CheckpointFile> files;
  std::uint64_t bytes = 0;
  for (const TensorInfo& tensor : snapshot.tensors()) {
    bytes += std::min(tensor.size_bytes, kMaxCheckpointFilesBytes + 1);
    if (bytes <= kMaxCheckpointFilesBytes && files.size() < kMaxCheckpointFiles) {
      BITSNAP_ASSIGN(files.emplace_back(), read_file(snapshot, files.size()));
      continue;
    }
    return fail(ErrorKind::corrupt, fmt::format("{}: expected at most {} files of {} bytes in all", snapshot.name(),
                                                kMaxCheckpointFiles, kMaxCheckpointFilesBytes));
  }
  return files;
}

}  // namespace bitsnap::store
