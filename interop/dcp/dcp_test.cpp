#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/bytes.hpp"
#include "interop/container/contents_testing.hpp"
#include "interop/container/file_bytes_testing.hpp"
#include "interop/dcp/dcp_metadata.hpp"
#include "interop/dcp/distcp.hpp"
#include "interop/folder/container_conformance_testing.hpp"
#include "interop/pickle/pickle_testing.hpp"
#include "interop/torch_tensors/listing_testing.hpp"
#include "interop/zip/zip_testing.hpp"

namespace bitsnap::interop {
namespace {

std::string dcp_file(const std::string& name) {
  std::string file = read_interop_file(BITSNAP_TESTS_DIR, "dcp/fixtures/" + name);
  EXPECT_FALSE(file.empty()) << name;
  return file;
}

std::vector<DcpItem> items_of(const std::string& checkpoint, const std::string& path) {
  Result<std::vector<DcpItem>> items = read_dcp_metadata(dcp_file(checkpoint + "/.metadata"), {});
  if (!items) ADD_FAILURE() << items.error().message();
  std::erase_if(*items, [&](const DcpItem& item) { return item.path != path; });
  EXPECT_FALSE(items->empty());
  return *items;
}

std::string describe_items(const std::vector<DcpItem>& items) {
  std::string text;
  for (const DcpItem& item : items) {
    text += item.name;
    if (item.box) text += fmt::format(" {} of {}", item.box->offset, item.box->global_shape);
    text += item.is_tensor ? "; " : " bytes; ";
  }
  return text;
}

std::string described_distcp(const std::string& file, const std::vector<DcpItem>& items) {
  const Result<Contents> contents = read_distcp(bytes_in_memory(as_byte_span(file)), items, {});
  if (!contents) return contents.error().message();
  EXPECT_EQ(find_misplaced(*contents, file.size()), "");
  return describe_contents(*contents);
}

ContainerExample dcp_example(const std::string& checkpoint, bool with_metadata) {
  ContainerExample file{.bytes = dcp_file(checkpoint + "/__0_0.distcp"), .path = "step-1/__0_0.distcp"};
  if (with_metadata) file.beside["step-1/.metadata"] = dcp_file(checkpoint + "/.metadata");
  file.may_end_early = !with_metadata;  // behind an item
  return file;
}

std::vector<ContainerExample> sound_dcp_files() { return {dcp_example("ranks", true), dcp_example("ranks", false)}; }

// Many small archives, and metadata that describe many items in one place.
std::vector<ContainerExample> hostile_dcp_files(std::size_t bytes) {
  const std::string item = make_stored_zip({{"x/data.pkl", "N."}, {"x/data/0", std::string(80, '1')}});
  std::vector<ContainerExample> files{{.bytes = repeat(item, bytes / item.size()), .path = "a.distcp"}};
  for (const std::string& pickle : hostile_pickles(bytes)) {
    ContainerExample& file = files.emplace_back(dcp_example("ranks", true));
    file.beside["step-1/.metadata"] = pickle;
    files.push_back({.bytes = make_stored_zip({{"x/data.pkl", pickle}, {"x/data/0", "12345678"}}), .path = "a.distcp"});
  }
  std::vector<WrittenDcpItem> items(bytes / 150);
  for (WrittenDcpItem& each : items) {
    each.item.name = "w";
    each.item.path = "__0_0.distcp";
  }
  files.push_back(dcp_example("ranks", true));
  files.back().beside["step-1/.metadata"] = write_dcp_metadata(items);
  return files;
}

// The start of each archive is searched in 64 KiB, and an archive has at least 256 bytes.
const ContainerRegistration kDcpFiles(
    {.format = "dcp", .sound = sound_dcp_files, .hostile = hostile_dcp_files, .reads_per_byte = 256 + 4});

TEST(Dcp, ReadsTheMetadataOfACheckpoint) {
  EXPECT_EQ(describe_items(items_of("single", "__0_0.distcp")),
            "step bytes; extra.list.1 bytes; extra.set bytes; model.w [0, 0] of [3, 4]; model.t [0, 0] of [3, 2]; "
            "model.part [0] of [3]; extra.list.0 [0] of [2]; ");
  EXPECT_EQ(describe_items(items_of("ranks", "__0_0.distcp")), "rows [0, 0] of [8, 6]; columns [0, 0] of [2, 5]; ");
  EXPECT_EQ(describe_items(items_of("ranks", "__1_0.distcp")),
            "step bytes; rows [4, 0] of [8, 6]; columns [0, 3] of [2, 5]; replica [0] of [4]; plain [0] of [3]; ");
}

TEST(Dcp, FindsTheTensorsOfEveryItem) {
  EXPECT_EQ(described_distcp(dcp_file("single/__0_0.distcp"), items_of("single", "__0_0.distcp")),
            "extra.set.0.0 F32 [1], model.w F32 [3, 4], model.t F32 [6], model.part I64 [3], extra.list.0 F32 [2], "
            "| model.t F32 [3, 2] [1, 3]");
  EXPECT_EQ(described_distcp(dcp_file("ranks/__0_0.distcp"), items_of("ranks", "__0_0.distcp")),
            "rows F32 [4, 6], columns F32 [2, 3]");
  EXPECT_EQ(described_distcp(dcp_file("ranks/__1_0.distcp"), items_of("ranks", "__1_0.distcp")),
            "rows F32 [4, 6], columns F32 [2, 2], replica F32 [4], plain BF16 [3]");
}

TEST(Dcp, SaysWhereAPartLiesInItsTensor) {
  const std::string file = dcp_file("ranks/__1_0.distcp");
  const Contents contents =
      read_distcp(bytes_in_memory(as_byte_span(file)), items_of("ranks", "__1_0.distcp"), {}).value();
  const auto shard_of = [&](const std::string& name) {
    const auto found = std::ranges::find(contents.tensors, name, [](const FoundTensor& t) { return t.info.name; });
    return found == contents.tensors.end() ? std::nullopt : found->info.shard;
  };
  EXPECT_EQ(shard_of("rows"), (ShardBox{.global_shape = {8, 6}, .offset = {4, 0}}));
  EXPECT_EQ(shard_of("plain"), std::nullopt);
  const auto rows = std::ranges::find(contents.tensors, "rows", [](const FoundTensor& t) { return t.info.name; });
  ASSERT_NE(rows, contents.tensors.end());
  for (std::size_t i = 0; i < 24; ++i) {
    const auto element = load_le<float>(as_byte_span(file).data() + rows->offset + 4 * i);
    EXPECT_EQ(element, 24.0F + static_cast<float>(i));
  }
}

TEST(Dcp, NamesPartsOfOneTensorInOneFileByTheirOffsets) {
  const std::string part = read_interop_file(BITSNAP_TESTS_DIR, "torch_zip/fixtures/root.pt");
  std::vector<DcpItem> items(3);
  for (std::size_t i = 0; i < 3; ++i) {
    items[i].name = "w";
    items[i].offset = i * part.size();
    items[i].bytes = part.size();
    items[i].is_tensor = true;
    items[i].box = ShardBox{.global_shape = {15}, .offset = {5 * (2 - i)}};
  }
  items[2].box = ShardBox{.global_shape = {14}, .offset = {10}};  // where the tensor does not fit
  const std::string file = part + part + part;
  EXPECT_EQ(described_distcp(file, items), "w[10] I64 [5], w[5] I64 [5], w[10]#2 I64 [5]");
  const Contents contents = read_distcp(bytes_in_memory(as_byte_span(file)), items, {}).value();
  EXPECT_TRUE(contents.tensors[0].info.shard.has_value());
  EXPECT_FALSE(contents.tensors[2].info.shard.has_value());
}

TEST(Dcp, FindsItemsWithoutMetadata) {
  const std::string file = dcp_file("single/__0_0.distcp");
  const std::vector<DcpItem> found = find_dcp_items(bytes_in_memory(as_byte_span(file)), {}).value();
  std::vector<DcpItem> stated = items_of("single", "__0_0.distcp");
  std::ranges::sort(stated, {}, &DcpItem::offset);
  ASSERT_EQ(found.size(), stated.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].offset, stated[i].offset);
    EXPECT_EQ(found[i].bytes, stated[i].bytes);
    EXPECT_EQ(found[i].name, std::to_string(i));
  }
  EXPECT_EQ(described_distcp(file, found),
            "2.0.0 F32 [1], 3 F32 [3, 4], 4 F32 [6], 5 I64 [3], 6 F32 [2], | 4 F32 [3, 2] [1, 3]");
  const std::string tiny = make_stored_zip({{"x/data.pkl", "N."}});
  EXPECT_EQ(find_dcp_items(bytes_in_memory(as_byte_span(tiny)), {}).error().kind(), ErrorKind::unsupported);
  EXPECT_EQ(find_dcp_items(bytes_in_memory(as_byte_span(tiny + file)), {}).value().size(), found.size());
  EXPECT_EQ(find_dcp_items(bytes_in_memory(as_byte_span("no archive")), {}).error().kind(), ErrorKind::unsupported);
}

