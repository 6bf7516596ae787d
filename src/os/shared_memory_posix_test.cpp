// Tests of memory shared between real processes: write access, forks, and refused descriptors.
#include "os/shared_memory.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

#include "os/descriptor_posix.hpp"
#include "os/forked_child_testing.hpp"
#include "os/memory.hpp"
#include "os/populate_posix.hpp"
#include "os/temporary_directory_testing.hpp"

namespace bitsnap::os {
namespace {

using testing::HasSubstr;

const std::size_t kPage = page_size_bytes();

std::byte pattern(std::size_t i) { return static_cast<std::byte>((i * 31 + i / 4096) & 0xFF); }

void fill(ByteSpan bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = pattern(i);
}

bool holds_pattern(ConstByteSpan bytes, std::size_t from = 0) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != pattern(from + i)) return false;
  }
  return !bytes.empty();
}

SharedMemory make(std::uint64_t size_bytes) { return SharedMemory::create("test", size_bytes).value(); }

// The number of pages that are present.
std::size_t present_pages(ConstByteSpan bytes) {
  std::vector<unsigned char> pages((bytes.size() + kPage - 1) / kPage);
  if (::mincore(const_cast<std::byte*>(bytes.data()), bytes.size(), pages.data()) != 0) return 0;
  return static_cast<std::size_t>(std::count_if(pages.begin(), pages.end(), [](auto page) { return (page & 1) != 0; }));
}

TEST(SharedMemory, StartsZeroedInTheRequestedSize) {
  const SharedMemory memory = make(3 * kPage + 5);
  EXPECT_EQ(memory.size_bytes(), 3 * kPage + 5);
  const auto mapped = memory.map(MemoryAccess::read_write);
  ASSERT_TRUE(mapped) << mapped.error().message();
  EXPECT_EQ(mapped->size_bytes(), memory.size_bytes());
  ASSERT_EQ(mapped->bytes().size(), memory.size_bytes());
  for (const std::byte byte : mapped->bytes()) ASSERT_EQ(byte, std::byte{0});
}

TEST(SharedMemory, SharesBytesBetweenProcesses) {
  const SharedMemory memory = make(4 * kPage);
  const auto mine = memory.map(MemoryAccess::read_write);
  ASSERT_TRUE(mine);
  fill(mine->writable_bytes());
  const int child = returned_by_child([&] {
    const auto all = memory.map(MemoryAccess::read_write);
    const auto part = memory.map(MemoryAccess::read, 2 * kPage, kPage + 1);
    if (!all || !part || !holds_pattern(all->bytes()) || !holds_pattern(part->bytes(), 2 * kPage)) return 1;
    if (part->bytes().size() != kPage + 1 || !part->writable_bytes().empty()) return 2;
    all->writable_bytes()[5] = std::byte{77};
    return 0;
  });
  EXPECT_EQ(child, 0);
  EXPECT_EQ(mine->bytes()[5], std::byte{77});
}

TEST(SharedMemory, CannotBeResized) {
  const SharedMemory memory = make(2 * kPage);
  for (const std::size_t size : {kPage, 3 * kPage}) {
    EXPECT_EQ(::ftruncate(memory.descriptor(), static_cast<off_t>(size)), -1);
    EXPECT_EQ(errno, EPERM);
  }
  EXPECT_EQ(::fcntl(memory.descriptor(), F_ADD_SEALS, F_SEAL_WRITE), -1) << "its writer would die of it";
  EXPECT_EQ(::fcntl(memory.descriptor(), F_GETFD), FD_CLOEXEC);
  const auto copy = memory.duplicate();
  ASSERT_TRUE(copy);
  EXPECT_NE(copy->get(), memory.descriptor());
  EXPECT_EQ(::fcntl(copy->get(), F_GETFD), FD_CLOEXEC);
}

TEST(SharedMemory, CannotBeWrittenWhenFrozen) {
  auto memory = SharedMemory::create_for_writing_once("test", 2 * kPage);
  ASSERT_TRUE(memory);
  EXPECT_FALSE(memory->is_frozen());
  {
    const auto mapped = memory->map(MemoryAccess::read_write);
    ASSERT_TRUE(mapped);
    fill(mapped->writable_bytes());
    const auto early = memory->freeze();
    ASSERT_FALSE(early) << "a mapping could still write";
    EXPECT_EQ(early.error().kind(), ErrorKind::busy);
    EXPECT_FALSE(memory->is_frozen());
  }
  const auto frozen = memory->freeze();
  ASSERT_TRUE(frozen) << frozen.error().message();
  EXPECT_TRUE(memory->is_frozen());
  EXPECT_TRUE(memory->freeze()) << "twice is once";
  const auto writable = memory->map(MemoryAccess::read_write);
  ASSERT_FALSE(writable);
  EXPECT_EQ(writable.error().kind(), ErrorKind::invalid_argument);
  EXPECT_THAT(writable.error().message(), HasSubstr("frozen"));
  EXPECT_EQ(::pwrite(memory->descriptor(), "x", 1, 0), -1);
  EXPECT_EQ(::ftruncate(memory->descriptor(), 0), -1);
  const auto readable = memory->map(MemoryAccess::read);
  ASSERT_TRUE(readable) << readable.error().message();
  EXPECT_TRUE(readable->populate(0, 2 * kPage));
  EXPECT_TRUE(holds_pattern(readable->bytes()));
}

