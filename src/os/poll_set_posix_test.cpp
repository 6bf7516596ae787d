// Tests of waiting for several descriptors: reported events, timeouts, and event signals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "os/forked_child_testing.hpp"
#include "os/local_socket.hpp"
#include "os/poll_set.hpp"

namespace bitsnap::os {
namespace {

using testing::HasSubstr;

TEST(PollSet, ReportsEventsUntilTheyAreHandled) {
  const auto one = EventSignal::create();
  const auto other = EventSignal::create();
  ASSERT_TRUE(one && other);
  PollSet set;
  set.watch(one->descriptor(), 1);
  set.watch(other->descriptor(), 2);
  EXPECT_TRUE(set.wait(0)->empty());
  other->raise();
  for (int i = 0; i < 2; ++i) {
    const auto events = set.wait(kNoTimeout);
    ASSERT_TRUE(events);
    ASSERT_EQ(events->size(), 1u);
    EXPECT_EQ((*events)[0].token, 2u);
    EXPECT_TRUE((*events)[0].readable);
    EXPECT_FALSE((*events)[0].writable);
    EXPECT_FALSE((*events)[0].closed);
  }
  one->raise();
  set.watch(one->descriptor(), 7, true);
  const auto both = set.wait(kNoTimeout);
  ASSERT_EQ(both->size(), 2u);
  EXPECT_EQ((*both)[0].token, 7u);
  EXPECT_TRUE((*both)[0].writable);
  EXPECT_EQ((*both)[1].token, 2u);
  other->clear();
  set.forget(one->descriptor());
  EXPECT_TRUE(set.wait(0)->empty());
}

TEST(PollSet, KeepsItsTimeoutAcrossSignals) {
  struct ::sigaction ignore{};
  struct ::sigaction before{};
  ignore.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGALRM, &ignore, &before), 0);
  const itimerval often{{0, 2000}, {0, 2000}};
  const itimerval never{};
  ::setitimer(ITIMER_REAL, &often, nullptr);
  const PollSet nothing;
  const Stopwatch watch;
  const auto events = nothing.wait(30);
  const double seconds = watch.elapsed_seconds();
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::sigaction(SIGALRM, &before, nullptr);
  ASSERT_TRUE(events) << events.error().message();
  EXPECT_TRUE(events->empty());
  EXPECT_GE(seconds, 0.030);
}

TEST(PollSet, ReportsAClosedEndAndUnreadData) {
  auto ends = LocalConnection::pair();
  ASSERT_TRUE(ends);
  const LocalConnection mine = std::move(ends->first);
  {
    const LocalConnection other = std::move(ends->second);
    ASSERT_TRUE(other.send(as_byte_span("last"), {}, 0));
  }
  PollSet set;
  set.watch(mine.descriptor(), 1);
  const auto events = set.wait(0);
  ASSERT_TRUE(events);
  ASSERT_EQ(events->size(), 1u);
  EXPECT_TRUE((*events)[0].closed);
  EXPECT_TRUE((*events)[0].readable);
}

TEST(PollSet, RejectsClosedDescriptors) {
  PollSet set;
  {
    const auto gone = EventSignal::create();
    set.watch(gone->descriptor(), 1);
  }
  const auto events = set.wait(0);
  ASSERT_FALSE(events);
  EXPECT_EQ(events.error().kind(), ErrorKind::invalid_argument);
  EXPECT_THAT(events.error().message(), HasSubstr("is not open"));
}

TEST(EventSignal, StaysRaisedUntilClearedAndKeepsErrno) {
  const auto signal = EventSignal::create();
  ASSERT_TRUE(signal);
  PollSet set;
  set.watch(signal->descriptor(), 1);
  errno = 1234;
  for (int i = 0; i < 3; ++i) signal->raise();
  EXPECT_EQ(errno, 1234);
  EXPECT_EQ(set.wait(0)->size(), 1u);
  signal->clear();
  EXPECT_TRUE(set.wait(0)->empty());
  signal->clear();
}

TEST(EventSignal, IgnoresForkedChildren) {
  const auto signal = EventSignal::create();
  ASSERT_TRUE(signal);
  PollSet set;
  set.watch(signal->descriptor(), 1);
  const auto in_child = [&](bool raises) {
    return returned_by_child([&] {
      raises ? signal->raise() : signal->clear();
      return 0;
    });
  };
  EXPECT_EQ(in_child(true), 0);
  EXPECT_TRUE(set.wait(0)->empty());
  signal->raise();
  EXPECT_EQ(in_child(false), 0);
  EXPECT_EQ(set.wait(0)->size(), 1u);
}

}  // namespace
}  // namespace bitsnap::os
