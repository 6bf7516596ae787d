// Tests of whole snapshot files: round trips, damage, and files made by hand against each rule of the format.
#include <zstd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/hash.hpp"
#include "base/try.hpp"
#include "container/file_reader.hpp"
#include "container/file_writer.hpp"
#include "container/raw_file_testing.hpp"

namespace bitsnap::container {
namespace {

using ::testing::HasSubstr;

class VectorFile final : public os::WritableFile {
 public:
  Result<void> append(ConstByteSpan more) override {
    bytes.insert(bytes.end(), more.begin(), more.end());
    return {};
  }
  Result<void> sync() override { return {}; }
  Result<void> close() override { return {}; }
  std::uint64_t size_bytes() const noexcept override { return bytes.size(); }
  const std::string& path() const noexcept override { return path_; }

  Bytes bytes;

 private:
  std::string path_ = "out.bsnap";
};

Result<std::unique_ptr<FileReader>> open_bytes(Bytes bytes, const DecodeLimits& limits = {}) {
  return FileReader::open(std::make_unique<MemoryFile>("x.bsnap", std::move(bytes)), limits);
}

void expect_error(const Result<std::unique_ptr<FileReader>>& opened, ErrorKind kind, std::string_view part) {
  ASSERT_FALSE(opened.has_value()) << "expected: " << part;
  EXPECT_EQ(error_kind_name(opened.error().kind()), error_kind_name(kind)) << opened.error().message();
  EXPECT_THAT(opened.error().message(), HasSubstr(std::string(part)));
  EXPECT_THAT(opened.error().message(), HasSubstr("x.bsnap"));
}

// Two tensors of four bytes and one of 300,000 bytes: streams 0, 1 and 2; stream 2 has two chunks.
RawFile small_file() {
  RawFile file;
  file.content = R"({"tensors":[{"name":"a","dtype":"U8","shape":[4],"role":"other"},)"
                 R"({"name":"b","dtype":"U8","shape":[2,2],"role":"other"},)"
                 R"({"name":"c","dtype":"U8","shape":[300000],"role":"other"}]})";
  file.encoding = R"({"bases":[{"id":"00000000000000010000000000000002","name":"base.bsnap"}],"parameters":[2,0],)"
                  R"("streams":[{"inputs":[{"base":0,"stream":0,"element":0}],"parameters":[1]},)"
                  R"({"inputs":[{"stream":0,"element":0}]},{}]})";
  file.parameters = bytes_of("pp");
  const Bytes four = bytes_of("data");
  file.add_chunk(0, four, four);
  file.add_chunk(0, four, four);
  const Bytes one = bytes_of("1");
  const Bytes many(kChunkElements, std::byte{'1'});
  file.add_chunk(1, one, many);
  file.add_chunk(1, one, ConstByteSpan(many).first(300000 - kChunkElements));
  return file;
}

void expect_broken(const std::function<void(RawFile&)>& change, ErrorKind kind, std::string_view part,
                   const DecodeLimits& limits = {}) {
  RawFile file = small_file();
  change(file);
  expect_error(open_bytes(file.seal(), limits), kind, part);
}

void replace(std::string& text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
}

TEST(SnapshotFile, OpensAFileMadeByHand) {
  const auto opened = open_bytes(small_file().seal());
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  const Index& index = (*opened)->index();
  EXPECT_EQ(index.content.tensors.size(), 3U);
  EXPECT_EQ(index.streams.streams.size(), 3U);
  EXPECT_EQ(index.streams.first_chunk, (std::vector<std::uint64_t>{0, 1, 2, 4}));
  EXPECT_EQ(index.encoding.bases[0].id, (SnapshotId{2, 1}));
  EXPECT_EQ(index.parameters, (std::vector<Bytes>{bytes_of("pp"), {}}));
  Bytes payload(4);
  ASSERT_TRUE((*opened)->read_payload(index.chunks[1], payload).has_value());
  EXPECT_EQ(payload, bytes_of("data"));
}

TEST(SnapshotFile, RoundTrips) {
  Index index;
  index.content.tensors.push_back({"w", DType::bf16, "BF16", {3, 2}, 12, Role::weight, ShardBox{{6, 2}, {3, 0}}, {}});
  index.content.tensors.push_back({"tied", DType::bf16, "BF16", {6}, 12, Role::weight, {}, 0});
  index.content.tensors.push_back({"step", DType::f32, "F32", {}, 4, Role::other, {}, {}});
  index.content.tensors.push_back({"packed", DType::opaque, "F4", {7}, 4, Role::other, {}, {}});
  index.content.tensors.push_back({"empty", DType::i64, "I64", {0, 5}, 0, Role::other, {}, {}});
  index.content.pool_offsets = {{}, {}, 0, {}, {}};
  index.content.pool_bytes = 4;
  index.content.metadata = {{"framework", "torch"}, {"a", "b"}};
  index.content.tree = R"({"scalar":2})";
  index.streams = *derive_streams(index.content);
  index.encoding.writer = "bitsnap test";
  index.encoding.policy = "lossless";
  index.encoding.bases = {{SnapshotId{1, 2}, "base.bsnap"}};
  index.encoding.parameter_bytes = {3};
  index.encoding.streams = {{{{0, 7, 9}}, {0}, "why"}, {}, {}};
  index.parameters = {bytes_of("xyz")};
  index.safetensors_header = "{ }  ";
  index.chunks.resize(3);
  VectorFile file;
  FileWriter writer(file);
  ASSERT_TRUE(writer.begin().has_value());
  const std::vector<Bytes> payloads = {bytes_of("0123456789ab"), {}, bytes_of("step")};
  for (std::size_t i = 0; i < 3; ++i) {
    index.chunks[i].decoded_hash = 17 + i;
    ASSERT_TRUE(writer.append_payload(payloads[i], index.chunks[i]).has_value());
  }
  index.chunks[0].codec = 6;
  index.chunks[0].parameters = 0;
  index.chunks[0].inputs[0] = 0;
  index.chunks[0].depth = 3;
  ASSERT_TRUE(writer.finish(index).has_value());
  EXPECT_EQ(writer.size_bytes(), file.bytes.size());

  const auto opened = open_bytes(file.bytes);
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  const Index& read = (*opened)->index();
  EXPECT_EQ(read.id, index.id);
  EXPECT_EQ(*serialize_content(read.content), *serialize_content(index.content));
  EXPECT_EQ(serialize_encoding(read.encoding), serialize_encoding(index.encoding));
  EXPECT_EQ(read.safetensors_header, index.safetensors_header);
  EXPECT_EQ(read.parameters, index.parameters);
  EXPECT_EQ(read.streams.stream_of, (std::vector<std::optional<std::size_t>>{0, {}, {}, 1, {}}));
  EXPECT_EQ(read.streams.pool, 2U);
  for (std::size_t i = 0; i < 3; ++i) {
    Bytes payload(payloads[i].size());
    ASSERT_TRUE((*opened)->read_payload(read.chunks[i], payload).has_value());
    EXPECT_EQ(payload, payloads[i]);
  }
  EXPECT_EQ(read.chunks[0].depth, 3);

  // The same index gives the same bytes, and the id does not depend on the coding.
  const auto again = serialize_index(index);
  const auto once = serialize_index(index);
  EXPECT_EQ(again->bytes, once->bytes);
  index.encoding.policy = "raw";
  index.chunks[0].codec = 0;
  EXPECT_EQ(serialize_index(index)->id, again->id);
  index.chunks[0].decoded_hash ^= 1;
  EXPECT_NE(serialize_index(index)->id, again->id);
}

TEST(SnapshotFile, KeepsTheContentTextOfAnotherWriter) {
  RawFile raw;
  raw.content = R"({ "tensors": [ {"role": "other", "name": "\u0061", "dtype": "U8", "shape": [ 4 ]} ] })";
  raw.encoding = R"({"streams":[{}]})";
  raw.add_chunk(0, bytes_of("data"), bytes_of("data"));
  const auto source = open_bytes(raw.seal());
  ASSERT_TRUE(source.has_value()) << source.error().message();
  Index index = (*source)->index();
  const auto write = [&index]() -> SnapshotId {
    VectorFile file;
    FileWriter writer(file);
    EXPECT_TRUE(writer.begin().has_value());
    EXPECT_TRUE(writer.append_payload(bytes_of("data"), index.chunks[0]).has_value());
    EXPECT_TRUE(writer.finish(index).has_value());
    return (*open_bytes(file.bytes))->index().id;
  };
  EXPECT_NE(write(), raw.id());
  index.content_text = (*source)->read_content_text(DecodeLimits()).value();
  EXPECT_EQ(index.content_text, raw.content);
  EXPECT_EQ(write(), raw.id());
}

TEST(SnapshotFile, DetectsAnIndexThatChangedAfterOpening) {
  class ChangingFile final : public os::RandomAccessFile {
   public:
    explicit ChangingFile(Bytes bytes) : file_("x.bsnap", std::move(bytes)) {}
    Result<void> read_at(std::uint64_t offset, ByteSpan out) const override {
      BITSNAP_TRY(file_.read_at(offset, out));
      if (++reads_ > 3) out.back() ^= std::byte{1};
      return {};
    }
    std::uint64_t size_bytes() const noexcept override { return file_.size_bytes(); }
    const std::string& path() const noexcept override { return file_.path(); }

   private:
    MemoryFile file_;
    mutable int reads_ = 0;  // header, footer and index are read when it is opened
  };
  const auto opened = FileReader::open(std::make_unique<ChangingFile>(small_file().seal()), DecodeLimits());
  ASSERT_TRUE(opened.has_value());
  const auto text = (*opened)->read_content_text(DecodeLimits());
  ASSERT_FALSE(text.has_value());
  EXPECT_EQ(text.error().kind(), ErrorKind::corrupt);
  EXPECT_THAT(text.error().message(), HasSubstr("x.bsnap"));
}

TEST(SnapshotFile, CompressesSectionsIfThatMakesThemSmaller) {
  Index index;
  for (int i = 0; i < 100; ++i) {
    index.content.tensors.push_back({"layer." + std::to_string(i), DType::f32, "F32", {0}, 0, Role::weight, {}, {}});
    index.content.pool_offsets.emplace_back();
  }
  index.streams = *derive_streams(index.content);
  VectorFile file;
  FileWriter writer(file);
  ASSERT_TRUE(writer.begin().has_value());
  ASSERT_TRUE(writer.finish(index).has_value());
  EXPECT_LT(file.bytes.size(), serialize_content(index.content)->size() / 4);
  EXPECT_TRUE(open_bytes(file.bytes).has_value());
}

TEST(SnapshotFile, RejectsEveryTruncation) {
  const Bytes whole = small_file().seal();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto opened = open_bytes(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)));
    ASSERT_FALSE(opened.has_value()) << size;
    EXPECT_EQ(error_kind_name(opened.error().kind()), "truncated") << size;
  }
}

