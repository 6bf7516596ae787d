// Tests with several threads: a signal that ends another thread's wait, and messages in both directions.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "os/local_socket.hpp"
#include "os/poll_set.hpp"
#include "os/shared_memory.hpp"

namespace bitsnap::os {
namespace {

TEST(EventSignalThreads, WakesAnotherThreadEachTime) {
  const auto ping = EventSignal::create();
  const auto pong = EventSignal::create();
  ASSERT_TRUE(ping && pong);
  constexpr int kTimes = 200;
  int unguarded = 0;  // synchronized by the signals alone
  std::thread other([&] {
    PollSet set;
    set.watch(ping->descriptor(), 1);
    for (int i = 0; i < kTimes; ++i) {
      if (!set.wait(kNoTimeout)) return;
      ping->clear();
      ++unguarded;
      pong->raise();
    }
  });
  PollSet set;
  set.watch(pong->descriptor(), 1);
  for (int i = 0; i < kTimes; ++i) {
    ping->raise();
    ASSERT_TRUE(set.wait(kNoTimeout));
    pong->clear();
  }
  other.join();
  EXPECT_EQ(unguarded, kTimes);
}

TEST(LocalConnectionThreads, SendsInOneThreadWhileAnotherReceives) {
  auto ends = LocalConnection::pair();
  ASSERT_TRUE(ends);
  constexpr int kMessages = 500;  // more than the socket holds at once
  const auto run = [](const LocalConnection& end, std::atomic<int>& received) {
    std::thread sender([&] {
      std::vector<std::byte> message(kMaxMessageBytes / 4);
      for (int i = 0; i < kMessages; ++i) {
        std::memcpy(message.data(), &i, sizeof(i));
        if (!end.send(message, {}, 10000)) return;
      }
    });
    for (int i = 0; i < kMessages; ++i) {
      const auto message = end.receive(kMaxMessageBytes, 0, 10000);
      if (!message || !*message || std::memcmp((*message)->bytes.data(), &i, sizeof(i)) != 0) break;
      ++received;
    }
    sender.join();
  };
  std::atomic<int> here{0};
  std::atomic<int> there{0};
  std::thread other([&] { run(ends->second, there); });
  run(ends->first, here);
  other.join();
  EXPECT_EQ(here, kMessages);
  EXPECT_EQ(there, kMessages);
}

TEST(SharedMemoryThreads, IsPopulatedBySeveralThreadsAtOnceWhileOthersWrite) {
  constexpr std::size_t kThreads = 4;
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  const auto memory = SharedMemory::create("test", kThreads * kBytes);
  ASSERT_TRUE(memory);
  const auto mapped = memory->map(MemoryAccess::read_write);
  ASSERT_TRUE(mapped);
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      if (!mapped->populate(i * kBytes, kBytes)) ++failed;
    });
    threads.emplace_back([&, i] { std::memset(mapped->writable_bytes().data() + i * kBytes, 7, kBytes); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  for (const std::byte byte : mapped->bytes()) ASSERT_EQ(byte, std::byte{7});
}

}  // namespace
}  // namespace bitsnap::os
