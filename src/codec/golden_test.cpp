// Payloads of earlier versions: decoders read them forever, and encoders still write them. tests/golden/README.md
// describes the files.
#include <gtest/gtest.h>

#include <bit>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "codec/coding_testing.hpp"
#include "codec/registry_encode.hpp"

namespace bitsnap::codec {
namespace {

std::vector<std::byte> read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  const std::vector<char> text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const ConstByteSpan bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

class GoldenPayloads : public testing::TestWithParam<const Encoder*> {
 protected:
  // Calls `body` with each golden case of the codec; returns the number of cases.
  template <typename Body>
  std::size_t for_each_case(Body&& body) {
    const std::filesystem::path folder =
        std::filesystem::path(BITSNAP_TESTS_DIR) / "golden" / "codec" / GetParam()->decoder().name();
    std::size_t cases = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() != ".payload") continue;
      SCOPED_TRACE(entry.path().string());
      const std::string stem = entry.path().stem().string();
      auto file = entry.path();
      TestChunk chunk{.dtype = dtype_from_name(stem.substr(0, stem.find('-'))),
                      .data = read_file(file.replace_extension(".raw")),
                      .base = {}};
      if (const auto rows = stem.find("-rows"); rows != std::string::npos) {
        const auto from = stem.find("from", rows);
        chunk.rows = {.row_elements = std::stoul(stem.substr(rows + 5)),
                      .first_column = std::stoul(stem.substr(from + 4))};
      }
      if (const auto lattice = stem.find("-lattice"); lattice != std::string::npos) {
        const auto number = [&](std::size_t at) {
          return std::bit_cast<float>(static_cast<std::uint32_t>(std::stoul(stem.substr(at, 8), nullptr, 16)));
        };
        chunk.lattice = Lattice{.a = number(lattice + 8), .b = number(lattice + 17)};
      }
      chunk.clusters.clear();
      if (std::filesystem::exists(file.replace_extension(".clusters"))) {
        const std::vector<std::byte> table = read_file(file);
        for (std::size_t at = 0; at + 8 <= table.size(); at += 8) {
          chunk.clusters.push_back({std::bit_cast<float>(load_le<std::uint32_t>(table.data() + at)),
                                    std::bit_cast<float>(load_le<std::uint32_t>(table.data() + at + 4))});
        }
      }
      if (std::filesystem::exists(file.replace_extension(".base"))) chunk.base = read_file(file);
      for (const DType peer : {DType::f32, DType::bf16}) {
        if (!std::filesystem::exists(file.replace_extension(dtype_name(peer)))) continue;
        chunk.base = read_file(file);
        chunk.kind = InputKind::peer;
        chunk.base_dtype = peer;
      }
      for (const auto& [extension, kind] : {std::pair("2-base", InputKind::base), std::pair("2-peer", InputKind::peer),
                                            std::pair("3-peer", InputKind::peer)}) {
        if (std::filesystem::exists(file.replace_extension(extension))) chunk.more.push_back({kind, read_file(file)});
      }
      body(read_file(entry.path()), chunk);
      ++cases;
    }
    return cases;
  }

  Scratch scratch_;
};

TEST_P(GoldenPayloads, DecodeToTheirOriginals) {
  const std::size_t cases = for_each_case([&](const std::vector<std::byte>& payload, const TestChunk& chunk) {
    const auto decoded = decode_test_chunk(GetParam()->decoder(), payload, chunk, scratch_);
    ASSERT_TRUE(decoded) << decoded.error().message();
    EXPECT_TRUE(*decoded == chunk.data);
  });
  EXPECT_GT(cases, 0U) << "run write_codec_golden";
}

TEST_P(GoldenPayloads, AreStillWrittenByTheEncoder) {
  if (GetParam()->decoder().id() == CodecId::zstd) GTEST_SKIP() << "its bytes depend on the version of libzstd";
  for_each_case([&](const std::vector<std::byte>& payload, const TestChunk& chunk) {
    EXPECT_TRUE(encode_test_chunk(*GetParam(), chunk, scratch_) == payload);
  });
}

INSTANTIATE_TEST_SUITE_P(All, GoldenPayloads, testing::ValuesIn(all_encoders().begin(), all_encoders().end()),
                         [](const auto& one) { return std::string(one.param->decoder().name()); });

}  // namespace
}  // namespace bitsnap::codec
