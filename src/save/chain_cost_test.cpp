// How often a chain is read: reading its last state reads each payload once, and saving against a base in memory reads
// no file.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "restore/state_builder_testing.hpp"
#include "save/state_testing.hpp"

namespace bitsnap::save {
namespace {

using container::ReadLog;
using restore::MapBases;

constexpr std::size_t kSteps = 9;  // a keyframe and eight links

// A trained tensor of two chunks, a frozen one of three, and a small one that changes.
class ChainTraining {
 public:
  ChainTraining() {
    state.tensors.push_back(source("learns", DType::bf16, {400'000}, learns));
    state.tensors.push_back(source("frozen", DType::bf16, {700'000}, frozen));
    state.tensors.push_back(source("step", DType::u8, {100}, small));
    state.tensors.push_back(source("tied", DType::bf16, {400'000}, learns));
    state.tensors.back().info.alias_of = 0;
  }
  void step(unsigned number) {
    change(learns, 300, number);
    change(small, 10, number);
  }

  Bytes learns = bf16_weights(400'000, 1);
  Bytes frozen = bf16_weights(700'000, 2);
  Bytes small = random_bytes(100, 3);
  State state;
};

struct LoggedFile {
  std::shared_ptr<const Snapshot> snapshot;
  std::shared_ptr<ReadLog> log = std::make_shared<ReadLog>();
};

// Opens files one after another, each with the earlier ones as its bases, and logs their reads.
class LoggedFiles {
 public:
  const LoggedFile& add(const std::string& name, Bytes file) {
    const auto bases = std::make_shared<MapBases>();
    for (const LoggedFile& each : files_) bases->add(each.snapshot);
    LoggedFile opened;
    opened.snapshot = open_file(name, std::move(file), bases, opened.log);
    files_.push_back(std::move(opened));
    return files_.back();
  }
  [[nodiscard]] const LoggedFile& at(std::size_t number) const { return files_.at(number); }
  [[nodiscard]] std::size_t reads() const {
    std::size_t reads = 0;
    for (const LoggedFile& each : files_) reads += each.log->reads().size();
    return reads;
  }

 private:
  std::vector<LoggedFile> files_;
};

// Offsets and sizes of the payloads of a stream.
void add_payloads(const Snapshot& snapshot, std::size_t stream,
                  std::vector<std::pair<std::uint64_t, std::uint64_t>>& to) {
  for (std::uint64_t chunk = 0; chunk < snapshot.streams()[stream].chunk_count(); ++chunk) {
    const ChunkInfo info = snapshot.chunk_info(stream, chunk).value();
    if (info.stored_bytes > 0) to.emplace_back(info.offset, info.stored_bytes);
  }
}

TEST(ChainCost, ReadingTheEndOfAChainReadsEachPayloadOnce) {
  ChainTraining training;
  Chain chain;
  LoggedFiles files;
  for (std::size_t step = 0; step < kSteps; ++step) {
    if (step > 0) training.step(static_cast<unsigned>(step));
    chain.save(training.state);
    files.add(std::to_string(step), chain.file(step));
  }
  const Snapshot& last = *files.at(kSteps - 1).snapshot;
  ASSERT_EQ(last.chunk_info(0, 0)->depth, kSteps - 1);
  std::vector<Bytes> out;
  std::vector<Snapshot::ReadRequest> requests;
  for (const TensorInfo& info : last.tensors()) out.emplace_back(info.size_bytes);
  for (std::size_t i = 0; i < out.size(); ++i) requests.push_back({i, out[i]});
  ASSERT_TRUE(last.read(requests).has_value());
  EXPECT_EQ(out, (std::vector<Bytes>{training.learns, training.frozen, training.small, training.learns}));

  for (std::size_t step = 0; step < kSteps; ++step) {
    const Snapshot& snapshot = *files.at(step).snapshot;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> needed;
    add_payloads(snapshot, 0, needed);
    EXPECT_EQ(needed.size(), 2U);
    if (step == 0) add_payloads(snapshot, 1, needed);
    if (step == kSteps - 1) add_payloads(snapshot, 2, needed);
    auto read = files.at(step).log->reads();
    std::ranges::sort(needed);
    std::ranges::sort(read);
    EXPECT_EQ(read, needed) << "step " << step;
  }
}

TEST(ChainCost, SavingAgainstABaseInMemoryReadsNoFile) {
  for (const std::uint32_t max_depth : {0U, 3U, 8U}) {
    ChainTraining training;
    LoggedFiles files;
    std::shared_ptr<MemoryBase> base;
    for (std::size_t step = 0; step < kSteps; ++step) {
      if (step > 0) training.step(static_cast<unsigned>(step));
      const auto next = std::make_shared<MemoryBase>();
      std::optional<SingleBase> finder;
      if (base) finder.emplace(base);
      const auto written =
          write_state(training.state, {.settings = {.max_depth = max_depth}}, finder ? &*finder : nullptr, next.get());
      ASSERT_TRUE(written.has_value()) << written.error().message();
      EXPECT_EQ(files.reads(), 0U) << "step " << step;
      // Frozen chunks are compared. Trained chunks are read only if they are coded against the base.
      if (base) {
        EXPECT_GE(base->reads(), 3U);
        EXPECT_LE(base->reads(), max_depth == 0 ? 3U : 5U);
      }
      next->attach(files.add(std::to_string(step), written->file).snapshot);
      base = next;
    }
    EXPECT_EQ(read_tensor(*base->file(), "learns"), training.learns);
    EXPECT_EQ(read_tensor(*base->file(), "frozen"), training.frozen);
    EXPECT_EQ(read_tensor(*base->file(), "step"), training.small);
  }
}

TEST(ChainCost, ABaseInMemoryGivesTheSameBytesAsItsFile) {
  ChainTraining training;
  const auto in_memory = std::make_shared<MemoryBase>();
  const auto file = open_file("0.bsnap", write_state(training.state, {}, nullptr, in_memory.get()).value().file);
  in_memory->attach(file);
  training.step(1);
  for (const std::uint32_t max_depth : {0U, 8U}) {
    SingleBase from_file(file);
    SingleBase from_memory(in_memory);
    EXPECT_EQ(write_state(training.state, {.settings = {.max_depth = max_depth}}, &from_file).value().file,
              write_state(training.state, {.settings = {.max_depth = max_depth}}, &from_memory).value().file);
  }
}

}  // namespace
}  // namespace bitsnap::save
