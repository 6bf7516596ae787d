// Tests of the real file system alone: errors of the system, special files, modes, and the ways to rename.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "os/descriptor_posix.hpp"
#include "os/errno_error.hpp"
#include "os/file_system.hpp"
#include "os/rename_posix.hpp"
#include "os/temporary_directory_testing.hpp"

namespace bitsnap::os {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

void put(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

std::string get(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(ErrnoError, MapsErrnoToKinds) {
  EXPECT_EQ(errno_kind(ENOENT), ErrorKind::not_found);
  EXPECT_EQ(errno_kind(EEXIST), ErrorKind::invalid_argument);
  EXPECT_EQ(errno_kind(EISDIR), ErrorKind::invalid_argument);
  EXPECT_EQ(errno_kind(ENOSPC), ErrorKind::io);
  EXPECT_EQ(errno_kind(EDQUOT), ErrorKind::io);
  EXPECT_EQ(errno_kind(EMFILE), ErrorKind::io);
  EXPECT_EQ(errno_kind(ENOMEM), ErrorKind::resource_exhausted);
  EXPECT_EQ(errno_kind(EACCES), ErrorKind::io);
  EXPECT_EQ(errno_kind(EROFS), ErrorKind::io);
  EXPECT_EQ(errno_kind(EIO), ErrorKind::io);
  EXPECT_EQ(errno_kind(EBUSY), ErrorKind::busy);
  EXPECT_EQ(errno_error(ENOSPC, "write", "/a/b").message(), "write /a/b: no space left on device");
  EXPECT_EQ(errno_error(EACCES, "open", "/a/b").message(), "open /a/b: permission denied");
}

// Limits the file size of this process while it exists; the system then refuses writes with EFBIG.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t size_bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = size_bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST(PosixFileSystem, KeepsFailingAfterAFailedWriteEvenWithoutTheCause) {
  const TemporaryDirectory directory;
  auto file = real_file_system().create(directory / "f");
  ASSERT_TRUE(file);
  const std::vector<std::byte> bytes(1 << 20);
  std::string message;
  {
    const FileSizeLimit limit(1 << 18);
    const auto failed = (*file)->append(bytes);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().kind(), ErrorKind::io);
    message = failed.error().message();
    EXPECT_THAT(message, HasSubstr(directory / "f"));
  }
  for (const auto& again : {(*file)->append(bytes), (*file)->sync(), (*file)->close(), (*file)->append({})}) {
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error().message(), message);
  }
}

TEST(PosixFileSystem, ReportsTheFailureOfABufferedWriteAtSyncAndAtClose) {
  const TemporaryDirectory directory;
  const std::vector<std::byte> bytes(1000);
  for (const bool syncs : {true, false}) {
    auto file = real_file_system().create(directory / (syncs ? "s" : "c"));
    ASSERT_TRUE(file);
    ASSERT_TRUE((*file)->append(bytes));
    const FileSizeLimit limit(500);
    const auto failed = syncs ? (*file)->sync() : (*file)->close();
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().kind(), ErrorKind::io);
    EXPECT_FALSE((*file)->close());
    EXPECT_FALSE((*file)->append(bytes));
  }
}

TEST(ErrnoError, ReportsAFullDevice) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "this system has no /dev/full";
  const int fd = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(::write(fd, "x", 1), -1);
  const Error error = errno_error(errno, "write", "/dev/full");
  ::close(fd);
  EXPECT_EQ(error.kind(), ErrorKind::io);
  EXPECT_THAT(error.message(), HasSubstr("no space left"));
}

TEST(PosixFileSystem, RejectsDevicesAndPipesWithoutWaiting) {
  const TemporaryDirectory directory;
  ASSERT_EQ(::mkfifo((directory / "pipe").c_str(), 0600), 0);
  for (const std::string& path : {directory / "pipe", std::string("/dev/null")}) {
    const auto file = real_file_system().open(path);
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().kind(), ErrorKind::invalid_argument);
    EXPECT_THAT(file.error().message(), HasSubstr("not a regular file"));
    EXPECT_FALSE(real_file_system().stat(path)->is_regular);
    EXPECT_TRUE(real_file_system().stat(path)->exists);
  }
}