TEST(SharedMemory, RejectsFreezingMemoryForRepeatedWriting) {
  SharedMemory memory = make(kPage);
  const auto frozen = memory.freeze();
  ASSERT_FALSE(frozen);
  EXPECT_EQ(frozen.error().kind(), ErrorKind::invalid_argument);
  EXPECT_FALSE(memory.is_frozen());
}

TEST(SharedMemory, IsAdoptedWithItsBytesAndSeals) {
  auto memory = SharedMemory::create_for_writing_once("test", kPage + 3);
  ASSERT_TRUE(memory);
  fill(memory->map(MemoryAccess::read_write)->writable_bytes());
  ASSERT_TRUE(memory->freeze());
  const auto taken = SharedMemory::adopt(memory->duplicate().value(), kPage + 3);
  ASSERT_TRUE(taken) << taken.error().message();
  EXPECT_EQ(taken->size_bytes(), kPage + 3);
  EXPECT_TRUE(taken->is_frozen());
  EXPECT_TRUE(holds_pattern(taken->map(MemoryAccess::read)->bytes()));
  const auto unfrozen = SharedMemory::adopt(make(kPage).duplicate().value(), kPage);
  ASSERT_TRUE(unfrozen);
  EXPECT_FALSE(unfrozen->is_frozen());
}

TEST(SharedMemory, RejectsAdoptingMemoryThatIsUnsafeToMap) {
  const TemporaryDirectory directory;
  const std::size_t before = open_descriptor_count();
  const auto refused = [](Descriptor descriptor, std::uint64_t max_bytes) {
    const auto taken = SharedMemory::adopt(std::move(descriptor), max_bytes);
    if (taken) return std::string("taken");
    return std::string(error_kind_name(taken.error().kind())) + ": " + taken.error().message();
  };
  const auto unsealed = [](std::size_t size, int seals) {
    Descriptor fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(size)), 0);
    EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
    return fd;
  };
  EXPECT_THAT(refused(make(kPage).duplicate().value(), kPage - 1), HasSubstr("resource_exhausted"));
  EXPECT_THAT(refused(unsealed(kPage, 0), kPage), HasSubstr("invalid_argument: adopt shared memory: its size is"));
  EXPECT_THAT(refused(unsealed(kPage, F_SEAL_SHRINK), kPage), HasSubstr("not sealed"));
  EXPECT_THAT(refused(unsealed(kPage, F_SEAL_GROW), kPage), HasSubstr("not sealed"));
  EXPECT_THAT(refused(unsealed(0, F_SEAL_GROW | F_SEAL_SHRINK), kPage), HasSubstr("empty"));
  std::ofstream(directory / "file") << std::string(kPage, 'x');
  EXPECT_THAT(refused(open_descriptor((directory / "file").c_str(), O_RDWR), kPage), HasSubstr("invalid_argument"));
  EXPECT_THAT(refused(open_descriptor("/dev/zero", O_RDWR), kPage), HasSubstr("not anonymous memory"));
  EXPECT_THAT(refused(open_descriptor(directory.path().c_str(), O_RDONLY), kPage), HasSubstr("not anonymous memory"));
  EXPECT_THAT(refused(Descriptor(), kPage), HasSubstr("no descriptor"));
  EXPECT_EQ(open_descriptor_count(), before) << "what is refused is closed";
}

TEST(SharedMemory, RejectsInvalidSizesNamesAndRanges) {
  for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    const auto made = SharedMemory::create("test", size);
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().kind(), ErrorKind::invalid_argument);
  }
  EXPECT_FALSE(SharedMemory::create(std::string_view("a\0b", 3), kPage));
  EXPECT_TRUE(SharedMemory::create(std::string(5000, 'n'), kPage));
  const SharedMemory memory = make(2 * kPage);
  const std::pair<std::uint64_t, std::uint64_t> ranges[] = {{0, 0}, {0, 2 * kPage + 1}, {kPage, kPage + 1},
                                                            {1, 1}, {2 * kPage, 1},     {kPage, ~std::uint64_t{0}}};
  for (const auto& [offset, size] : ranges) {
    const auto mapped = memory.map(MemoryAccess::read, offset, size);
    ASSERT_FALSE(mapped) << offset << " " << size;
    EXPECT_EQ(mapped.error().kind(), ErrorKind::invalid_argument);
  }
}

