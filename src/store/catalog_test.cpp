// Catalog: what it remembers, and that entries which do not match their record are ignored.
#include "store/catalog.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/hash.hpp"
#include "os/file_system_fake.hpp"
#include "os/temporary_directory_testing.hpp"
#include "store/run_testing.hpp"
#include "store/store_impl.hpp"

namespace bitsnap::store {
namespace {

constexpr const char* kPath = "/run/catalog";
constexpr std::size_t kEntryBytes = 96;

StepEntry entry_of(std::uint64_t step) {
  StepEntry entry;
  entry.step = step;
  entry.state = StepState::committed;
  entry.record.exists = true;
  entry.record.is_regular = true;
  entry.record.size_bytes = 300 + step;
  entry.record.modified_ns = 1'000'000 + static_cast<std::int64_t>(step);
  entry.record.file_id = 77 + step;
  return entry;
}

Checkpoint info_of(std::uint64_t step) {
  Checkpoint info;
  info.step = step;
  info.time_unix_ms = -5;
  info.raw_bytes = 1000 + step;
  info.stored_bytes = 100 + step;
  info.shards = 3;
  if (step % 2 == 0) info.base = step - 1;
  info.links = 4;
  info.depth = 5;
  return info;
}

void expect_info(const Checkpoint* found, const Checkpoint& expected) {
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->step, expected.step);
  EXPECT_EQ(found->time_unix_ms, expected.time_unix_ms);
  EXPECT_EQ(found->raw_bytes, expected.raw_bytes);
  EXPECT_EQ(found->stored_bytes, expected.stored_bytes);
  EXPECT_EQ(found->shards, expected.shards);
  EXPECT_EQ(found->base, expected.base);
  EXPECT_EQ(found->links, expected.links);
  EXPECT_EQ(found->depth, expected.depth);
  EXPECT_FALSE(found->damage);
}

const std::vector<std::uint64_t> kSteps = {0, 2, 9, 18'446'744'073'709'551'615U};

void write_some(os::FakeFileSystem& files) {
  ASSERT_TRUE(files.create_directory("/run"));
  Catalog catalog;
  for (const std::uint64_t step : kSteps) {
    Checkpoint info = info_of(step);
    if (step == 0) info.base.reset();
    catalog.add(entry_of(step), info);
  }
  // What an entry has no room for is read from the record.
  Checkpoint damaged = info_of(11);
  damaged.damage = Error(ErrorKind::corrupt, "kept as damaged");
  catalog.add(entry_of(11), damaged);
  const auto written = catalog.write(files, kPath);
  ASSERT_TRUE(written) << written.error().message();
}

std::vector<std::byte> contents(os::FileSystem& files) { return os::read_file(files, kPath, 1 << 20).value(); }

TEST(Catalog, RoundTrips) {
  os::FakeFileSystem files;
  write_some(files);
  const Catalog catalog = Catalog::read(files, kPath);
  EXPECT_EQ(catalog.size(), kSteps.size());
  for (const std::uint64_t step : kSteps) {
    Checkpoint expected = info_of(step);
    if (step == 0) expected.base.reset();
    expect_info(catalog.find(entry_of(step)), expected);
  }
}

TEST(Catalog, MatchesTheLayoutOfTheSpecification) {
  os::FakeFileSystem files;
  write_some(files);
  const std::vector<std::byte> bytes = contents(files);
  ASSERT_EQ(bytes.size(), 16 + kSteps.size() * kEntryBytes + 8);
  EXPECT_EQ(load_le<std::uint64_t>(bytes.data()), 0x0A0D544143534289U);
  EXPECT_EQ(load_le<std::uint64_t>(bytes.data() + 8), kSteps.size());
  const std::byte* const second = bytes.data() + 16 + kEntryBytes;
  const std::vector<std::uint64_t> wide = {2, 1'000'002, 79, 302, ~std::uint64_t{4}, 1002, 102, 1};
  for (std::size_t i = 0; i < wide.size(); ++i) EXPECT_EQ(load_le<std::uint64_t>(second + 8 * i), wide[i]) << i;
  const std::vector<std::uint32_t> narrow = {3, 4, 5, 1, 0, 0, 0, 0};
  for (std::size_t i = 0; i < narrow.size(); ++i)
    EXPECT_EQ(load_le<std::uint32_t>(second + 64 + 4 * i), narrow[i]) << i;
  EXPECT_EQ(load_le<std::uint64_t>(bytes.data() + bytes.size() - 8),
            hash64(ConstByteSpan(bytes).first(bytes.size() - 8)));
}

TEST(Catalog, IgnoresAnEntryAboutAnotherFile) {
  os::FakeFileSystem files;
  write_some(files);
  const Catalog catalog = Catalog::read(files, kPath);
  StepEntry entry = entry_of(2);
  ASSERT_NE(catalog.find(entry), nullptr);
  entry.record.modified_ns += 1;
  EXPECT_EQ(catalog.find(entry), nullptr) << "written again";
  entry = entry_of(2);
  entry.record.file_id += 1;
  EXPECT_EQ(catalog.find(entry), nullptr) << "replaced";
  entry = entry_of(2);
  entry.record.size_bytes += 1;
  EXPECT_EQ(catalog.find(entry), nullptr) << "longer";
  entry = entry_of(2);
  entry.step = 3;
  EXPECT_EQ(catalog.find(entry), nullptr) << "of another step";
}

TEST(Catalog, IsEmptyIfMissingOrDamaged) {
  os::FakeFileSystem files;
  EXPECT_EQ(Catalog::read(files, kPath).size(), 0U);
  write_some(files);
  const std::vector<std::byte> good = contents(files);
  for (std::size_t at = 0; at < good.size(); ++at) {
    files.plant(kPath, ConstByteSpan(good).first(at));
    EXPECT_EQ(Catalog::read(files, kPath).size(), 0U) << "cut off at " << at;
    std::vector<std::byte> changed = good;
    changed[at] ^= std::byte{1};
    files.plant(kPath, changed);
    EXPECT_EQ(Catalog::read(files, kPath).size(), 0U) << "changed at " << at;
  }
  std::vector<std::byte> longer = good;
  longer.push_back(std::byte{0});
  files.plant(kPath, longer);
  EXPECT_EQ(Catalog::read(files, kPath).size(), 0U);
}

TEST(Catalog, DoesNotTrustTheNumberOfItsEntries) {
  os::FakeFileSystem files;
  write_some(files);
  for (const std::uint64_t count : {std::uint64_t{0}, kSteps.size() - 1, kSteps.size() + 1, ~std::uint64_t{0},
                                    (std::uint64_t{1} << 63) / kEntryBytes}) {
    std::vector<std::byte> bytes = contents(files);
    store_le<std::uint64_t>(bytes.data() + 8, count);
    store_le<std::uint64_t>(bytes.data() + bytes.size() - 8, hash64(ConstByteSpan(bytes).first(bytes.size() - 8)));
    os::FakeFileSystem others;
    others.plant(kPath, bytes);
    EXPECT_EQ(Catalog::read(others, kPath).size(), 0U) << count;
  }
}

// Listing a store gives the same result with any catalog, or none.
class CatalogOfAStore : public testing::Test {
 protected:
  void SetUp() override {
    StoreOptions options;
    options.access = StoreAccess::write;
    auto store = open_store(files_, "/run", options);
    ASSERT_TRUE(store) << store.error().message();
    for (std::uint64_t step = 1; step <= 3; ++step) ASSERT_TRUE((*store)->save(step, TestState(step).state()));
  }

