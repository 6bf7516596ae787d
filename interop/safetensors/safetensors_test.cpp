// Tests of the safetensors header, and of files that round-trip through a snapshot byte for byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <bitsnap/safetensors.hpp>

#include "base/bytes.hpp"
#include "interop/container/file_bytes_testing.hpp"
#include "interop/folder/container_conformance_testing.hpp"
#include "interop/safetensors/safetensors_contents.hpp"
#include "os/file_system.hpp"
#include "os/temporary_directory_testing.hpp"

namespace bitsnap {
namespace {

std::string safetensors_file(const std::string& header, const std::string& data) {
  std::string file(sizeof(std::uint64_t), '\0');
  store_le<std::uint64_t>(reinterpret_cast<std::byte*>(file.data()), header.size());
  return file + header + data;
}

std::vector<interop::ContainerExample> sound_safetensors() {
  return {
      {.bytes = safetensors_file(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})", "12345678")},
      {.bytes = safetensors_file(
           R"({"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]},"a":{"dtype":"BF16","shape":[1,1],"data_offsets":)"
           R"([0,2]},"e":{"dtype":"F32","shape":[0],"data_offsets":[2,2]},"w":{"dtype":"F4","shape":[6],)"
           R"("data_offsets":[6,9]},"__metadata__":{"format":"pt","bitsnap.tree":"{\"tensor\":1}"}}  )",
           "aabbbbwww")}};
}

std::vector<interop::ContainerExample> hostile_safetensors(std::size_t bytes) {
  using interop::repeat;
  const auto tensors = [](std::size_t count, const std::string& name) {
    std::string header = "{";
    for (std::size_t i = 0; i < count; ++i) {
      header += fmt::format(R"({}"{}{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", i > 0 ? "," : "", name, i);
    }
    return header + "}";
  };
  const std::string dimensions = "[0" + repeat(",1", 254) + "]";
  std::string deep_shapes = "{";
  for (std::size_t i = 0; i < bytes / 560; ++i) {
    deep_shapes +=
        fmt::format(R"({}"{}":{{"dtype":"U8","shape":{},"data_offsets":[0,0]}})", i > 0 ? "," : "", i, dimensions);
  }
  std::string metadata = R"({"__metadata__":{"")";
  metadata.pop_back();
  for (std::size_t i = 0; i < bytes / 10; ++i) metadata += fmt::format(R"({}"{}":"")", i > 0 ? "," : "", i);
  std::vector<interop::ContainerExample> files;
  for (const std::string& header :
       {std::string(bytes, '['), repeat(R"({"a":)", bytes / 5), tensors(bytes / 52, ""),
        tensors(7, std::string(bytes / 7, 'n')), deep_shapes + "}", metadata + "}}",
        R"({"a":{"dtype":"U8","shape":[)" + repeat("1,", bytes / 2) + "1]}}",
        R"({"a":{"dtype":")" + std::string(bytes, 'd') + R"(","shape":[0],"data_offsets":[0,0]}})"}) {
    files.push_back({.bytes = safetensors_file(header, "")});
  }
  return files;
}

const interop::ContainerRegistration kSafetensorsFiles(
    {.format = "safetensors", .sound = sound_safetensors, .hostile = hostile_safetensors, .cut = ErrorKind::truncated});

class SafetensorsTest : public testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const { return directory_ / name; }

  void write(const std::string& name, const std::string& header, const std::string& data) const {
    std::ofstream(path(name), std::ios::binary) << safetensors_file(header, data);
  }

  [[nodiscard]] std::string contents(const std::string& name) const {
    const auto bytes = os::read_file(os::real_file_system(), path(name), UINT64_MAX).value();
    return std::string(as_text(bytes));
  }

  void expect_round_trip(const std::string& header, const std::string& data) const {
    write("in.safetensors", header, data);
    const auto state = open_safetensors(path("in.safetensors"));
    ASSERT_TRUE(state.has_value()) << state.error().message();
    const auto saved = save_snapshot(path("x.bsnap"), *state, {.overwrite = true});
    ASSERT_TRUE(saved.has_value()) << saved.error().message();
    const auto snapshot = Snapshot::open(path("x.bsnap"));
    ASSERT_TRUE(snapshot.has_value()) << snapshot.error().message();
    const auto exported = export_safetensors(**snapshot, path("out.safetensors"), true);
    ASSERT_TRUE(exported.has_value()) << exported.error().message();
    EXPECT_EQ(contents("in.safetensors"), contents("out.safetensors"));
    EXPECT_EQ(exported->bytes, contents("in.safetensors").size());
  }

  [[nodiscard]] Error refusal(const std::string& header, const std::string& data) const {
    write("bad.safetensors", header, data);
    const auto state = open_safetensors(path("bad.safetensors"));
    if (state) return Error(ErrorKind::internal, "was accepted");
    return state.error();
  }

  os::TemporaryDirectory directory_;
};

TEST_F(SafetensorsTest, RoundTripsFilesByteForByte) {
  expect_round_trip("{}", "");
  expect_round_trip("{}      ", "");
  expect_round_trip(R"({"__metadata__":{"format":"pt","note":"a\u00e9\"b"}})", "");
  // Data in another order than the header, unusual spacing, an empty tensor, a scalar, a sub-byte and an unknown dtype.
  expect_round_trip(
      R"({ "b" : {"dtype":"F32","shape":[2],"data_offsets":[4,12]},"a":{"dtype":"I32","shape":[],"data_offsets":[0,4]},)"
      R"("e":{"dtype":"BF16","shape":[0,7],"data_offsets":[12,12]},"q":{"dtype":"F4","shape":[6],"data_offsets":[12,15]},)"
      R"("u":{"data_offsets":[15,20],"shape":[3,3],"dtype":"WEIRD"}}   )",
      std::string("\x01\x02\x03\x04........abcdefgh", 20));
  expect_round_trip(R"({"":{"dtype":"U8","shape":[9000],"data_offsets":[0,9000]}})", std::string(9000, 'z'));
}

