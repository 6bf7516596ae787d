// Tests of FileIdentity on real files.
#include "os/file_identity.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "os/temporary_directory_testing.hpp"

namespace bitsnap::os {
namespace {

TEST(FileIdentity, IsEqualForAllNamesOfAFileOnly) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "a");
  std::filesystem::create_directory(directory / "b");
  std::filesystem::create_directory_symlink("a", directory / "link");
  const auto a = identify_file(directory / "a");
  ASSERT_TRUE(a.has_value());
  EXPECT_EQ(identify_file(directory / "link"), a);
  EXPECT_EQ(identify_file(directory / "b/../a/"), a);
  EXPECT_NE(identify_file(directory / "b"), a);
  EXPECT_NE(identify_file("/proc"), identify_file("/"));
  EXPECT_EQ(identify_file(directory / "none"), std::nullopt);
  EXPECT_EQ(identify_file(""), std::nullopt);
}

TEST(FileIdentity, FallsBackToTheNearestExistingDirectory) {
  const TemporaryDirectory directory;
  const FoundFile expected{directory.path(), *identify_file(directory.path())};
  EXPECT_EQ(nearest_file(directory.path()), expected);
  EXPECT_EQ(nearest_file(directory / "none"), expected);
  EXPECT_EQ(nearest_file(directory / "none/nor/this"), expected);
  std::ofstream(directory / "file") << "no directory";
  EXPECT_EQ(nearest_file(directory / "file/below")->path, directory / "file");
  EXPECT_EQ(nearest_file("/none-that-is-there/a")->path, "/");
  EXPECT_EQ(nearest_file("/")->path, "/");
  EXPECT_EQ(nearest_file("none-that-is-there"), std::nullopt);
}

}  // namespace
}  // namespace bitsnap::os