TEST(SnapshotFile, DetectsEveryFlippedBitOutsidePayloads) {
  const Bytes whole = small_file().seal();
  const std::size_t payload_bytes = small_file().payloads.size();
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      Bytes damaged = whole;
      damaged[at] ^= std::byte{1} << bit;
      const bool in_payload = at >= kHeaderBytes && at < kHeaderBytes + payload_bytes;
      EXPECT_EQ(open_bytes(std::move(damaged)).has_value(), in_payload) << at;
    }
  }
}

TEST(SnapshotFile, DetectsADamagedPayload) {
  Bytes damaged = small_file().seal();
  damaged[kHeaderBytes + 5] ^= std::byte{1};
  const auto opened = open_bytes(damaged);
  ASSERT_TRUE(opened.has_value());
  Bytes payload(4);
  EXPECT_TRUE((*opened)->read_payload((*opened)->index().chunks[0], payload).has_value());
  const auto read = (*opened)->read_payload((*opened)->index().chunks[1], payload);
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().kind(), ErrorKind::corrupt);
}

TEST(SnapshotFile, ReportsANewerFormatBeforeAnythingElse) {
  Bytes file = small_file().seal();
  file[8] = std::byte{1};  // its hash is wrong as well
  expect_error(open_bytes(file), ErrorKind::unsupported, "format version 1");
  file = small_file().seal();
  file[20] = std::byte{4};
  store_le(file.data() + 56, hash64(ConstByteSpan(file).first(56)));
  expect_error(open_bytes(file), ErrorKind::unsupported, "required features");
}

