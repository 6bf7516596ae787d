// Passes the bytes of tensors on in their order, while several threads read ahead. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/writer.hpp>

#include "base/bytes.hpp"
#include "exec/executor.hpp"

namespace bitsnap::interop {

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

}  // namespace bitsnap::interop
