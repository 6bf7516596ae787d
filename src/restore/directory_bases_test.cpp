// Searching bases among files: the places, their order, and the error if there is none.
#include "restore/directory_bases.hpp"

#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "os/file_system_fake.hpp"
#include "os/file_system_faulty.hpp"
#include "restore/open_snapshot.hpp"
#include "restore/read_context.hpp"
#include "restore/state_builder_testing.hpp"

namespace bitsnap::restore {
namespace {

using codec::CodecId;
using ::testing::HasSubstr;

// Files of one tensor "x", which is equal to the base if there is one.
class Bases : public ::testing::Test {
 protected:
  const Bytes data_ = random_bytes(3000, 7);
  os::FakeFileSystem files_;

  // A keyframe; `label` determines its id.
  StateBuilder& keyframe(const std::string& label) {
    StateBuilder& builder = *builders_.emplace_back(std::make_unique<StateBuilder>());
    builder.set_metadata("label", label);
    builder.add("x", DType::u8, data_);
    (void)builder.build();
    return builder;
  }

  // One that refers to another.
  StateBuilder& child(const std::string& label, const StateBuilder& base, const std::string& base_name) {
    StateBuilder& builder = *builders_.emplace_back(std::make_unique<StateBuilder>());
    builder.set_metadata("label", label);
    const std::uint32_t number = builder.add_base(base, base_name);
    builder.add("x", DType::u8, data_, {CodecId::same, {{number, 0, 0}}, {}});
    (void)builder.build();
    return builder;
  }

  void plant(const std::string& path, StateBuilder& builder) { files_.plant(path, builder.build()); }

  std::shared_ptr<const Snapshot> open(const std::string& path, const OpenOptions& options = {}) {
    auto file = files_.open(path);
    EXPECT_TRUE(file.has_value());
    auto opened = open_snapshot(std::move(*file), options, files_);
    EXPECT_TRUE(opened.has_value()) << opened.error().message();
    return opened ? *opened : nullptr;
  }

  Result<void> read(const Snapshot& snapshot) {
    Bytes out(data_.size());
    auto result = snapshot.read_bytes(0, 0, out);
    if (result) {
      EXPECT_EQ(out, data_);
    }
    return result;
  }

  void expect_reads(const Snapshot& snapshot) {
    const auto result = read(snapshot);
    EXPECT_TRUE(result.has_value()) << result.error().message();
  }

  void expect_fails(const Snapshot& snapshot, ErrorKind kind, const std::vector<std::string>& parts) {
    const auto result = read(snapshot);
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(error_kind_name(result.error().kind()), error_kind_name(kind)) << result.error().message();
    for (const std::string& part : parts) EXPECT_THAT(result.error().message(), HasSubstr(part));
  }

