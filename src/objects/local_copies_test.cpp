// LocalCopies gives exactly the bytes that were kept, or nothing.
#include "objects/local_copies.hpp"

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "os/file_system_fake.hpp"

namespace bitsnap::objects {
namespace {

constexpr std::uint64_t kLots = std::uint64_t{1} << 40;
constexpr std::uint64_t k64K = std::uint64_t{64} << 10;

// The bytes of an object from `offset` on.
std::vector<std::byte> object_bytes(std::uint64_t seed, std::uint64_t offset, std::uint64_t size) {
  std::vector<std::byte> bytes(size);
  for (std::uint64_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>((offset + i) * (2 * seed + 1) >> 5);
  return bytes;
}

struct Machine {
  [[nodiscard]] LocalCopies process(std::uint64_t most_bytes = kLots) const {
    return LocalCopies(*files, "/home/me/.cache/bitsnap/objects", most_bytes);
  }
  std::unique_ptr<os::FakeFileSystem> files = std::make_unique<os::FakeFileSystem>();
};

void keep(LocalCopies& copies, std::uint64_t seed, std::uint64_t offset, std::uint64_t size) {
  copies.keep(LocalCopies::name_of("s3://bucket/file", std::to_string(seed)), offset, object_bytes(seed, offset, size));
}

// Whether the copies have the bytes, which are then right.
bool has(LocalCopies& copies, std::uint64_t seed, std::uint64_t offset, std::uint64_t size) {
  std::vector<std::byte> out(size);
  if (!copies.read(LocalCopies::name_of("s3://bucket/file", std::to_string(seed)), offset, out)) return false;
  EXPECT_TRUE(out == object_bytes(seed, offset, size)) << seed << ": " << size << " bytes at " << offset;
  return true;
}

std::uint64_t size_of(const os::FakeFileSystem& files) {
  std::uint64_t bytes = 0;
  for (const auto& name : files.all_names()) bytes += name.contents.size();
  return bytes;
}

TEST(LocalCopies, GiveWhatWasKeptAndNothingElse) {
  const Machine machine;
  LocalCopies copies = machine.process();
  EXPECT_FALSE(has(copies, 1, 0, 1));
  keep(copies, 1, 1000, k64K);
  keep(copies, 1, 1000 + k64K, 2 * k64K);
  keep(copies, 1, 1001 + 3 * k64K, k64K);
  LocalCopies other = machine.process();
  for (LocalCopies* const process : {&copies, &other}) {
    EXPECT_TRUE(has(*process, 1, 1000, k64K));
    EXPECT_TRUE(has(*process, 1, 1000, 3 * k64K)) << "over two of them";
    EXPECT_TRUE(has(*process, 1, 1500, 2 * k64K)) << "parts of two";
    EXPECT_TRUE(has(*process, 1, 999 + 3 * k64K, 1));
    EXPECT_FALSE(has(*process, 1, 999, 1));
    EXPECT_FALSE(has(*process, 1, 1000 + 3 * k64K, 1)) << "between them";
    EXPECT_FALSE(has(*process, 1, 1000, 4 * k64K)) << "with a gap";
    EXPECT_FALSE(has(*process, 2, 1000, k64K)) << "another version";
  }
}

TEST(LocalCopies, ADamagedOneIsNotThere) {
  const Machine machine;
  LocalCopies copies = machine.process();
  keep(copies, 1, 0, k64K);
  const std::vector<std::string> paths = machine.files->all_files();
  ASSERT_EQ(paths.size(), 1u);
  const auto whole = *os::read_file(*machine.files, paths[0], kLots);
  for (std::size_t at = 0; at < whole.size(); at += at % 1000 == 0 ? 7 : 993) {
    auto flipped = whole;
    flipped[at] ^= std::byte{4};
    machine.files->plant(paths[0], flipped);
    LocalCopies process = machine.process();
    EXPECT_FALSE(has(process, 1, 100, 100)) << at;
    EXPECT_TRUE(machine.files->all_files().empty());
    for (const std::size_t size : {at, std::size_t{0}}) {
      machine.files->plant(paths[0], {whole.data(), size});
      LocalCopies next = machine.process();
      EXPECT_FALSE(has(next, 1, 0, 1)) << size;
    }
  }
  // One that vanished while it was known; it is kept again when it was read again.
  keep(copies, 1, 0, k64K);
  static_cast<void>(machine.files->remove(paths[0]));
  EXPECT_FALSE(has(copies, 1, 0, 1));
  keep(copies, 1, 0, k64K);
  EXPECT_TRUE(has(copies, 1, 0, 1));
}

TEST(LocalCopies, TheOldestGoWhenThereAreTooMany) {
  const Machine machine;
  constexpr std::uint64_t kMost = 20 * k64K;
  for (std::uint64_t object = 1; object <= 12; ++object) {
    LocalCopies copies = machine.process(kMost);
    for (std::uint64_t part = 0; part < 4; ++part) keep(copies, object, part * k64K, k64K);
    EXPECT_TRUE(has(copies, object, 0, 4 * k64K)) << object;
    EXPECT_LE(size_of(*machine.files), kMost + 4 * k64K / 100);
    EXPECT_EQ(has(copies, object - 3, 0, 4 * k64K), object > 3) << object;
    EXPECT_FALSE(object > 5 && has(copies, object - 5, 0, k64K)) << object;
  }
  // An object that is larger than the limit takes what there is and no more, and leaves what it has.
  LocalCopies copies = machine.process(kMost);
  for (std::uint64_t part = 0; part < 60; ++part) keep(copies, 99, part * k64K, k64K);
  EXPECT_TRUE(has(copies, 99, 0, 10 * k64K));
  EXPECT_FALSE(has(copies, 99, 40 * k64K, k64K));
  EXPECT_LE(size_of(*machine.files), kMost + k64K);
}

// The directory may be one that the user has other files in.
TEST(LocalCopies, FilesOfOthersAreLeftAlone) {
  const Machine machine;
  const std::string directory = "/home/me/.cache/bitsnap/objects/";
  const std::vector<std::byte> large(30 * k64K);
  const std::string object = LocalCopies::name_of("s3://bucket/file", "7");
  const std::vector<std::string> others = {directory + "thesis.tex", directory + "pictures/1",
                                           directory + object + "/notes"};
  for (const std::string& path : others) machine.files->plant(path, large);
  for (std::uint64_t number = 1; number <= 9; ++number) {
    LocalCopies copies = machine.process(10 * k64K);
    for (std::uint64_t part = 0; part < 4; ++part) keep(copies, number, part * k64K, k64K);
    EXPECT_TRUE(has(copies, number, 0, 4 * k64K)) << "what others keep is not counted";
  }
  for (const std::string& path : others) EXPECT_TRUE(machine.files->stat(path)->exists) << path;
}

TEST(LocalCopies, WhatAnotherProcessKeepsLaterIsFound) {
  const Machine machine;
  LocalCopies agent = machine.process();
  LocalCopies trainer = machine.process();
  for (std::uint64_t part = 0; part < 4; ++part) {
    EXPECT_FALSE(has(agent, 1, part * k64K, k64K));
    keep(trainer, 1, part * k64K, k64K);
    EXPECT_TRUE(has(agent, 1, 0, (part + 1) * k64K)) << part;
  }
}

TEST(LocalCopies, AFullDiskIsLeftAlone) {
  const Machine machine;
  machine.files->limit_space(3 * k64K);
  LocalCopies copies = machine.process();
  for (std::uint64_t part = 0; part < 5; ++part) keep(copies, 1, part * k64K, k64K);
  EXPECT_TRUE(has(copies, 1, 0, 2 * k64K));
  EXPECT_FALSE(has(copies, 1, 2 * k64K, k64K));
  EXPECT_EQ(machine.files->all_files().size(), 2u) << "nothing half written stays";
}

TEST(LocalCopies, ServeManyThreadsAndProcesses) {
  const Machine machine;
  std::vector<std::unique_ptr<LocalCopies>> processes;
  for (int i = 0; i < 2; ++i) {
    processes.push_back(std::make_unique<LocalCopies>(*machine.files, "/cache", 60 * k64K));
  }
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (unsigned i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      LocalCopies& copies = *processes[i % 2];
      std::mt19937 random(i);
      for (int round = 0; round < 300; ++round) {
        const std::uint64_t object = random() % 6;
        const std::uint64_t at = random() % 20 * k64K / 2;
        if (!has(copies, object, at, k64K)) keep(copies, object, at, k64K + random() % k64K);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(size_of(*machine.files), 60 * k64K * 9 / 8) << "each knows what the other one has kept";
}

}  // namespace
}  // namespace bitsnap::objects
