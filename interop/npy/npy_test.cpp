// Arrays of numpy, and headers that numpy does not write.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "interop/container/file_bytes_testing.hpp"
#include "interop/folder/container_conformance_testing.hpp"
#include "interop/npy/npy.hpp"
#include "interop/zip/zip_testing.hpp"
#include "os/file_system.hpp"

namespace bitsnap::interop {
namespace {

using Shape = std::vector<std::uint64_t>;

std::string npy_fixture(const std::string& name) {
  const auto path = std::filesystem::path(BITSNAP_TESTS_DIR).parent_path() / "interop" / "npy" / "fixtures" / name;
  return std::string(as_text(os::read_file(os::real_file_system(), path.string(), UINT64_MAX).value()));
}

Result<Contents> read_array(const std::string& file) { return read_npy(bytes_in_memory(as_byte_span(file)), {}); }

// A file of version 1 with this header.
std::string made_npy(std::string_view header, std::size_t data_bytes) {
  std::string file = "\x93NUMPY\x01";
  file.push_back('\0');
  file.push_back(static_cast<char>(header.size() & 0xffU));
  file.push_back(static_cast<char>(header.size() >> 8U));
  file += header;
  return file + std::string(data_bytes, 'd');
}

std::string npy_header_with(std::string_view type, std::string_view shape) {
  return fmt::format("{{'descr': {}, 'fortran_order': False, 'shape': {}, }}   \n", type, shape);
}

// Of version 2, whose headers may be long.
std::string made_npy2(std::string_view header) {
  std::string file("\x93NUMPY\x02\0\0\0\0\0", 12);
  store_le(reinterpret_cast<std::byte*>(file.data()) + 8, static_cast<std::uint32_t>(header.size()));
  return file + std::string(header);
}

std::string fortran_npy() { return made_npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n", 24); }

std::vector<ContainerExample> sound_npy_files() {
  return {
      {.bytes = made_npy(npy_header_with("'<f4'", "(2, 3)"), 24)},
      {.bytes = fortran_npy()},
      {.bytes = made_npy(npy_header_with("[(('title', 'a'), '<M8[25ns]', (2,)), ('b', [('c', '|u1')])]", "(3,)"), 51)},
      {.bytes = npy_fixture("version3.npy")}};
}

std::vector<ContainerExample> hostile_npy_files(std::size_t bytes) {
  return {{.bytes = made_npy2(npy_header_with(repeat("[('a', ", bytes / 7), "(1,)"))},
          {.bytes = made_npy2(npy_header_with("[" + repeat("('', '<f4'), ", bytes / 13) + "]", "(0,)"))},
          {.bytes = made_npy2(npy_header_with("[('', '<f4', (" + repeat("1, ", bytes / 3) + "))]", "(0,)"))},
          {.bytes = made_npy2(npy_header_with("'<f4'", "(" + repeat("1, ", bytes / 3) + ")"))},
          {.bytes = made_npy2(npy_header_with("'<M8[" + std::string(bytes, 's') + "]'", "(0,)"))},
          {.bytes = made_npy2(std::string(bytes, ' '))},
          {.bytes = made_npy("{'descr': '<f4", bytes)}};
}

const ContainerRegistration kNpyFiles(
    {.format = "npy", .sound = sound_npy_files, .hostile = hostile_npy_files, .cut = ErrorKind::truncated});

std::vector<ContainerExample> sound_npz_files() {
  return {{.bytes = make_stored_zip({{"a.npy", made_npy(npy_header_with("'<i8'", "(2,)"), 16)},
                                     {"text.txt", "text"},
                                     {"layer/b.npy", fortran_npy()}})}};
}

// Thousands of arrays, a long name, and the hostile headers.
std::vector<ContainerExample> hostile_npz_files(std::size_t bytes) {
  std::vector<std::pair<std::string, std::string>> arrays;
  for (std::size_t i = 0; i < bytes / 200; ++i) {
    arrays.emplace_back(fmt::format("{}.npy", i), made_npy(npy_header_with("'|u1'", "(1,)"), 1));
  }
  std::vector<ContainerExample> files{
      {.bytes = make_stored_zip(arrays)},
      {.bytes = make_stored_zip({{std::string(std::min<std::size_t>(bytes / 2, 65'000), 'n') + ".npy",
                                  made_npy(npy_header_with("'|u1'", "(1,)"), 1)}})}};
  for (const ContainerExample& array : hostile_npy_files(bytes)) {
    files.push_back({.bytes = make_stored_zip({{"a.npy", array.bytes}})});
  }
  return files;
}

const ContainerRegistration kNpzFiles({.format = "npz", .sound = sound_npz_files, .hostile = hostile_npz_files});

struct NpyCase {
  const char* file;
  const char* dtype_name;
  std::size_t element_bytes;
};

class NpyTypeTest : public testing::TestWithParam<NpyCase> {};

TEST_P(NpyTypeTest, FindsTheArray) {
  const std::string file = npy_fixture(GetParam().file);
  const auto contents = read_array(file);
  ASSERT_TRUE(contents.has_value()) << contents.error().message();
  EXPECT_TRUE(contents->views.empty());
  ASSERT_EQ(contents->tensors.size(), 1U);
  const FoundTensor& found = contents->tensors[0];
  EXPECT_EQ(found.info.name, "array");
  EXPECT_EQ(found.info.dtype_name, GetParam().dtype_name);
  EXPECT_EQ(found.info.dtype, dtype_from_name(GetParam().dtype_name));
  EXPECT_EQ(found.info.shape, (Shape{2, 3}));
  EXPECT_EQ(found.info.size_bytes, 6 * GetParam().element_bytes);
  EXPECT_EQ(found.offset + found.info.size_bytes, file.size());
  EXPECT_EQ(found.offset % 64, 0U);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, NpyTypeTest,
                         testing::Values(NpyCase{"b1.npy", "BOOL", 1}, NpyCase{"u1.npy", "U8", 1},
                                         NpyCase{"i1.npy", "I8", 1}, NpyCase{"little_u2.npy", "U16", 2},
                                         NpyCase{"little_i2.npy", "I16", 2}, NpyCase{"little_u4.npy", "U32", 4},
                                         NpyCase{"little_i4.npy", "I32", 4}, NpyCase{"little_u8.npy", "U64", 8},
                                         NpyCase{"little_i8.npy", "I64", 8}, NpyCase{"little_f2.npy", "F16", 2},
                                         NpyCase{"little_f4.npy", "F32", 4}, NpyCase{"little_f8.npy", "F64", 8},
                                         NpyCase{"little_c8.npy", "C64", 8}, NpyCase{"big_f4.npy", ">f4", 4},
                                         NpyCase{"big_i8.npy", ">i8", 8}, NpyCase{"little_c16.npy", "<c16", 16},
                                         NpyCase{"little_u3.npy", "<U3", 12}, NpyCase{"s5.npy", "|S5", 5},
                                         NpyCase{"v3.npy", "|V3", 3}, NpyCase{"little_m8_25ns.npy", "<M8[25ns]", 8},
                                         NpyCase{"bfloat16.npy", "<V2", 2}, NpyCase{"version2.npy", "F32", 4},
                                         NpyCase{"version3.npy", "F32", 4}),
                         [](const auto& test_case) {
                           const std::string_view file = test_case.param.file;
                           return std::string(file.substr(0, file.find('.')));
                         });

TEST(Npy, ReadsScalarsAndEmptyArrays) {
  const auto scalar = read_array(npy_fixture("scalar.npy"));
  ASSERT_TRUE(scalar.has_value()) << scalar.error().message();
  ASSERT_EQ(scalar->tensors.size(), 1U);
  EXPECT_EQ(scalar->tensors[0].info.shape, Shape{});
  EXPECT_EQ(scalar->tensors[0].info.size_bytes, 4U);
  const auto empty = read_array(npy_fixture("empty.npy"));
  ASSERT_TRUE(empty.has_value()) << empty.error().message();
  EXPECT_TRUE(empty->tensors.empty());
}

TEST(Npy, DescribesFortranOrderByStrides) {
  const std::string file = npy_fixture("fortran.npy");
  const auto contents = read_array(file);
  ASSERT_TRUE(contents.has_value()) << contents.error().message();
  ASSERT_EQ(contents->tensors.size(), 1U);
  EXPECT_EQ(contents->tensors[0].info.shape, Shape{24});
  EXPECT_EQ(contents->tensors[0].info.dtype, DType::f32);
  ASSERT_EQ(contents->views.size(), 1U);
  const TensorView& view = contents->views[0];
  EXPECT_EQ(view.name, "array");
  EXPECT_EQ(view.shape, (Shape{2, 3, 4}));
  EXPECT_EQ(view.stride, (Shape{1, 2, 6}));
  EXPECT_EQ(view.offset, contents->tensors[0].offset);
  EXPECT_EQ(view.element_bytes, 4U);
  // Bytes 4 to 7 of the array were element [0, 0, 1], whose place is 6 elements from the first.
  EXPECT_EQ(load_le<std::uint32_t>(as_byte_span(file).data() + view.offset + std::size_t{4} * 6), 0x07060504U);
}

TEST(Npy, TakesStructuredTypesAsBytes) {
  const auto nested = read_array(npy_fixture("structured.npy"));
  ASSERT_TRUE(nested.has_value()) << nested.error().message();
  EXPECT_EQ(nested->tensors[0].info.dtype, DType::opaque);
  EXPECT_EQ(nested->tensors[0].info.dtype_name, "|V65");
  EXPECT_EQ(nested->tensors[0].info.size_bytes, 130U);
  const auto utf8 = read_array(npy_fixture("structured_utf8.npy"));
  ASSERT_TRUE(utf8.has_value()) << utf8.error().message();
  EXPECT_EQ(utf8->tensors[0].info.dtype_name, "|V4");
}

TEST(Npy, RejectsPythonObjects) {
  EXPECT_EQ(read_array(npy_fixture("objects.npy")).error().kind(), ErrorKind::unsupported);
  EXPECT_EQ(read_array(made_npy(npy_header_with("[('a', '<i4'), ('b', '|O')]", "(1,)"), 12)).error().kind(),
            ErrorKind::unsupported);
}

TEST(Npy, AcceptsWhatOtherWritersMayWrite) {
  for (const std::string_view header : {"{'shape': (2L, 3), 'fortran_order': False, 'descr': '<f4'}",
                                        "{\"descr\":\"<f4\",'fortran_order':False,'shape':(2,3,)}",
                                        " { 'descr' : '<f4' , 'fortran_order' : True , 'shape' : ( 6 , ) , } \n"}) {
    const auto contents = read_array(made_npy(header, 24));
    ASSERT_TRUE(contents.has_value()) << header << contents.error().message();
    EXPECT_TRUE(contents->views.empty());
    EXPECT_EQ(contents->tensors.at(0).info.size_bytes, 24U);
  }
}

TEST(Npy, RejectsHeadersThatNumpyDoesNotWrite) {
  const std::vector<std::string> headers{"",
                                         "{}",
                                         "{'descr': '<f4'}",
                                         "{'descr': '<f4', 'fortran_order': False, 'shape': (6,)} x",
                                         "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), 'descr': '<f4'}",
                                         "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), 'more': 1}",
                                         "{'descr': '<f4', 'fortran_order': 0, 'shape': (6,)}",
                                         "{'descr': '<f4', 'fortran_order': False, 'shape': 6}",
                                         "{'descr': '<f4' 'fortran_order': False, 'shape': (6,)}",
                                         "{'descr': '<f4', 'fortran_order': False, 'shape': (6,)",
                                         "{'descr': '<f4, 'fortran_order': False, 'shape': (6,)}",
                                         "{'descr': '<f4\\",
                                         "{'descr': '",
                                         npy_header_with("'<f4'", "(6)"),
                                         npy_header_with("'<f4'", "(-6,)"),
                                         npy_header_with("'<f4'", "(6 1)"),
                                         npy_header_with("'<f4'", "(3, 2"),
                                         npy_header_with("'<f4'", "(6.0,)"),
                                         npy_header_with("'<f4'", "(,)"),
                                         npy_header_with("'<f4'", "(9223372036854775807, 9223372036854775807)"),
                                         npy_header_with("'<f4'", "(99999999999999999999,)"),
                                         npy_header_with("__import__('os')", "(6,)"),
                                         npy_header_with("'<x4'", "(6,)"),
                                         npy_header_with("'<f'", "(6,)"),
                                         npy_header_with("'f4'", "(6,)"),
                                         npy_header_with("'U8'", "(6,)"),
                                         npy_header_with("'<f4[s]'", "(6,)"),
                                         npy_header_with("'<M8[\\n]'", "(6,)"),
                                         npy_header_with("'<f-4'", "(6,)"),
                                         npy_header_with("'<U9223372036854775807'", "(6,)"),
                                         npy_header_with("''", "(6,)"),
                                         npy_header_with("[('a')]", "(6,)"),
                                         npy_header_with("[('a', '<f4', 6)]", "(6,)"),
                                         npy_header_with("[('a', '<f4'", "(6,)"),
                                         npy_header_with("[('a', '<f4', (9223372036854775807,))]", "(6,)")};
  for (const std::string& header : headers) {
    const auto contents = read_array(made_npy(header, 24));
    ASSERT_FALSE(contents.has_value()) << header;
    EXPECT_EQ(contents.error().kind(), ErrorKind::corrupt) << header << contents.error().message();
  }
}

TEST(Npy, BoundsDimensionsAndDepth) {
  std::string shape = "(";
  for (int i = 0; i < 256; ++i) shape += "1, ";
  EXPECT_FALSE(read_array(made_npy(npy_header_with("'<f4'", shape + ")"), 4)).has_value());
  std::string type;
  for (int i = 0; i < 10'000; ++i) type += "[('a', ";
  EXPECT_FALSE(read_array(made_npy(npy_header_with(type, "(1,)"), 4)).has_value());
}

TEST(Npy, RejectsOtherVersionsAndSizes) {
  const std::string file = npy_fixture("little_f4.npy");
  std::string newer = file;
  newer[6] = 4;
  EXPECT_EQ(read_array(newer).error().kind(), ErrorKind::unsupported);
  EXPECT_EQ(read_array(file + "x").error().kind(), ErrorKind::corrupt);
  EXPECT_EQ(read_array("something else").error().kind(), ErrorKind::corrupt);
}

TEST(Npz, FindsTheStoredArrays) {
  const std::string file = npy_fixture("stored.npz");
  const auto contents = read_npz(bytes_in_memory(as_byte_span(file)), {});
  ASSERT_TRUE(contents.has_value()) << contents.error().message();
  std::string names;
  std::uint64_t end = 0;
  for (const FoundTensor& found : contents->tensors) {
    names += found.info.name + " ";
    EXPECT_GE(found.offset, end);
    end = found.offset + found.info.size_bytes;
    EXPECT_LT(end, file.size());
  }
  EXPECT_EQ(names, "weight layer/bias fortran step ");
  EXPECT_EQ(contents->tensors[0].info.shape, (Shape{2, 3}));
  EXPECT_EQ(load_le<std::uint32_t>(as_byte_span(file).data() + contents->tensors[0].offset), 0x03020100U);
  EXPECT_EQ(load_le<std::uint64_t>(as_byte_span(file).data() + contents->tensors[3].offset), 7U);
  ASSERT_EQ(contents->views.size(), 1U);
  EXPECT_EQ(contents->views[0].name, "fortran");
  EXPECT_EQ(contents->views[0].offset, contents->tensors[2].offset);
}

TEST(Npz, LeavesCompressedArraysAlone) {
  const std::string file = npy_fixture("compressed.npz");
  const auto contents = read_npz(bytes_in_memory(as_byte_span(file)), {});
  ASSERT_TRUE(contents.has_value()) << contents.error().message();
  EXPECT_TRUE(contents->tensors.empty());
}

TEST(Npz, LeavesAloneWhatIsNoArrayWithAName) {
  const std::string array = npy_fixture("little_f4.npy");
  const std::string file = make_stored_zip({{".npy", array},
                                            {"\xff.npy", array},
                                            {"text.txt", "text"},
                                            {"cut.npy", array.substr(1)},
                                            {"in.npy/", ""},
                                            {"a.npy", array}});
  const auto contents = read_npz(bytes_in_memory(as_byte_span(file)), {});
  ASSERT_TRUE(contents.has_value()) << contents.error().message();
  ASSERT_EQ(contents->tensors.size(), 1U);
  EXPECT_EQ(contents->tensors[0].info.name, "a");
}

TEST(Npz, PassesOnErrorsOfReading) {
  const std::string file = npy_fixture("stored.npz");
  const std::string::size_type failing = file.find("\x93NUMPY");
  const FileBytes bytes(file.size(), [&](std::uint64_t offset, ByteSpan out) -> Result<void> {
    if (offset == failing) return fail(ErrorKind::io, "the disk is gone");
    return bytes_in_memory(as_byte_span(file)).read_at(offset, out);
  });
  EXPECT_EQ(read_npz(bytes, {}).error().kind(), ErrorKind::io);
}

}  // namespace
}  // namespace bitsnap::interop