  std::vector<Checkpoint> list() {
    const auto store = open_store(files_, "/run", {});
    EXPECT_TRUE(store);
    return (*store)->checkpoints().value();
  }

  os::FakeFileSystem files_;
};

TEST_F(CatalogOfAStore, IsUsedForListing) {
  ASSERT_TRUE(write_catalog(StepDirectories(files_, RunLayout("/run"))));
  EXPECT_EQ(Catalog::read(files_, kPath).size(), 3U);
  // An entry with other content shows up in the listing, so the listing has not read the record.
  const StepDirectories directories(files_, RunLayout("/run"));
  Catalog catalog;
  Checkpoint info = list().front();
  info.links = 31;
  catalog.add(directories.look(1).value(), info);
  ASSERT_TRUE(catalog.write(files_, kPath));
  EXPECT_EQ(list().front().links, 31U);
}

TEST_F(CatalogOfAStore, IsIgnoredForAReplacedRecord) {
  ASSERT_TRUE(write_catalog(StepDirectories(files_, RunLayout("/run"))));
  const RunLayout layout("/run");
  CommitRecord record = read_commit_record(files_, layout, 2).value();
  record.policy = "lmc     ";
  record.shards[0].depth = 7;
  ASSERT_TRUE(replace_commit_record(files_, layout, record, false));
  EXPECT_EQ(list()[1].depth, 7U);
  // The entry is ignored, too, if the record was damaged since.
  files_.plant(layout.commit(3), {});
  EXPECT_TRUE(list()[2].damage);
}

TEST_F(CatalogOfAStore, OmitsUnreadableAndRetiredSteps) {
  const RunLayout layout("/run");
  files_.plant(layout.commit(2), {});
  ASSERT_TRUE(files_.rename(layout.commit(1), layout.retired(1)));
  ASSERT_TRUE(write_catalog(StepDirectories(files_, layout)));
  EXPECT_EQ(Catalog::read(files_, kPath).size(), 1U);
  EXPECT_EQ(list().size(), 2U);
  EXPECT_TRUE(list()[0].damage);
}

TEST(Catalog, OmitsRecordsOfTheLastSecond) {
  const os::TemporaryDirectory directory;
  const std::string path = directory.path() + "/run";
  StoreOptions options;
  options.access = StoreAccess::write;
  auto store = Store::open(path, options);
  ASSERT_TRUE(store) << store.error().message();
  ASSERT_TRUE((*store)->save(1, TestState(1).state()));
  const StepDirectories directories(os::real_file_system(), RunLayout(path));
  ASSERT_TRUE(write_catalog(directories));
  EXPECT_TRUE(Catalog::read(os::real_file_system(), path + "/catalog").find(directories.look(1).value()) == nullptr);
}

}  // namespace
}  // namespace bitsnap::store
