// The description of a folder: what it may say, and what a reader rejects.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "interop/folder/folder_description.hpp"

namespace bitsnap::interop {
namespace {

using ::testing::HasSubstr;

// Tensors of bytes with these sizes.
std::vector<TensorInfo> tensors_of(const std::vector<std::uint64_t>& sizes) {
  std::vector<TensorInfo> tensors;
  for (const std::uint64_t size : sizes) {
    TensorInfo info;
    info.name = std::to_string(tensors.size());
    info.dtype = DType::u8;
    info.dtype_name = "U8";
    info.shape = {size};
    info.size_bytes = size;
    tensors.push_back(std::move(info));
  }
  return tensors;
}

std::string dict(const std::string& entries) { return R"({"dict":[)" + entries + "]}"; }

// A folder with these entries after the root, as JSON.
std::string folder_of(const std::string& entries) {
  const std::string root = dict(R"(["kind","directory"],["mode",493],["modified_ns",0])");
  return R"({"typed":["bitsnap.folder",)" +
         dict(R"(["version",0],["entries",[)" + root + (entries.empty() ? "" : "," + entries) + "]]") + "]}";
}

std::string file_at(const std::string& path, const std::string& more) {
  return dict(R"(["path",")" + path + R"("],["kind","file"],["mode",420],["modified_ns",0],)" + more);
}

Result<FolderDescription> parse(const std::string& json, const std::vector<std::uint64_t>& sizes = {}) {
  const std::vector<TensorInfo> tensors = tensors_of(sizes);
  const Result<Value> value = parse_value(json, tensors.size());
  EXPECT_TRUE(value.has_value()) << value.error().message() << json;
  return parse_folder(*value, tensors);
}

void expect_corrupt(const std::string& entries, const std::string& message,
                    const std::vector<std::uint64_t>& sizes = {}) {
  const auto parsed = parse(folder_of(entries), sizes);
  ASSERT_FALSE(parsed.has_value()) << entries;
  EXPECT_EQ(parsed.error().kind(), ErrorKind::corrupt);
  EXPECT_THAT(parsed.error().message(), HasSubstr(message));
}

TEST(FolderDescriptionTest, ADescriptionComesBack) {
  FolderDescription folder;
  folder.name = "checkpoint\xff";
  DescribedEntry root;
  root.entry.kind = EntryKind::directory;
  root.entry.mode = 0755;
  DescribedEntry file;
  file.entry.path = "a\xfe.pt";
  file.entry.mode = 0640;
  file.entry.modified_ns = -5;
  file.entry.size_bytes = 30;
  file.entry.container = "torch-zip";
  file.parts.name = "a\\xfe.pt";
  file.parts.rest = 0;
  file.parts.pieces = {{1, 4, 0}, {2, 20, 0}};
  FileView view;
  view.piece = 1;
  view.offset = 2;
  view.tensor.name = "tied";
  view.tensor.dtype_name = "C128";
  view.tensor.element_bytes = 2;
  view.tensor.shape = {2};
  view.tensor.stride = {1};
  file.parts.views.push_back(view);
  DescribedEntry link;
  link.entry.path = "b";
  link.entry.kind = EntryKind::hard_link;
  link.entry.target = file.entry.path;
  folder.entries = {root, file, link};
  const auto text = serialize_value(describe_folder(folder));
  ASSERT_TRUE(text.has_value()) << text.error().message();
  const auto parsed = parse(*text, {10, 12, 8});
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message();
  EXPECT_EQ(serialize_value(describe_folder(*parsed)).value(), *text);
  EXPECT_EQ(parsed->entries[1].entry.path, file.entry.path);
  EXPECT_EQ(parsed->entries[1].entry.modified_ns, -5);
  EXPECT_EQ(parsed->entries[1].parts.pieces[0].rest, 4U);
  EXPECT_EQ(parsed->entries[1].parts.pieces[1].rest, 8U);
}

TEST(FolderDescriptionTest, RejectsPathsThatLeaveTheFolder) {
  for (const std::string path : {"..", "../x", "a/../../x", "/etc/passwd", ".", "a//b", "a/", "./a", "\\u0000"}) {
    expect_corrupt(file_at(path, R"(["size",0])"), "is no path below the folder");
  }
}

TEST(FolderDescriptionTest, RejectsPathsWithoutTheirDirectory) {
  expect_corrupt(file_at("a/b", R"(["size",0])"), "lies in no directory");
  expect_corrupt(file_at("a", R"(["size",0])") + "," + file_at("a/b", R"(["size",0])"), "lies in no directory");
  const std::string link = dict(R"(["path","a"],["kind","symlink"],["mode",511],["modified_ns",0],["target","/etc"])");
  expect_corrupt(link + "," + file_at("a/b", R"(["size",0])"), "lies in no directory");
  expect_corrupt(file_at("b", R"(["size",0])") + "," + file_at("a", R"(["size",0])"), "out of order");
  expect_corrupt(file_at("a", R"(["size",0])") + "," + file_at("a", R"(["size",0])"), "out of order");
}

TEST(FolderDescriptionTest, RejectsLinksThatLeadToNoFile) {
  expect_corrupt(dict(R"(["path","a"],["kind","hardlink"],["target","b"])"), "leads to no file");
  expect_corrupt(dict(R"(["path","a"],["kind","hardlink"],["target","a"])"), "leads to no file");
  expect_corrupt(dict(R"(["path","a"],["kind","hardlink"],["target","/etc/passwd"])"), "leads to no file");
  expect_corrupt(dict(R"(["path","a"],["kind","hardlink"])"), "leads to no file");
  expect_corrupt(dict(R"(["path","a"],["kind","symlink"],["mode",0],["modified_ns",0])"), "leads nowhere");
}

TEST(FolderDescriptionTest, RejectsPiecesThatDoNotMakeTheFile) {
  const std::string pieces = R"(["tensors",[{"tensor":0},{"tensor":1}]],)";
  expect_corrupt(file_at("a", pieces + R"(["size",20],["offsets",[0,9]])"), "overlaps", {10, 10});
  expect_corrupt(file_at("a", pieces + R"(["size",20],["offsets",[0,11]])"), "ends beyond the file", {10, 10});
  expect_corrupt(file_at("a", pieces + R"(["size",21],["offsets",[0,11]])"), "20 of 21 bytes", {10, 10});
  expect_corrupt(file_at("a", pieces + R"(["size",20],["offsets",[0]])"), "same length", {10, 10});
  expect_corrupt(
      file_at("a", R"(["size",10],["rest",{"tensor":0}])") + "," + file_at("b", R"(["size",10],["rest",{"tensor":0}])"),
      "out of order", {10});
  expect_corrupt(file_at("a", R"(["size",{"int":"9223372036854775807"}],["tensors",[{"tensor":0}]],["offsets",[1]])"),
                 "of 9223372036854775807 bytes", {10});
}

TEST(FolderDescriptionTest, RejectsViewsBeyondTheirPiece) {
  const std::string piece = R"(["size",16],["tensors",[{"tensor":0}]],["offsets",[0]],)";
  const auto view = [&](const std::string& text) {
    return file_at("a", piece + R"(["views",[)" + dict(R"(["name","v"],["dtype","F32"],)" + text) + "]]");
  };
  EXPECT_TRUE(parse(folder_of(view(R"(["shape",[4]],["stride",[1]],["piece",0],["offset",0])")), {16}).has_value());
  EXPECT_TRUE(parse(folder_of(view(R"(["shape",[9]],["stride",[0]],["piece",0],["offset",12])")), {16}).has_value());
  expect_corrupt(view(R"(["shape",[5]],["stride",[1]],["piece",0],["offset",0])"), "beyond its piece", {16});
  expect_corrupt(view(R"(["shape",[4]],["stride",[1]],["piece",0],["offset",1])"), "beyond its piece", {16});
  expect_corrupt(view(R"(["shape",[2,9007199254740991]],["stride",[9007199254740991,4096]],["piece",0],["offset",0])"),
                 "beyond its piece", {16});
  expect_corrupt(view(R"(["shape",[0]],["stride",[1]],["piece",0],["offset",17])"), "beyond its piece", {16});
  const std::string most = R"({"int":"9223372036854775807"})";
  expect_corrupt(view(R"(["shape",[)" + most + "," + most + R"(,4]],["stride",[1,1,1]],["piece",0],["offset",0])"),
                 "beyond its piece", {16});
  expect_corrupt(view(R"(["shape",[1]],["stride",[1]],["piece",1],["offset",0])"), "no piece 1", {16});
  expect_corrupt(view(R"(["shape",[1,1]],["stride",[1]],["piece",0],["offset",0])"), "a stride for each", {16});
}

TEST(FolderDescriptionTest, RejectsOtherVersionsAndTrees) {
  const auto kind_of = [](const std::string& json) { return parse(json).error().kind(); };
  EXPECT_EQ(kind_of(R"({"typed":["bitsnap.folder",{"dict":[["version",1]]}]})"), ErrorKind::unsupported);
  EXPECT_EQ(kind_of(R"({"typed":["bitsnap.folder",{"dict":[]}]})"), ErrorKind::corrupt);
  EXPECT_EQ(kind_of(R"({"typed":["bitsnap.folder",3]})"), ErrorKind::corrupt);
  EXPECT_EQ(kind_of(R"({"typed":["other",3]})"), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_of("null"), ErrorKind::invalid_argument);
  expect_corrupt(dict(R"(["path","a"],["kind","socket"])"), "the kind must be");
  expect_corrupt(dict(R"(["path","a"],["kind","directory"],["mode",4096],["modified_ns",0])"), "at most 07777");
}

}  // namespace
}  // namespace bitsnap::interop