TEST(Dcp, LeavesOutItemsThatAreNoArchives) {
  const std::string file = dcp_file("ranks/__0_0.distcp");
  std::vector<DcpItem> items = items_of("ranks", "__0_0.distcp");
  items[0].bytes -= 1;
  const Result<Contents> contents = read_distcp(bytes_in_memory(as_byte_span(file)), items, {});
  ASSERT_TRUE(contents.has_value()) << contents.error().message();
  EXPECT_EQ(contents->tensors.size(), items.size() - 1);
}

TEST(Dcp, RejectsItemsOutsideTheFileAndOverlappingOnes) {
  const std::string file = dcp_file("ranks/__0_0.distcp");
  std::vector<DcpItem> items = items_of("ranks", "__0_0.distcp");
  const auto kind = [&](const std::string& bytes) {
    const Result<Contents> contents = read_distcp(bytes_in_memory(as_byte_span(bytes)), items, {});
    return contents ? ErrorKind::internal : contents.error().kind();
  };
  EXPECT_EQ(kind(file.substr(1)), ErrorKind::corrupt);
  items.push_back(items[0]);
  EXPECT_EQ(kind(file), ErrorKind::corrupt);
}

TEST(Dcp, RejectsOtherPicklesAsMetadata) {
  const auto kind = [](std::string_view text) {
    const Result<std::vector<DcpItem>> items = read_dcp_metadata(text, {});
    return items ? ErrorKind::internal : items.error().kind();
  };
  EXPECT_EQ(kind("N."), ErrorKind::corrupt);
  EXPECT_EQ(kind("cm\nC\n)\x81}U\x0cstorage_data}s"
                 "b."),
            ErrorKind::internal);
  EXPECT_EQ(kind("cm\nC\n)\x81}U\x0cstorage_data}NNssb."), ErrorKind::corrupt);
  const std::string text = dcp_file("ranks/.metadata");
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_EQ(kind(std::string_view(text).substr(0, size)), ErrorKind::truncated) << size;
  }
}

}  // namespace
}  // namespace bitsnap::interop
