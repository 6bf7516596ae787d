#include "objects/lease.hpp"

#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/bytes.hpp"
#include "objects/object_store_fake.hpp"
#include "os/forked_child_testing.hpp"
#include "os/process.hpp"

namespace bitsnap::objects {
namespace {

using ::testing::HasSubstr;

constexpr LeaseTimes kSlow{10'000, 30'000, 45'000, 0};
constexpr LeaseTimes kAtOnce{10'000, 30'000, 0, 0};
const std::string kKey = "run/lock";

Result<std::shared_ptr<Lease>> take(SeenLease& seen, const std::shared_ptr<FakeObjectStore>& store,
                                    const LeaseTimes& times = kSlow) {
  return seen.take(store, kKey, "s3://bucket/run/lock", times);
}

std::string text_of(FakeObjectStore& store) {
  const auto tail = store.read_tail(kKey, 1 << 16);
  return tail ? std::string(as_text(tail->bytes)) : "";
}

class LeaseTest : public ::testing::Test {
 protected:
  std::shared_ptr<FakeObjectStore> store_ = std::make_shared<FakeObjectStore>();
  SeenLease first_;
  SeenLease second_;
};

TEST_F(LeaseTest, IsTakenByOne) {
  auto held = take(first_, store_);
  ASSERT_TRUE(held) << held.error().message();
  EXPECT_TRUE((*held)->is_held());
  const auto other = take(second_, store_);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().kind(), ErrorKind::busy);
  EXPECT_THAT(other.error().message(),
              ::testing::EndsWith("s3://bucket/run/lock: process " + std::to_string(os::process_id()) + " on " +
                                  os::machine_name() + " holds it"));
  EXPECT_EQ(second_.doubt_ms(kSlow), 0U);
  held->reset();
  EXPECT_TRUE(take(second_, store_));
}

TEST_F(LeaseTest, IsTakenFromAHolderThatStopsOnlyAfterThatTrustsItNoMore) {
  // The holder reaches the service no more.
  constexpr LeaseTimes kTimes{1, 200, 400, 0};
  const auto unreachable = std::make_shared<FakeObjectStore>(*store_);
  const auto held = take(first_, unreachable, kTimes);
  ASSERT_TRUE(held);
  unreachable->set_fault([](std::string_view, const std::string&) { return RequestFault::dead; });
  for (;;) {
    const auto other = take(second_, store_, kTimes);
    if (other) break;
    ASSERT_EQ(other.error().kind(), ErrorKind::busy) << other.error().message();
  }
  EXPECT_FALSE((*held)->is_held());
}

TEST_F(LeaseTest, AHolderThatIsSeenToLiveIsNotWaitedFor) {
  const auto beat = [&](int number) {
    const std::string record = R"({"holder":"a","host":"h","process":1,"place":"x y 1","beat":)";
    ASSERT_TRUE(store_->put(kKey, as_byte_span(record + std::to_string(number) + "}")));
  };
  beat(1);
  EXPECT_THAT(take(second_, store_).error().message(), HasSubstr("process 1 on h holds it, if it still lives"));
  EXPECT_GT(second_.doubt_ms(kSlow), 0U);
  beat(2);
  EXPECT_THAT(take(second_, store_).error().message(), ::testing::EndsWith("process 1 on h holds it"));
  EXPECT_EQ(second_.doubt_ms(kSlow), 0U);
}

TEST_F(LeaseTest, ThatAnotherTookIsLost) {
  const auto held = take(first_, store_, {1, 30'000, 45'000, 0});
  ASSERT_TRUE(held);
  // By requests that always win: the holder changes the object all the time.
  while ((*held)->is_held()) ASSERT_TRUE(store_->put(kKey, as_byte_span(R"({"holder":"another"})")));
  EXPECT_EQ(text_of(*store_), R"({"holder":"another"})");
}

TEST_F(LeaseTest, OfAProcessThatEndedIsTakenAtOnce) {
  const std::string own = os::process_identity(os::process_id());
  ASSERT_FALSE(own.empty());
  const std::string place = own.substr(0, own.rfind(' '));
  const std::string dead = R"({"holder":"a","host":"h","process":)" + std::to_string(os::process_id()) +
                           R"(,"place":")" + place + R"( 1","beat":3})";
  ASSERT_TRUE(store_->put(kKey, as_byte_span(dead)));
  EXPECT_TRUE(take(first_, store_));
}

TEST_F(LeaseTest, OfAnotherMachineIsWaitedFor) {
  ASSERT_TRUE(store_->put(kKey, as_byte_span(R"({"holder":"a","host":"h","process":1,"place":"x y 1","beat":3})")));
  EXPECT_FALSE(take(first_, store_));
  EXPECT_TRUE(take(second_, store_, kAtOnce));
}

TEST_F(LeaseTest, ThatWasNotGivenBackIsTakenAgainByItsProcess) {
  const auto quiet = std::make_shared<FakeObjectStore>(*store_);
  auto held = take(first_, quiet);
  ASSERT_TRUE(held);
  quiet->set_fault([](std::string_view, const std::string&) { return RequestFault::refused; });
  held->reset();
  quiet->set_fault(nullptr);
  EXPECT_TRUE(take(first_, quiet));
}

TEST_F(LeaseTest, AnObjectOfAnotherProgramIsLeftAlone) {
  ASSERT_TRUE(store_->put(kKey, as_byte_span("nonsense")));
  const auto taken = take(first_, store_, kAtOnce);
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().kind(), ErrorKind::unsupported);
  EXPECT_THAT(taken.error().message(),
              HasSubstr("s3://bucket/run/lock: this object of 8 bytes is no lease of bitsnap"));
  EXPECT_EQ(text_of(*store_), "nonsense");
}

TEST_F(LeaseTest, TheEmptyLockOfARunOnADiskIsFree) {
  ASSERT_TRUE(store_->put(kKey, {}));
  EXPECT_TRUE(take(first_, store_));
}

TEST_F(LeaseTest, AServiceWithoutConditionsIsLeftAsItWas) {
  store_->has_conditions = false;
  EXPECT_EQ(take(first_, store_).error().kind(), ErrorKind::unsupported);
  EXPECT_THAT(store_->keys(), ::testing::IsEmpty());
  EXPECT_EQ(second_.check(*store_, kKey, kKey).error().kind(), ErrorKind::unsupported);
  EXPECT_THAT(store_->keys(), ::testing::IsEmpty());
  const std::string other = R"({"holder":"a","host":"h","process":1,"place":"x y 1","beat":3})";
  ASSERT_TRUE(store_->put(kKey, as_byte_span(other)));
  EXPECT_EQ(take(second_, store_).error().kind(), ErrorKind::busy);
  EXPECT_EQ(text_of(*store_), other);
}

TEST_F(LeaseTest, LostAnswersDoNotLoseIt) {
  store_->set_fault([](std::string_view request, const std::string&) {
    return request.starts_with("put_if_") ? RequestFault::lost_answer : RequestFault::none;
  });
  const auto held = take(first_, store_, {1, 30'000, 45'000, 0});
  ASSERT_TRUE(held) << held.error().message();
  const std::string before = text_of(*store_);
  while (text_of(*store_) == before) ASSERT_TRUE((*held)->is_held());
  EXPECT_TRUE((*held)->is_held());
}

TEST_F(LeaseTest, AForkedChildHasNone) {
  const auto held = take(first_, store_);
  ASSERT_TRUE(held);
  EXPECT_EQ(os::returned_by_child([&] { return (*held)->is_held() ? 1 : 0; }), 0);
}

}  // namespace
}  // namespace bitsnap::objects
