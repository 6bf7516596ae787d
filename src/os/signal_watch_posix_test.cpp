// Tests of signals to this process and to its children.
#include "os/signal_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "os/forked_child_testing.hpp"

namespace bitsnap::os {
namespace {

bool is_readable(int descriptor, std::int64_t timeout_ms = 0) {
  PollSet set;
  set.watch(descriptor, 1);
  const auto events = set.wait(timeout_ms);
  return events && !events->empty();
}

TEST(SignalWatch, MakesItsDescriptorReadableOnSignals) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const auto watch = SignalWatch::start();
    ASSERT_TRUE(watch) << watch.error().message();
    EXPECT_FALSE(is_readable(watch->descriptor()));
    EXPECT_EQ(watch->count(), 0u);
    std::thread([&] { ::kill(::getpid(), signal); }).join();
    EXPECT_TRUE(is_readable(watch->descriptor(), 5000));
    EXPECT_EQ(watch->count(), 1u);
    ::raise(signal);
    EXPECT_EQ(watch->count(), 2u);
  }
}

TEST(SignalWatch, ExistsOnceAndRestoresTheHandlers) {
  const auto handler = [](int) {};
  struct ::sigaction mine{};
  struct ::sigaction before{};
  mine.sa_handler = handler;
  ASSERT_EQ(::sigaction(SIGTERM, &mine, &before), 0);
  {
    auto watch = SignalWatch::start();
    ASSERT_TRUE(watch);
    const SignalWatch moved = std::move(watch).value();
    const auto second = SignalWatch::start();
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().kind(), ErrorKind::busy);
    ::raise(SIGTERM);
    EXPECT_EQ(moved.count(), 1u);
  }
  struct ::sigaction after{};
  ASSERT_EQ(::sigaction(SIGTERM, &before, &after), 0);
  EXPECT_EQ(after.sa_handler, mine.sa_handler);
  EXPECT_TRUE(SignalWatch::start()) << "the first is gone";
}

TEST(SignalWatch, LetsTheSignalEndAForkedChild) {
  const auto watch = SignalWatch::start();
  ASSERT_TRUE(watch);
  for (const int signal : {SIGTERM, SIGINT}) {
    EXPECT_EQ(returned_by_child([&] {
                ::raise(signal);
                return 0;
              }),
              -signal);
  }
  EXPECT_FALSE(is_readable(watch->descriptor()));
}

}  // namespace
}  // namespace bitsnap::os