TEST(PosixFileSystem, CreatesFilesWithTheRequestedMode) {
  const TemporaryDirectory directory;
  const mode_t umask_before = ::umask(0022);
  ASSERT_TRUE(real_file_system().create(directory / "default"));
  ASSERT_TRUE(real_file_system().create(directory / "private", 0600));
  ::umask(umask_before);
  struct stat info{};
  ASSERT_EQ(::stat((directory / "default").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0644u);
  ASSERT_EQ(::stat((directory / "private").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0600u);
}

TEST(PosixFileSystem, LeaksNoDescriptors) {
  const TemporaryDirectory directory;
  put(directory / "f", "x");
  const int lowest = ::dup(0);
  ::close(lowest);
  {
    const auto reader = real_file_system().open(directory / "f");
    const auto writer = real_file_system().create(directory / "g");
    ASSERT_TRUE(reader && writer);
    for (int fd = lowest; fd < lowest + 2; ++fd) EXPECT_EQ(::fcntl(fd, F_GETFD), FD_CLOEXEC);
    ASSERT_TRUE(real_file_system().list_directory(directory.path()));
    ASSERT_TRUE(real_file_system().sync_directory(directory.path()));
    EXPECT_FALSE(real_file_system().open(directory.path()));
  }
  const int lowest_after = ::dup(0);
  ::close(lowest_after);
  EXPECT_EQ(lowest_after, lowest);
}

TEST(PosixFileSystem, ReportsModificationTimesInNanoseconds) {
  const TemporaryDirectory directory;
  put(directory / "f", "x");
  for (const timespec at : {timespec{1'700'000'000, 123'456'789}, timespec{-2, 5}}) {
    const timespec times[2] = {at, at};
    ASSERT_EQ(::utimensat(AT_FDCWD, (directory / "f").c_str(), times, 0), 0);
    EXPECT_EQ(real_file_system().stat(directory / "f")->modified_ns, at.tv_sec * 1'000'000'000 + at.tv_nsec);
  }
  struct stat info{};
  ASSERT_EQ(::stat((directory / "f").c_str(), &info), 0);
  EXPECT_EQ(real_file_system().stat(directory / "f")->file_id, info.st_ino);
}

TEST(PosixFileSystem, ReadsFilesOfMoreThanFourGibibytes) {
  const TemporaryDirectory directory;
  put(directory / "f", "");
  const std::uint64_t far = (std::uint64_t{5} << 30) + 3;
  ASSERT_EQ(::truncate((directory / "f").c_str(), static_cast<off_t>(far)), 0);  // sparse
  {
    std::fstream file(directory / "f", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(far - 3));
    file << "end";
  }
  const auto file = real_file_system().open(directory / "f");
  ASSERT_TRUE(file);
  EXPECT_EQ((*file)->size_bytes(), far);
  std::vector<std::byte> out(3);
  ASSERT_TRUE((*file)->read_at(far - 3, out));
  EXPECT_EQ(as_text(out), "end");
}

using Rename = int (*)(const RenamePath&, const RenamePath&) noexcept;
class RenameTest : public testing::TestWithParam<Rename> {};
INSTANTIATE_TEST_SUITE_P(All, RenameTest,
                         testing::Values(rename_exclusive, rename_by_link, rename_by_placeholder, rename_no_replace));

TEST_P(RenameTest, MovesWithoutReplacing) {
  const TemporaryDirectory directory;
  // The old name as a path, and the new one relative to the open directory.
  const Descriptor opened = open_descriptor(directory.path().c_str(), O_PATH | O_DIRECTORY);
  const auto rename = [&](const std::string& from, const std::string& to) {
    return GetParam()({AT_FDCWD, from.c_str()}, {opened.get(), to.c_str() + directory.path().size() + 1});
  };
  put(directory / "a", "new");
  put(directory / "b", "old");
  EXPECT_EQ(rename(directory / "a", directory / "b"), EEXIST);
  EXPECT_EQ(get(directory / "a"), "new");
  EXPECT_EQ(get(directory / "b"), "old");
  EXPECT_EQ(rename(directory / "a", directory / "c"), 0);
  EXPECT_EQ(get(directory / "c"), "new");
  EXPECT_EQ(rename(directory / "none", directory / "d"), ENOENT);
  EXPECT_EQ(rename(directory / "b", directory / "none/b"), ENOENT);
  EXPECT_THAT(*real_file_system().list_directory(directory.path()), ElementsAre("b", "c"));
}

TEST(PosixFileSystem, MakesARelativePathAbsoluteFromTheCurrentDirectory) {
  const TemporaryDirectory directory;
  const Descriptor before = open_descriptor(".", O_RDONLY | O_DIRECTORY);
  ASSERT_TRUE(before.is_open());
  ASSERT_EQ(::chdir(directory.path().c_str()), 0);
  const std::string here = absolute_path(".");
  const std::string plain = absolute_path("a/../b/");
  const std::string dotted = absolute_path(".//././a");
  const std::string hidden = absolute_path(".a");
  const std::string above = absolute_path("../a");
  ASSERT_EQ(::fchdir(before.get()), 0);
  EXPECT_EQ(std::filesystem::canonical(here), std::filesystem::canonical(directory.path()));
  EXPECT_EQ(plain, here + "/a/../b/");
  EXPECT_EQ(dotted, here + "/a");
  EXPECT_EQ(hidden, here + "/.a");
  EXPECT_EQ(above, here + "/../a");
  EXPECT_EQ(absolute_path("/a/./b"), "/a/./b");
  EXPECT_EQ(absolute_path(""), "");
}

TEST(PosixFileSystem, NormalizesAllSpellingsOfAPath) {
  const TemporaryDirectory directory;
  const std::string root = std::filesystem::canonical(directory.path());
  std::filesystem::create_directory(root + "/runs");
  std::filesystem::create_directory_symlink(root + "/runs", root + "/link");
  std::filesystem::create_directory_symlink("round", root + "/round");
  const std::string name = std::filesystem::path(root).filename();
  for (const bool is_there : {false, true}) {
    if (is_there) std::filesystem::create_directory(root + "/runs/a");
    for (const std::string path : {"/runs/a", "/runs/a/", "/runs//a//", "/./runs/a/.", "/runs/../runs/a", "/link/a",
                                   "/none/../link/a/", "/link/../link/a"}) {
      EXPECT_EQ(canonical_path(root + path), root + "/runs/a") << path;
    }
    EXPECT_EQ(canonical_path(root + "/runs/../../" + name + "/runs/a"), root + "/runs/a");
  }
  const Descriptor before = open_descriptor(".", O_RDONLY | O_DIRECTORY);
  ASSERT_TRUE(before.is_open());
  ASSERT_EQ(::chdir(root.c_str()), 0);
  const std::string relative = canonical_path("link/../runs/b/");
  const std::string here = canonical_path(".");
  ASSERT_EQ(::fchdir(before.get()), 0);
  EXPECT_EQ(relative, root + "/runs/b");
  EXPECT_EQ(here, root);
  // Parts of a path that do not exist are normalized as text.
  EXPECT_EQ(canonical_path(root + "/round//a/./b/../"), root + "/round/a");
  EXPECT_EQ(canonical_path("/"), "/");
  EXPECT_EQ(canonical_path("/../"), "/");
  EXPECT_EQ(canonical_path(""), "");
}

}  // namespace
}  // namespace bitsnap::os
