// A snapshot or a safetensors file as named tensors.
#include "cli/tensor_file.hpp"

#include <memory>
#include <utility>

#include <bitsnap/safetensors.hpp>

#include "cli/run_path.hpp"

namespace bitsnap::cli {

Result<TensorFile> TensorFile::open(const std::string& path, const OpenOptions& options) {
  if (auto checked = check_no_run(path); !checked) {
    return tl::unexpected(std::move(checked).error());
  }
  auto kind = detect_file_kind(path);
  if (!kind) {
    return tl::unexpected(std::move(kind).error());
  }
  if (*kind == FileKind::safetensors) {
    TensorFile file;
    auto opened = open_safetensors(path, options.limits);
    if (!opened) {
      return tl::unexpected(std::move(opened).error());
    }
    auto state = std::make_shared<const State>(std::move(*opened));
    for (const TensorSource& source : state->tensors) {
      file.tensors_.push_back(source.info);
    }
    file.read_ = [state](std::size_t tensor, std::uint64_t offset, std::span<std::byte> out) {
      return state->tensors[tensor].read(offset, out);
    };
    return file;
  }
  auto snapshot = Snapshot::open(path, options);
  if (!snapshot) {
    return tl::unexpected(std::move(snapshot).error());
  }
  return of(std::move(*snapshot));
}

TensorFile TensorFile::of(std::shared_ptr<const Snapshot> snapshot) {
  TensorFile file;
  file.tensors_.assign(snapshot->tensors().begin(), snapshot->tensors().end());
  file.read_ = [snapshot](std::size_t tensor, std::uint64_t offset, std::span<std::byte> out) {
    return snapshot->read_bytes(tensor, offset, out);
  };
  file.snapshot_ = std::move(snapshot);
  return file;
}

}  // namespace bitsnap::cli
