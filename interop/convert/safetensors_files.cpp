// Writes a training state as one safetensors file, or as several with an index.
#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string_view>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "interop/convert/tensor_stream.hpp"
#include "interop/safetensors/safetensors_header.hpp"
#include "interop/state/state_parts.hpp"
#include "json/json_writer.hpp"
#include "os/file_system.hpp"

namespace bitsnap::interop {
namespace {

// Types that safetensors has beside those of bitsnap.
constexpr std::array<std::string_view, 6> kOtherTypes = {"F4",      "F6_E2M3",     "F6_E3M2",
                                                         "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"};

// torch counts pairs of 4-bit elements, safetensors the elements.
bool is_pair_of_f4(const TensorInfo& info) { return info.dtype_name == "F4_E2M1_X2" && !info.shape.empty(); }

TensorInfo as_in_safetensors(TensorInfo info) {
  if (is_pair_of_f4(info)) {
    info.dtype_name = "F4";
    info.shape.back() *= 2;
  }
  return info;
}

// A tensor begins at a multiple of its element's size if larger elements come first, as safetensors' own writer does.
// Empty tensors lie where others begin, and a reader takes them first.
std::vector<std::size_t> aligned_order(const State& state) {
  std::vector<std::size_t> order(state.tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, std::less(), [&](std::size_t i) {
    const TensorInfo& info = state.tensors[i].info;
    return std::tuple(info.size_bytes != 0, -static_cast<std::int64_t>(element_size(info.dtype)), i);
  });
  return order;
}

Result<void> check_types(const State& state) {
  for (const TensorSource& tensor : state.tensors) {
    const TensorInfo& info = tensor.info;
    if (info.dtype != DType::opaque || std::ranges::find(kOtherTypes, info.dtype_name) != kOtherTypes.end()) continue;
    if (is_pair_of_f4(info)) continue;
    return fail(ErrorKind::unsupported,
                fmt::format("tensor {}: safetensors has no dtype {}", quote_name(info.name), info.dtype_name));
  }
  return {};
}

Result<std::uint64_t> write_file(const State& state, std::span<const std::size_t> order, const std::string& header,
                                 TensorStream& tensors, const TensorStream::Sink& sink) {
  BITSNAP_ASSIGN(std::uint64_t bytes, write_safetensors_header(header, sink));
  for (const std::size_t tensor : order) {
    BITSNAP_TRY(tensors.write(state.tensors[tensor], sink));
    bytes += state.tensors[tensor].info.size_bytes;
  }
  return bytes;
}

SafetensorsHeader header_of(const State& state, std::span<const std::size_t> order) {
  SafetensorsHeader header;
  header.metadata = state.metadata;
  for (const std::size_t tensor : order) header.tensors.push_back(as_in_safetensors(state.tensors[tensor].info));
  return header;
}

// The tensors of each file, in the order of the state.
std::vector<std::vector<std::size_t>> divide(const State& state, std::uint64_t max_file_bytes) {
  std::vector<std::vector<std::size_t>> files(1);
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < state.tensors.size(); ++i) {
    const std::uint64_t size = state.tensors[i].info.size_bytes;
    if (!files.back().empty() && size > max_file_bytes - std::min(max_file_bytes, bytes)) {
      files.emplace_back();
      bytes = 0;
    }
    files.back().push_back(i);
    bytes += size;
  }
  return files;
}

Result<std::uint64_t> write_whole_file(const std::string& path,
                                       const std::function<Result<std::uint64_t>(const TensorStream::Sink&)>& write) {
  BITSNAP_ASSIGN(const auto file, os::real_file_system().create(path));
  BITSNAP_ASSIGN(const std::uint64_t bytes, write([&file](ConstByteSpan piece) { return file->append(piece); }));
  BITSNAP_TRY(file->close());
  return bytes;
}

}  // namespace

Result<std::uint64_t> write_safetensors_file(const State& state, TensorStream& tensors,
                                             const TensorStream::Sink& sink) {
  if (state.safetensors_header) {
    std::vector<std::size_t> order(state.tensors.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    return write_file(state, order, *state.safetensors_header, tensors, sink);
  }
  BITSNAP_TRY(check_types(state));
  const std::vector<std::size_t> order = aligned_order(state);
  SafetensorsHeader header = header_of(state, order);
  std::optional<Value> tree = state.tree;
  if (tree) {
    std::vector<std::size_t> places(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) places[order[i]] = i;
    renumber_tensors(*tree, [&places](std::size_t index) { return places[index]; });
  }
  BITSNAP_TRY(put_tree(header, tree));
  BITSNAP_ASSIGN(const std::string text, make_safetensors_header(header));
  return write_file(state, order, text, tensors, sink);
}

Result<std::uint64_t> write_safetensors_folder(const State& state, std::uint64_t max_file_bytes, TensorStream& tensors,
                                               const std::string& folder) {
  BITSNAP_TRY(check_types(state));
  if (state.tree && has_other_values(*state.tree)) {
    return fail(ErrorKind::unsupported, "several safetensors files cannot hold values besides tensors; one file can");
  }
  const std::vector<std::vector<std::size_t>> files = divide(state, max_file_bytes);
  json::JsonWriter index;
  std::uint64_t total = 0;
  for (const TensorSource& tensor : state.tensors) total += tensor.info.size_bytes;
  index.begin_object();
  index.key("metadata");
  index.begin_object();
  index.key("total_size");
  index.number(total);
  index.end_object();
  index.key("weight_map");
  index.begin_object();
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
    State part;
    for (const std::size_t tensor : files[i]) {
      part.tensors.push_back(state.tensors[tensor]);
      index.key(state.tensors[tensor].info.name);
      index.string(name);
    }
    part.metadata = state.metadata;
    BITSNAP_ASSIGN(const std::uint64_t written,
                   write_whole_file(folder + "/" + name, [&](const TensorStream::Sink& sink) {
                     return write_safetensors_file(part, tensors, sink);
                   }));
    bytes += written;
  }
  index.end_object();
  index.end_object();
  BITSNAP_ASSIGN(const std::uint64_t written,
                 write_whole_file(folder + "/model.safetensors.index.json",
                                  [&](const TensorStream::Sink& sink) -> Result<std::uint64_t> {
                                    BITSNAP_TRY(sink(as_byte_span(index.text())));
                                    return index.text().size();
                                  }));
  return bytes + written;
}

}  // namespace bitsnap::interop
