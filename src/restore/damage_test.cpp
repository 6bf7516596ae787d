// Damaged files, and hostile files with correct hashes: they never give wrong data or unbounded work, but an error that
// names file, tensor and chunk.
#include <deque>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/hash.hpp"
#include "os/file_system_fake.hpp"
#include "restore/open_snapshot.hpp"
#include "restore/state_builder_testing.hpp"

namespace bitsnap::restore {
namespace {

using codec::CodecId;
using container::ChunkEntry;
using container::MemoryFile;
using container::RawFile;
using ::testing::HasSubstr;

Result<std::shared_ptr<const Snapshot>> try_to_open(Bytes bytes, const OpenOptions& options = {},
                                                    const std::string& path = "x.bsnap") {
  return open_snapshot(std::make_unique<MemoryFile>(path, std::move(bytes)), options, no_files());
}

std::shared_ptr<const Snapshot> must_open(Bytes bytes, const OpenOptions& options = {},
                                          const std::string& path = "x.bsnap") {
  auto opened = try_to_open(std::move(bytes), options, path);
  EXPECT_TRUE(opened.has_value()) << opened.error().message();
  return opened ? *opened : nullptr;
}

void expect_unreadable(const Snapshot& snapshot, std::size_t tensor, ErrorKind kind,
                       const std::vector<std::string>& parts) {
  Bytes out(static_cast<std::size_t>(snapshot.tensors()[tensor].size_bytes));
  const auto read = snapshot.read_bytes(tensor, 0, out);
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(error_kind_name(read.error().kind()), error_kind_name(kind)) << read.error().message();
  for (const std::string& part : parts) EXPECT_THAT(read.error().message(), HasSubstr(part));
  const auto parallel = snapshot.read(std::vector<Snapshot::ReadRequest>{{tensor, out}});
  ASSERT_FALSE(parallel.has_value());
  EXPECT_EQ(parallel.error().message(), read.error().message());
  EXPECT_FALSE(snapshot.stream_all([](std::span<const std::byte>) -> Result<void> { return {}; }).has_value());
}

// Streams 0 and 1 of 8 bytes, raw.
RawFile two_tensors() {
  RawFile file;
  file.content = R"({"tensors":[{"name":"a","dtype":"U8","shape":[8],"role":"other"},)"
                 R"({"name":"b","dtype":"BF16","shape":[4],"role":"other"}]})";
  file.encoding = R"({"parameters":[3],"streams":[{"parameters":[0]},{"inputs":[{"stream":0,"element":0}]}]})";
  file.parameters = container::bytes_of("abc");
  file.add_chunk(0, container::bytes_of("01234567"), container::bytes_of("01234567"));
  file.add_chunk(0, container::bytes_of("76543210"), container::bytes_of("76543210"));
  return file;
}

TEST(HostileFile, WithAnUnknownCodecOpensButCannotBeRead) {
  RawFile file = two_tensors();
  file.chunks[1].codec = 4711;
  const auto snapshot = must_open(file.seal());
  EXPECT_EQ(snapshot->chunk_info(1, 0)->codec, "unknown");
  expect_unreadable(*snapshot, 1, ErrorKind::unsupported, {"x.bsnap, tensor 'b', chunk 0", "codec 4711"});
  Bytes out(8);
  EXPECT_TRUE(snapshot->read_bytes(0, 0, out).has_value());
}

TEST(HostileFile, WithInputsOrParametersThatItsCodecRejectsIsCorrupt) {
  RawFile file = two_tensors();
  file.chunks[1].inputs[0] = 0;  // raw takes none
  expect_unreadable(*must_open(file.seal()), 1, ErrorKind::corrupt,
                    {"tensor 'b', chunk 0", "raw does not decode BF16 with these 1 inputs"});
  file = two_tensors();
  file.chunks[1].codec = static_cast<std::uint16_t>(CodecId::same);  // its input is of another dtype
  file.chunks[1].inputs[0] = 0;
  expect_unreadable(*must_open(file.seal()), 1, ErrorKind::corrupt,
                    {"tensor 'b', chunk 0", "same does not decode BF16 with these 1 inputs"});
  file = two_tensors();
  file.chunks[1].codec = static_cast<std::uint16_t>(CodecId::same);  // without one
  expect_unreadable(*must_open(file.seal()), 1, ErrorKind::corrupt,
                    {"tensor 'b', chunk 0", "same does not decode BF16 with these 0 inputs"});
  file = two_tensors();
  file.chunks[0].parameters = 0;
  const auto snapshot = must_open(file.seal());
  expect_unreadable(*snapshot, 0, ErrorKind::corrupt, {"tensor 'a', chunk 0", "parameter"});
}

TEST(HostileFile, WithAWrongDecodedHashNamesBothHashes) {
  RawFile file = two_tensors();
  file.chunks[1].decoded_hash = 0x1234;
  expect_unreadable(*must_open(file.seal()), 1, ErrorKind::corrupt,
                    {"x.bsnap, tensor 'b', chunk 0: its hash after decoding by raw is", "expected 0000000000001234"});
  // A payload of the wrong length for its codec.
  file = two_tensors();
  file.chunks[1].codec = static_cast<std::uint16_t>(CodecId::constant);
  expect_unreadable(*must_open(file.seal()), 1, ErrorKind::corrupt, {"tensor 'b', chunk 0", "constant"});
}

TEST(HostileFile, WithAPayloadForUnchangedDataIsCorrupt) {
  RawFile file = two_tensors();
  file.content = R"({"tensors":[{"name":"a","dtype":"U8","shape":[8],"role":"other"},)"
                 R"({"name":"b","dtype":"U8","shape":[8],"role":"other"}]})";
  file.chunks[1].codec = static_cast<std::uint16_t>(CodecId::same);
  file.chunks[1].inputs[0] = 0;
  expect_unreadable(*must_open(file.seal()), 1, ErrorKind::corrupt, {"tensor 'b', chunk 0: same"});
}

TEST(HostileFile, WithControlCharactersInNamesIsQuoted) {
  RawFile file = two_tensors();
  file.content = R"({"tensors":[{"name":"\u001b[2J\n\u009b1m)" + std::string(5000, 'n') +
                 R"(","dtype":"U8","shape":[16],"role":"other"}]})";
  file.encoding = R"({"streams":[{}]})";
  file.parameters.reset();
  file.chunks.resize(1);
  file.payloads.resize(8);
  file.chunks[0].codec = 77;
  const auto snapshot = must_open(file.seal());
  Bytes out(16);
  const std::string message = snapshot->read_bytes(0, 0, out).error().message();
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_EQ(message.find("\xC2\x9B"), std::string::npos);
  EXPECT_LT(message.size(), 400U);
}

