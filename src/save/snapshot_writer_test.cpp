// write_snapshot(): shared choices, references, taps, bases among shards, and max_depth 0.
#include "save/snapshot_writer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.hpp"
#include "base/try.hpp"
#include "codec/trained_like_testing.hpp"
#include "restore/state_builder_testing.hpp"
#include "save/state_testing.hpp"

namespace bitsnap::save {
namespace {

using restore::MapBases;

// A base whose bytes cannot be read.
class UnreadableBase final : public DelegatingBase {
 public:
  using DelegatingBase::DelegatingBase;
  Result<void> read_elements(std::size_t, std::uint64_t first, std::span<std::byte>, ReadContext&) const override {
    const std::lock_guard lock(mutex_);
    refused_.push_back(first);
    return fail(ErrorKind::io, "the base is unreadable");
  }
  // The first elements of all refused reads.
  [[nodiscard]] std::vector<std::uint64_t> refused() const { return refused_; }

 private:
  mutable std::mutex mutex_;
  mutable std::vector<std::uint64_t> refused_;
};

// First moments of layers, two chunks each.
struct Layers {
  explicit Layers(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      bytes.emplace_back((kChunkElements + kChunkElements / 2) * sizeof(float));
      codec::fill_trained_like(DType::f32, bytes.back(), static_cast<unsigned>(i + 1));
    }
  }
  [[nodiscard]] State state() const {
    State state;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const std::string name = "layers." + std::to_string(i) + ".w.exp_avg";
      state.tensors.push_back(source(name, DType::f32, {bytes[i].size() / sizeof(float)}, bytes[i]));
    }
    return state;
  }
  std::vector<Bytes> bytes;
};

TEST(SnapshotWriter, SimilarLayersFollowTheChoiceOfTheFirst) {
  const Layers layers(20);
  const SaveOptions options{.settings = {.objective = Objective::ratio}};
  const WrittenFile written = write_state(layers.state(), options).value();
  const auto snapshot = open_file("x", written.file);
  EXPECT_TRUE(snapshot->reason(0).starts_with("factored_split 2/2; ratio: factored_split ")) << snapshot->reason(0);
  EXPECT_EQ(snapshot->reason(3), "factored_split 2/2, as tensor 'layers.0.w.exp_avg'");
  EXPECT_TRUE(snapshot->reason(16).starts_with("factored_split 2/2; ratio: ")) << "a group has at most 32 chunks";
  for (const unsigned threads : {1U, 4U}) {
    EXPECT_EQ(
        write_state(layers.state(), {.settings = {.objective = Objective::ratio}, .threads = threads}).value().file,
        written.file);
  }
}

TEST(SnapshotWriter, ADifferentLayerChoosesForItself) {
  Layers layers(6);
  std::ranges::fill(layers.bytes[0], std::byte{0});           // constant: makes no choice
  for (std::size_t i = 0; i < layers.bytes[3].size(); ++i) {  // keeps only half of the mantissa bits
    if (i % 4 < 2) layers.bytes[3][i] = std::byte{0};
  }
  for (std::size_t i = 3; i < layers.bytes[4].size(); i += 4) layers.bytes[4][i] &= std::byte{0xbf};  // other exponents
  const auto snapshot =
      open_file("x", write_state(layers.state(), {.settings = {.objective = Objective::ratio}}).value().file);
  EXPECT_EQ(snapshot->reason(0), "constant 2/2");
  EXPECT_TRUE(snapshot->reason(1).starts_with("factored_split 2/2; ratio: ")) << snapshot->reason(1);
  EXPECT_EQ(snapshot->reason(2), "factored_split 2/2, as tensor 'layers.1.w.exp_avg'");
  EXPECT_TRUE(snapshot->reason(3).find("; ratio: ") != std::string::npos) << snapshot->reason(3);
  EXPECT_EQ(snapshot->reason(5), "factored_split 2/2, as tensor 'layers.1.w.exp_avg'");
  for (std::size_t i = 0; i < layers.bytes.size(); ++i) {
    EXPECT_EQ(read_tensor(*snapshot, "layers." + std::to_string(i) + ".w.exp_avg"), layers.bytes[i]);
  }
}

