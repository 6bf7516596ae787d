// Tests of the fingerprints by which the crash tests know a disk that they have checked.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "os/file_system_fake.hpp"
#include "store/store_impl.hpp"
#include "store/store_laws_testing.hpp"

namespace bitsnap::store {
namespace {

using os::FakeFileSystem;

std::unique_ptr<os::WritableFile> written(FakeFileSystem& files, const std::string& path, std::string_view text) {
  auto file = files.create(path);
  EXPECT_TRUE(file && (*file)->append(as_byte_span(text)));
  return std::move(file).value();
}

TEST(Fingerprint, DiffersWithWhatIsSyncedAndWithLinks) {
  using Change = void (*)(FakeFileSystem&);
  const std::map<std::string, Change> changes = {
      {"nothing", [](FakeFileSystem&) {}},
      {"a new file", [](FakeFileSystem& files) { written(files, "/d/new", "text"); }},
      {"its bytes synced", [](FakeFileSystem& files) { EXPECT_TRUE(written(files, "/d/new", "text")->sync()); }},
      {"half of its bytes synced",
       [](FakeFileSystem& files) {
         const auto file = written(files, "/d/new", "te");
         EXPECT_TRUE(file->sync() && file->append(as_byte_span(std::string_view("xt"))));
       }},
      {"its name synced",
       [](FakeFileSystem& files) {
         written(files, "/d/new", "text");
         EXPECT_TRUE(files.sync_directory("/d"));
       }},
      {"both synced", [](FakeFileSystem& files) { files.plant("/d/new", as_byte_span(std::string_view("text"))); }},
      {"other bytes", [](FakeFileSystem& files) { files.plant("/d/new", as_byte_span(std::string_view("test"))); }},
      {"a new directory", [](FakeFileSystem& files) { EXPECT_TRUE(files.create_directory("/d/new")); }},
      {"its name is synced",
       [](FakeFileSystem& files) { EXPECT_TRUE(files.create_directory("/d/new") && files.sync_directory("/d")); }},
      {"a removal", [](FakeFileSystem& files) { EXPECT_TRUE(files.remove("/d/old")); }},
      {"a synced removal",
       [](FakeFileSystem& files) { EXPECT_TRUE(files.remove("/d/old") && files.sync_directory("/d")); }},
      {"a rename", [](FakeFileSystem& files) { EXPECT_TRUE(files.rename("/d/old", "/d/other")); }},
      {"a synced rename",
       [](FakeFileSystem& files) { EXPECT_TRUE(files.rename("/d/old", "/d/other") && files.sync_directory("/d")); }},
      {"a link", [](FakeFileSystem& files) { EXPECT_TRUE(files.link("/d/old", "/d/other")); }},
      {"a synced link",
       [](FakeFileSystem& files) { EXPECT_TRUE(files.link("/d/old", "/d/other") && files.sync_directory("/d")); }},
      {"an equal file", [](FakeFileSystem& files) { files.plant("/d/other", as_byte_span(std::string_view("old"))); }},
      {"bytes in a file whose name is lost in a crash",
       [](FakeFileSystem& files) {
         EXPECT_TRUE(files.rename("/d", "/e"));
         files.plant("/e/new", as_byte_span(std::string_view("text")));
       }},
      {"a directory whose name is lost in a crash",
       [](FakeFileSystem& files) { EXPECT_TRUE(files.rename("/d", "/e")); }},
  };
  std::map<std::uint64_t, std::string> found;
  for (const auto& [what, change] : changes) {
    FakeFileSystem files;
    files.plant("/d/old", as_byte_span(std::string_view("old")));
    change(files);
    const auto [known, is_new] = found.emplace(fingerprint(files), what);
    EXPECT_TRUE(is_new) << what << " looks like " << known->second;
    EXPECT_EQ(fingerprint(*files.copy()), fingerprint(files)) << what;
  }
}

TEST(Fingerprint, IsTheSameForTwoRunsOfTheSameCalls) {
  std::set<std::uint64_t> found;
  for (int run = 0; run < 2; ++run) {
    FakeFileSystem files;
    StoreOptions options;
    options.access = StoreAccess::write;
    const auto store = open_store(files, kTestRun, options);
    for (const std::uint64_t step : {1U, 2U})
      ASSERT_TRUE((*store)->save(step, test_state(step, 0).state(), kOneThread));
    written(files, run == 0 ? "/run/label.json.0a1b.tmp" : "/run/label.json.2c3d.tmp", "left over");
    found.insert(fingerprint(files));
  }
  EXPECT_EQ(found.size(), 1U);
}

}  // namespace
}  // namespace bitsnap::store
