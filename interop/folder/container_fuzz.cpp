// Fuzz target: any bytes as a file of any format are plain bytes, or their tensors are sorted, disjoint and in the
// file; the same file as a state is refused, or has tensors that can be read. A format needs nothing here: its row in
// the table is enough.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include "base/bytes.hpp"
#include "base/cost_testing.hpp"
#include "interop/container/contents_testing.hpp"
#include "interop/container/file_bytes_testing.hpp"
#include "interop/folder/container_kinds.hpp"

namespace {

using namespace bitsnap;
using namespace bitsnap::interop;

constexpr std::uint64_t kMostTensorBytes = std::uint64_t{1} << 24U;

void require(bool condition) {
  if (!condition) std::abort();
}

void check_state(const ContainerKind& kind, const FileBytes& bytes) {
  if (kind.read_state == nullptr) return;
  const auto state = kind.read_state(bytes, {});
  if (!state) return;
  for (const TensorSource& tensor : state->tensors) {
    if (tensor.info.size_bytes > kMostTensorBytes) continue;
    std::vector<std::byte> all(static_cast<std::size_t>(tensor.info.size_bytes));
    require(tensor.read(0, all).has_value());
    break;  // one is enough: each may be as large as the file
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const CostCheck cost(size, {std::uint64_t{96} << 20U, 1000, 2, 1e-4});
  const FileBytes bytes = bytes_in_memory(std::as_bytes(std::span(data, size)));
  for (const std::string path : {"file", "file.distcp"}) {
    const auto no_other_file = [](const std::string&) -> Result<std::optional<FileBytes>> { return std::nullopt; };
    const auto recognized = ContainerRecognizer(no_other_file, {}).recognize(path, bytes);
    require(recognized.has_value());
    require(find_misplaced(recognized->contents, size).empty());
    if (recognized->container.empty()) continue;
    const ContainerKind* const kind = find_container_kind(recognized->container);
    require(kind != nullptr);
    check_state(*kind, bytes);
  }
  return 0;
}
