// A base that somebody else keeps in memory: used where the store codes against that very shard, and nothing of it
// shows in what is written.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "os/file_system_fake.hpp"
#include "record/state_testing.hpp"
#include "store/run_testing.hpp"
#include "store/store_impl.hpp"

namespace bitsnap::store {
namespace {

// What an offer was asked for.
struct Asked {
  std::atomic<unsigned> made = 0;
  std::atomic<unsigned> reads = 0;
  std::vector<std::string> names;  // of the snapshots that came along
};

class CountingBase final : public record::DelegatingBase {
 public:
  CountingBase(std::shared_ptr<const Snapshot> file, Asked& asked, bool fails)
      : DelegatingBase(std::move(file)), asked_(asked), fails_(fails) {}

  Result<void> read_elements(std::size_t stream, std::uint64_t first, std::span<std::byte> out,
                             ReadContext& context) const override {
    ++asked_.reads;
    if (fails_) return tl::unexpected(Error(ErrorKind::corrupt, "the memory is gone"));
    return DelegatingBase::read_elements(stream, first, out, context);
  }

 private:
  Asked& asked_;
  const bool fails_;
};

BaseMaker maker(Asked& asked, bool fails = false) {
  return [&asked, fails](std::shared_ptr<const Snapshot> snapshot) -> std::shared_ptr<const Base> {
    ++asked.made;
    asked.names.push_back(snapshot->name());
    return std::make_shared<CountingBase>(std::move(snapshot), asked, fails);
  };
}

std::unique_ptr<Store> open(os::FileSystem& files, StoreAccess access = StoreAccess::write) {
  StoreOptions options;
  options.access = access;
  auto store = open_store(files, "/run", options);
  EXPECT_TRUE(store) << store.error().message();
  return store ? std::move(*store) : nullptr;
}

CheckpointInfo save(Store& store, std::uint64_t step) {
  auto saved = store.save(step, TestState(step).state());
  EXPECT_TRUE(saved) << saved.error().message();
  return saved ? std::move(*saved) : CheckpointInfo();
}

// Snapshot files by their paths.
std::map<std::string, std::vector<std::byte>> snapshots(os::FakeFileSystem& files) {
  std::map<std::string, std::vector<std::byte>> found;
  for (const std::string& path : files.all_files()) {
    if (path.ends_with(".bsnap")) found[path] = os::read_file(files, path, UINT64_MAX).value();
  }
  return found;
}

TEST(OfferedBase, IsReadInPlaceOfTheFileAndChangesNoByte) {
  os::FakeFileSystem plain;
  os::FakeFileSystem offered;
  Asked asked;
  const auto without = open(plain);
  const auto with = open(offered);
  for (std::uint64_t step = 1; step <= 12; ++step) {
    save(*without, step);
    if (step > 1) offer_base(*with, step - 1, 0, maker(asked));
    const CheckpointInfo info = save(*with, step);
    EXPECT_FALSE(info.damage);
    EXPECT_EQ(info.links, (step - 1) % 9);
    EXPECT_EQ(asked.made, step - 1);
    if (step > 1) {
      EXPECT_EQ(asked.names.back(), "/run/checkpoints/" + std::string(step > 10 ? "00000000" : "000000000") +
                                        std::to_string(step - 1) + "/shard-00000-of-00001.bsnap");
    }
  }
  EXPECT_GT(asked.reads, 11U);
  EXPECT_EQ(snapshots(plain), snapshots(offered));
  for (std::uint64_t step = 1; step <= 12; ++step) EXPECT_EQ(check_step(*with, step, TestState(step)), "");
}

TEST(OfferedBase, ServesTheShardsOfRanks) {
  os::FakeFileSystem plain;
  os::FakeFileSystem offered;
  Asked asked;
  for (os::FakeFileSystem* const files : {&plain, &offered}) {
    for (std::uint64_t step = 1; step <= 3; ++step) {
      for (std::uint32_t rank = 0; rank < 2; ++rank) {
        const auto store = open(*files, StoreAccess::shared);
        if (files == &offered && step > 1) offer_base(*store, step - 1, rank, maker(asked));
        const TestState state(step, 100 * rank);
        const auto saved = store->save_shard(step, {rank, 2, "a"}, state.state());
        ASSERT_TRUE(saved) << saved.error().message();
      }
      EXPECT_TRUE(open(*files, StoreAccess::shared)->commit(step, 2, "a").value());
    }
  }
  EXPECT_EQ(asked.made, 4U);
  EXPECT_GT(asked.reads, 4U);
  EXPECT_EQ(snapshots(plain), snapshots(offered));
}

TEST(OfferedBase, IsNotUsedForAnotherStepOrShard) {
  os::FakeFileSystem files;
  Asked asked;
  const auto store = open(files);
  save(*store, 1);
  save(*store, 2);
  offer_base(*store, 1, 0, maker(asked));
  save(*store, 3);
  offer_base(*store, 3, 1, maker(asked));
  save(*store, 4);
  offer_base(*store, 5, 0, maker(asked));
  save(*store, 5);
  EXPECT_EQ(asked.made, 0U);
  // It holds until another one, or none, is offered.
  save(*store, 6);
  EXPECT_EQ(asked.made, 1U);
  offer_base(*store, 6, 0, maker(asked));
  offer_base(*store, 6, 0, nullptr);
  save(*store, 7);
  EXPECT_EQ(asked.made, 1U);
  for (std::uint64_t step = 1; step <= 7; ++step) EXPECT_EQ(check_step(*store, step, TestState(step)), "");
}

TEST(OfferedBase, MayTurnOutToBeOfAnotherSnapshot) {
  os::FakeFileSystem plain;
  os::FakeFileSystem offered;
  const auto without = open(plain);
  const auto with = open(offered);
  unsigned asked = 0;
  for (std::uint64_t step = 1; step <= 3; ++step) {
    save(*without, step);
    offer_base(*with, step - 1, 0, [&](const std::shared_ptr<const Snapshot>&) {
      ++asked;
      return nullptr;
    });
    EXPECT_EQ(save(*with, step).links, step - 1);
  }
  EXPECT_EQ(asked, 2U);
  EXPECT_EQ(snapshots(plain), snapshots(offered));
}

TEST(OfferedBase, ThatFailsIsDoneWithout) {
  os::FakeFileSystem files;
  Asked asked;
  const auto store = open(files);
  save(*store, 1);
  offer_base(*store, 1, 0, maker(asked, true));
  const CheckpointInfo info = save(*store, 2);
  ASSERT_TRUE(info.damage);
  EXPECT_NE(info.damage->message().find("the memory is gone"), std::string::npos);
  EXPECT_EQ(info.links, 0U);
  EXPECT_EQ(check_step(*store, 2, TestState(2)), "");
}

}  // namespace
}  // namespace bitsnap::store