class WithBase : public ::testing::Test {
 protected:
  WithBase() {
    base_.add("x", DType::u8, data_);
    base_file_ = base_.build();
  }

  // A file of one stream of `size` bytes, equal to stream `stream` of the base from `element` on.
  RawFile refer(std::uint64_t size, std::uint64_t stream, std::uint64_t element) const {
    RawFile file;
    file.content =
        R"({"tensors":[{"name":"y","dtype":"U8","shape":[)" + std::to_string(size) + R"(],"role":"other"}]})";
    file.encoding = R"({"bases":[{"id":")" + base_.id().to_hex() + R"(","name":"base.bsnap"}],"streams":[{"inputs":[)" +
                    R"({"base":0,"stream":)" + std::to_string(stream) + R"(,"element":)" + std::to_string(element) +
                    "}]}]}";
    ChunkEntry& entry = file.add_chunk(static_cast<std::uint16_t>(CodecId::same), {}, data_);
    entry.inputs[0] = 0;
    entry.depth = 1;
    return file;
  }

  OpenOptions with(std::shared_ptr<const Base> base) const {
    struct One final : BaseProvider {
      explicit One(std::shared_ptr<const Base> b) : base(std::move(b)) {}
      Result<std::shared_ptr<const Base>> find(const SnapshotId&) const override { return base; }
      std::shared_ptr<const Base> base;
    };
    OpenOptions options;
    options.bases = std::make_shared<One>(std::move(base));
    return options;
  }

  const Bytes data_ = random_bytes(1000, 3);
  StateBuilder base_;
  Bytes base_file_;
};

TEST_F(WithBase, ReadsItsTensors) {
  const auto snapshot = must_open(refer(1000, 0, 0).seal(), with(must_open(base_file_)));
  Bytes out(1000);
  ASSERT_TRUE(snapshot->read_bytes(0, 0, out).has_value());
  EXPECT_EQ(out, data_);
}

TEST_F(WithBase, RejectsInputsBeyondTheBase) {
  const auto base = must_open(base_file_, {}, "base.bsnap");
  expect_unreadable(*must_open(refer(1000, 1, 0).seal(), with(base)), 0, ErrorKind::corrupt,
                    {"tensor 'y', chunk 0: needs stream 1 of its base base.bsnap, which has 1 streams"});
  expect_unreadable(*must_open(refer(1000, ~std::uint64_t{0}, 0).seal(), with(base)), 0, ErrorKind::corrupt,
                    {"needs stream 18446744073709551615"});
  expect_unreadable(*must_open(refer(1000, 0, 1).seal(), with(base)), 0, ErrorKind::corrupt,
                    {"needs elements 1 to 1001 of stream 0"});
  expect_unreadable(*must_open(refer(1001, 0, 0).seal(), with(base)), 0, ErrorKind::corrupt,
                    {"needs elements 0 to 1001"});
}

