// What errors say about a path where no store is, or where none may be made.
#include "store/missing_store.hpp"

#include <gtest/gtest.h>

#include <bitsnap/store.hpp>

#include "os/file_system_fake.hpp"
#include "store/store_impl.hpp"

namespace bitsnap::store {
namespace {

class MissingStore : public ::testing::Test {
 protected:
  MissingStore() {
    for (const char* const directory : {"/a", "/a/empty", "/a/others", "/a/others/checkpoint-100", "/a/above"}) {
      EXPECT_TRUE(files_.create_directory(directory));
    }
    for (const char* const path : {"/a/run1", "/a/above/bitsnap"}) make(path);
    for (const char* const path : {"/a/file", "/a/others/config.json"}) {
      auto file = files_.create(path);
      EXPECT_TRUE(file && (*file)->close());
    }
  }

  void make(const std::string& path) {
    StoreOptions options;
    options.access = StoreAccess::write;
    const auto made = open_store(files_, path, options);
    EXPECT_TRUE(made) << made.error().message();
  }

  std::string found_at(const std::string& path) {
    const std::vector<std::string> before = files_.all_files();
    const auto refused = open_store(files_, path, {});
    EXPECT_EQ(files_.all_files(), before);
    if (refused) return "a store";
    EXPECT_EQ(refused.error().kind(), ErrorKind::not_found);
    const std::string beginning = path + ": no store found: ";
    EXPECT_TRUE(refused.error().message().starts_with(beginning)) << refused.error().message();
    return refused.error().message().substr(beginning.size());
  }

  std::string why_not_made(const std::string& path) {
    const std::vector<std::string> before = files_.all_files();
    StoreOptions options;
    options.access = StoreAccess::write;
    const auto refused = open_store(files_, path, options);
    if (refused) return "made";
    EXPECT_EQ(files_.all_files(), before);
    EXPECT_EQ(refused.error().kind(), ErrorKind::invalid_argument);
    return refused.error().message();
  }

  os::FakeFileSystem files_;
};

TEST_F(MissingStore, IsToldFromATypingError) {
  EXPECT_EQ(found_at("/a/run2"), "the path does not exist; did you mean '/a/run1'?");
  EXPECT_EQ(found_at("/a/rnu1"), "the path does not exist; did you mean '/a/run1'?");
  EXPECT_EQ(found_at("/a/entirely"), "the path does not exist; runs beside it: '/a/run1'");
  EXPECT_EQ(found_at("/a/above/bitsnap/x/y"), "the directory /a/above/bitsnap/x does not exist");
  EXPECT_EQ(found_at("/a/empty/x"), "the path does not exist; a run exists once something is saved to it");
}

TEST_F(MissingStore, IsToldByWhatIsThere) {
  EXPECT_EQ(found_at("/a/file"), "this is a file, expected the directory of a run");
  EXPECT_EQ(found_at("/a/empty"), "the directory is empty; it becomes a run once something is saved to it");
  EXPECT_EQ(found_at("/a/above"),
            "the directory is no run itself, and holds the run '/a/above/bitsnap': name that one");
  EXPECT_EQ(found_at("/a/run1/checkpoints"), "the directory lies in the run /a/run1: open /a/run1");
  EXPECT_EQ(found_at("/a/others"),
            "the directory holds 'checkpoint-100', 'config.json', and not the file bitsnap.json of a run; if these are "
            "checkpoints of a framework, `bitsnap ingest RUN /a/others` stores them in a run");
}

TEST_F(MissingStore, IsToldFromAStepAndABranch) {
  EXPECT_EQ(found_at("/a/run1@40"),
            "this names a checkpoint of the run /a/run1, expected the run alone: open /a/run1, and load 40 of it");
  EXPECT_EQ(found_at("/a/run2@40"), "this names a checkpoint of /a/run2, and no run is there; did you mean '/a/run1'?");
  EXPECT_EQ(found_at("/a/run2:lr9"),
            "this names the branch 'lr9' of /a/run2, and no run is there; did you mean '/a/run1'?");
}

TEST_F(MissingStore, IsNotMadeUnderTheNameOfAStepOrABranch) {
  EXPECT_EQ(why_not_made("/a/new@5"), "/a/new@5: this names a checkpoint of the run /a/new, expected the run alone");
  EXPECT_NE(why_not_made("/a/new@-2"), "made");
  EXPECT_NE(why_not_made("/a/new@latest"), "made");
  EXPECT_NE(why_not_made("/a/run1@best"), "made");
  EXPECT_NE(
      why_not_made("/a/new:lr2").find("this names the branch 'lr2' of the run /a/new, and there is no such run; save"),
      std::string::npos);
  EXPECT_EQ(why_not_made("/a/new@home"), "made");
  EXPECT_EQ(why_not_made("/a/run-12:30:00"), "made");
  ASSERT_TRUE(files_.create_directory("/a/new:lr3"));
  EXPECT_EQ(why_not_made("/a/new:lr3"), "made");
}

TEST_F(MissingStore, IsNotMadeAmongOtherFiles) {
  EXPECT_EQ(why_not_made("/a/others").substr(0, 88),
            "/a/others: is no store, and none can be made there: the directory holds 'checkpoint-100'");
}

TEST_F(MissingStore, AnEmptyStoreNamesThoseWithSimilarNames) {
  StoreOptions options;
  options.access = StoreAccess::write;
  auto made = open_store(files_, "/a/run2", options);
  ASSERT_TRUE(made);
  const auto snapshot = (*made)->snapshot({}, 0);
  ASSERT_FALSE(snapshot);
  EXPECT_EQ(
      snapshot.error().message(),
      "/a/run2: the store has no checkpoints, because no run was there and opening it began one, which is removed "
      "again unless something is saved to it; create=False or read_only=True begins none; did you mean "
      "'/a/run1'?");
  EXPECT_EQ((*made)->checkpoint(7).error().message(),
            "/a/run2: step 7 not found; the store has no checkpoints; did you mean '/a/run1'?");
  made->reset();
  EXPECT_FALSE(files_.stat("/a/run2")->exists) << "a mistaken name leaves nothing";
}

}  // namespace
}  // namespace bitsnap::store