 private:
  std::vector<std::unique_ptr<StateBuilder>> builders_;
};

TEST_F(Bases, AreFoundNextToTheFileByTheirName) {
  StateBuilder& a = keyframe("a");
  plant("/run/a.bsnap", a);
  plant("/run/b.bsnap", child("b", a, "a.bsnap"));
  expect_reads(*open("/run/b.bsnap"));
}

TEST_F(Bases, AreFoundUnderAnotherName) {
  StateBuilder& a = keyframe("a");
  plant("/run/0.bsnap", keyframe("other"));
  plant("/run/renamed.bsnap", a);
  plant("/run/b.bsnap", child("b", a, "a.bsnap"));
  files_.plant("/run/no.bsnap", container::bytes_of("not a snapshot"));
  expect_reads(*open("/run/b.bsnap"));
}

TEST_F(Bases, AreFoundWhereTheCallerSays) {
  StateBuilder& a = keyframe("a");
  StateBuilder& b = child("b", a, "a.bsnap");
  plant("/elsewhere/a.bsnap", a);
  plant("/third/odd-name", b);
  plant("/run/c.bsnap", child("c", b, "b.bsnap"));
  const auto without = open("/run/c.bsnap");
  expect_fails(*without, ErrorKind::not_found, {b.id().to_hex(), "'b.bsnap'", "/run"});

  OpenOptions options;
  options.base_paths = {"/elsewhere", "/third/odd-name"};
  expect_reads(*open("/run/c.bsnap", options));
  // The folder of a given file is searched as well.
  plant("/third/a-too.bsnap", a);
  options.base_paths = {"/third/odd-name"};
  expect_reads(*open("/run/c.bsnap", options));
}

TEST_F(Bases, ThatAreMissingAreReportedWithWhatWasFound) {
  StateBuilder& a = keyframe("a");
  StateBuilder& other = keyframe("other");
  plant("/run/a.bsnap", other);
  plant("/run/b.bsnap", child("b", a, "../run/a.bsnap"));
  OpenOptions options;
  options.base_paths = {"/not-there"};
  const auto snapshot = open("/run/b.bsnap", options);
  const std::vector<std::string> parts = {"/run/b.bsnap, tensor 'x', chunk 0", a.id().to_hex(), "a.bsnap holds",
                                          other.id().to_hex(), "'/not-there' (not found)"};
  expect_fails(*snapshot, ErrorKind::not_found, parts);
  const auto damages = snapshot->verify();
  ASSERT_TRUE(damages.has_value());
  ASSERT_EQ(damages->size(), 1U);
  EXPECT_EQ((*damages)[0].where, "tensor 'x', chunk 0");
  EXPECT_EQ((*damages)[0].error.kind(), ErrorKind::not_found);
  EXPECT_TRUE(snapshot->verify(false)->empty());
}

TEST_F(Bases, ThatAreDamagedAreReportedAsDamaged) {
  StateBuilder& a = keyframe("a");
  Bytes damaged = a.build();
  damaged[damaged.size() - container::kFooterBytes - 5] ^= std::byte{1};
  files_.plant("/run/a.bsnap", damaged);
  plant("/run/b.bsnap", child("b", a, "a.bsnap"));
  expect_fails(*open("/run/b.bsnap"), ErrorKind::corrupt, {"/run/b.bsnap", "/run/a.bsnap", "hash"});
  plant("/run/copy.bsnap", a);
  expect_reads(*open("/run/b.bsnap"));
}

TEST_F(Bases, ThatHoldDamagedPayloadsAreNamed) {
  StateBuilder& a = keyframe("a");
  Bytes damaged = a.build();
  damaged[container::kHeaderBytes + 9] ^= std::byte{1};
  files_.plant("/run/a.bsnap", damaged);
  plant("/run/b.bsnap", child("b", a, "a.bsnap"));
  expect_fails(*open("/run/b.bsnap"), ErrorKind::corrupt,
               {"/run/b.bsnap, tensor 'x', chunk 0: /run/a.bsnap, tensor 'x', chunk 0: payload"});
}

TEST_F(Bases, MayHoldTheSameContentInAnotherFile) {
  // Saved three times without a change: all have one id.
  StateBuilder& first = keyframe("same");
  StateBuilder& second = child("same", first, "1.bsnap");
  StateBuilder& third = child("same", second, "2.bsnap");
  ASSERT_EQ(first.id(), third.id());
  plant("/run/1.bsnap", first);
  plant("/run/2.bsnap", second);
  plant("/run/3.bsnap", third);
  expect_reads(*open("/run/3.bsnap"));
  expect_reads(*open("/run/2.bsnap"));

  // Among files with other names, a standalone one is preferred, and a file is never its own base.
  os::FakeFileSystem renamed;
  plant("/renamed/a.bsnap", third);
  plant("/renamed/b.bsnap", second);
  plant("/renamed/c.bsnap", first);
  expect_reads(*open("/renamed/a.bsnap"));
  plant("/alone/3.bsnap", third);
  plant("/alone/2.bsnap", third);
  expect_fails(*open("/alone/3.bsnap"), ErrorKind::not_found, {third.id().to_hex()});
}

TEST_F(Bases, ThatDependOnEachOtherInACircleAreAnError) {
  StateBuilder a;
  a.set_metadata("label", "a");
  StateBuilder b;
  b.set_metadata("label", "b");
  // An id depends on the content only, so two files can name each other as bases.
  a.add("x", DType::u8, data_, {CodecId::same, {{0, 0, 0}}, 1});
  b.add("x", DType::u8, data_, {CodecId::same, {{0, 0, 0}}, 1});
  (void)a.add_base(b.id(), "b.bsnap");
  (void)b.add_base(a.id(), "a.bsnap");
  plant("/run/a.bsnap", a);
  plant("/run/b.bsnap", b);
  const auto snapshot = open("/run/a.bsnap");
  expect_fails(*snapshot, ErrorKind::corrupt, {"circular"});
  EXPECT_EQ(snapshot->holder(0, 0).error().kind(), ErrorKind::corrupt);
  EXPECT_EQ(snapshot->verify()->size(), 1U);
}

TEST_F(Bases, MayFormAChainAsLongAsTheLimit) {
  std::vector<StateBuilder*> chain = {&keyframe("0")};
  plant("/run/0.bsnap", *chain[0]);
  for (int i = 1; i <= 64; ++i) {
    const std::string name = std::to_string(i);
    chain.push_back(&child(name, *chain.back(), std::to_string(i - 1) + ".bsnap"));
    plant("/run/" + name + ".bsnap", *chain.back());
  }
  expect_reads(*open("/run/64.bsnap"));
  OpenOptions options;
  options.limits.chain_depth = 63;
  const auto deep = open("/run/64.bsnap", options);
  expect_fails(*deep, ErrorKind::corrupt, {"more than 63 links from the requested chunk"});
  expect_reads(*open("/run/63.bsnap", options));
  EXPECT_EQ(open("/run/64.bsnap")->holder(0, 0)->base->name(), "/run/0.bsnap");
}

TEST_F(Bases, AreSearchedOnceByAnyNumberOfThreads) {
  StateBuilder& a = keyframe("a");
  plant("/run/a.bsnap", a);
  plant("/run/b.bsnap", child("b", a, "a.bsnap"));
  os::FaultyFileSystem counted(files_);
  auto opened = open_snapshot(std::move(*counted.open("/run/b.bsnap")), {}, counted);
  ASSERT_TRUE(opened.has_value());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 10; ++k) expect_reads(**opened);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counted.count(os::FileOperation::open), 3U);  // b; a to look at; a
  EXPECT_EQ(counted.count(os::FileOperation::list_directory), 1U);
}

TEST_F(Bases, StayAliveWithReturnedSnapshots) {
  StateBuilder& a = keyframe("a");
  StateBuilder& b = child("b", a, "a.bsnap");
  plant("/run/a.bsnap", a);
  plant("/run/b.bsnap", b);
  plant("/run/c.bsnap", child("c", b, "b.bsnap"));
  std::shared_ptr<const Base> kept;
  {
    const auto bases = std::make_shared<DirectoryBases>(files_, std::vector<std::string>{}, "/run", DecodeLimits{});
    kept = *bases->find(b.id());
    EXPECT_EQ(bases->find(SnapshotId{1, 2}).error().kind(), ErrorKind::not_found);
  }
  Bytes out(data_.size());
  ReadContext context;
  EXPECT_TRUE(kept->read_elements(0, 0, out, context).has_value());
  EXPECT_EQ(out, data_);
  const auto holder = open("/run/c.bsnap")->holder(0, 0);  // of a snapshot that was destroyed
  EXPECT_EQ(holder->base->id(), a.id());
  EXPECT_TRUE(holder->base->read_elements(0, 0, out, context).has_value());
}

}  // namespace
}  // namespace bitsnap::restore
