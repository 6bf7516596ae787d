#include "interop/convert/tensor_stream.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "base/try.hpp"

namespace bitsnap::interop {

TensorStream::TensorStream(const RunOptions& options, std::uint64_t total_bytes)
    : progress_(options.progress),
      total_bytes_(total_bytes),
      executor_(exec::make_executor(options.threads)),
      pieces_(executor_->default_slots()) {}

Result<void> TensorStream::write(const TensorSource& tensor, const Sink& sink) {
  const std::uint64_t size = tensor.info.size_bytes;
  if (tensor.data != nullptr) return sink({tensor.data, static_cast<std::size_t>(size)});
  const std::uint64_t piece_bytes = kChunkElements * element_size(tensor.info.dtype);
  const auto pieces = static_cast<std::size_t>(divide_up(size, piece_bytes));
  const auto read = [&](std::size_t item, std::size_t slot) {
    const std::uint64_t offset = item * piece_bytes;
    pieces_[slot].resize(static_cast<std::size_t>(std::min(piece_bytes, size - offset)));
    return tensor.read(offset, pieces_[slot]);
  };
  const auto pass_on = [&](std::size_t, std::size_t slot) -> Result<void> {
    BITSNAP_TRY(sink(pieces_[slot]));
    done_bytes_ += pieces_[slot].size();
    if (progress_ && !progress_(done_bytes_, total_bytes_))
      return fail(ErrorKind::cancelled, "cancelled by the caller");
    return {};
  };
  return executor_->run_ordered(pieces, pieces_.size(), read, pass_on);
}

}  // namespace bitsnap::interop
