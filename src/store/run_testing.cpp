// TestState: states computed from step and seed.
#include "store/run_testing.hpp"

#include <cstring>
#include <utility>

#include "codec/trained_like_testing.hpp"

namespace bitsnap::store {
namespace {

constexpr std::size_t kElements = 256;

// Weights after `step` steps: each step changes some elements by a little.
std::vector<std::byte> trained(std::size_t elements, std::uint64_t step, std::uint64_t seed) {
  std::vector<std::byte> bytes(elements * 2);
  codec::fill_trained_like(DType::bf16, bytes, seed);
  for (std::size_t i = 0; i < elements; ++i) {
    std::uint16_t value = 0;
    std::memcpy(&value, bytes.data() + 2 * i, 2);
    value = static_cast<std::uint16_t>(value + (step * (i % 7 + 1)) / 5);
    std::memcpy(bytes.data() + 2 * i, &value, 2);
  }
  return bytes;
}

}  // namespace

TestState::TestState(std::uint64_t step, std::uint64_t seed, std::size_t size) {
  // Large enough that no tensor but the smallest goes into the pool: the tests need chunks of their own.
  const std::size_t elements = kElements * size;
  add("frozen", DType::bf16, trained(9 * elements, 0, seed + 1));
  add("weight", DType::bf16, trained(9 * elements, step, seed + 2));
  add("other", DType::bf16, trained(9 * elements, step / 3, seed + 3));
  add("expert", DType::bf16, trained(9 * elements, step / 16, seed + 4));
  add("zeros", DType::f32, std::vector<std::byte>(5 * 4 * elements));
  std::vector<std::byte> small(8);
  std::memcpy(small.data(), &step, 8);
  add("step", DType::i64, std::move(small));
}

void TestState::add(const std::string& name, DType dtype, std::vector<std::byte> bytes) {
  Tensor& tensor = tensors_.emplace_back();
  tensor.info.name = name;
  tensor.info.dtype = dtype;
  tensor.info.dtype_name = dtype_name(dtype);
  tensor.info.shape = {bytes.size() / element_size(dtype)};
  tensor.info.size_bytes = bytes.size();
  tensor.bytes = std::move(bytes);
}

void TestState::add_rows(const std::string& name, DType dtype, std::vector<std::byte> bytes, std::uint64_t columns,
                         std::uint64_t first_row, std::uint64_t all_rows) {
  add(name, dtype, std::move(bytes));
  TensorInfo& info = tensors_.back().info;
  info.shape = {info.shape[0] / columns, columns};
  info.shard = ShardBox{{all_rows, columns}, {first_row, 0}};
}

State TestState::state() const {
  State state;
  for (const Tensor& tensor : tensors_) {
    TensorSource& source = state.tensors.emplace_back();
    source.info = tensor.info;
    source.data = tensor.bytes.data();
  }
  return state;
}

std::string difference(const Snapshot& snapshot, const TestState& expected, const std::set<std::string>& damaged) {
  if (snapshot.tensors().size() != expected.tensors().size()) return "another number of tensors";
  for (std::size_t i = 0; i < expected.tensors().size(); ++i) {
    const TestState::Tensor& tensor = expected.tensors()[i];
    if (snapshot.tensors()[i].name != tensor.info.name) return "another tensor: " + snapshot.tensors()[i].name;
    std::vector<std::byte> found(tensor.bytes.size());
    const Result<void> read = snapshot.read_bytes(i, 0, found);
    if (damaged.contains(tensor.info.name)) {
      if (read) return tensor.info.name + " can be read";
      continue;
    }
    if (!read) return read.error().message();
    if (found != tensor.bytes) return "other bytes in " + tensor.info.name;
  }
  return "";
}

std::string check_step(const Store& store, std::uint64_t step, const TestState& expected) {
  const auto snapshot = store.snapshot(step);
  return snapshot ? difference(**snapshot, expected) : snapshot.error().message();
}

}  // namespace bitsnap::store
