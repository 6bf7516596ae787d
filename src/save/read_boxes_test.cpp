// Snapshot::read_boxes() on files of several chunks, with a pool and an alias.
#include <bitsnap/snapshot.hpp>

#include <cstring>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "save/state_testing.hpp"
#include "tensor/box.hpp"

namespace bitsnap::save {
namespace {

using ::testing::HasSubstr;
using Area = ::bitsnap::tensor::Box;

// A matrix of three chunks, and small tensors in the pool, one of them at an odd byte.
struct Boxes {
  Bytes matrix = random_bytes(std::size_t{600} * 1100 * 4, 1);
  Bytes odd = random_bytes(5, 2);
  Bytes small = random_bytes(std::size_t{7} * 9 * 4, 3);
  std::shared_ptr<const Snapshot> snapshot;
  std::shared_ptr<container::ReadLog> log = std::make_shared<container::ReadLog>();

  Boxes() {
    State state;
    state.tensors.push_back(source("matrix", DType::f32, {600, 1100}, matrix));
    state.tensors.push_back(source("odd", DType::u8, {5}, odd));
    state.tensors.push_back(source("small", DType::f32, {7, 9}, small));
    state.tensors.push_back(state.tensors[0]);
    state.tensors.back().info.name = "tied";
    state.tensors.back().info.alias_of = 0;
    snapshot = open_file("boxes.bsnap", write_state(state, {}).value().file, nullptr, log);
  }
  [[nodiscard]] const Bytes& bytes_of(std::size_t tensor) const { return tensor == 2 ? small : matrix; }
};

Bytes box_of(const Bytes& tensor, std::uint64_t columns, const Area& box) {
  Bytes bytes;
  for (std::uint64_t row = box.offset[0]; row < box.offset[0] + box.extent[0]; ++row) {
    const auto begin = tensor.begin() + static_cast<std::ptrdiff_t>((row * columns + box.offset[1]) * 4);
    bytes.insert(bytes.end(), begin, begin + static_cast<std::ptrdiff_t>(box.extent[1] * 4));
  }
  return bytes;
}

Snapshot::BoxRequest request(std::size_t tensor, const Area& box, Bytes& out) {
  out.assign(box.extent[0] * box.extent[1] * 4, std::byte{0xEE});
  return {tensor, box.offset, box.extent, out.data(), {static_cast<std::int64_t>(box.extent[1] * 4), 4}};
}

TEST(ReadBoxes, ReturnsAnyBoxOfAnyTensor) {
  const Boxes boxes;
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    std::vector<Snapshot::BoxRequest> requests;
    std::vector<Area> wanted(4);
    std::vector<Bytes> out(wanted.size());
    const std::size_t tensors[] = {0, 2, 3, 0};
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const std::vector<std::uint64_t>& shape = boxes.snapshot->tensors()[tensors[i]].shape;
      for (const std::uint64_t size : shape) {
        wanted[i].offset.push_back(random() % size);
        wanted[i].extent.push_back(random() % (size - wanted[i].offset.back() + 1));
      }
      requests.push_back(request(tensors[i], wanted[i], out[i]));
    }
    const auto read = boxes.snapshot->read_boxes(requests, {.threads = 1 + static_cast<unsigned>(random() % 3)});
    ASSERT_TRUE(read) << read.error().message();
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const std::uint64_t columns = boxes.snapshot->tensors()[tensors[i]].shape[1];
      ASSERT_EQ(out[i], box_of(boxes.bytes_of(tensors[i]), columns, wanted[i]));
    }
  }
}

TEST(ReadBoxes, DecodesEachChunkOnceAndNoOthers) {
  const Boxes boxes;
  boxes.log->clear();
  // Both columns are in all three chunks; the rows are in the first one.
  std::vector<Bytes> out(3);
  const std::vector<Snapshot::BoxRequest> requests = {request(0, {{0, 5}, {600, 2}}, out[0]),
                                                      request(0, {{0, 900}, {600, 3}}, out[1]),
                                                      request(3, {{1, 0}, {2, 1100}}, out[2])};
  ASSERT_TRUE(boxes.snapshot->read_boxes(requests));
  EXPECT_EQ(boxes.log->reads().size(), 3U);
  boxes.log->clear();
  ASSERT_TRUE(boxes.snapshot->read_boxes(std::span(requests).last(1)));
  EXPECT_EQ(boxes.log->reads().size(), 1U);
}

TEST(ReadBoxes, RejectsBoxesThatDoNotFit) {
  const Boxes boxes;
  Bytes out;
  const auto error_of = [&](Snapshot::BoxRequest wrong) {
    const auto read = boxes.snapshot->read_boxes({{std::move(wrong)}});
    return read ? "none" : std::string(read.error().message());
  };
  EXPECT_THAT(error_of(request(0, {{599, 0}, {2, 1}}, out)),
              HasSubstr("tensor 'matrix': the box of extent [2, 1] at "
                        "[599, 0] does not lie in the shape [600, 1100]"));
  Snapshot::BoxRequest strides = request(0, {{0, 0}, {1, 1}}, out);
  strides.strides.pop_back();
  EXPECT_THAT(error_of(strides), HasSubstr("expected 2 strides"));
  EXPECT_THAT(error_of(request(9, {{0, 0}, {1, 1}}, out)), HasSubstr("tensor must be below 4"));
}

}  // namespace
}  // namespace bitsnap::save