TEST_F(WithBase, NamesTheBaseIfTheHashDiffers) {
  RawFile file = refer(999, 0, 1);
  const auto snapshot = must_open(file.seal(), with(must_open(base_file_, {}, "base.bsnap")));
  expect_unreadable(*snapshot, 0, ErrorKind::corrupt, {"its base base.bsnap may be the wrong file"});
}

TEST_F(WithBase, RejectsABaseWithAnotherId) {
  StateBuilder other;
  other.add("x", DType::u8, random_bytes(1000, 4));
  const auto snapshot = must_open(refer(1000, 0, 0).seal(), with(must_open(other.build())));
  expect_unreadable(*snapshot, 0, ErrorKind::internal, {base_.id().to_hex(), other.id().to_hex()});
  expect_unreadable(*must_open(refer(1000, 0, 0).seal(), with(nullptr)), 0, ErrorKind::internal,
                    {"the provider returned none"});
}

TEST(HostileFile, CannotFanOutWithoutLimit) {
  // Every chunk refers to two of the stream before, those to three of the next: 2^n decodings for the first.
  StateBuilder builder;
  constexpr std::size_t kStreams = 12;
  constexpr std::size_t kSize = 12 * kChunkElements;
  const Bytes zeros(kSize);
  builder.add("0", DType::u8, zeros, {CodecId::constant, {}, {}});
  for (std::size_t i = 1; i < kStreams; ++i) {
    const std::uint64_t size = kSize - i;
    builder.add(std::to_string(i), DType::u8, Bytes(size), {CodecId::same, {{{}, i - 1, 1}}, {}});
  }
  OpenOptions options;
  options.limits.chunk_decodes = 500;
  const auto snapshot = must_open(builder.build(), options);
  Bytes out(1);
  const auto read = snapshot->read_bytes(kStreams - 1, 0, out);
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().kind(), ErrorKind::resource_exhausted);
  EXPECT_THAT(read.error().message(), HasSubstr("needs more than 500 other chunks"));
  EXPECT_TRUE(snapshot->read_bytes(5, 0, out).has_value());
  EXPECT_EQ(snapshot->verify().error().kind(), ErrorKind::resource_exhausted);
  EXPECT_TRUE(snapshot->verify(false)->empty());
}

TEST(HostileFile, CannotMakeAnOperationDecodeManyTimesWhatItsFilesHold) {
  // Each chunk alone stays within the limit of one chunk.
  const auto chain = [](std::size_t streams) {
    StateBuilder builder;
    constexpr std::size_t kSize = 40 * kChunkElements;
    builder.add("0", DType::u8, Bytes(kSize), {CodecId::constant, {}, {}});
    for (std::size_t i = 1; i < streams; ++i) {
      builder.add(std::to_string(i), DType::u8, Bytes(kSize - i), {CodecId::same, {{{}, i - 1, 1}}, {}});
    }
    return builder.build();
  };
  OpenOptions options;
  options.limits.max_cost = 0.125;
  const auto hostile = must_open(chain(9), options);
  const auto verified = hostile->verify();
  ASSERT_FALSE(verified.has_value());
  EXPECT_EQ(verified.error().kind(), ErrorKind::resource_exhausted);
  EXPECT_THAT(verified.error().message(), HasSubstr("--max-cost"));
  std::deque<Bytes> tensors;
  std::vector<Snapshot::ReadRequest> requests;
  for (std::size_t i = 0; i < hostile->tensors().size(); ++i) {
    requests.push_back({i, tensors.emplace_back(static_cast<std::size_t>(hostile->tensors()[i].size_bytes))});
  }
  EXPECT_EQ(hostile->read(requests).error().kind(), ErrorKind::resource_exhausted);
  EXPECT_EQ(hostile->stream_all([](auto) { return Result<void>(); }).error().kind(), ErrorKind::resource_exhausted);
  Bytes out(1);
  EXPECT_TRUE(hostile->read_bytes(8, 0, out).has_value());
  EXPECT_TRUE(must_open(chain(3), options)->verify().has_value());
  options.limits.max_cost = 100;
  EXPECT_TRUE(must_open(chain(9), options)->verify().has_value());
}

