// Writes a training state, tensor by tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <bitsnap/convert.hpp>
#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/writer.hpp>

#include "base/bytes.hpp"
#include "exec/executor.hpp"

namespace bitsnap::interop {

// Passes the bytes of tensors on in their order, while several threads read ahead. One thread at a time.
class TensorStream {
 public:
  using Sink = std::function<Result<void>(ConstByteSpan)>;

  // `total_bytes` is what the progress ends with.
  TensorStream(const RunOptions& options, std::uint64_t total_bytes);

  // In memory for a few pieces of 2^18 elements. cancelled if the progress says so.
  [[nodiscard]] Result<void> write(const TensorSource& tensor, const Sink& sink);

 private:
  Progress progress_;
  std::uint64_t total_bytes_;
  std::uint64_t done_bytes_ = 0;
  std::unique_ptr<exec::Executor> executor_;
  std::vector<std::vector<std::byte>> pieces_;  // of each slot
};

// Writers of one format each, to files that exist only under temporary names yet. Each returns the bytes that it wrote.
[[nodiscard]] Result<std::uint64_t> write_torch_file(const State& state, TensorStream& tensors,
                                                     const TensorStream::Sink& sink);
[[nodiscard]] Result<std::uint64_t> write_safetensors_file(const State& state, TensorStream& tensors,
                                                           const TensorStream::Sink& sink);
// To an existing folder.
[[nodiscard]] Result<std::uint64_t> write_safetensors_folder(const State& state, std::uint64_t max_file_bytes,
                                                             TensorStream& tensors, const std::string& folder);
[[nodiscard]] Result<std::uint64_t> write_dcp_folder(const State& state, TensorStream& tensors,
                                                     const std::string& folder);

}  // namespace bitsnap::interop
