// A tensor from the boxes that its ranks hold. Pure functions; the results are thread-safe if the parts are.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/tensor.hpp>
#include <bitsnap/writer.hpp>

#include "base/bytes.hpp"
#include "tensor/box.hpp"

namespace bitsnap::interop {

using ReadBytes = std::function<Result<void>(std::uint64_t offset, ByteSpan out)>;

struct PartSource {
  tensor::Box box;  // in the whole tensor
  ReadBytes read;   // bytes of the part, row-major
};

// The whole tensor, as `info` describes it. A part that is there twice, as of a tensor that several ranks hold, is
// taken once. invalid_argument unless the parts cover every element once; unsupported if elements have no size.
[[nodiscard]] Result<TensorSource> assemble(TensorInfo info, std::vector<PartSource> parts);

// Tensors whose parts come one by one, by the name of the whole, in the order of their first parts. One thread at a
// time.
class PartedTensors {
 public:
  // A part, which has the box `part.info.shard`, or is the whole. corrupt if another part of this name disagrees.
  [[nodiscard]] Result<void> add(const std::string& name, TensorSource part);
  // As assemble() of each; call it once.
  [[nodiscard]] Result<std::vector<TensorSource>> take();

 private:
  struct Whole {
    TensorInfo info;
    std::vector<PartSource> parts;
  };

  std::map<std::string, std::size_t> numbers_;
  std::vector<Whole> wholes_;
};

// The bytes of a tensor that does not lie in memory row by row: `read` reads what holds it, from its element 0 on.
// `stride` is in elements. invalid_argument if sizes overflow. A read brings the whole tensor into memory, which stays
// there until another tensor of the same `cache` is read.
class StridedCache;
[[nodiscard]] std::shared_ptr<StridedCache> make_strided_cache();
[[nodiscard]] Result<ReadBytes> row_major(std::vector<std::uint64_t> shape, std::vector<std::uint64_t> stride,
                                          std::uint64_t element_bytes, ReadBytes read,
                                          std::shared_ptr<StridedCache> cache);

}  // namespace bitsnap::interop
