#include "interop/torch_legacy/torch_legacy.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "interop/container/contents_testing.hpp"
#include "interop/container/file_bytes_testing.hpp"
#include "interop/folder/container_conformance_testing.hpp"
#include "interop/pickle/pickle_testing.hpp"
#include "interop/torch_tensors/listing_testing.hpp"

namespace bitsnap::interop {
namespace {

std::string legacy_file(const std::string& name) {
  return read_interop_file(BITSNAP_TESTS_DIR, "torch_legacy/fixtures/" + name);
}

Result<Contents> contents_of_legacy(std::string_view file) {
  return read_torch_legacy(bytes_in_memory(as_byte_span(file)), {});
}

// The pickles and `data`; storage 0 has two floats.
std::string make_legacy(const std::string& object, const std::string& keys, const std::string& data) {
  return "\x80\x02\x8a\nl\xfc\x9c"
         "F\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.}." +
         object + "." + keys + "." + data;
}

const std::string kFloats =
    "(U\x07storagectorch\nFloatStorage\nU\x01"
    "0U\x03"
    "cpuK\x02NtQ";
const std::string kTwo("\x02\0\0\0\0\0\0\0", 8);

const std::string kKeys =
    "(U\x01"
    "0l";

std::vector<ContainerExample> sound_legacy_files() {
  std::vector<ContainerExample> files{{.bytes = make_legacy(kFloats, kKeys, kTwo + "abcdefgh")}};
  for (const char* name : {"tied", "views", "special"}) {
    files.push_back({.bytes = legacy_file(fmt::format("{}.pt", name))});
  }
  return files;
}

std::vector<ContainerExample> hostile_legacy_files(std::size_t bytes) {
  std::vector<ContainerExample> files;
  for (std::string pickle : hostile_pickles(bytes)) {
    files.push_back({.bytes = make_legacy(pickle.substr(0, pickle.size() - 1), kKeys, kTwo + "abcdefgh")});
    files.push_back({.bytes = make_legacy(kFloats, pickle.substr(0, pickle.size() - 1), kTwo + "abcdefgh")});
  }
  return files;
}

const ContainerRegistration kLegacyFiles({.format = "torch-legacy",
                                          .sound = sound_legacy_files,
                                          .hostile = hostile_legacy_files});

ErrorKind refusal_of_legacy(const std::string& file) {
  const Result<Contents> contents = contents_of_legacy(file);
  return contents ? ErrorKind::internal : contents.error().kind();
}

TEST(TorchLegacy, FindsTheBytesOfEveryTensor) {
  for (const std::string name : {"training", "tied", "views", "kinds", "special", "module", "root"}) {
    const std::string file = legacy_file(name + ".pt");
    const Result<Contents> contents = contents_of_legacy(file);
    ASSERT_TRUE(contents.has_value()) << name << ": " << contents.error().message();
    EXPECT_EQ(find_misplaced(*contents, file.size()), "") << name;
    EXPECT_EQ(compare_with_listing(file, *contents, legacy_file(name + ".txt")), "") << name;
  }
}

TEST(TorchLegacy, ReadsPicklesThatAreLongerThanTheFirstPiece) {
  const std::string padding(100'000, 'x');
  const std::string object = std::string("(X\xa0\x86\x01\0", 6) + padding + kFloats + "t";
  const Result<Contents> contents = contents_of_legacy(make_legacy(object,
                                                                   "(U\x01"
                                                                   "0l",
                                                                   kTwo + "abcdefgh"));
  ASSERT_TRUE(contents.has_value()) << contents.error().message();
  EXPECT_EQ(describe_contents(*contents), "data/0 F32 [2]");
}

TEST(TorchLegacy, ReadsStoragesThatArePartsOfOthers) {
  // The tensor begins at element 0 of a part that begins at element 1.
  const std::string object =
      "ctorch._utils\n_rebuild_tensor\n((U\x07storagectorch\nFloatStorage\nU\x01"
      "0U\x03"
      "cpuK\x02"
      "(U\x01"
      "1K\x01K\x01ttQ" +
      std::string("K\0", 2) + "K\x01\x85K\x01\x85tR";
  const Result<Contents> contents = contents_of_legacy(make_legacy(object,
                                                                   "(U\x01"
                                                                   "0l",
                                                                   kTwo + "abcdefgh"));
  ASSERT_TRUE(contents.has_value()) << contents.error().message();
  EXPECT_EQ(describe_contents(*contents), "data/0 F32 [1], tensor F32 [1]");
}

TEST(TorchLegacy, RejectsStoragesThatContradictThePickle) {
  EXPECT_EQ(refusal_of_legacy(make_legacy(kFloats, kKeys, kTwo + "abcdefgh")), ErrorKind::internal);
  EXPECT_EQ(refusal_of_legacy(make_legacy(kFloats, kKeys, kTwo + "abcdefg")), ErrorKind::truncated);
  EXPECT_EQ(refusal_of_legacy(make_legacy(kFloats, kKeys, "abc")), ErrorKind::truncated);
  EXPECT_EQ(refusal_of_legacy(make_legacy(kFloats, kKeys, "abcdefgh")), ErrorKind::corrupt);
  EXPECT_EQ(refusal_of_legacy(make_legacy(kFloats,
                                          "(U\x01"
                                          "0U\x01"
                                          "0l",
                                          kTwo + "abcdefgh")),
            ErrorKind::corrupt);
  EXPECT_EQ(refusal_of_legacy(make_legacy(kFloats,
                                          "(U\x01"
                                          "1l",
                                          kTwo + "abcdefgh")),
            ErrorKind::corrupt);
  EXPECT_EQ(refusal_of_legacy(make_legacy(kFloats, "]", kTwo + "abcdefgh")), ErrorKind::corrupt);
  EXPECT_EQ(refusal_of_legacy(make_legacy(kFloats, "N", kTwo + "abcdefgh")), ErrorKind::corrupt);
  const std::string unknown =
      "(U\x07storagecm\nX\nU\x01"
      "0U\x03"
      "cpuK\x02tQ";
  EXPECT_EQ(refusal_of_legacy(make_legacy(unknown, kKeys, kTwo + "abcdefgh")), ErrorKind::unsupported);
}

TEST(TorchLegacy, RejectsOtherFiles) {
  EXPECT_EQ(refusal_of_legacy(""), ErrorKind::unsupported);
  EXPECT_EQ(refusal_of_legacy("N."), ErrorKind::unsupported);
  EXPECT_EQ(refusal_of_legacy("PK\x03\x04"), ErrorKind::unsupported);
  EXPECT_EQ(refusal_of_legacy("\x80\x02\x8a\nl\xfc\x9c"
                              "F\xf9 j\xa8P\x19.K\x01."),
            ErrorKind::unsupported);
}

}  // namespace
}  // namespace bitsnap::interop
