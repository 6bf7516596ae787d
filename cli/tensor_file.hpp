// A snapshot or a safetensors file as named tensors whose bytes can be read, whichever it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/tensor.hpp>

namespace bitsnap::cli {

class TensorFile {
 public:
  [[nodiscard]] static Result<TensorFile> open(const std::string& path, const OpenOptions& options);
  [[nodiscard]] static TensorFile of(std::shared_ptr<const Snapshot> snapshot);

  [[nodiscard]] const std::vector<TensorInfo>& tensors() const noexcept { return tensors_; }
  [[nodiscard]] Result<void> read(std::size_t tensor, std::uint64_t offset, std::span<std::byte> out) const {
    return read_(tensor, offset, out);
  }
  // nullptr: a safetensors file.
  [[nodiscard]] const Snapshot* snapshot() const noexcept { return snapshot_.get(); }

 private:
  std::vector<TensorInfo> tensors_;
  std::function<Result<void>(std::size_t, std::uint64_t, std::span<std::byte>)> read_;
  std::shared_ptr<const Snapshot> snapshot_;
};

}  // namespace bitsnap::cli
