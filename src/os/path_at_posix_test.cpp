// Tests of FileSystem::without_links(): no call follows a link below the root, also while another thread puts links
// there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "os/atomic_file.hpp"
#include "os/file_system.hpp"
#include "os/path_at_posix.hpp"
#include "os/temporary_directory_testing.hpp"

namespace bitsnap::os {
namespace {

using testing::HasSubstr;
using testing::UnorderedElementsAre;

// A directory `root` that contains links to a directory `outside` beside it, and to files in that.
class WithoutLinks : public testing::Test {
 protected:
  WithoutLinks() {
    std::filesystem::create_directories(root_ + "/real/sub");
    std::filesystem::create_directories(outside_ + "/sub");
    for (const std::string& name : {outside_ + "/file", outside_ + "/sub/file", root_ + "/real/file"}) {
      std::ofstream(name) << "contents";
    }
    std::filesystem::create_directory_symlink(outside_, root_ + "/link");
    std::filesystem::create_directory_symlink(outside_, root_ + "/real/link");
    std::filesystem::create_symlink(outside_ + "/file", root_ + "/real/to-file");
    std::filesystem::create_symlink(outside_ + "/none", root_ + "/dangling");
  }
  ~WithoutLinks() override {
    EXPECT_THAT(*real_file_system().list_directory(outside_), UnorderedElementsAre("file", "sub"));
    EXPECT_THAT(*real_file_system().list_directory(outside_ + "/sub"), UnorderedElementsAre("file"));
  }

  template <typename T>
  void expect_link(const Result<T>& result, const std::string& link, const std::string& expected) const {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().kind(), ErrorKind::invalid_argument) << result.error().message();
    EXPECT_THAT(result.error().message(), HasSubstr(root_ + link + ": it is a symbolic link, expected " + expected));
  }

  const TemporaryDirectory directory_;
  const std::string root_ = directory_ / "root";
  const std::string outside_ = directory_ / "outside";
  const std::shared_ptr<FileSystem> files_ = real_file_system().without_links(root_);
};

TEST_F(WithoutLinks, NoCallFollowsALinkToADirectory) {
  for (const std::string link : {"/link", "/real/link"}) {
    const std::string at = root_ + link;
    expect_link(files_->open(at + "/file"), link, "a directory");
    expect_link(files_->open(at + "/sub/file"), link, "a directory");
    expect_link(files_->create(at + "/new"), link, "a directory");
    expect_link(files_->create_directory(at + "/new"), link, "a directory");
    expect_link(files_->rename(at + "/file", root_ + "/stolen"), link, "a directory");
    expect_link(files_->rename(root_ + "/real/file", at + "/new"), link, "a directory");
    expect_link(files_->rename_no_replace(at + "/file", root_ + "/stolen"), link, "a directory");
    expect_link(files_->rename_no_replace(root_ + "/real/file", at + "/new"), link, "a directory");
    expect_link(files_->remove(at + "/file"), link, "a directory");
    expect_link(files_->list_directory(at), link, "a directory");
    expect_link(files_->list_directory(at + "/sub"), link, "a directory");
    expect_link(files_->sync_directory(at), link, "a directory");
    expect_link(files_->lock(at + "/lock", LockKind::exclusive), link, "a directory");
    expect_link(AtomicFile::create(*files_, at + "/new", false), link, "a directory");
  }
}

TEST_F(WithoutLinks, NoCallFollowsALinkToAFile) {
  expect_link(files_->open(root_ + "/real/to-file"), "/real/to-file", "a file");
  for (const LockKind kind : {LockKind::shared, LockKind::exclusive}) {
    expect_link(files_->lock(root_ + "/real/to-file", kind), "/real/to-file", "a file");
    expect_link(files_->lock(root_ + "/dangling", kind), "/dangling", "a file");
  }
  for (const std::string name : {"/real/to-file", "/dangling"}) {
    EXPECT_FALSE(files_->create(root_ + name));
    EXPECT_FALSE(files_->create_directory(root_ + name));
    EXPECT_FALSE(AtomicFile::create(*files_, root_ + name, true));
    const FileInfo info = files_->stat(root_ + name).value();
    EXPECT_TRUE(info.exists && !info.is_directory && !info.is_regular) << name;
    EXPECT_TRUE(files_->remove(root_ + name)) << "the link itself";
    EXPECT_FALSE(files_->stat(root_ + name)->exists);
  }
}

TEST_F(WithoutLinks, TheRootItselfMayBeALink) {
  const std::string alias = directory_ / "alias";
  std::filesystem::create_directory_symlink(root_, alias);
  for (const std::string& root : {alias, alias + "/"}) {
    const std::shared_ptr<FileSystem> files = real_file_system().without_links(root);
    EXPECT_TRUE(files->open(alias + "/real/file"));
    EXPECT_TRUE(files->list_directory(alias));
    EXPECT_TRUE(files->sync_directory(alias));
    EXPECT_FALSE(files->open(alias + "/link/file"));
    EXPECT_TRUE(files->open(outside_ + "/file")) << "not below the root";
  }
}

TEST_F(WithoutLinks, PassesThroughDirectoriesThatCannotBeRead) {
  std::filesystem::permissions(root_ + "/real", std::filesystem::perms::owner_exec);
  EXPECT_TRUE(files_->open(root_ + "/real/file"));
  std::filesystem::permissions(root_ + "/real", std::filesystem::perms::owner_all);
}

TEST_F(WithoutLinks, KnowsWhatIsBelowTheRoot) {
  EXPECT_TRUE(is_below("/a/b", "/a"));
  EXPECT_TRUE(is_below("/a/b", "/a/"));
  EXPECT_TRUE(is_below("/a", "/"));
  EXPECT_TRUE(is_below("a/b", "a"));
  EXPECT_FALSE(is_below("/a", "/a"));
  EXPECT_FALSE(is_below("/ab", "/a"));
  EXPECT_FALSE(is_below("/a", ""));
}

// Another thread swaps a directory for a link, over and over. What is removed, created and moved is in the directory.
TEST_F(WithoutLinks, ALinkThatTakesTheTurnOfADirectoryIsNotFollowed) {
  const std::string place = root_ + "/real/sub";
  const std::string kept = root_ + "/kept";
  std::atomic<bool> is_done = false;
  std::thread swapping([&] {
    while (!is_done) {
      std::filesystem::rename(place, kept);
      std::filesystem::create_directory_symlink(outside_ + "/sub", place);
      std::filesystem::remove(place);
      std::filesystem::rename(kept, place);
    }
  });
  std::size_t refused = 0;
  for (int i = 0; i < 100'000 && (i < 5'000 || refused == 0); ++i) {
    const auto removed = files_->remove(place + "/file");
    EXPECT_FALSE(removed) << i;
    if (removed || removed.error().message().find("symbolic link") != std::string::npos) ++refused;
    EXPECT_FALSE(files_->rename(place + "/file", root_ + "/stolen")) << i;
    static_cast<void>(files_->create(place + "/new"));
    static_cast<void>(files_->remove(place + "/new"));
  }
  is_done = true;
  swapping.join();
  EXPECT_GT(refused, 0U);
}

}  // namespace
}  // namespace bitsnap::os