TEST(HostileFile, OfEqualConstantsIsVerifiedWithoutDecodingEach) {
  constexpr std::size_t kChunks = 2000;
  const auto with_last = [](std::byte value) {
    RawFile file;
    file.content = R"({"tensors":[{"name":"x","dtype":"U8","shape":[)" + std::to_string(kChunks * kChunkElements) +
                   R"(],"role":"other"}]})";
    file.encoding = R"({"streams":[{}]})";
    const Bytes zeros(kChunkElements);
    const Bytes last(kChunkElements, value);
    const auto id = static_cast<std::uint16_t>(CodecId::constant);
    for (std::size_t i = 1; i < kChunks; ++i) file.add_chunk(id, ConstByteSpan(zeros).first(1), zeros);
    file.add_chunk(id, ConstByteSpan(last).first(1), zeros);
    return file.seal();
  };
  OpenOptions options;
  options.limits.max_cost = 0.01;
  const RunOptions one_thread{1, nullptr};
  const auto sound = must_open(with_last(std::byte{0}), options)->verify(true, one_thread);
  ASSERT_TRUE(sound.has_value()) << sound.error().message();
  EXPECT_TRUE(sound->empty());
  const auto damaged = must_open(with_last(std::byte{1}), options)->verify(true, one_thread);
  ASSERT_TRUE(damaged.has_value()) << damaged.error().message();
  ASSERT_EQ(damaged->size(), 1U);
  EXPECT_THAT(damaged->front().where, HasSubstr("1999"));
}

TEST(HostileFile, CannotNestWithinOneFileWithoutLimit) {
  StateBuilder builder;
  builder.add("0", DType::u8, Bytes(10), {});
  for (std::size_t i = 1; i < 100; ++i) {
    builder.add(std::to_string(i), DType::u8, Bytes(10), {CodecId::same, {{{}, i - 1, 0}}, {}});
  }
  const auto snapshot = must_open(builder.build());
  Bytes out(10);
  EXPECT_TRUE(snapshot->read_bytes(64, 0, out).has_value());
  EXPECT_EQ(snapshot->read_bytes(65, 0, out).error().kind(), ErrorKind::corrupt);
}

// A file with every codec, a pool, inputs and a base.
struct Everything {
  Everything() {
    Bytes changed = random_bytes(600, 1);
    base.add("w", DType::bf16, changed);
    base_file = base.build();
    changed[77] ^= std::byte{1};
    const std::uint32_t number = state.add_base(base, "base.bsnap");
    state.add("raw", DType::u8, random_bytes(100, 2));
    state.add("constant", DType::f32, Bytes(400), {CodecId::constant, {}, {}});
    state.add("same", DType::bf16, base.bytes_of(0), {CodecId::same, {{number, 0, 0}}, {}});
    state.add("peer", DType::u8, Bytes(state.bytes_of(0).begin() + 5, state.bytes_of(0).end()),
              {CodecId::same, {{{}, 0, 5}}, {}});
    state.add("zstd", DType::i32, Bytes(4000, std::byte{9}), {CodecId::zstd, {}, {}});
    Bytes narrow = random_bytes(1600, 3);
    for (std::byte& byte : narrow) byte &= std::byte{3};
    state.add("byte_group", DType::f32, narrow, {CodecId::byte_group, {}, {}});
    state.add("float_split", DType::bf16, narrow, {CodecId::float_split, {}, {}});
    state.add("bitmask", DType::bf16, changed, {CodecId::bitmask, {{number, 0, 0}}, {}});
    state.add_pooled("step", DType::f32, random_bytes(4, 4));
    state.add_alias("alias", 7);
    state.set_metadata("k", "v");
    file = state.build();
  }

  OpenOptions options() const {
    auto bases = std::make_shared<MapBases>();
    bases->add(must_open(base_file));
    OpenOptions options;
    options.bases = bases;
    return options;
  }

  StateBuilder base;
  StateBuilder state;
  Bytes base_file;
  Bytes file;
};

// The numbers of the tensors that cannot be read.
std::vector<std::size_t> damaged_in(const Snapshot& snapshot, unsigned threads = 1) {
  RunOptions run;
  run.threads = threads;
  std::vector<std::size_t> numbers;
  const std::vector<DamagedTensor> damaged = snapshot.damaged_tensors(run).value();
  for (const DamagedTensor& each : damaged) numbers.push_back(each.tensor);
  return numbers;
}

