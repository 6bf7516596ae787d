// What a file `bitsnap.json` says about its directory, and what a store does in a framework's folder that has one.
#include "store/run_marker.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/bytes.hpp"
#include "os/file_system_fake.hpp"
#include "store/run_testing.hpp"
#include "store/store_impl.hpp"

namespace bitsnap::store {
namespace {

constexpr std::string_view kReference = R"({"version": 0, "run": "../bitsnap", "run_id": "00", "step": 5})";

TEST(RunMarker, IsSaidByTheBeginningOfTheFile) {
  EXPECT_EQ(marker_of(R"({"store":{"format":0}})"), RunMarker::run_record);
  EXPECT_EQ(marker_of(kReference), RunMarker::reference);
  EXPECT_EQ(marker_of("\xEF\xBB\xBF{\r\n \"version\" : 10 ,\n\t\"run\": \""), RunMarker::reference);
  for (const std::string_view other :
       {"", "{", R"({"stor)", R"({"version": 0, "ru)", R"({"version": , "run": ")", R"({"version": 0, "run": 5)",
        R"({"commit":{}})", R"( {"store":)", R"([{"version": 0, "run": "x"}])"}) {
    EXPECT_EQ(marker_of(other), RunMarker::damaged) << other;
  }
  EXPECT_EQ(marker_of(std::string_view("\0\0\0\0", 4)), RunMarker::damaged);
}

TEST(RunMarker, IsNoneWithoutAFile) {
  os::FakeFileSystem files;
  const RunLayout layout("/run");
  EXPECT_EQ(find_marker(files, layout).value(), RunMarker::none);
  files.plant(layout.run_record(), as_byte_span(kReference));
  EXPECT_EQ(find_marker(files, layout).value(), RunMarker::reference);
  files.plant(layout.run_record(), {});
  EXPECT_EQ(find_marker(files, layout).value(), RunMarker::damaged);
}

TEST(Store, LeavesTheFolderOfAReferenceAlone) {
  os::FakeFileSystem files;
  const RunLayout layout("/run");
  files.plant(layout.run_record(), as_byte_span(kReference));
  files.plant(layout.checkpoints() + "/checkpoint_4/model.safetensors", as_byte_span("weights"));
  const auto before = files.all_files();
  for (const StoreAccess access : {StoreAccess::read, StoreAccess::write, StoreAccess::shared}) {
    StoreOptions options;
    options.access = access;
    const auto refused = open_store(files, "/run", options);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind(), ErrorKind::invalid_argument);
    EXPECT_THAT(refused.error().message(), testing::HasSubstr("is a reference"));
  }
  const auto repaired = repair_store(files, "/run", {});
  ASSERT_FALSE(repaired);
  EXPECT_EQ(repaired.error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(files.all_files(), before);
}

}  // namespace
}  // namespace bitsnap::store