TEST(SnapshotFile, RejectsOtherFiles) {
  expect_error(open_bytes(Bytes(200, std::byte{'x'})), ErrorKind::corrupt, "not a snapshot file");
  expect_error(open_bytes({}), ErrorKind::truncated, "0 bytes");
}

TEST(SnapshotFile, RejectsReservedBytesWithACorrectHash) {
  for (const std::size_t at : {12U, 15U, 24U, 55U}) {
    Bytes file = small_file().seal();
    file[at] = std::byte{1};
    store_le(file.data() + 56, hash64(ConstByteSpan(file).first(56)));
    expect_error(open_bytes(file), ErrorKind::corrupt, "reserved");
  }
  Bytes file = small_file().seal();
  std::byte* const footer = file.data() + file.size() - kFooterBytes;
  footer[41] = std::byte{1};
  store_le(footer + 48, hash64(ConstByteSpan(footer, 48)));
  expect_error(open_bytes(file), ErrorKind::corrupt, "reserved");
}

TEST(SnapshotFile, RejectsAnIndexBeyondTheFile) {
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> places = {
      {0, 64}, {64, ~std::uint64_t{0}}, {~std::uint64_t{0}, 1}, {65, 0}, {1 << 20, 1 << 20}};
  for (const auto& [offset, size] : places) {
    Bytes file = small_file().seal();
    std::byte* const footer = file.data() + file.size() - kFooterBytes;
    store_le(footer, offset);
    store_le(footer + 8, size);
    store_le(footer + 48, hash64(ConstByteSpan(footer, 48)));
    expect_error(open_bytes(file), ErrorKind::corrupt, "is not between");
  }
}