// Whether opening or verifying finds the damage. Tensors that can still be read must be correct, and the others named.
bool is_found(const Everything& all, Bytes bytes, const OpenOptions& options, bool reads) {
  const auto opened = try_to_open(std::move(bytes), options);
  if (!opened) return true;
  RunOptions run;
  run.threads = 1;
  const auto damages = (*opened)->verify(true, run);
  if (!damages) return true;
  if (reads) {
    std::vector<std::size_t> unreadable;
    for (std::size_t tensor = 0; tensor < (*opened)->tensors().size(); ++tensor) {
      Bytes out(all.state.bytes_of(tensor).size());
      if ((*opened)->read_bytes(tensor, 0, out)) {
        EXPECT_TRUE(out == all.state.bytes_of(tensor));
      } else {
        unreadable.push_back(tensor);
      }
    }
    EXPECT_EQ(damaged_in(**opened), unreadable);
  }
  return !damages->empty();
}

TEST(Verification, PassesAGoodFile) {
  const Everything all;
  EXPECT_FALSE(is_found(all, all.file, all.options(), true));
}

TEST(Verification, FindsEveryFlippedByte) {
  const Everything all;
  const OpenOptions options = all.options();
  for (std::size_t at = 0; at < all.file.size(); ++at) {
    for (const auto change : {std::byte{1}, std::byte{0xFF}}) {
      Bytes damaged = all.file;
      damaged[at] ^= change;
      ASSERT_TRUE(is_found(all, std::move(damaged), options, true)) << at;
    }
  }
}

TEST(Verification, FindsEveryTruncation) {
  const Everything all;
  const OpenOptions options = all.options();
  for (std::size_t size = 0; size < all.file.size(); ++size) {
    Bytes cut(all.file.begin(), all.file.begin() + static_cast<std::ptrdiff_t>(size));
    const auto opened = try_to_open(std::move(cut), options);
    ASSERT_FALSE(opened.has_value()) << size;
    ASSERT_EQ(error_kind_name(opened.error().kind()), "truncated") << opened.error().message();
  }
}

TEST(Verification, NamesTheTensorsThatADamagedChunkCosts) {
  StateBuilder builder;
  builder.add("a", DType::u8, random_bytes(2 * kChunkElements + 7, 1));
  builder.add("b", DType::u8, random_bytes(100, 2));
  builder.add("empty", DType::u8, {});
  builder.add_pooled("c", DType::u8, random_bytes(10, 3));
  builder.add_pooled("d", DType::u8, random_bytes(10, 4));
  builder.add_alias("e", 0);
  const Bytes file = builder.build();
  EXPECT_TRUE(damaged_in(*must_open(file)).empty());
  using Numbers = std::vector<std::size_t>;
  const std::vector<Numbers> expected = {{0, 5}, {0, 5}, {0, 5}, {1}, {3, 4}};  // by chunk
  ASSERT_EQ(builder.index().chunks.size(), expected.size());
  for (std::size_t chunk = 0; chunk < expected.size(); ++chunk) {
    Bytes damaged = file;
    damaged[builder.index().chunks[chunk].offset + 3] ^= std::byte{1};
    const auto snapshot = must_open(damaged);
    for (const unsigned threads : {1U, 4U}) EXPECT_EQ(damaged_in(*snapshot, threads), expected[chunk]) << chunk;
    const std::string message = snapshot->damaged_tensors()->front().error.message();
    EXPECT_THAT(message, HasSubstr("x.bsnap"));
    EXPECT_THAT(message, HasSubstr("expected"));
  }
}

TEST(Verification, CollectsAllDamagesInOrder) {
  StateBuilder builder;
  builder.add("a", DType::u8, random_bytes(3 * kChunkElements, 1));
  builder.add("b", DType::u8, random_bytes(100, 2));
  builder.add_pooled("c", DType::u8, random_bytes(10, 3));
  Bytes file = builder.build();
  for (const std::size_t chunk : {2U, 4U, 0U}) file[builder.index().chunks[chunk].offset + 3] ^= std::byte{1};
  const auto snapshot = must_open(file);
  for (const unsigned threads : {1U, 4U}) {
    for (const bool decode : {true, false}) {
      RunOptions options;
      options.threads = threads;
      const auto damages = snapshot->verify(decode, options);
      ASSERT_TRUE(damages.has_value());
      ASSERT_EQ(damages->size(), 3U);
      EXPECT_EQ((*damages)[0].where, "tensor 'a', chunk 0");
      EXPECT_EQ((*damages)[1].where, "tensor 'a', chunk 2");
      EXPECT_EQ((*damages)[2].where, "pool, chunk 0");
      for (const Damage& damage : *damages) EXPECT_EQ(damage.error.kind(), ErrorKind::corrupt);
    }
  }
}

}  // namespace
}  // namespace bitsnap::restore
