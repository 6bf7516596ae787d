#include "interop/torch_zip/torch_zip.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "interop/container/contents_testing.hpp"
#include "interop/container/file_bytes_testing.hpp"
#include "interop/folder/container_conformance_testing.hpp"
#include "interop/pickle/pickle_testing.hpp"
#include "interop/torch_tensors/listing_testing.hpp"
#include "interop/zip/zip_testing.hpp"

namespace bitsnap::interop {
namespace {

using std::string_literals::operator""s;

Result<Contents> contents_of_torch_zip(std::string_view file) {
  return read_torch_zip(bytes_in_memory(as_byte_span(file)), {});
}

void expect_torch_zip_matches(const std::string& name) {
  const std::string file = read_interop_file(BITSNAP_TESTS_DIR, "torch_zip/fixtures/" + name + ".pt");
  const Result<Contents> contents = contents_of_torch_zip(file);
  ASSERT_TRUE(contents.has_value()) << name << ": " << contents.error().message();
  EXPECT_EQ(find_misplaced(*contents, file.size()), "") << name;
  EXPECT_EQ(compare_with_listing(file, *contents,
                                 read_interop_file(BITSNAP_TESTS_DIR, "torch_zip/fixtures/" + name + ".txt")),
            "");
}

std::string described_torch_zip(const std::string& name) {
  const Result<Contents> contents =
      contents_of_torch_zip(read_interop_file(BITSNAP_TESTS_DIR, "torch_zip/fixtures/" + name + ".pt"));
  return contents ? describe_contents(*contents) : contents.error().message();
}

// An archive with this pickle and one storage of `bytes` bytes.
Result<Contents> contents_of_pickle(const std::string& pickle, std::size_t bytes = 8) {
  return contents_of_torch_zip(make_stored_zip({{"x/data.pkl", pickle}, {"x/data/0", std::string(bytes, 'e')}}));
}

// The call that rebuilds a tensor of `bytes` in storage 0.
std::string tensor_call(const std::string& offset, const std::string& shape, const std::string& stride,
                        const std::string& elements = "K\x02") {
  return "ctorch._utils\n_rebuild_tensor_v2\n((U\x07storagectorch\nFloatStorage\nU\x01"
         "0U\x03"
         "cpu" +
         elements + "tQ" + offset + shape + stride + "NNtR";
}

// Archives whose pickle names two tensors of one storage, and those of torch.
std::vector<ContainerExample> sound_torch_archives() {
  const std::string call = tensor_call(std::string("K\0", 2), "K\x02\x85", "K\x01\x85");
  std::vector<ContainerExample> files{
      {.bytes =
           make_stored_zip({{"x/data.pkl", "}U\x01w" + call + "sU\x01v" + call + "s."}, {"x/data/0", "12345678"}})}};
  for (const char* name : {"tied", "views", "special", "big_endian"}) {
    files.push_back({.bytes = read_interop_file(BITSNAP_TESTS_DIR, fmt::format("torch_zip/fixtures/{}.pt", name))});
  }
  return files;
}

std::vector<ContainerExample> hostile_torch_archives(std::size_t bytes) {
  std::vector<ContainerExample> files;
  for (const std::string& pickle : hostile_pickles(bytes)) {
    files.push_back({.bytes = make_stored_zip({{"x/data.pkl", pickle}, {"x/data/0", "12345678"}})});
  }
  std::vector<std::pair<std::string, std::string>> entries{{"x/data.pkl", "N."}};
  for (std::size_t i = 0; i < bytes / 100; ++i) entries.emplace_back(fmt::format("x/data/{}", i), "1");
  files.push_back({.bytes = make_stored_zip(entries)});
  return files;
}

const ContainerRegistration kTorchArchives({.format = "torch-zip",
                                            .sound = sound_torch_archives,
                                            .hostile = hostile_torch_archives});

ErrorKind refusal_of_tensor(const std::string& call) {
  const Result<Contents> contents = contents_of_pickle(call + ".");
  return contents ? ErrorKind::internal : contents.error().kind();
}

TEST(TorchZip, FindsTheBytesOfEveryTensor) {
  for (const char* name :
       {"training", "tied", "views", "kinds", "special", "module", "root", "aligned_1", "aligned_512", "script"}) {
    expect_torch_zip_matches(name);
  }
}

TEST(TorchZip, GivesSharedBytesToOneTensor) {
  EXPECT_EQ(described_torch_zip("tied"),
            "embed F32 [6, 4], | head F32 [6, 4] [4, 1], | same F32 [6, 4] [4, 1], | flat F32 [24] [1]");
}

TEST(TorchZip, SplitsStoragesAmongTheirTensors) {
  EXPECT_EQ(described_torch_zip("views"),
            "split.a F32 [4, 4], split.b F32 [24], split.c F32 [8], "
            "data/1 F32 [4], gaps.a F32 [4], data/1#2 F32 [12], gaps.b F32 [10], data/1#3 F32 [18], "
            "column F32 [48], overlap.a F32 [48], base.whole F32 [48], transposed F32 [15], expanded F32 [3], "
            "| gaps.tied F32 [10] [1], | column F32 [6] [8], | overlap.a F32 [30] [1], "
            "| overlap.b F32 [28] [1], | base.matrix F32 [8, 6] [1, 8], | base.part F32 [6] [1], "
            "| transposed F32 [5, 3] [1, 5], | expanded F32 [3, 4] [1, 0]");
}

TEST(TorchZip, MakesTensorsOfTheOtherByteOrderOpaque) {
  EXPECT_EQ(described_torch_zip("big_endian"), "a I32_BE [4], b U8 [3]");
}

TEST(TorchZip, FindsTheConstantsOfTorchScript) {
  EXPECT_EQ(described_torch_zip("frozen"), "constants.0 F32 [2, 3], constants.1 F32 [2]");
}

TEST(TorchZip, NamesTensorsThatNoPickleNames) {
  const Result<Contents> contents = contents_of_torch_zip(make_stored_zip({{"x/data.pkl", "N."},
                                                                           {"x/data/0", "abc"},
                                                                           {"x/data/1", ""},
                                                                           {"x/data/\xff", "d"},
                                                                           {"x/other/2", "e"},
                                                                           {"x/byteorder", "little"}}));
  ASSERT_TRUE(contents.has_value()) << contents.error().message();
  EXPECT_EQ(describe_contents(*contents), "data/0 U8 [3], data/\\xff U8 [1]");
}

TEST(TorchZip, RejectsTensorsThatExceedTheirStorage) {
  const std::string one = "K\x01\x85";
  const std::string two = "K\x02\x85";
  const std::string zero("K\0", 2);
  EXPECT_EQ(describe_contents(contents_of_pickle(tensor_call(zero, two, one) + ".").value()), "tensor F32 [2]");
  EXPECT_EQ(refusal_of_tensor(tensor_call("K\x01", two, one)), ErrorKind::corrupt);
  EXPECT_EQ(refusal_of_tensor(tensor_call(zero, two, two)), ErrorKind::corrupt);
  EXPECT_EQ(refusal_of_tensor(tensor_call(zero, two, one, "K\x03")), ErrorKind::corrupt);
  EXPECT_EQ(refusal_of_tensor(tensor_call(zero, two, one, "J\xff\xff\xff\xff")), ErrorKind::corrupt);
  EXPECT_EQ(refusal_of_tensor(tensor_call("J\xff\xff\xff\xff", two, one)), ErrorKind::corrupt);
  EXPECT_EQ(refusal_of_tensor(tensor_call(zero, "J\xff\xff\xff\xff\x85", one)), ErrorKind::corrupt);
  EXPECT_EQ(refusal_of_tensor(tensor_call(zero, two, "K\x01K\x01\x86")), ErrorKind::corrupt);
  const std::string huge = "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f";
  EXPECT_EQ(refusal_of_tensor(tensor_call(huge, two, one)), ErrorKind::corrupt);
  EXPECT_EQ(refusal_of_tensor(tensor_call(zero, huge + huge + "\x86", "K\x01K\x01\x86")), ErrorKind::corrupt);
  EXPECT_EQ(refusal_of_tensor(tensor_call(zero, two, huge + "\x85")), ErrorKind::corrupt);
}

TEST(TorchZip, RejectsOtherArchives) {
  const auto refusal = [](const std::string& file) {
    const Result<Contents> contents = contents_of_torch_zip(file);
    return contents ? ErrorKind::internal : contents.error().kind();
  };
  EXPECT_EQ(refusal(make_stored_zip({{"arr_0.npy", "x"}})), ErrorKind::unsupported);
  EXPECT_EQ(refusal(make_stored_zip({})), ErrorKind::unsupported);
  EXPECT_EQ(refusal(make_stored_zip({{"x/data.pkl", "N."}, {"x/byteorder", "middle"}})), ErrorKind::corrupt);
  MadeEntry compressed;
  compressed.name = "x/data.pkl";
  compressed.data = "N.";
  compressed.method = 8;
  EXPECT_EQ(refusal(make_zip({compressed})), ErrorKind::unsupported);
  EXPECT_EQ(refusal(make_stored_zip({{"x/data.pkl", tensor_call("K\x01", ")", ")") + "."}})), ErrorKind::corrupt);
}

TEST(TorchZip, NamesTensorsBelowDeepAndLongKeys) {
  const std::string call = tensor_call(std::string("K\0", 2), "K\x02\x85", "K\x01\x85");
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "}U\x05layer";
  EXPECT_EQ(describe_contents(contents_of_pickle(deep + call + std::string(100'000, 's') + ".").value()),
            "data/0 F32 [2]");
  const std::string long_key = "}X\x00\x10\x00\x00"s + std::string(4096, 'k');
  EXPECT_EQ(describe_contents(contents_of_pickle(long_key + call + "s.").value()), "data/0 F32 [2]");
  EXPECT_EQ(describe_contents(contents_of_pickle("}U\x02\xff." + call + "s.").value()), "\\xff. F32 [2]");
}

TEST(TorchZip, NamesTensorsInContainersOfPython2) {
  const std::string call = tensor_call(std::string("K\0", 2), "K\x02\x85", "K\x01\x85");
  EXPECT_EQ(describe_contents(contents_of_pickle("ccollections\nOrderedDict\n](]U\x01"
                                                 "a"
                                                 "a" +
                                                 call + "ae\x85R.")
                                  .value()),
            "a F32 [2]");
}

TEST(TorchZip, TakesLinearTimeForHostileGraphs) {
  const std::string call = tensor_call(std::string("K\0", 2), "K\x02\x85", "K\x01\x85");
  // Tuples that hold the one before twice, a list in itself, and many names for one tensor.
  std::string bomb = call;
  for (int i = 0; i < 50'000; ++i) bomb += "2\x86";
  EXPECT_TRUE(contents_of_pickle(bomb + ".").has_value());
  EXPECT_TRUE(contents_of_pickle("]q\x01h\x01"
                                 "a.")
                  .has_value());
  const auto named = [&](std::size_t times) {
    return contents_of_pickle("](" + call + std::string(times, '2') + "e.");
  };
  const Result<Contents> few = named(1000);
  ASSERT_TRUE(few.has_value()) << few.error().message();
  EXPECT_EQ(few->tensors.size(), 1U);
  EXPECT_EQ(few->views.size(), 1000U);
  EXPECT_EQ(named(1'000'000).error().kind(), ErrorKind::resource_exhausted);
}

}  // namespace
}  // namespace bitsnap::interop