TEST(SharedMemory, PopulatesPagesAndKeepsTheirContents) {
  const SharedMemory memory = make(64 * kPage);
  const auto mapped = memory.map(MemoryAccess::read_write);
  ASSERT_TRUE(mapped);
  fill(mapped->writable_bytes().subspan(0, 3 * kPage));
  ASSERT_EQ(present_pages(mapped->bytes()), 3u) << "the others are there once they are asked for";
  const auto part = mapped->populate(10 * kPage + 7, kPage);  // lies in two pages
  ASSERT_TRUE(part) << part.error().message();
  EXPECT_EQ(present_pages(mapped->bytes().subspan(10 * kPage, 2 * kPage)), 2u);
  ASSERT_TRUE(mapped->populate(0, 64 * kPage));
  EXPECT_EQ(present_pages(mapped->bytes()), 64u);
  EXPECT_TRUE(holds_pattern(mapped->bytes().subspan(0, 3 * kPage)));
  EXPECT_EQ(mapped->bytes()[64 * kPage - 1], std::byte{0});
  EXPECT_TRUE(mapped->populate(64 * kPage, 0));
  for (const auto& outside : {mapped->populate(64 * kPage, 1), mapped->populate(1, ~std::uint64_t{0})}) {
    ASSERT_FALSE(outside);
    EXPECT_EQ(outside.error().kind(), ErrorKind::invalid_argument);
  }
}

TEST(Populate, ByTouchingKeepsContentsAndReportsMissingMemory) {
  const SharedMemory memory = make(8 * kPage);
  const auto mapped = memory.map(MemoryAccess::read_write);
  ASSERT_TRUE(mapped);
  fill(mapped->writable_bytes().subspan(0, 2 * kPage));
  const ConstByteSpan bytes = mapped->bytes();
  EXPECT_EQ(populate_by_touch(memory.descriptor(), kPage, bytes.data() + kPage, 4 * kPage), 0);
  EXPECT_EQ(present_pages(bytes), 5u);
  EXPECT_TRUE(holds_pattern(bytes.subspan(0, 2 * kPage)));
  EXPECT_EQ(bytes[3 * kPage], std::byte{0});
  const Descriptor read_only = open_descriptor("/dev/zero", O_RDONLY);
  EXPECT_NE(populate_by_touch(read_only.get(), 0, bytes.data(), kPage), 0);
}

TEST(Populate, ByAdviceReportsMissingMemoryInsteadOfASignal) {
  if (!can_populate_by_advice()) GTEST_SKIP() << "this kernel is older than 5.14";
  const Descriptor fd(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(fd.get(), static_cast<off_t>(kPage)), 0);
  void* const address = ::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  ASSERT_NE(address, MAP_FAILED);
  EXPECT_EQ(populate_by_advice(address, kPage, true), 0);
  EXPECT_EQ(populate_by_advice(address, 2 * kPage, true), EFAULT);
  EXPECT_EQ(populate_by_advice(address, 2 * kPage, false), EFAULT);
  ::munmap(address, 2 * kPage);
}

TEST(MappedMemory, IsNotInheritedByAForkedChild) {
  const SharedMemory memory = make(kPage);
  auto mapped = memory.map(MemoryAccess::read_write);
  ASSERT_TRUE(mapped);
  const std::byte* const address = mapped->bytes().data();
  const int child = returned_by_child([&] {
    if (!mapped->bytes().empty() || !mapped->writable_bytes().empty()) return 1;
    const auto populated = mapped->populate(0, kPage);
    if (populated || populated.error().kind() != ErrorKind::invalid_argument) return 2;
    // Memory that the system places at its address is not unmapped with it.
    void* const other = ::mmap(const_cast<std::byte*>(address), kPage, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (other != address) return 3;
    {
      const MappedMemory dropped = std::move(mapped).value();
    }
    std::memset(other, 1, kPage);
    return 0;
  });
  EXPECT_EQ(child, 0);
  mapped->writable_bytes()[0] = std::byte{1};
}

TEST(MappedMemory, LivesAsLongAsItsMapping) {
  const std::size_t before = open_descriptor_count();
  MappedMemory kept;
  EXPECT_TRUE(kept.bytes().empty());
  {
    const SharedMemory memory = make(2 * kPage);
    auto mapped = memory.map(MemoryAccess::read_write);
    ASSERT_TRUE(mapped);
    kept = std::move(mapped).value();
    EXPECT_TRUE(mapped->bytes().empty());
  }
  if (can_populate_by_advice()) {
    EXPECT_EQ(open_descriptor_count(), before);
  }
  fill(kept.writable_bytes());
  EXPECT_TRUE(holds_pattern(kept.bytes()));
  const std::byte* const address = kept.bytes().data();
  kept = MappedMemory();
  unsigned char page = 0;
  EXPECT_EQ(::mincore(const_cast<std::byte*>(address), kPage, &page), -1);
  EXPECT_EQ(open_descriptor_count(), before);
}

}  // namespace
}  // namespace bitsnap::os
