// Tests of the registries and of <bitsnap/codec.hpp>.
#include <gtest/gtest.h>
#include <bitsnap/codec.hpp>

#include <set>

#include <bitsnap/tensor.hpp>

#include "codec/coding_testing.hpp"
#include "codec/registry.hpp"
#include "codec/registry_encode.hpp"

namespace bitsnap {
namespace {

TEST(Registry, ListsEveryCodecOnceOnBothSidesInTheOrderOfIds) {
  const auto decoders = codec::all_decoders();
  const auto encoders = codec::all_encoders();
  ASSERT_EQ(decoders.size(), encoders.size());
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < decoders.size(); ++i) {
    EXPECT_EQ(&encoders[i]->decoder(), decoders[i]);
    EXPECT_EQ(codec::find_decoder(static_cast<std::uint16_t>(decoders[i]->id())), decoders[i]);
    EXPECT_EQ(codec::find_decoder(decoders[i]->name()), decoders[i]);
    EXPECT_EQ(codec::find_encoder(decoders[i]->id()), encoders[i]);
    EXPECT_EQ(codec::find_encoder(decoders[i]->name()), encoders[i]);
    EXPECT_FALSE(decoders[i]->summary().empty());
    names.insert(decoders[i]->name());
    EXPECT_TRUE(i == 0 || decoders[i - 1]->id() < decoders[i]->id());
  }
  EXPECT_EQ(names.size(), decoders.size());
}

TEST(Registry, KeepsTheIdsOfTheSpec) {
  const std::pair<std::uint16_t, std::string_view> table[] = {
      {0, "raw"},          {1, "constant"},        {2, "same"},
      {3, "zstd"},         {4, "byte_group"},      {5, "float_split"},
      {6, "bitmask"},      {7, "ordinal_delta"},   {8, "factored_split"},
      {9, "rounded_from"}, {10, "optimizer_step"}, {11, "scaled_by"},
      {12, "clustered"},   {13, "gradient_step"},
  };
  const auto list = list_codecs();
  ASSERT_EQ(list.size(), std::size(table));
  for (std::size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(list[i].id, table[i].first);
    EXPECT_EQ(list[i].name, table[i].second);
  }
}

TEST(Registry, FindsNothingForUnknownIdsAndNames) {
  EXPECT_EQ(codec::find_decoder(std::uint16_t{9999}), nullptr);
  EXPECT_EQ(codec::find_decoder("Raw"), nullptr);
  EXPECT_EQ(codec::find_encoder(""), nullptr);
  EXPECT_FALSE(codec_accepts("none such", DType::f32, false));
}

TEST(PublicCodec, RoundTripsWithAndWithoutABase) {
  const auto data = codec::make_chunk(codec::Pattern::trained_like, DType::bf16, 3000, 1);
  const auto base = codec::make_base(codec::BaseKind::sparse, data, 2, 1);
  for (const CodecInfo& info : list_codecs()) {
    for (const bool with_base : {false, true}) {
      if (!codec_accepts(info.name, DType::bf16, with_base)) continue;
      if (info.name == "constant" || info.name == "same") continue;
      const auto room = max_encoded_size(info.name, DType::bf16, 3000);
      ASSERT_TRUE(room);
      std::vector<std::byte> payload(*room);
      const ConstByteSpan base_bytes = with_base ? ConstByteSpan(base) : ConstByteSpan();
      const auto size = encode_chunk(info.name, DType::bf16, data, base_bytes, payload);
      ASSERT_TRUE(size) << info.name << ": " << size.error().message();
      ASSERT_TRUE(*size) << info.name;
      std::vector<std::byte> out(data.size());
      const auto decoded = decode_chunk(info.name, DType::bf16, ConstByteSpan(payload).first(**size), base_bytes, out);
      ASSERT_TRUE(decoded) << info.name << ": " << decoded.error().message();
      EXPECT_EQ(out, data) << info.name;
    }
  }
}

void expect_invalid(const Error& error, std::string_view part_of_message) {
  EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
  EXPECT_NE(error.message().find(part_of_message), std::string::npos) << error.message();
}

TEST(PublicCodec, RefusesInvalidChunks) {
  std::vector<std::byte> bytes(8 * (kChunkElements + 1));
  std::vector<std::byte> out(bytes.size() + 64);
  const auto encode = [&](std::string_view codec, DType dtype, std::size_t size, std::size_t base_size) {
    return encode_chunk(codec, dtype, ConstByteSpan(bytes).first(size), ConstByteSpan(bytes).first(base_size), out)
        .error();
  };
  expect_invalid(encode("none such", DType::f32, 8, 0), "unknown codec 'none such'");
  expect_invalid(encode("raw", DType::f32, 0, 0), "a chunk of 0 bytes");
  expect_invalid(encode("raw", DType::f32, 7, 0), "a chunk of 7 bytes");
  expect_invalid(encode("raw", DType::f64, 8 * (kChunkElements + 1), 0), "not 1 to 262144 elements of F64");
  expect_invalid(encode("bitmask", DType::f32, 8, 12), "a base of 12 bytes for a chunk of 8 bytes");
  expect_invalid(encode("bitmask", DType::f32, 8, 0), "does not take F32 without a base");
  expect_invalid(encode("raw", DType::f32, 8, 8), "does not take F32 with a base");
  expect_invalid(encode("float_split", DType::i32, 8, 0), "does not take I32");
  expect_invalid(max_encoded_size("raw", DType::f32, 0).error(), "a chunk must have 1 to 262144 elements, got 0");
  expect_invalid(max_encoded_size("raw", DType::f32, kChunkElements + 1).error(), "got 262145");
}

TEST(PublicCodec, RejectsTooLittleRoomAndReturnsNulloptForInexpressibleChunks) {
  const auto data = codec::make_chunk(codec::Pattern::random, DType::u8, 100, 1);
  std::vector<std::byte> out(100);
  expect_invalid(encode_chunk("raw", DType::u8, data, {}, std::span(out).first(99)).error(),
                 "needs room for 100 bytes");
  const auto inexpressible = encode_chunk("constant", DType::u8, data, {}, out);
  ASSERT_TRUE(inexpressible);
  EXPECT_EQ(*inexpressible, std::nullopt);
}

TEST(PublicCodec, ReportsAnInvalidPayloadLikeTheCodec) {
  std::vector<std::byte> out(4);
  const auto decoded = decode_chunk("raw", DType::u8, ConstByteSpan(out).first(3), {}, out);
  ASSERT_FALSE(decoded);
  EXPECT_EQ(decoded.error().kind(), ErrorKind::truncated);
}

}  // namespace
}  // namespace bitsnap
