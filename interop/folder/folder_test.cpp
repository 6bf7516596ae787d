// Folders and files of all kinds: what is saved comes back, byte for byte.
#include <bitsnap/folder.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bitsnap/writer.hpp>

#include "interop/folder/folder_description.hpp"
#include "os/file_attributes.hpp"
#include "os/temporary_directory_testing.hpp"

namespace bitsnap::interop {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FolderTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directory(folder_); }

  void write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(folder_ + "/" + path).parent_path());
    std::ofstream(folder_ + "/" + path, std::ios::binary) << text;
  }
  void copy_fixture(const std::string& fixture, const std::string& path) const {
    fs::create_directories(fs::path(folder_ + "/" + path).parent_path());
    fs::copy_file(std::string(BITSNAP_TESTS_DIR) + "/../interop/" + fixture, folder_ + "/" + path);
  }
  static std::string text_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // Saves the folder, or one file of it, as a snapshot, and opens that.
  std::shared_ptr<const Folder> saved(const std::string& path, FolderOptions options = {}) {
    auto state = open_folder(path, options);
    EXPECT_TRUE(state.has_value()) << state.error().message();
    notes_ = state->notes;
    const std::string file = directory_.path() + "/" + std::to_string(++saves_) + ".bsnap";
    const auto summary = save_snapshot(file, state->state);
    EXPECT_TRUE(summary.has_value()) << summary.error().message();
    EXPECT_TRUE(state->check_unchanged().has_value());
    auto snapshot = Snapshot::open(file).value();
    EXPECT_TRUE(is_folder(*snapshot));
    auto folder = Folder::open(snapshot);
    EXPECT_TRUE(folder.has_value()) << folder.error().message();
    return *folder;
  }

  // Kind, permissions, time, link and content of everything in a folder, without inode numbers.
  static std::vector<std::string> listing(const std::string& path) {
    std::vector<std::string> lines;
    std::map<std::uint64_t, std::string> first;
    const auto nodes = os::read_tree(path, 1000).value();
    for (const os::TreeNode& node : nodes) {
      const os::FileAttributes& a = node.attributes;
      const bool is_file = a.kind == os::NodeKind::file;
      const std::string same = first.try_emplace(a.file_id, node.path).first->second;
      lines.push_back(node.path + " " + std::to_string(static_cast<int>(a.kind)) + " " + std::to_string(a.mode) + " " +
                      std::to_string(a.modified_ns) + " " + node.target + " " + same + " " +
                      (is_file ? text_of(node.path.empty() ? path : path + "/" + node.path) : ""));
    }
    return lines;
  }

  void expect_same_after_a_round_trip() {
    const auto folder = saved(folder_);
    const std::string out = directory_.path() + "/out" + std::to_string(saves_);
    const auto extracted = folder->extract(out);
    ASSERT_TRUE(extracted.has_value()) << extracted.error().message();
    EXPECT_EQ(listing(out), listing(folder_));
    for (std::size_t i = 0; i < folder->entries().size(); ++i) {
      const FolderEntry& entry = folder->entries()[i];
      if (entry.kind != EntryKind::file && entry.kind != EntryKind::hard_link) continue;
      const std::string text = text_of(folder_ + "/" + entry.path);
      ASSERT_EQ(entry.size_bytes, text.size());
      std::string read(text.size(), '\0');
      ASSERT_TRUE(folder->read(i, 0, std::as_writable_bytes(std::span(read))).has_value());
      EXPECT_EQ(read, text) << entry.path;
      const std::string file = directory_.path() + "/file" + std::to_string(i);
      ASSERT_TRUE(folder->extract_file(i, file, true).has_value());
      EXPECT_EQ(text_of(file), text) << entry.path;
    }
  }

  os::TemporaryDirectory directory_;
  const std::string folder_ = directory_.path() + "/checkpoint-7";
  std::vector<std::string> notes_;
  int saves_ = 0;
};