TEST(SnapshotFile, RejectsAnIdOfOtherContent) {
  const RawFile file = small_file();
  SnapshotId id = file.id();
  id.high ^= 1;
  expect_error(open_bytes(join_file(file.payloads, join_sections(file.sections()), id)), ErrorKind::corrupt,
               file.id().to_hex());
}

TEST(SnapshotFile, EnforcesItsLimits) {
  DecodeLimits limits;
  limits.index_bytes = 100;
  expect_broken([](RawFile&) {}, ErrorKind::resource_exhausted, "limit of 100", limits);
  limits = {};
  limits.tensors = 2;
  expect_broken([](RawFile&) {}, ErrorKind::resource_exhausted, "limit of 2", limits);
  limits = {};
  limits.bases = 0;
  expect_broken([](RawFile&) {}, ErrorKind::resource_exhausted, "limit of 0", limits);
}

std::vector<RawSection> sections_of(const std::function<void(std::vector<RawSection>&)>& change) {
  std::vector<RawSection> sections = small_file().sections();
  change(sections);
  return sections;
}

void expect_bad_sections(const std::function<void(std::vector<RawSection>&)>& change, ErrorKind kind,
                         std::string_view part, const DecodeLimits& limits = {}) {
  const RawFile file = small_file();
  expect_error(open_bytes(join_file(file.payloads, join_sections(sections_of(change)), file.id()), limits), kind, part);
}

Bytes zstd_frame(ConstByteSpan raw) {
  Bytes frame(ZSTD_compressBound(raw.size()));
  frame.resize(ZSTD_compress(frame.data(), frame.size(), raw.data(), raw.size(), 3));
  return frame;
}

TEST(SectionTable, RejectsUnknownSections) {
  using Sections = std::vector<RawSection>;
  expect_bad_sections([](Sections& s) { s[3].kind = 6; }, ErrorKind::unsupported, "kind 6");
  expect_bad_sections([](Sections& s) { s[0].encoding = 2; }, ErrorKind::unsupported, "encoding 2");
  expect_bad_sections([](Sections& s) { std::swap(s[0], s[1]); }, ErrorKind::corrupt, "kind 1 follows kind 2");
  expect_bad_sections([](Sections& s) { s[0].kind = 0; }, ErrorKind::corrupt, "kind 0");
  expect_bad_sections([](Sections& s) { s.push_back(s[3]); }, ErrorKind::corrupt, "kind 4 follows kind 4");
  for (const std::size_t missing : {0U, 1U, 2U}) {
    expect_bad_sections([&](Sections& s) { s.erase(s.begin() + static_cast<std::ptrdiff_t>(missing)); },
                        ErrorKind::corrupt, "is missing");
  }
  expect_bad_sections([](Sections& s) { s.clear(); }, ErrorKind::corrupt, "is missing");
}

TEST(SectionTable, RejectsSizesThatDoNotFit) {
  using Sections = std::vector<RawSection>;
  expect_bad_sections([](Sections& s) { s[1].raw_bytes += 1; }, ErrorKind::corrupt, "raw size");
  const RawFile file = small_file();
  Bytes index = join_sections(file.sections());
  index.push_back(std::byte{0});
  expect_error(open_bytes(join_file(file.payloads, index, file.id())), ErrorKind::corrupt, "1 bytes follow");
  index.resize(index.size() - 2);
  expect_error(open_bytes(join_file(file.payloads, index, file.id())), ErrorKind::truncated, "parameters");
  index = join_sections(file.sections());
  index[4] = std::byte{1};
  expect_error(open_bytes(join_file(file.payloads, index, file.id())), ErrorKind::corrupt, "reserved");
  index = join_sections(file.sections());
  store_le(index.data(), ~std::uint32_t{0});
  expect_error(open_bytes(join_file(file.payloads, index, file.id())), ErrorKind::unsupported, "kind");
  expect_error(open_bytes(join_file(file.payloads, bytes_of("abc"), file.id())), ErrorKind::truncated,
               "number of sections");
}