TEST(SnapshotWriter, AKeyframeHasNoReferences) {
  const Bytes weights = bf16_weights(300'000, 1);
  State state;
  state.tensors.push_back(source("w", DType::bf16, {300'000}, weights));
  const auto written = write_state(state, {}).value();
  EXPECT_EQ(written.summary.depth, 0U);
  EXPECT_TRUE(written.summary.references.empty());
  EXPECT_EQ(written.summary.summary.stored_bytes, written.file.size());
  const auto snapshot = open_file("a.bsnap", written.file);
  EXPECT_EQ(written.summary.summary.id, snapshot->id());
  EXPECT_EQ(read_tensor(*snapshot, "w"), weights);
}

TEST(SnapshotWriter, IgnoresTheBaseInTheOptions) {
  const Bytes weights = bf16_weights(300'000, 1);
  State state;
  state.tensors.push_back(source("w", DType::bf16, {300'000}, weights));
  const auto base = open_file("a.bsnap", write_state(state, {}).value().file);
  EXPECT_TRUE(write_state(state, {.base = base}).value().summary.references.empty());
}

TEST(SnapshotWriter, ReferencesSayWhetherTheyAreStandalone) {
  Bytes frozen = bf16_weights(300'000, 2);
  Bytes weights = bf16_weights(300'000, 3);
  State state;
  state.tensors.push_back(source("frozen", DType::bf16, {300'000}, frozen));
  state.tensors.push_back(source("w", DType::bf16, {300'000}, weights));
  Chain chain;
  chain.save(state);
  change(weights, 100, 1);
  chain.save(state);
  ASSERT_EQ(chain.last_summary().references.size(), 1U);
  EXPECT_EQ(chain.last_summary().references[0].id, chain.at(0)->id());
  EXPECT_TRUE(chain.last_summary().references[0].standalone);
  EXPECT_EQ(chain.last_summary().depth, 1U);
  change(weights, 100, 2);
  const Snapshot& third = chain.save(state);
  ASSERT_EQ(chain.last_summary().references.size(), 2U);
  EXPECT_EQ(chain.last_summary().references[0].id, chain.at(0)->id());  // frozen
  EXPECT_TRUE(chain.last_summary().references[0].standalone);
  EXPECT_EQ(chain.last_summary().references[1].id, chain.at(1)->id());
  EXPECT_FALSE(chain.last_summary().references[1].standalone);
  EXPECT_EQ(chain.last_summary().depth, 2U);
  ASSERT_EQ(third.bases().size(), 2U);
  EXPECT_EQ(third.bases()[0].id, chain.last_summary().references[0].id);
  EXPECT_EQ(third.bases()[0].name, "0.bsnap");
  EXPECT_EQ(read_tensor(third, "w"), weights);
}

TEST(SnapshotWriter, ATapGetsTheStoredBytesOfEveryChunkOnce) {
  const Bytes weights = bf16_weights(700'000, 4);
  const Bytes small = random_bytes(40, 5);
  State state;
  state.tensors.push_back(source("w", DType::bf16, {700'000}, weights));
  state.tensors.push_back(source("small", DType::u8, {40}, small));
  state.tensors.push_back(source("tied", DType::bf16, {700'000}, weights));
  state.tensors.back().info.alias_of = 0;
  MemoryBase tap;
  const auto written = write_state(state, {}, nullptr, &tap).value();
  EXPECT_EQ(tap.chunks_taken(), 4U);
  EXPECT_EQ(tap.stream_bytes(0), weights);
  EXPECT_EQ(tap.stream_bytes(1), small);
}

TEST(SnapshotWriter, ATapGetsTheStoredBytesEvenIfTheSourceChanges) {
  State state;
  TensorSource noise;
  noise.info = source("w", DType::u8, {1'000'000}, Bytes(1'000'000)).info;
  noise.read = [](std::uint64_t offset, std::span<std::byte> out) -> Result<void> {
    static std::atomic<unsigned> seed = 0;
    const Bytes bytes = random_bytes(out.size(), static_cast<unsigned>(offset) + ++seed);
    std::ranges::copy(bytes, out.begin());
    return {};
  };
  state.tensors.push_back(noise);
  MemoryBase tap;
  const auto written = write_state(state, {}, nullptr, &tap).value();
  EXPECT_EQ(read_tensor(*open_file("a.bsnap", written.file), "w"), tap.stream_bytes(0));
}

TEST(SnapshotWriter, AnErrorOfATapEndsTheSave) {
  class Refusing final : public StateTap {
   public:
    Result<void> begin(std::span<const StreamInfo>) override { return fail(ErrorKind::resource_exhausted, "too much"); }
    void take(std::size_t, std::uint64_t, ConstByteSpan) noexcept override { ADD_FAILURE() << "begin() failed"; }
  };
  const Bytes weights = bf16_weights(3000, 6);
  State state;
  state.tensors.push_back(source("w", DType::bf16, {3000}, weights));
  Refusing tap;
  const auto written = write_state(state, {}, nullptr, &tap);
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().kind(), ErrorKind::resource_exhausted);
}

// Two tensors of two rows each; ranks hold some of the four rows.
struct Rows {
  explicit Rows(unsigned seed) {
    for (unsigned i = 0; i < 4; ++i) rows.push_back(bf16_weights(20'000, seed + i));
  }
  [[nodiscard]] State state(std::vector<std::uint64_t> which) const {
    State state;
    for (const std::uint64_t row : which) {
      state.tensors.push_back(source("w" + std::to_string(row / 2), DType::bf16, {1, 20'000}, rows[row]));
      state.tensors.back().info.shard = ShardBox{{2, 20'000}, {row % 2, 0}};
    }
    return state;
  }
  std::vector<Bytes> rows;
};

TEST(SnapshotWriter, CodesMovedTensorsAgainstTheirOldShard) {
  Rows rows(10);
  const auto bases = std::make_shared<MapBases>();
  std::vector<std::shared_ptr<const Snapshot>> shards;
  for (const auto& which : {std::vector<std::uint64_t>{0, 2}, std::vector<std::uint64_t>{1, 3}}) {
    const std::string name = "shard-" + std::to_string(shards.size());
    shards.push_back(open_file(name, write_state(rows.state(which), {}).value().file));
    bases->add(shards.back());
  }
  for (Bytes& row : rows.rows) change(row, 200, 1);
  ShardedBases finder(
      2, {0, 2},
      [&](std::uint32_t shard, ShardedBases::Opening) -> Result<std::shared_ptr<const Base>> { return shards[shard]; });
  const auto written = write_state(rows.state({0, 3}), {}, &finder).value();
  ASSERT_EQ(written.summary.references.size(), 2U);
  EXPECT_EQ(written.summary.references[0].id, shards[0]->id());
  EXPECT_EQ(written.summary.references[1].id, shards[1]->id());
  const auto snapshot = open_file("next", written.file, bases);
  EXPECT_TRUE(snapshot->chunk_info(0, 0).value().uses_base);
  EXPECT_TRUE(snapshot->chunk_info(1, 0).value().uses_base);
  EXPECT_EQ(read_tensor(*snapshot, "w0"), rows.rows[0]);
  EXPECT_EQ(read_tensor(*snapshot, "w1"), rows.rows[3]);
}

TEST(SnapshotWriter, ShardsWithTheSameIdCountAsOneBase) {
  Bytes first = bf16_weights(20'000, 20);
  Bytes second = bf16_weights(20'000, 21);
  State state;
  state.tensors.push_back(source("a", DType::bf16, {20'000}, first));
  state.tensors.push_back(source("b", DType::bf16, {20'000}, second));
  const auto one = open_file("shard-0", write_state(state, {}).value().file);
  const auto other = open_file("shard-1", write_state(state, {}).value().file);
  ASSERT_EQ(one->id(), other->id());
  change(second, 200, 1);
  class Split final : public BaseFinder {
   public:
    Split(std::shared_ptr<const Base> a, std::shared_ptr<const Base> b) : a_(std::move(a)), b_(std::move(b)) {}
    Result<std::optional<BaseStream>> find(const TensorInfo& tensor, const StreamInfo& stream) override {
      return tensor.name == "a" ? a_.find(tensor, stream) : b_.find(tensor, stream);
    }
    Result<std::optional<BaseStream>> find_pool(const StreamInfo&) override { return std::nullopt; }

   private:
    SingleBase a_;
    SingleBase b_;
  };
  Split finder(one, other);
  const auto written = write_state(state, {}, &finder).value();
  EXPECT_EQ(written.summary.references.size(), 1U);
  const auto bases = std::make_shared<MapBases>();
  bases->add(one);
  const auto snapshot = open_file("next", written.file, bases);
  EXPECT_EQ(read_tensor(*snapshot, "a"), first);
  EXPECT_EQ(read_tensor(*snapshot, "b"), second);
}

TEST(SnapshotWriter, AnErrorOfABaseFinderEndsTheSave) {
  Rows rows(30);
  ShardedBases finder(1, {0, 1}, [](std::uint32_t, ShardedBases::Opening) -> Result<std::shared_ptr<const Base>> {
    return fail(ErrorKind::io, "the disk is gone");
  });
  const auto written = write_state(rows.state({0}), {}, &finder);
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().kind(), ErrorKind::io);
}

SaveOptions at_depth_zero(Policy policy = Policy::lossless) { return {.settings = {.policy = policy, .max_depth = 0}}; }

TEST(SnapshotWriter, OpensNoBaseThatCannotHelp) {
  Rows rows(35);
  std::atomic<int> opened = 0;
  ShardedBases finder(2, {0, 2}, [&](std::uint32_t, ShardedBases::Opening) -> Result<std::shared_ptr<const Base>> {
    ++opened;
    return std::shared_ptr<const Base>();
  });
  for (const Policy policy : {Policy::raw, Policy::lmc, Policy::bitsnap}) {
    EXPECT_TRUE(write_state(rows.state({0}), at_depth_zero(policy), &finder).has_value());
  }
  EXPECT_EQ(opened, 0);
  EXPECT_TRUE(write_state(rows.state({0}), at_depth_zero(), &finder).has_value());
  EXPECT_EQ(opened, 2);
}

TEST(SnapshotWriter, AtDepthZeroRefersToUnchangedChunksOnly) {
  const Bytes frozen = bf16_weights(600'000, 40);
  Bytes weights = bf16_weights(300'000, 41);
  State state;
  state.tensors.push_back(source("frozen", DType::bf16, {600'000}, frozen));
  state.tensors.push_back(source("w", DType::bf16, {300'000}, weights));
  Chain chain;
  chain.save(state);
  for (int step = 0; step < 3; ++step) {
    change(weights, 1000, 1);
    const Snapshot& next = chain.save(state, at_depth_zero());
    ASSERT_EQ(chain.last_summary().references.size(), 1U);
    EXPECT_EQ(chain.last_summary().references[0].id, chain.at(0)->id());
    EXPECT_TRUE(chain.last_summary().references[0].standalone);
    EXPECT_EQ(next.chunk_info(0, 1).value().codec, "same");
    EXPECT_EQ(next.chunk_info(1, 0).value().depth, 0U);
    EXPECT_EQ(read_tensor(next, "frozen"), frozen);
    EXPECT_EQ(read_tensor(next, "w"), weights);
  }
}

TEST(SnapshotWriter, AtDepthZeroNoPolicyCodesAgainstTheBase) {
  Bytes weights = bf16_weights(300'000, 42);
  State state;
  state.tensors.push_back(source("w", DType::bf16, {300'000}, weights));
  for (const Policy policy : {Policy::lossless, Policy::lmc, Policy::bitsnap, Policy::raw}) {
    Chain chain;
    chain.save(state, {.settings = {.policy = policy}});
    change(weights, 1000, 1);
    chain.save(state, at_depth_zero(policy));
    EXPECT_TRUE(chain.last_summary().references.empty()) << policy_name(policy);
    EXPECT_EQ(chain.last_summary().depth, 0U);
    EXPECT_EQ(read_tensor(*chain.last(), "w"), weights);
  }
}

TEST(SnapshotWriter, AtDepthZeroStoresChunksAgainThatAChainHolds) {
  Bytes weights = bf16_weights(300'000, 43);
  State state;
  state.tensors.push_back(source("w", DType::bf16, {300'000}, weights));
  Chain chain;
  chain.save(state);
  change(weights, 1000, 1);
  chain.save(state);
  ASSERT_EQ(chain.last_summary().depth, 1U);
  chain.save(state);  // unchanged: refers to a chunk of depth 1
  ASSERT_EQ(chain.last_summary().depth, 2U);
  SingleBase base(std::make_shared<UnreadableBase>(chain.last()));
  const auto written = write_state(state, at_depth_zero(), &base);
  ASSERT_TRUE(written.has_value()) << written.error().message();
  EXPECT_TRUE(written->summary.references.empty());
  EXPECT_EQ(read_tensor(*open_file("x", written->file), "w"), weights);
}

TEST(SnapshotWriter, DecodesTheBaseOnlyIfItMayBeEqualOrCodedAgainst) {
  Bytes weights = bf16_weights(600'000, 44);
  State state;
  state.tensors.push_back(source("w", DType::bf16, {600'000}, weights));
  Chain chain;
  chain.save(state);
  weights[0] ^= std::byte{1};
  const auto unreadable = std::make_shared<UnreadableBase>(chain.at(0));
  SingleBase base(unreadable);
  // Two of three chunks are unchanged; only these are decoded and compared.
  EXPECT_EQ(write_state(state, at_depth_zero(), &base).error().kind(), ErrorKind::io);
  for (const std::uint64_t first : unreadable->refused()) EXPECT_GE(first, kChunkElements);
  change(weights, 2 * kChunkElements, 2);
  EXPECT_TRUE(write_state(state, at_depth_zero(), &base).has_value());
  EXPECT_EQ(write_state(state, {}, &base).error().kind(), ErrorKind::io);
}

TEST(SnapshotWriter, ComparesBytesEvenIfHashesAreEqual) {
  const Bytes before(600'000, std::byte{1});
  Bytes now = random_bytes(600'000, 45);
  State state;
  state.tensors.push_back(source("w", DType::u8, {600'000}, before));
  Chain chain;
  chain.save(state);
  state.tensors[0].data = now.data();
  class Colliding final : public DelegatingBase {
   public:
    Colliding(std::shared_ptr<const Snapshot> file, const Bytes& now) : DelegatingBase(std::move(file)), now_(now) {}
    Result<ChunkHolder> holder(std::size_t stream, std::uint64_t chunk) const override {
      BITSNAP_ASSIGN(ChunkHolder holder, DelegatingBase::holder(stream, chunk));
      const std::size_t first = chunk * kChunkElements;
      holder.decoded_hash = hash64(ConstByteSpan(now_).subspan(first, std::min(kChunkElements, now_.size() - first)));
      return holder;
    }

   private:
    const Bytes& now_;
  };
  SingleBase base(std::make_shared<Colliding>(chain.at(0), now));
  const auto written = write_state(state, at_depth_zero(), &base).value();
  EXPECT_TRUE(written.summary.references.empty());
  EXPECT_EQ(read_tensor(*open_file("x", written.file), "w"), now);
}

// A saved tensor, and its file as a base in which a different snapshot holds each chunk, as if each had changed in a
// different step.
struct Scattered {
  static constexpr std::uint64_t kChunks = 260;

  class ScatteredBase final : public DelegatingBase {
   public:
    using DelegatingBase::DelegatingBase;
    Result<ChunkHolder> holder(std::size_t stream, std::uint64_t chunk) const override {
      class Renamed final : public DelegatingBase {
       public:
        Renamed(const std::shared_ptr<const Snapshot>& file, std::uint64_t number)
            : DelegatingBase(file), id_{number, 7} {}
        [[nodiscard]] SnapshotId id() const noexcept override { return id_; }

       private:
        SnapshotId id_;
      };
      BITSNAP_ASSIGN(ChunkHolder holder, DelegatingBase::holder(stream, chunk));
      holder.base = std::make_shared<Renamed>(file(), chunk);
      holder.own_depth = 1;
      return holder;
    }
  };

  Scattered() {
    for (std::uint64_t chunk = 0; chunk < kChunks; ++chunk) data[chunk * kChunkElements] = std::byte{1};
    state.tensors.push_back(source("w", DType::u8, {data.size()}, data));
    chain.save(state);
  }

  Bytes data = Bytes(kChunks * kChunkElements, std::byte{42});
  State state;
  Chain chain;
};

TEST(SnapshotWriter, FallsBackToTheBaseIfAStreamHasTooManyHolders) {
  Scattered scattered;
  SingleBase base(std::make_shared<Scattered::ScatteredBase>(scattered.chain.at(0)));
  const auto written = write_state(scattered.state, {}, &base).value();
  const auto snapshot = open_file("x", written.file);
  EXPECT_EQ(snapshot->bases().size(), 255U) << "254 holders and the base itself";
  EXPECT_EQ(snapshot->chunk_info(0, 0).value().depth, 1U);
  EXPECT_EQ(snapshot->chunk_info(0, Scattered::kChunks - 1).value().depth, 2U);
}

TEST(SnapshotWriter, AtDepthZeroStoresAChunkAgainIfItsHolderDoesNotFit) {
  Scattered scattered;
  SingleBase base(std::make_shared<Scattered::ScatteredBase>(scattered.chain.at(0)));
  const auto written = write_state(scattered.state, at_depth_zero(), &base).value();
  EXPECT_EQ(written.summary.depth, 1U);
  EXPECT_EQ(written.summary.references.size(), 254U);
  EXPECT_TRUE(std::ranges::all_of(written.summary.references, &Reference::standalone));
  const auto snapshot = open_file("x", written.file);
  EXPECT_EQ(snapshot->chunk_info(0, 253).value().codec, "same");
  EXPECT_EQ(snapshot->chunk_info(0, 254).value().depth, 0U);
  Bytes last(kChunkElements);
  ASSERT_TRUE(snapshot->read_bytes(0, (Scattered::kChunks - 1) * kChunkElements, last).has_value());
  EXPECT_TRUE(std::ranges::equal(last, ConstByteSpan(scattered.data).last(kChunkElements)));
}

}  // namespace
}  // namespace bitsnap::save