TEST_F(SafetensorsTest, RejectsBrokenFilesByNameAndKind) {
  const std::string eight(8, 'x');
  const auto expect_corrupt = [&](const std::string& header, const std::string& data, const std::string& part) {
    const Error error = refusal(header, data);
    EXPECT_EQ(error.kind(), ErrorKind::corrupt) << error.message();
    EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("bad.safetensors"), std::string::npos) << error.message();
  };
  expect_corrupt("", "", "JSON");
  expect_corrupt("[]", "", "an array");
  expect_corrupt("null", "", "null");
  expect_corrupt("{} x", "", "JSON");
  expect_corrupt(R"({"a":1})", "", "'a': expected an object, found an integer");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[8]}})", eight, "'a'");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8],"x":1}})", eight, "unknown key");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[8],"shape":[8],"data_offsets":[0,8]}})", eight, "twice");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[7],"data_offsets":[0,8]}})", eight, "need 7 bytes");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[-8],"data_offsets":[0,8]}})", eight, "negative");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[8.0],"data_offsets":[0,8]}})", eight, "a number with a fraction");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[[8]],"data_offsets":[0,8]}})", eight, "an array");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[8,0]}})", eight, "ascending");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8,9]}})", eight, "ascending");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", eight, "gap");
  expect_corrupt(
      R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
      eight, "overlap");
  expect_corrupt(
      R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
      eight, "twice");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", eight, "take 4 bytes");
  expect_corrupt(R"({"a":{"dtype":"F64","shape":[9223372036854775807,3],"data_offsets":[0,8]}})", eight,
                 "2^63 - 1 bytes");
  expect_corrupt(R"({"__metadata__":{"a":1}})", "", "__metadata__: key 'a': expected a string, found an integer");
  expect_corrupt(R"({"__metadata__":null})", "", "null");
  expect_corrupt(R"({"__metadata__":{"a":"x","a":"y"}})", "", "twice");
  expect_corrupt("{\"\xC3(\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}", eight, "JSON");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})", eight).kind(), ErrorKind::truncated);
  EXPECT_EQ(refusal(std::string(100'000, '['), "").kind(), ErrorKind::corrupt);
}

TEST_F(SafetensorsTest, RejectsAHeaderThatContradictsTheTensors) {
  write("in.safetensors",
        R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
        "AAAABBBB");
  State state = open_safetensors(path("in.safetensors")).value();
  std::swap(state.tensors[0], state.tensors[1]);
  ASSERT_TRUE(save_snapshot(path("x.bsnap"), state).has_value());
  const auto snapshot = Snapshot::open(path("x.bsnap")).value();
  EXPECT_EQ(export_safetensors(*snapshot, path("out.safetensors"), false).error().kind(), ErrorKind::corrupt);
  EXPECT_EQ(os::real_file_system().stat(path("out.safetensors")).value().exists, false);
}

TEST_F(SafetensorsTest, RejectsExportingASnapshotOverItself) {
  const State nothing;
  ASSERT_TRUE(save_snapshot(path("x.bsnap"), nothing).has_value());
  const auto snapshot = Snapshot::open(path("x.bsnap")).value();
  EXPECT_EQ(export_safetensors(*snapshot, path("x.bsnap"), true).error().kind(), ErrorKind::invalid_argument);
}

TEST_F(SafetensorsTest, FindsTheTensorsWithBytesInAFile) {
  const std::string header =
      R"({"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]},"e":{"dtype":"F32","shape":[0],"data_offsets":[2,2]},)"
      R"("a":{"dtype":"BF16","shape":[1,1],"data_offsets":[0,2]},"__metadata__":{"format":"pt"}})";
  write("a.safetensors", header, "aabbbb");
  const std::string file = contents("a.safetensors");
  const auto found = interop::read_safetensors(interop::bytes_in_memory(as_byte_span(file)), {});
  ASSERT_TRUE(found.has_value()) << found.error().message();
  EXPECT_TRUE(found->views.empty());
  ASSERT_EQ(found->tensors.size(), 2U);
  EXPECT_EQ(found->tensors[0].info.name, "a");
  EXPECT_EQ(found->tensors[0].info.dtype, DType::bf16);
  EXPECT_EQ(found->tensors[0].offset, 8 + header.size());
  EXPECT_EQ(found->tensors[1].info.name, "b");
  EXPECT_EQ(found->tensors[1].info.shape, std::vector<std::uint64_t>{4});
  EXPECT_EQ(found->tensors[1].offset, 8 + header.size() + 2);
}