TEST(SectionTable, UnpacksExactlyOneZstdFrame) {
  using Sections = std::vector<RawSection>;
  const auto pack = [](RawSection& section) {
    section.encoding = 1;
    section.stored = zstd_frame(section.stored);
  };
  const RawFile file = small_file();
  const auto good = sections_of([&](Sections& s) {
    for (RawSection& each : s) pack(each);
  });
  const auto opened = open_bytes(join_file(file.payloads, join_sections(good), file.id()));
  ASSERT_TRUE(opened.has_value()) << opened.error().message();

  const auto packed_with = [&](const std::function<void(RawSection&)>& change) {
    return [&pack, change](Sections& s) {
      pack(s[0]);
      change(s[0]);
    };
  };
  expect_bad_sections(packed_with([](RawSection& s) { s.raw_bytes -= 1; }), ErrorKind::corrupt, "content");
  expect_bad_sections(packed_with([](RawSection& s) { s.raw_bytes += 1; }), ErrorKind::corrupt, "content");
  expect_bad_sections(packed_with([](RawSection& s) { s.stored.push_back(std::byte{0}); }), ErrorKind::corrupt,
                      "not one zstd frame");
  expect_bad_sections(packed_with([](RawSection& s) { s.stored.pop_back(); }), ErrorKind::corrupt,
                      "not one zstd frame");
  expect_bad_sections(packed_with([](RawSection& s) { s.stored.clear(); }), ErrorKind::corrupt, "content");
  expect_bad_sections(packed_with([](RawSection& s) { s.stored = bytes_of("\x50\x2A\x4D\x18\x04"); }),
                      ErrorKind::corrupt, "not one zstd frame");
  expect_bad_sections(packed_with([](RawSection& s) {
                        const Bytes copy = s.stored;
                        s.stored.insert(s.stored.end(), copy.begin(), copy.end());
                      }),
                      ErrorKind::corrupt, "not one zstd frame");
}

TEST(SectionTable, RejectsDecompressionBombs) {
  using Sections = std::vector<RawSection>;
  const Bytes spaces(std::size_t{64} << 20, std::byte{' '});
  const auto bomb = [&](Sections& s) { s[0] = RawSection{1, 1, zstd_frame(spaces), spaces.size()}; };
  DecodeLimits limits;
  limits.index_bytes = 1 << 20;
  expect_bad_sections(bomb, ErrorKind::resource_exhausted, "limit of 1048576", limits);
  // A size that the bytes cannot unpack to is rejected whatever the limit is.
  expect_bad_sections([&](Sections& s) { s[0] = RawSection{1, 1, zstd_frame(bytes_of("{}")), 1 << 29}; },
                      ErrorKind::corrupt, "cannot unpack");
}

TEST(ChunkTable, RejectsAWrongNumberOfChunks) {
  expect_broken([](RawFile& f) { f.chunks.pop_back(); }, ErrorKind::corrupt, "expected 4 entries");
  expect_broken([](RawFile& f) { f.chunks.push_back(f.chunks.back()); }, ErrorKind::corrupt, "expected 4 entries");
  expect_broken([](RawFile& f) { replace(f.content, "[300000]", "[9000000000000]"); }, ErrorKind::corrupt, "expected");
}

TEST(ChunkTable, RejectsPayloadsThatDoNotTileTheFile) {
  expect_broken([](RawFile& f) { f.chunks[1].offset = 64; }, ErrorKind::corrupt, "begins at offset 64, expected 68");
  expect_broken([](RawFile& f) { f.chunks[0].offset = 65; }, ErrorKind::corrupt, "begins at offset 65, expected 64");
  expect_broken([](RawFile& f) { f.payloads.push_back(std::byte{0}); }, ErrorKind::corrupt, "the index begins at");
  expect_broken([](RawFile& f) { f.payloads.pop_back(); }, ErrorKind::corrupt, "exceeds the payload area");
  expect_broken([](RawFile& f) { f.chunks[3].offset = ~std::uint64_t{0}; }, ErrorKind::corrupt, "a payload begins at");
  expect_broken([](RawFile& f) { f.chunks[3].stored_bytes = 30000; }, ErrorKind::corrupt, "exceeds the payload area");
}