TEST_F(FolderTest, EverythingInAFolderComesBack) {
  write("config.json", "{}");
  write("empty", "");
  write("large.txt", std::string(3'000'000, 'x'));
  write("a/b/c/deep", "deep");
  write("name\xff\xfe", "not UTF-8");
  write("name with\nnewline", "odd");
  fs::create_directory(folder_ + "/nothing");
  fs::create_hard_link(folder_ + "/large.txt", folder_ + "/a/same");
  fs::create_symlink("../config.json", folder_ + "/a/link");
  fs::create_symlink("/etc/passwd", folder_ + "/outside");
  fs::create_symlink("nowhere", folder_ + "/dangling");
  fs::permissions(folder_ + "/config.json", fs::perms(0640));
  fs::permissions(folder_ + "/a/b/c/deep", fs::perms(0755));
  ASSERT_TRUE(os::write_attributes(folder_ + "/empty", os::NodeKind::file, 0444, -1'500'000'001).has_value());
  ASSERT_TRUE(
      os::write_attributes(folder_ + "/dangling", os::NodeKind::symbolic_link, 0, 1'234'567'890'123).has_value());
  ASSERT_TRUE(os::write_attributes(folder_ + "/a", os::NodeKind::directory, 0750, 99'000'000'042).has_value());
  expect_same_after_a_round_trip();
}

TEST_F(FolderTest, TheFilesOfAllContainersComeBack) {
  for (const std::string name : {"kinds", "module", "script", "special", "tied", "training", "views", "big_endian"}) {
    copy_fixture("torch_zip/fixtures/" + name + ".pt", name + ".pt");
  }
  for (const std::string name : {"kinds", "tied", "training", "views"}) {
    copy_fixture("torch_legacy/fixtures/" + name + ".pt", "legacy/" + name + ".pt");
  }
  copy_fixture("npy/fixtures/stored.npz", "arrays/stored.npz");
  copy_fixture("npy/fixtures/fortran.npy", "arrays/fortran.npy");
  copy_fixture("npy/fixtures/little_f4.npy", "deeper/float32.npy");
  expect_same_after_a_round_trip();
  EXPECT_THAT(notes_, ElementsAre());
}

TEST_F(FolderTest, AnEmptyFolderComesBack) { expect_same_after_a_round_trip(); }

TEST_F(FolderTest, ASingleFileComesBack) {
  write("epoch=0-step=7.txt", "hello");
  const auto folder = saved(folder_ + "/epoch=0-step=7.txt");
  EXPECT_EQ(folder->name(), "epoch=0-step=7.txt");
  ASSERT_EQ(folder->entries().size(), 1U);
  EXPECT_EQ(folder->snapshot()->tensors()[0].name, "file");
  const std::string out = directory_.path() + "/out.txt";
  ASSERT_TRUE(folder->extract(out).has_value());
  EXPECT_EQ(text_of(out), "hello");
  EXPECT_EQ(folder->extract(out).error().kind(), ErrorKind::invalid_argument);
}

TEST_F(FolderTest, MalformedContainersArePlainBytesWithANote) {
  write("broken.pt", std::string("PK\x03\x04") + "no archive");
  write("broken.npy", "\x93NUMPY\x01");
  write("broken.safetensors", std::string("\x10\0\0\0\0\0\0\0{", 9) + std::string(40, 'x'));
  expect_same_after_a_round_trip();
  EXPECT_EQ(notes_.size(), 3U);
}

TEST_F(FolderTest, NamesOfTensorsDoNotContainTheStep) {
  EXPECT_EQ(stable_name("global_step1000/mp_rank_00.pt", 1000), "global_step{step}/mp_rank_00.pt");
  EXPECT_EQ(stable_name("iter_0001000/x", 1000), "iter_{step}/x");
  EXPECT_EQ(stable_name("checkpoint-1000/rng_state_0.pth", 0), "checkpoint-1000/rng_state_0.pth");
  EXPECT_EQ(stable_name("epoch=1-step=1000.ckpt", 1000), "epoch=1-step={step}.ckpt");
  EXPECT_EQ(stable_name("rank_3", 3), "rank_3");
  EXPECT_EQ(stable_name("step10000", 1000), "step10000");
  EXPECT_EQ(stable_name("step1000", std::nullopt), "step1000");
  EXPECT_EQ(stable_name("a\xff", 1), "a\\xff");
}

TEST_F(FolderTest, AChangeDuringTheSaveIsAnError) {
  write("a", "one");
  write("b", "two");
  const auto state = open_folder(folder_).value();
  EXPECT_TRUE(state.check_unchanged().has_value());
  write("b", "three");
  EXPECT_THAT(state.check_unchanged().error().message(), HasSubstr("/b: changed while it was being saved"));
  write("b", "two");
  write("c", "new");
  EXPECT_FALSE(state.check_unchanged().has_value());
}

TEST_F(FolderTest, AChangeThatHidesItsTimeIsAnError) {
  write("a", "one");
  const auto state = open_folder(folder_).value();
  const auto before = os::read_attributes(folder_ + "/a").value();
  write("a", "two");
  ASSERT_TRUE(os::write_attributes(folder_ + "/a", os::NodeKind::file, before.mode, before.modified_ns).has_value());
  EXPECT_FALSE(state.check_unchanged().has_value());
}

TEST_F(FolderTest, NoLinkIsFollowedDuringTheSave) {
  // Larger than what a look at a file reads, and more files than stay open, so that each is opened again.
  const std::string text(5000, 'x');
  for (int i = 100; i < 200; ++i) write("f" + std::to_string(i), text);
  const auto state = open_folder(folder_).value();
  std::ofstream(directory_.path() + "/secret") << std::string(5000, 's');
  fs::remove(folder_ + "/f100");
  fs::create_symlink(directory_.path() + "/secret", folder_ + "/f100");
  std::string read(5000, '\0');
  const auto done = state.state.tensors.front().read(0, std::as_writable_bytes(std::span(read)));
  ASSERT_FALSE(done.has_value());
  EXPECT_THAT(done.error().message(), HasSubstr("symbolic link"));
}

TEST_F(FolderTest, AnArchiveOfAnotherProgramNeedsNoNote) {
  write("x.zip", text_of(std::string(BITSNAP_TESTS_DIR) + "/../interop/npy/fixtures/compressed.npz"));
  expect_same_after_a_round_trip();
  EXPECT_THAT(notes_, ElementsAre());
}

TEST_F(FolderTest, DirectoriesDoNotMakeMasters) {
  copy_fixture("torch_zip/fixtures/training.pt", "master/exp_avg/training.pt");
  const auto folder = saved(folder_);
  const auto& tensors = folder->snapshot()->tensors();
  const auto is_master = [](const TensorInfo& info) { return info.role == Role::master; };
  EXPECT_TRUE(std::ranges::none_of(tensors, is_master));
}

TEST_F(FolderTest, TensorsWithNamesThatAreTooLongArePlainBytes) {
  const std::string header = "{\"" + std::string(65'536, 'x') + R"(":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  std::string file(8, '\0');
  for (int i = 0; i < 8; ++i) file[static_cast<std::size_t>(i)] = static_cast<char>(header.size() >> (8 * i));
  write("long.safetensors", file + header + "data");
  expect_same_after_a_round_trip();
  EXPECT_EQ(notes_.size(), 1U);
}

TEST_F(FolderTest, StreamingAFileReportsProgressAndCanBeCancelled) {
  std::string text;
  text.resize(20'000'000, 'x');
  write("large", text);
  const auto folder = saved(folder_);
  const auto entry = folder->find("large").value();
  const std::string out = directory_.path() + "/large";
  std::uint64_t last = 0;
  RunOptions run;
  run.progress = [&](std::uint64_t done, std::uint64_t total) {
    EXPECT_EQ(total, text.size());
    EXPECT_GT(done, last);
    last = done;
    return true;
  };
  ASSERT_TRUE(folder->extract_file(entry, out, false, run).has_value());
  EXPECT_EQ(last, text.size());
  EXPECT_EQ(text_of(out), text);
  run.progress = [](std::uint64_t, std::uint64_t) { return false; };
  const auto cancelled = folder->extract_file(entry, out + "2", false, run);
  ASSERT_FALSE(cancelled.has_value());
  EXPECT_EQ(cancelled.error().kind(), ErrorKind::cancelled);
  EXPECT_FALSE(fs::exists(out + "2"));
}

TEST_F(FolderTest, PipesAreRefused) {
  ASSERT_EQ(std::system(("mkfifo " + folder_ + "/pipe").c_str()), 0);
  const auto state = open_folder(folder_);
  ASSERT_FALSE(state.has_value());
  EXPECT_EQ(state.error().kind(), ErrorKind::unsupported);
  EXPECT_THAT(state.error().message(), HasSubstr("/pipe"));
}

// Written once, to be read by every later version.
TEST_F(FolderTest, ASnapshotOfVersionZeroIsRead) {
  const std::string interop = std::string(BITSNAP_TESTS_DIR) + "/../interop/";
  const auto folder = Folder::open(Snapshot::open(interop + "folder/fixtures/folder.bsnap").value()).value();
  EXPECT_EQ(folder->name(), "checkpoint-7");
  ASSERT_TRUE(folder->extract(directory_.path() + "/out").has_value());
  const std::string out = directory_.path() + "/out/";
  EXPECT_EQ(text_of(out + "model.pt"), text_of(interop + "torch_zip/fixtures/training.pt"));
  EXPECT_EQ(text_of(out + "fortran.npy"), text_of(interop + "npy/fixtures/fortran.npy"));
  EXPECT_EQ(text_of(out + "config.json"), "{\"step\": 7}\n");
  EXPECT_EQ(text_of(out + "empty"), "");
  EXPECT_EQ(fs::read_symlink(out + "latest"), "config.json");
  EXPECT_TRUE(fs::equivalent(out + "fortran.npy", out + "logs/same.npy"));
  const auto config = os::read_attributes(out + "config.json").value();
  EXPECT_EQ(config.mode, 0600U);
  EXPECT_EQ(config.modified_ns, 1'767'323'045'678'901'234);
  const auto model = folder->find("model.pt");
  ASSERT_TRUE(model.has_value());
  EXPECT_EQ(folder->entries()[*model].container, "torch-zip");
  EXPECT_FALSE(folder->entries()[*model].tensors.empty());
}

TEST_F(FolderTest, NothingIsWrittenOverAnExistingFolder) {
  write("a", "one");
  const auto folder = saved(folder_);
  EXPECT_EQ(folder->extract(folder_).error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(text_of(folder_ + "/a"), "one");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_.path()), fs::directory_iterator()), 2);
}

}  // namespace
}  // namespace bitsnap::interop