// interop/safetensors/spec.md
TEST_F(SafetensorsTest, ReadsTheExampleOfTheSpecification) {
  const std::string header =
      R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]},"a":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]}})"
      "   ";
  const std::string file = std::string("\x70\0\0\0\0\0\0\0", 8) + header + std::string("\x80\x3f\0\xc0\x07\x08", 6);
  EXPECT_EQ(file.size(), 126U);
  const auto found = interop::read_safetensors(interop::bytes_in_memory(as_byte_span(file)), {});
  ASSERT_TRUE(found.has_value()) << found.error().message();
  ASSERT_EQ(found->tensors.size(), 2U);
  EXPECT_EQ(found->tensors[0].info.name, "a");
  EXPECT_EQ(found->tensors[0].offset, 120U);
  EXPECT_EQ(found->tensors[1].info.name, "b");
  EXPECT_EQ(found->tensors[1].offset, 124U);
}

TEST_F(SafetensorsTest, SaysWhereAndWhatOfATensorIsWrong) {
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[2,4],"data_offsets":[0,7]}})", "1234567").message(),
              testing::EndsWith(
                  "tensor 'a': dtype U8 and shape [2, 4] need 8 bytes, but its data_offsets [0, 7] span 7 bytes"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[1,4]}})", "1234").message(),
              testing::EndsWith("tensor 'a': its 3 bytes begin at offset 1 of the data, expected 0 (gap)"));
}

TEST_F(SafetensorsTest, DetectsFileKinds) {
  write("a.safetensors", "{}", "");
  EXPECT_EQ(detect_file_kind(path("a.safetensors")).value(), FileKind::safetensors);
  const State nothing;
  ASSERT_TRUE(save_snapshot(path("a.bsnap"), nothing).has_value());
  EXPECT_EQ(detect_file_kind(path("a.bsnap")).value(), FileKind::snapshot);
  std::ofstream(path("text")) << "just a text file, long enough";
  EXPECT_EQ(detect_file_kind(path("text")).value(), FileKind::other);
  EXPECT_EQ(detect_file_kind(path("none")).error().kind(), ErrorKind::not_found);
}

TEST_F(SafetensorsTest, MakesAHeaderForAStateWithoutOne) {
  const std::string data = "abcdefgh";
  State state;
  state.metadata = {{"format", "pt"}};
  state.tree = Value(Value::Variant(std::string("hello")));
  state.tensors.push_back(TensorSource::of("quo\"te", DType::u16, {2, 2}, data).value());
  ASSERT_TRUE(save_snapshot(path("x.bsnap"), state).has_value());
  const auto snapshot = Snapshot::open(path("x.bsnap")).value();
  ASSERT_TRUE(export_safetensors(*snapshot, path("out.safetensors"), false).has_value());
  EXPECT_EQ(export_safetensors(*snapshot, path("out.safetensors"), false).error().kind(), ErrorKind::invalid_argument);
  const auto again = open_safetensors(path("out.safetensors"));
  ASSERT_TRUE(again.has_value()) << again.error().message();
  ASSERT_EQ(again->tensors.size(), 1U);
  EXPECT_EQ(again->tensors[0].info.name, "quo\"te");
  EXPECT_EQ(again->metadata,
            (std::vector<std::pair<std::string, std::string>>{{"format", "pt"}, {"bitsnap.tree", "\"hello\""}}));
  std::string read(8, '\0');
  ASSERT_TRUE(again->tensors[0].read(0, std::as_writable_bytes(std::span(read))).has_value());
  EXPECT_EQ(read, data);
}

}  // namespace
}  // namespace bitsnap