TEST(ChunkTable, RejectsABadEntryAndNamesTheChunk) {
  expect_broken([](RawFile& f) { f.chunks[1].stored_bytes = 5; }, ErrorKind::corrupt,
                "tensor 'b', chunk 0: the payload has 5 bytes, more than the 4 decoded bytes");
  expect_broken([](RawFile& f) { f.chunks[0].parameters = 1; }, ErrorKind::corrupt,
                "tensor 'a', chunk 0: refers to parameter");
  expect_broken([](RawFile& f) { f.chunks[3].inputs[0] = 0; }, ErrorKind::corrupt,
                "tensor 'c', chunk 1: refers to input 0, the stream has 0 inputs");
  expect_broken([](RawFile& f) { f.chunks[1].inputs[2] = 0; }, ErrorKind::corrupt,
                "input 2 is used and input 1 is not");
  expect_broken([](RawFile& f) { f.chunks[1].depth = 65; }, ErrorKind::corrupt, "at most 64");
  expect_broken(
      [](RawFile& f) {
        f.chunks[3].stored_bytes = 0;
        f.payloads.pop_back();
      },
      ErrorKind::corrupt, "an empty payload has offset");
  const RawFile file = small_file();
  auto sections = file.sections();
  sections[2].stored[kChunkEntryBytes * 2 + 38] = std::byte{1};
  expect_error(open_bytes(join_file(file.payloads, join_sections(sections), file.id())), ErrorKind::corrupt,
               "chunk table, entry 2: reserved");
}

TEST(ChunkTable, ChecksDepthsAgainstInputs) {
  expect_broken([](RawFile& f) { f.chunks[3].depth = 1; }, ErrorKind::corrupt, "expected 0 from its inputs");
  expect_broken([](RawFile& f) { f.chunks[0].inputs[0] = 0; }, ErrorKind::corrupt,
                "depth is 0, expected 1 or more from its inputs");
  // Chunk 0 has a base, chunk 1 has chunk 0 as input.
  RawFile file = small_file();
  file.chunks[0].inputs[0] = 0;
  file.chunks[0].depth = 7;
  file.chunks[1].inputs[0] = 0;
  file.chunks[1].depth = 6;
  expect_error(open_bytes(file.seal()), ErrorKind::corrupt, "depth is 6, expected 7 from its inputs");
  file.chunks[1].depth = 7;
  EXPECT_TRUE(open_bytes(file.seal()).has_value());
  file.chunks[1].depth = 8;
  expect_error(open_bytes(file.seal()), ErrorKind::corrupt, "depth is 8, expected 7 from its inputs");
}

TEST(ChunkTable, RejectsInputsBeyondTheirStream) {
  const auto at_element = [](std::string_view element) {
    return [element](RawFile& f) {
      replace(f.encoding, R"("stream":0,"element":0}]},{}])",
              R"("stream":0,"element":)" + std::string(element) + "}]},{}]");
      f.chunks[1].inputs[0] = 0;
    };
  };
  expect_broken(at_element("1"), ErrorKind::corrupt, "tensor 'b', chunk 0: input 0: elements 1 to 5 exceed stream 0");
  expect_broken(at_element("18446744073709551615"), ErrorKind::corrupt, "overflows");
  expect_broken(at_element("18446744073709551612"), ErrorKind::corrupt, "overflows");
  expect_broken(
      [](RawFile& f) {
        replace(f.encoding, R"("base":0,"stream":0,"element":0)",
                R"("base":0,"stream":0,"element":18446744073709551615)");
        f.chunks[0].inputs[0] = 0;
        f.chunks[0].depth = 1;
      },
      ErrorKind::corrupt, "overflows");
}

TEST(ParameterSection, MustBeCoveredByItsSets) {
  expect_broken([](RawFile& f) { f.parameters->push_back(std::byte{0}); }, ErrorKind::corrupt, "belong to no set");
  expect_broken([](RawFile& f) { f.parameters->pop_back(); }, ErrorKind::corrupt, "a set of 2 bytes");
  expect_broken([](RawFile& f) { f.parameters.reset(); }, ErrorKind::corrupt, "a set of 2 bytes");
}

}  // namespace
}  // namespace bitsnap::container
