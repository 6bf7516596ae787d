// Labels without crashes: which checkpoint they name, what moves and removes them, and damaged records of labels.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "os/file_system_fake.hpp"
#include "store/label_record.hpp"
#include "store/sealed_json.hpp"
#include "store/store_calls_testing.hpp"

namespace bitsnap::store {
namespace {

using Labels = std::vector<StepLabel>;

Checkpoint save_as(Store& store, std::uint64_t step, const std::vector<std::string>& labels) {
  auto saved = store.save(step, TestState(step).state(), {1, nullptr}, nullptr, {.labels = labels});
  EXPECT_TRUE(saved) << saved.error().message();
  return saved ? *saved : Checkpoint();
}

TEST(StoreLabels, ALabelNamesOneCheckpointAndMoves) {
  os::FakeFileSystem files;
  const auto store = open(files);
  EXPECT_EQ(store->labels().value(), Labels());
  EXPECT_EQ(save_as(*store, 1, {"last", "best"}).labels, (std::vector<std::string>{"best", "last"}));
  EXPECT_EQ(save_as(*store, 2, {"last", "last"}).labels, std::vector<std::string>{"last"});
  EXPECT_EQ(save_as(*store, 3, {}).labels, std::vector<std::string>());
  EXPECT_EQ(store->labels().value(), (Labels{{"best", 1}, {"last", 2}}));
  EXPECT_EQ(store->find("best").value(), 1U);
  ASSERT_TRUE(store->label(3, {"best"}));
  ASSERT_TRUE(store->label(1, {"last", "epoch=3-val=0.12"}));
  EXPECT_EQ(store->labels().value(), (Labels{{"best", 3}, {"epoch=3-val=0.12", 1}, {"last", 1}}));
  ASSERT_TRUE(store->unlabel("last"));
  EXPECT_EQ(store->find("last").error().kind(), ErrorKind::not_found);
  EXPECT_EQ(store->unlabel("last").error().kind(), ErrorKind::not_found);
  const auto reader = open(files, {});
  const auto list = reader->checkpoints().value();
  EXPECT_EQ(list[0].labels, std::vector<std::string>{"epoch=3-val=0.12"});
  EXPECT_EQ(list[1].labels, std::vector<std::string>());
  EXPECT_EQ(reader->checkpoint(3)->labels, std::vector<std::string>{"best"});
  EXPECT_EQ(reader->label(3, {"best"}).error().kind(), ErrorKind::invalid_argument);
}

TEST(StoreLabels, ErrorsNameSimilarLabelsAndNearbySteps) {
  os::FakeFileSystem files;
  const auto store = open(files);
  EXPECT_EQ(store->find("best").error().message(), "/run: no checkpoint has the label 'best'; the store has no labels");
  save_as(*store, 1, {"epoch=3-val=0.12", "last", "other"});
  EXPECT_EQ(store->find("lost").error().message(),
            "/run: no checkpoint has the label 'lost'; a similar label is 'last'");
  EXPECT_EQ(store->find("epoch=3").error().message(),
            "/run: no checkpoint has the label 'epoch=3'; a similar label is 'epoch=3-val=0.12'");
  EXPECT_EQ(store->find("x").error().message(), "/run: no checkpoint has the label 'x'");
  EXPECT_EQ(store->label(2, {"best"}).error().message(), "/run: step 2 not found; nearby is 1");
}

TEST(StoreLabels, RejectsWhatIsNoLabelAndSavesNothing) {
  os::FakeFileSystem files;
  const auto store = open(files);
  for (const std::string& label : {std::string(), std::string(256, 'a'), std::string("a\nb"), std::string("a\x7f"),
                                   std::string("\xC2\x85"), std::string("\xFF"), std::string("a\0b", 3)}) {
    EXPECT_EQ(store->save(1, TestState(1).state(), {1, nullptr}, nullptr, {.labels = {"good", label}}).error().kind(),
              ErrorKind::invalid_argument);
  }
  EXPECT_EQ(store->steps().value(), std::vector<std::uint64_t>());
  const std::string accent = "\xC3\xA9poque 3/val \xE2\x82\xAC";
  const std::string longest(255, 'a');
  save_as(*store, 1, {accent, longest});
  EXPECT_EQ(store->find(accent).value(), 1U);
  EXPECT_EQ(store->find(longest).value(), 1U);
}

TEST(StoreLabels, DisappearWithTheirCheckpoint) {
  os::FakeFileSystem files;
  const auto store = open(files);
  save_as(*store, 1, {"best", "first"});
  save_as(*store, 2, {"best"});
  save_as(*store, 3, {});
  ASSERT_TRUE(store->prune({.keep = {1}}));
  EXPECT_EQ(store->labels().value(), (Labels{{"first", 1}}));  // "best" does not go back to step 1
  ASSERT_TRUE(store->label(3, {"last"}));
  ASSERT_TRUE(store->rollback(1));
  EXPECT_EQ(store->labels().value(), (Labels{{"first", 1}}));
  save_as(*store, 2, {});
  save_as(*store, 3, {});
  EXPECT_EQ(store->labels().value(), (Labels{{"first", 1}}));  // another checkpoint of step 3
}

TEST(StoreLabels, ProtectFromPruningIfAsked) {
  os::FakeFileSystem files;
  StoreOptions options = writing();
  options.settings.max_depth = 0;
  options.retention = {.keep_last = 1, .keep_labelled = true};
  const auto store = open(files, options);
  save_as(*store, 1, {"best"});
  for (std::uint64_t step = 2; step <= 4; ++step) save_as(*store, step, {});
  expect_steps(*store, {1, 4});
  save_as(*store, 5, {"best"});
  expect_steps(*store, {5});
}

TEST(StoreLabels, ARetentionThatOnlyKeepsLabelledOnesRemovesNothing) {
  os::FakeFileSystem files;
  StoreOptions options = writing();
  options.retention.keep_labelled = true;
  const auto store = open(files, options);
  for (std::uint64_t step = 1; step <= 3; ++step) EXPECT_FALSE(save_as(*store, step, {}).pruned);
  expect_steps(*store, {1, 2, 3});
  ASSERT_TRUE(store->label(1, {"a"}));
  ASSERT_TRUE(store->prune({.keep_labelled = true}));
  expect_steps(*store, {1, 3});
}

TEST(StoreLabels, RanksCommitWithLabels) {
  os::FakeFileSystem files;
  StoreOptions options = writing();
  options.access = StoreAccess::shared;
  const auto a = open(files, options);
  const auto b = open(files, options);
  ASSERT_TRUE(a->save_shard(1, {0, 2, "x"}, TestState(1, 0).state()));
  const auto early = a->commit(1, 2, "x", {.labels = {"best"}});
  ASSERT_TRUE(early && !*early);
  EXPECT_EQ(a->labels().value(), Labels());
  ASSERT_TRUE(b->save_shard(1, {1, 2, "x"}, TestState(1, 1).state()));
  const auto committed = b->commit(1, 2, "x", {.labels = {"best"}});
  ASSERT_TRUE(committed) << committed.error().message();
  EXPECT_EQ(committed->checkpoint->labels, std::vector<std::string>{"best"});
  EXPECT_EQ(a->commit(1, 2, "x", {.labels = {"best"}})->checkpoint->labels, std::vector<std::string>{"best"});
  // A rank that alone gives a label, after another rank has committed.
  EXPECT_EQ(a->commit(1, 2, "x", {.labels = {"late"}})->checkpoint->labels, (std::vector<std::string>{"best", "late"}));
  EXPECT_EQ(b->commit(1, 2, "x")->checkpoint->labels, (std::vector<std::string>{"best", "late"}));
}

TEST(StoreLabels, ACommitWithoutLabelsDropsThoseOfAnEarlierCheckpoint) {
  os::FakeFileSystem files;
  {
    const auto store = open(files);
    save_as(*store, 1, {});
    save_as(*store, 2, {"best"});
    ASSERT_TRUE(store->rollback(1));
  }
  StoreOptions options = writing();
  options.access = StoreAccess::shared;
  const auto rank = open(files, options);
  ASSERT_TRUE(rank->save_shard(2, {0, 1, "x"}, TestState(2).state()));
  ASSERT_TRUE(rank->commit(2, 1, "x"));
  EXPECT_EQ(rank->labels().value(), Labels());
}

TEST(StoreLabels, DamagedLabelsStopNoTrainingAndARepairRemovesThem) {
  os::FakeFileSystem files;
  const auto store = open(files);
  save_as(*store, 1, {"best"});
  std::vector<std::byte> bytes = os::read_file(files, "/run/labels.json", 1 << 20).value();
  bytes[20] ^= std::byte{1};
  files.plant("/run/labels.json", bytes);
  EXPECT_EQ(store->labels().error().kind(), ErrorKind::corrupt);
  EXPECT_EQ(store->checkpoints()->size(), 1U);
  save_as(*store, 2, {});
  const auto refused = store->save(3, TestState(3).state(), {1, nullptr}, nullptr, {.labels = {"best"}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind(), ErrorKind::corrupt);
  EXPECT_EQ(store->prune({.keep_last = 1, .keep_labelled = true}).error().kind(), ErrorKind::corrupt);
  expect_steps(*store, {1, 2});
  const auto verified = store->verify().value();
  ASSERT_EQ(verified.damages.size(), 1U);
  EXPECT_EQ(verified.damages[0].file, "labels.json");
  save_as(*store, 3, {});
}

TEST(StoreLabels, DigitsAloneAreReadAndRemovedAndNotGiven) {
  os::FakeFileSystem files;
  const auto store = open(files);
  save_as(*store, 20, {"last"});
  ASSERT_TRUE(write_label_record(files, RunLayout("/run"), {{{"20", 20, {}}, {"last", 20, {}}}}).has_value());
  EXPECT_EQ(store->labels().value(), (Labels{{"20", 20}, {"last", 20}}));
  EXPECT_EQ(store->find("20").value(), 20U);
  const auto given = store->label(20, {"7"});
  ASSERT_FALSE(given.has_value());
  EXPECT_EQ(given.error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(given.error().message(), "a label must not have digits alone, because RUN@7 is step 7; got '7'");
  ASSERT_TRUE(store->unlabel("20").has_value());
  EXPECT_EQ(store->labels().value(), (Labels{{"last", 20}}));
}

TEST(StoreLabels, ARepairKeepsLabelsOfRebuiltRecordsAndRemovesDamagedLabels) {
  os::FakeFileSystem files;
  {
    const auto store = open(files);
    for (std::uint64_t step = 1; step <= 3; ++step) save_as(*store, step, {"l" + std::to_string(step)});
  }
  std::vector<std::byte> bytes = os::read_file(files, RunLayout("/run").commit(3), 1 << 20).value();
  bytes[20] ^= std::byte{1};
  files.plant(RunLayout("/run").commit(3), bytes);
  ASSERT_TRUE(repair_store(files, "/run", {}));
  EXPECT_EQ(open(files, {})->labels().value(), (Labels{{"l1", 1}, {"l2", 2}, {"l3", 3}}));
  files.plant("/run/labels.json", bytes);
  const auto repaired = repair_store(files, "/run", {}).value();
  ASSERT_EQ(repaired.mended.size(), 1U);
  EXPECT_EQ(repaired.mended[0].what.substr(0, 19), "labels.json removed");
  EXPECT_EQ(open(files, {})->labels().value(), Labels());
}

TEST(StoreLabels, ReadsOnlyRecordsThatFollowTheDocument) {
  os::FakeFileSystem files;
  const RunLayout layout("/run");
  const auto store = open(files);
  const auto read = [&](const std::string& body) {
    const std::string text = seal_json("labels", body);
    files.plant(layout.labels(), as_byte_span(text));
    return read_label_record(files, layout);
  };
  EXPECT_TRUE(read(R"({"format":0,"labels":[]})"));
  const auto both = read(R"({"format":0,"labels":[{"label":"a","step":1},{"label":"b","step":2,)"
                         R"("pending":{"id":"00112233445566778899aabbccddeeff","before":0}}],"later":1})");
  ASSERT_TRUE(both) << both.error().message();
  ASSERT_TRUE(write_label_record(files, layout, *both));
  EXPECT_EQ(read_label_record(files, layout).value(), *both);
  for (const char* const bad :
       {R"({"format":0})", R"({"format":0,"labels":[{"label":"","step":1}]})",
        R"({"format":0,"labels":[{"label":"b","step":1},{"label":"a","step":1}]})",
        R"({"format":0,"labels":[{"label":"a","step":1},{"label":"a","step":2}]})",
        R"({"format":0,"labels":[{"label":"a\n","step":1}]})", R"({"format":0,"labels":[{"label":"a"}]})",
        R"({"format":0,"labels":[{"label":"a","step":1,"pending":{}}]})"}) {
    EXPECT_EQ(read(bad).error().kind(), ErrorKind::corrupt) << bad;
  }
  EXPECT_EQ(read(R"({"format":1,"labels":[]})").error().kind(), ErrorKind::unsupported);
}

}  // namespace
}  // namespace bitsnap::store
