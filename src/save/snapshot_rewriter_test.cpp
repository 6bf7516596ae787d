// Rewriting a snapshot with fewer bases: which chunks are copied, which are encoded, and that the content stays equal.
#include "save/snapshot_rewriter.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "container/file_reader.hpp"
#include "container/raw_file_testing.hpp"
#include "restore/state_builder_testing.hpp"
#include "save/state_testing.hpp"

namespace bitsnap::save {
namespace {

using restore::MapBases;
using restore::StateBuilder;

std::vector<SnapshotId> ids_of_references(const std::vector<Reference>& references) {
  std::vector<SnapshotId> ids;
  for (const Reference& reference : references) ids.push_back(reference.id);
  return ids;
}

void expect_same_content(const Snapshot& a, const Snapshot& b) {
  EXPECT_EQ(a.id(), b.id());
  const auto differences = compare(a, b);
  ASSERT_TRUE(differences.has_value()) << differences.error().message();
  for (const TensorDifference& difference : *differences) {
    EXPECT_EQ(difference.kind, TensorDifference::Kind::equal) << difference.name;
  }
  ASSERT_EQ(a.has_tree(), b.has_tree());
  if (a.has_tree()) {
    EXPECT_EQ(serialize_value(a.tree().value().value()).value(), serialize_value(b.tree().value().value()).value());
  }
  EXPECT_EQ(a.metadata(), b.metadata());
  EXPECT_EQ(a.safetensors_header(), b.safetensors_header());
  const auto damage = b.verify();
  ASSERT_TRUE(damage.has_value());
  for (const Damage& each : *damage) ADD_FAILURE() << each.where << ": " << each.error.message();
}

bool is_copy(const Snapshot& from, const Snapshot& to, std::size_t stream, std::uint64_t chunk) {
  const ChunkInfo a = from.chunk_info(stream, chunk).value();
  const ChunkInfo b = to.chunk_info(stream, chunk).value();
  return a.codec_id == b.codec_id && a.stored_hash == b.stored_hash && a.stored_bytes == b.stored_bytes &&
         a.decoded_hash == b.decoded_hash && a.depth == b.depth && a.uses_base == b.uses_base;
}

// Four saves of tensors that never change, change always, or change in the second step only; a part of a sharded
// tensor, an alias and a small tensor; with a tree, metadata and a safetensors header.
class Rewriting : public testing::Test {
 protected:
  void SetUp() override {
    state_.tensors.push_back(source("frozen", DType::bf16, {600'000}, frozen_));
    state_.tensors.push_back(source("learns", DType::bf16, {300'000}, learns_));
    state_.tensors.push_back(source("once", DType::bf16, {300'000}, once_));
    state_.tensors.push_back(source("box", DType::bf16, {10, 3000}, box_));
    state_.tensors.back().info.shard = ShardBox{{20, 3000}, {10, 0}};
    state_.tensors.push_back(source("tied", DType::bf16, {300'000}, learns_));
    state_.tensors.back().info.alias_of = 1;
    state_.tensors.push_back(source("small", DType::u8, {100}, small_));
    ValueList list{Value(Value::Variant(0.1)), Value(Value::Variant(std::string("\"\xC3\xA9\n")))};
    state_.tree = Value(Value::Variant(std::move(list)));
    state_.metadata = {{"format", "pt"}, {"b", "2"}};
    state_.safetensors_header = "{ }";
    for (unsigned step = 0; step < 4; ++step) {
      if (step > 0) change(learns_, 500, step);
      if (step > 0) change(box_, 500, step);
      if (step == 1) change(once_, 500, 1);
      chain_.save(state_);
    }
  }

  Bytes frozen_ = bf16_weights(600'000, 1);
  Bytes learns_ = bf16_weights(300'000, 2);
  Bytes once_ = bf16_weights(300'000, 3);
  Bytes box_ = bf16_weights(30'000, 4);
  Bytes small_ = random_bytes(100, 5);
  State state_;
  Chain chain_;
};

TEST_F(Rewriting, EncodesWhatRefersToADroppedBaseAndCopiesTheRest) {
  const Snapshot& before = *chain_.at(3);
  // "frozen" and the pool are held by 0, "once" by 1, and the others are coded against 2.
  ASSERT_EQ(ids_of(before.bases()),
            (std::vector<SnapshotId>{chain_.at(0)->id(), chain_.at(2)->id(), chain_.at(1)->id()}));
  const auto written = rewrite(before, {chain_.at(2)->id()});
  ASSERT_TRUE(written.has_value()) << written.error().message();
  const auto after = open_file("3.bsnap", written->file, chain_.bases({0, 1}));
  expect_same_content(before, *after);
  EXPECT_EQ(ids_of(after->bases()), (std::vector<SnapshotId>{chain_.at(0)->id(), chain_.at(1)->id()}));
  EXPECT_EQ(after->bases()[1].name, "1.bsnap");
  for (std::uint64_t chunk = 0; chunk < 3; ++chunk) EXPECT_TRUE(is_copy(before, *after, 0, chunk));
  EXPECT_EQ(after->chunk_info(1, 0)->depth, 0U);
  EXPECT_EQ(after->chunk_info(1, 1)->depth, 0U);
  for (std::uint64_t chunk = 0; chunk < 2; ++chunk) EXPECT_TRUE(is_copy(before, *after, 2, chunk));
  EXPECT_EQ(after->chunk_info(2, 0)->depth, 2U);
  EXPECT_EQ(after->chunk_info(3, 0)->depth, 0U);
  EXPECT_TRUE(is_copy(before, *after, 4, 0));
  EXPECT_EQ(after->tensors()[3].shard, state_.tensors[3].info.shard);
  EXPECT_EQ(after->tensors()[4].alias_of, 1U);
  EXPECT_EQ(after->reason(0), before.reason(0));
  EXPECT_NE(after->reason(1), before.reason(1));

  const WriteSummary& summary = written->summary;
  EXPECT_EQ(summary.summary.id, before.id());
  EXPECT_EQ(summary.summary.stored_bytes, written->file.size());
  EXPECT_EQ(summary.summary.chunks, 3U + 2U + 2U + 1U + 1U);
  EXPECT_EQ(summary.depth, 2U);
  ASSERT_EQ(ids_of_references(summary.references), ids_of(after->bases()));
  EXPECT_TRUE(summary.references[0].standalone);
  EXPECT_FALSE(summary.references[1].standalone);
}

TEST_F(Rewriting, NeedsNoBaseIfAllAreDropped) {
  for (std::size_t number = 0; number < 4; ++number) {
    const Snapshot& before = *chain_.at(number);
    const auto written = rewrite(before, ids_of(before.bases()));
    ASSERT_TRUE(written.has_value()) << written.error().message();
    EXPECT_TRUE(written->summary.references.empty());
    EXPECT_EQ(written->summary.depth, 0U);
    const auto after = open_file("x.bsnap", written->file);
    EXPECT_TRUE(after->bases().empty());
    expect_same_content(before, *after);
  }
}

TEST_F(Rewriting, CopiesEveryChunkIfNothingIsDropped) {
  const Snapshot& before = *chain_.at(3);
  const SnapshotId stranger{1, 2};
  const auto written = rewrite(before, {stranger}).value();
  const auto after = open_file("3.bsnap", written.file, chain_.bases({0, 1, 2}));
  expect_same_content(before, *after);
  EXPECT_EQ(ids_of(after->bases()), ids_of(before.bases()));
  for (std::size_t stream = 0; stream < before.streams().size(); ++stream) {
    for (std::uint64_t chunk = 0; chunk < before.streams()[stream].chunk_count(); ++chunk) {
      EXPECT_TRUE(is_copy(before, *after, stream, chunk));
    }
    EXPECT_EQ(after->reason(stream), before.reason(stream));
  }
  ASSERT_EQ(written.summary.references.size(), 3U);
  EXPECT_TRUE(written.summary.references[0].standalone);
  EXPECT_FALSE(written.summary.references[1].standalone);
  EXPECT_FALSE(written.summary.references[2].standalone);
}

TEST_F(Rewriting, KeepsDependentSnapshotsReadable) {
  // 2 without 1; 3 is decoded against the new 2, whose id is the same.
  const auto written = rewrite(*chain_.at(2), {chain_.at(1)->id()}).value();
  const auto bases = std::make_shared<MapBases>();
  bases->add(chain_.at(0));
  bases->add(open_file("2.bsnap", written.file, chain_.bases({0})));
  bases->add(chain_.at(1));
  const auto last = open_file("3.bsnap", chain_.file(3), bases);
  EXPECT_EQ(read_tensor(*last, "learns"), learns_);
  EXPECT_EQ(read_tensor(*last, "once"), once_);
}

TEST_F(Rewriting, RefersToEqualStandaloneChunks) {
  // A standalone snapshot that holds almost all of the last state.
  const auto keyframe = write_state(state_, {}).value();
  Bytes other = small_;
  state_.tensors.back().data = other.data();
  other[0] ^= std::byte{1};
  const auto similar = open_file("similar.bsnap", write_state(state_, {}).value().file);
  ASSERT_NE(similar->id(), chain_.at(3)->id());
  SingleBase finder(similar);
  const Snapshot& before = *chain_.at(3);
  const auto written = rewrite(before, ids_of(before.bases()), {}, &finder).value();
  EXPECT_EQ(ids_of_references(written.summary.references), std::vector<SnapshotId>{similar->id()});
  EXPECT_TRUE(written.summary.references[0].standalone);
  EXPECT_EQ(written.summary.depth, 1U);
  EXPECT_LT(written.file.size(), keyframe.file.size() / 50);
  const auto bases = std::make_shared<MapBases>();
  bases->add(similar);
  const auto after = open_file("3.bsnap", written.file, bases);
  EXPECT_EQ(after->chunk_info(1, 1)->codec, "same");
  EXPECT_EQ(after->chunk_info(4, 0)->depth, 0U);  // the pool has changed
  EXPECT_EQ(after->bases()[0].name, "similar.bsnap");
  expect_same_content(before, *after);
}

TEST_F(Rewriting, DoesNotReferToChunksInAChain) {
  // Snapshot 3 has the same chunks of "learns", but they depend on a chain.
  chain_.save(state_);
  const Snapshot& before = *chain_.at(4);
  SingleBase finder(chain_.at(3));
  const auto written = rewrite(before, {chain_.at(0)->id()}, {}, &finder).value();
  for (const Reference& reference : written.summary.references) EXPECT_NE(reference.id, chain_.at(0)->id());
  const auto after = open_file("4.bsnap", written.file, chain_.bases({1, 2, 3}));
  EXPECT_EQ(after->chunk_info(0, 0)->depth, 0U);
  EXPECT_TRUE(is_copy(before, *after, 1, 0));
  const auto all = rewrite(before, ids_of(before.bases()), {}, &finder).value();
  EXPECT_TRUE(all.summary.references.empty());
}

TEST_F(Rewriting, NeverRefersToADroppedIdOrItsOwn) {
  // A keyframe with the same id may be the file that the new one replaces.
  const auto keyframe = open_file("again.bsnap", write_state(state_, {}).value().file);
  ASSERT_EQ(keyframe->id(), chain_.at(3)->id());
  const Snapshot& before = *chain_.at(3);
  SingleBase itself(keyframe);
  const auto without_itself = rewrite(before, ids_of(before.bases()), {}, &itself).value();
  EXPECT_TRUE(without_itself.summary.references.empty());
  SingleBase first(chain_.at(0));
  const auto without_first = rewrite(before, ids_of(before.bases()), {}, &first).value();
  EXPECT_TRUE(without_first.summary.references.empty());
  // Snapshot 1 only refers to the frozen bytes, which 0 holds.
  SingleBase second(chain_.at(1));
  const auto without_second = rewrite(before, {chain_.at(0)->id()}, {}, &second).value();
  EXPECT_EQ(ids_of_references(without_second.summary.references),
            (std::vector<SnapshotId>{chain_.at(2)->id(), chain_.at(1)->id()}));
}

TEST_F(Rewriting, DropsABaseWithItsOwnId) {
  const auto first = open_file("first.bsnap", write_state(state_, {}).value().file);
  SingleBase base(first);
  const auto bases = std::make_shared<MapBases>();
  bases->add(first);
  const auto second = open_file("second.bsnap", write_state(state_, {}, &base).value().file, bases);
  ASSERT_EQ(first->id(), second->id());
  ASSERT_EQ(ids_of(second->bases()), std::vector<SnapshotId>{second->id()});
  const auto written = rewrite(*second, {second->id()}, {}, &base).value();
  EXPECT_TRUE(written.summary.references.empty());
  expect_same_content(*second, *open_file("second.bsnap", written.file));
}

TEST_F(Rewriting, IsLosslessUnderEveryPolicy) {
  const Snapshot& before = *chain_.at(3);
  for (const Policy policy : {Policy::lossless, Policy::lmc, Policy::bitsnap, Policy::raw}) {
    const auto written = rewrite(before, ids_of(before.bases()), {.settings = {.policy = policy}}).value();
    const auto after = open_file("x.bsnap", written.file);
    EXPECT_EQ(after->policy(), policy_name(policy));
    expect_same_content(before, *after);
  }
}

TEST_F(Rewriting, GivesTheSameBytesForAnyNumberOfThreads) {
  const Snapshot& before = *chain_.at(3);
  const Bytes one = rewrite(before, {chain_.at(2)->id()}, {.threads = 1}).value().file;
  EXPECT_EQ(rewrite(before, {chain_.at(2)->id()}, {.threads = 2}).value().file, one);
  EXPECT_EQ(rewrite(before, {chain_.at(2)->id()}, {.threads = 5}).value().file, one);
}

TEST_F(Rewriting, CopyingReadsEachPayloadOnceAndNoBase) {
  const auto log = std::make_shared<container::ReadLog>();
  const auto source = open_file("3.bsnap", chain_.file(3), nullptr, log);
  ASSERT_TRUE(rewrite(*source, {}).has_value());
  std::size_t payloads = 0;
  for (std::size_t stream = 0; stream < source->streams().size(); ++stream) {
    for (std::uint64_t chunk = 0; chunk < source->streams()[stream].chunk_count(); ++chunk) {
      if (source->chunk_info(stream, chunk)->stored_bytes > 0) ++payloads;
    }
  }
  EXPECT_EQ(log->reads().size(), payloads + 1);  // and the index
}

TEST_F(Rewriting, ReportsProgressAndCanBeCancelled) {
  std::uint64_t last = 0;
  const auto count = [&](std::uint64_t done, std::uint64_t total) {
    EXPECT_GT(done, last);
    last = done;
    return done <= total;
  };
  const auto written = rewrite(*chain_.at(3), {chain_.at(2)->id()}, {.progress = count}).value();
  EXPECT_EQ(last, written.summary.summary.raw_bytes);
  const auto cancel = [](std::uint64_t done, std::uint64_t total) { return done < total / 2; };
  EXPECT_EQ(rewrite(*chain_.at(3), {chain_.at(2)->id()}, {.progress = cancel}).error().kind(), ErrorKind::cancelled);
}

TEST_F(Rewriting, FindsDamageInCopiedAndInEncodedChunks) {
  for (const std::size_t stream : {1U, 4U}) {
    const std::size_t number = stream == 1 ? 3 : 0;
    Bytes file = chain_.file(number);
    const ChunkInfo info = chain_.at(number)->chunk_info(stream, 0).value();
    ASSERT_GT(info.stored_bytes, 0U);
    file[info.offset + info.stored_bytes / 2] ^= std::byte{1};
    const auto source = open_file("damaged.bsnap", std::move(file), chain_.bases({0, 1, 2}));
    const auto written = rewrite(*source, {chain_.at(2)->id()});
    ASSERT_FALSE(written.has_value());
    EXPECT_EQ(written.error().kind(), ErrorKind::corrupt);
    EXPECT_NE(written.error().message().find("damaged.bsnap"), std::string::npos) << written.error().message();
    EXPECT_NE(written.error().message().find(stream == 1 ? "tensor 'learns', chunk 0" : "pool, chunk 0"),
              std::string::npos)
        << written.error().message();
  }
}

TEST_F(Rewriting, FailsIfADroppedBaseIsMissing) {
  const auto source = open_file("3.bsnap", chain_.file(3), chain_.bases({0, 1}));
  EXPECT_EQ(rewrite(*source, {chain_.at(2)->id()}).error().kind(), ErrorKind::not_found);
  EXPECT_TRUE(rewrite(*source, {SnapshotId{1, 1}}).has_value());
}

TEST(RewritingByHand, UpdatesTheDepthOfChunksThatReferToTheirOwnFile) {
  const Bytes data = restore::random_bytes(600'000, 1);
  StateBuilder first;
  first.add("x", DType::u8, data);
  StateBuilder other;
  other.add("other", DType::u8, data);
  StateBuilder second;
  const std::uint32_t kept = second.add_base(other, "other");
  const std::uint32_t dropped = second.add_base(first, "first");
  second.add("x", DType::u8, data, {codec::CodecId::same, {{dropped, 0, 0}}, {}});
  second.add("again", DType::u8, data, {codec::CodecId::same, {{{}, 0, 0}}, {}});
  second.add("kept", DType::u8, data, {codec::CodecId::same, {{kept, 0, 0}}, {}});
  second.add("of again", DType::u8, data, {codec::CodecId::same, {{{}, 1, 0}}, {}});
  const Bytes first_file = first.build();
  const Bytes other_file = other.build();
  const auto bases = std::make_shared<MapBases>();
  bases->add(open_file("first", first_file));
  bases->add(open_file("other", other_file));
  const auto source = open_file("second", second.build(), bases);
  ASSERT_EQ(source->chunk_info(3, 0)->depth, 1U);

  const auto written = rewrite(*source, {first.id()}).value();
  const auto left = std::make_shared<MapBases>();
  left->add(open_file("other", other_file));
  const auto after = open_file("second", written.file, left);
  expect_same_content(*source, *after);
  EXPECT_EQ(ids_of(after->bases()), std::vector<SnapshotId>{other.id()});
  EXPECT_TRUE(written.summary.references[0].standalone);
  EXPECT_EQ(after->chunk_info(0, 0)->depth, 0U);
  EXPECT_EQ(after->chunk_info(1, 0)->codec, "same");
  EXPECT_EQ(after->chunk_info(1, 0)->depth, 0U);
  EXPECT_EQ(after->chunk_info(2, 0)->depth, 1U);
  EXPECT_EQ(after->chunk_info(3, 0)->depth, 0U);
}

TEST(RewritingByHand, KeepsUnknownCodecsAndTheJsonOfOtherWriters) {
  // A codec with parameters that this version does not know, and JSON in another form than this version writes.
  container::RawFile raw;
  raw.content = R"({ "metadata": {"a": "\u0062"}, "tensors": [ {"role": "other", "shape": [5000],)"
                R"( "name": "a", "dtype": "U8"}, {"name": "b", "dtype": "U8", "shape": [4], "role": "other"} ] })";
  raw.encoding = R"({"bases":[{"id":"00000000000000010000000000000002"},{"id":"00000000000000010000000000000003"}],)"
                 R"("parameters":[2,3],"streams":[{"inputs":[{"base":0,"stream":9,"element":0},)"
                 R"({"base":1,"stream":7,"element":5}],"parameters":[1]},{"reason":"why not"}]})";
  raw.parameters = container::bytes_of("ppqqq");
  container::ChunkEntry& entry = raw.add_chunk(999, container::bytes_of("payload"), container::bytes_of("decoded"));
  entry.parameters = 0;
  entry.inputs[0] = 1;
  entry.depth = 7;
  raw.add_chunk(0, container::bytes_of("four"), container::bytes_of("four"));
  const auto source = open_file("raw", raw.seal());
  const SnapshotId dropped{2, 1};
  ASSERT_EQ(ids_of(source->bases())[0], dropped);

  const auto written = rewrite(*source, {dropped});
  ASSERT_TRUE(written.has_value()) << written.error().message();
  EXPECT_EQ(written->summary.summary.id, source->id());
  EXPECT_EQ(written->summary.depth, 7U);
  ASSERT_EQ(ids_of_references(written->summary.references), (std::vector<SnapshotId>{{3, 1}}));
  EXPECT_FALSE(written->summary.references[0].standalone);
  const auto after = open_file("raw", written->file);
  EXPECT_TRUE(is_copy(*source, *after, 0, 0));
  EXPECT_EQ(after->reason(1), "why not");
  EXPECT_EQ(read_tensor(*after, "b"), container::bytes_of("four"));
  const auto parsed =
      container::FileReader::open(std::make_unique<container::MemoryFile>("raw", written->file), DecodeLimits());
  const container::Index& index = (*parsed)->index();
  EXPECT_EQ(index.encoding.streams[0].inputs, (std::vector<container::StreamInput>{{0, 7, 5}}));
  EXPECT_EQ(index.chunks[0].inputs[0], 0);
  EXPECT_EQ(index.chunks[0].parameters, 0);
  EXPECT_EQ(index.parameters[index.encoding.streams[0].parameters[0]], container::bytes_of("qqq"));
}

}  // namespace
}  // namespace bitsnap::save
