// Tests of messages between real processes: delivery, refusal without side effects, and the end of a stream.
#include "os/local_socket.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "os/forked_child_testing.hpp"
#include "os/poll_set.hpp"
#include "os/shared_memory.hpp"

namespace bitsnap::os {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kSoon = 5000;  // enough for an immediate event on a loaded machine

struct Ends {
  LocalConnection near;
  LocalConnection far;
};

Ends ends() {
  auto pair = LocalConnection::pair().value();
  return {std::move(pair.first), std::move(pair.second)};
}

std::string text_from(const LocalConnection& connection) {
  const auto message = connection.receive(kMaxMessageBytes, 0, kSoon);
  if (!message) return message.error().message();
  return *message ? std::string(as_text((*message)->bytes)) : "(end)";
}

template <typename T>
ErrorKind kind_of(const Result<T>& result) {
  return result ? ErrorKind::internal : result.error().kind();
}

TEST(LocalSocket, CarriesMessagesWholeAndInOrderBetweenProcesses) {
  const std::string name = unique_name();
  const auto listener = LocalListener::listen(name);
  ASSERT_TRUE(listener) << listener.error().message();
  EXPECT_EQ(listener->name(), name);
  const LivingChild child([&] {
    static std::optional<LocalConnection> kept;
    auto connection = LocalConnection::connect(name, kSoon);
    if (!connection || connection->peer().process != ::getppid()) return 1;
    kept.emplace(std::move(connection).value());
    if (!kept->send(as_byte_span("one"), {}, kSoon) || !kept->send(as_byte_span(std::string(65536, 'x')), {}, kSoon)) {
      return 2;
    }
    return 0;
  });
  ASSERT_EQ(child.said(), 0);
  const auto connection = listener->accept(kSoon);
  ASSERT_TRUE(connection) << connection.error().message();
  EXPECT_EQ(connection->peer().process, child.process());
  EXPECT_EQ(connection->peer().user, ::getuid());
  EXPECT_EQ(connection->peer().group, ::getgid());
  EXPECT_EQ(text_from(*connection), "one");
  EXPECT_EQ(text_from(*connection), std::string(65536, 'x'));
}

TEST(LocalSocket, PassesDescriptors) {
  const Ends both = ends();
  {
    const SharedMemory memory = SharedMemory::create("test", 4096).value();
    memory.map(MemoryAccess::read_write)->writable_bytes()[9] = std::byte{42};
    const int sent[] = {memory.descriptor(), memory.descriptor()};
    ASSERT_TRUE(both.near.send(as_byte_span("memory"), sent, kSoon));
  }
  auto message = both.far.receive(100, 2, kSoon);
  ASSERT_TRUE(message && *message);
  ASSERT_EQ((*message)->descriptors.size(), 2u);
  for (const Descriptor& fd : (*message)->descriptors) EXPECT_EQ(::fcntl(fd.get(), F_GETFD), FD_CLOEXEC);
  const auto memory = SharedMemory::adopt(std::move((*message)->descriptors[1]), 4096);
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->map(MemoryAccess::read)->bytes()[9], std::byte{42});
}

TEST(LocalSocket, DropsOnlyTheMessageBeyondTheLimits) {
  const Ends both = ends();
  const int fd = ::dup(0);
  const std::vector<int> three(3, fd);
  const std::size_t before = open_descriptor_count();
  const struct {
    std::size_t max_bytes;
    std::size_t max_descriptors;
    const char* expected;
  } limits[] = {
      {3, 3, "3 bytes"}, {100, 2, "2 descriptors"}, {100, 1, "1 desc"}, {100, 0, "0 desc"}, {3, 1, "3 bytes"}};
  for (const auto& limit : limits) {
    ASSERT_TRUE(both.near.send(as_byte_span("long"), three, kSoon));
    ASSERT_TRUE(both.near.send(as_byte_span("next"), {}, kSoon));
    const auto refused = both.far.receive(limit.max_bytes, limit.max_descriptors, kSoon);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind(), ErrorKind::resource_exhausted);
    EXPECT_THAT(refused.error().message(), HasSubstr(limit.expected));
    EXPECT_EQ(open_descriptor_count(), before);
    EXPECT_EQ(text_from(both.far), "next");
  }
  ::close(fd);
}

TEST(LocalSocket, ReportsDescriptorsThatCannotBeReceived) {
  const Ends both = ends();
  const std::vector<int> several(8, 0);
  ASSERT_TRUE(both.near.send(as_byte_span("x"), several, kSoon));
  const std::size_t before = open_descriptor_count();
  rlimit limit_before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit_before), 0);
  rlimit limit = limit_before;
  const int lowest = ::dup(0);
  ::close(lowest);
  limit.rlim_cur = static_cast<rlim_t>(lowest) + 3;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  const auto refused = both.far.receive(10, 8, kSoon);
  ::setrlimit(RLIMIT_NOFILE, &limit_before);
  EXPECT_EQ(kind_of(refused), ErrorKind::resource_exhausted);
  EXPECT_EQ(open_descriptor_count(), before);
}

TEST(LocalSocket, EndsAStreamAfterItsLastMessage) {
  for (const bool leaves_something_unread : {false, true}) {
    Ends both = ends();
    if (leaves_something_unread) {
      ASSERT_TRUE(both.near.send(as_byte_span("unread"), {}, kSoon));
    }
    ASSERT_TRUE(both.far.send(as_byte_span("a"), {}, kSoon));
    ASSERT_TRUE(both.far.send(as_byte_span("b"), {}, kSoon));
    {
      const LocalConnection gone = std::move(both.far);
    }
    EXPECT_EQ(text_from(both.near), "a");
    EXPECT_EQ(text_from(both.near), "b");
    EXPECT_EQ(text_from(both.near), "(end)");
    EXPECT_EQ(text_from(both.near), "(end)");
    const auto sent = both.near.send(as_byte_span("x"), {}, kSoon);  // and no SIGPIPE
    EXPECT_EQ(kind_of(sent), ErrorKind::io);
    EXPECT_THAT(sent.error().message(), HasSubstr("the other end is gone"));
  }
}

TEST(LocalSocket, ReceivesAfterEndSending) {
  const Ends both = ends();
  ASSERT_TRUE(both.far.send(as_byte_span("last"), {}, kSoon));
  both.far.end_sending();
  EXPECT_EQ(text_from(both.near), "last");
  EXPECT_EQ(text_from(both.near), "(end)");
  ASSERT_TRUE(both.near.send(as_byte_span("heard"), {}, kSoon));
  EXPECT_EQ(text_from(both.far), "heard");
  EXPECT_EQ(kind_of(both.far.send(as_byte_span("x"), {}, kSoon)), ErrorKind::io);
}

TEST(LocalSocket, EndsAStreamWhenTheOtherProcessIsKilled) {
  const std::string name = unique_name();
  const auto listener = LocalListener::listen(name);
  ASSERT_TRUE(listener);
  LivingChild child([&] {
    static std::optional<LocalConnection> kept;
    auto connection = LocalConnection::connect(name, kSoon);
    if (!connection) return 1;
    kept.emplace(std::move(connection).value());
    return kept->send(as_byte_span("alive"), {}, kSoon) ? 0 : 2;
  });
  ASSERT_EQ(child.said(), 0);
  const auto connection = listener->accept(kSoon);
  ASSERT_TRUE(connection);
  EXPECT_EQ(text_from(*connection), "alive");
  child.kill();
  EXPECT_EQ(text_from(*connection), "(end)");
}

TEST(LocalSocket, KeepsItsTimeoutAcrossSignals) {
  struct ::sigaction ignore{};
  struct ::sigaction before{};
  ignore.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGALRM, &ignore, &before), 0);
  const itimerval often{{0, 2000}, {0, 2000}};
  const itimerval never{};
  ::setitimer(ITIMER_REAL, &often, nullptr);

  const Ends both = ends();
  const auto listener = LocalListener::listen(unique_name());
  ASSERT_TRUE(listener);
  const auto takes = [](std::int64_t timeout_ms, const auto& wait) {
    const Stopwatch watch;
    const auto result = wait(timeout_ms);
    EXPECT_EQ(kind_of(result), ErrorKind::busy);
    EXPECT_GE(watch.elapsed_ns(), static_cast<std::uint64_t>(timeout_ms) * 1'000'000);
    EXPECT_LT(watch.elapsed_seconds(), 60);  // without an end if each signal began it anew
  };
  const std::vector<std::byte> full(kMaxMessageBytes);
  while (both.near.send(full, {}, 0)) {
  }
  for (const std::int64_t timeout_ms : {0, 30}) {
    takes(timeout_ms, [&](auto limit) { return both.near.receive(10, 0, limit); });
    takes(timeout_ms, [&](auto limit) { return listener->accept(limit); });
    takes(timeout_ms, [&](auto limit) { return both.near.send(full, {}, limit); });
  }
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::sigaction(SIGALRM, &before, nullptr);
}

TEST(LocalSocket, SendsWhenThereIsRoomAgain) {
  const Ends both = ends();
  const std::vector<std::byte> full(kMaxMessageBytes);
  while (both.near.send(full, {}, 0)) {
  }
  const LivingChild reader([&] {
    // The child has the descriptor, but not the connection.
    std::vector<char> out(kMaxMessageBytes);
    while (::recv(both.far.descriptor(), out.data(), out.size(), MSG_DONTWAIT) > 0) {
    }
    return 0;
  });
  EXPECT_TRUE(both.near.send(full, {}, kSoon));
}

TEST(LocalSocket, FailsToConnectWithoutAListener) {
  const std::string name = unique_name();
  EXPECT_EQ(kind_of(LocalConnection::connect(name, kSoon)), ErrorKind::not_found);
  {
    const auto listener = LocalListener::listen(name);
    ASSERT_TRUE(listener);
    EXPECT_TRUE(LocalConnection::connect(name, kSoon)) << "accepted or not";
    const auto second = LocalListener::listen(name);
    EXPECT_EQ(kind_of(second), ErrorKind::busy);
    EXPECT_THAT(second.error().message(), HasSubstr("/" + name));
  }
  EXPECT_EQ(kind_of(LocalConnection::connect(name, kSoon)), ErrorKind::not_found) << "nothing is left of the name";
  EXPECT_TRUE(LocalListener::listen(name));
}

TEST(LocalSocket, KeepsItsTimeoutWhenTheListenerIsFull) {
  const std::string name = unique_name();
  const auto listener = LocalListener::listen(name);
  ASSERT_TRUE(listener);
  std::vector<LocalConnection> waiting;
  for (;;) {
    auto connection = LocalConnection::connect(name, 20);
    if (!connection) {
      EXPECT_EQ(connection.error().kind(), ErrorKind::busy) << connection.error().message();
      break;
    }
    waiting.push_back(std::move(connection).value());
    ASSERT_LT(waiting.size(), 1000u);
  }
  ASSERT_TRUE(listener->accept(0));
  EXPECT_TRUE(LocalConnection::connect(name, 0));
}

TEST(LocalSocket, RejectsInvalidMessagesAndNames) {
  for (const std::string& name : {std::string(), std::string(101, 'n'), std::string("a\0b", 3), std::string("a/b")}) {
    EXPECT_EQ(kind_of(LocalListener::listen(name)), ErrorKind::invalid_argument);
    EXPECT_EQ(kind_of(LocalConnection::connect(name, 0)), ErrorKind::invalid_argument);
  }
  std::string longest = unique_name();
  longest.resize(kMaxListenerNameBytes, 'n');
  const auto listener = LocalListener::listen(longest);
  EXPECT_TRUE(listener && LocalConnection::connect(longest, kSoon));
  const Ends both = ends();
  const std::vector<std::byte> too_long(kMaxMessageBytes + 1);
  EXPECT_EQ(kind_of(both.near.send({}, {}, 0)), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_of(both.near.send(too_long, {}, 0)), ErrorKind::invalid_argument);
  const std::vector<int> too_many(kMaxMessageDescriptors + 1, 0);
  EXPECT_EQ(kind_of(both.near.send(as_byte_span("x"), too_many, 0)), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_of(both.near.receive(0, 0, 0)), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_of(both.near.receive(kMaxMessageBytes + 1, 0, 0)), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_of(both.near.receive(1, kMaxMessageDescriptors + 1, 0)), ErrorKind::invalid_argument);
  const std::vector<int> most(kMaxMessageDescriptors, 0);
  ASSERT_TRUE(both.near.send(as_byte_span("x"), most, 0));
  EXPECT_EQ((*both.far.receive(1, kMaxMessageDescriptors, 0))->descriptors.size(), kMaxMessageDescriptors);
}

TEST(LocalSocket, FailsInAForkedChild) {
  const Ends both = ends();
  const auto listener = LocalListener::listen(unique_name());
  ASSERT_TRUE(listener);
  ASSERT_TRUE(both.far.send(as_byte_span("mine"), {}, kSoon));
  const int child = returned_by_child([&] {
    if (kind_of(both.near.send(as_byte_span("x"), {}, 0)) != ErrorKind::invalid_argument) return 1;
    if (kind_of(both.near.receive(100, 0, 0)) != ErrorKind::invalid_argument) return 2;
    if (kind_of(listener->accept(0)) != ErrorKind::invalid_argument) return 3;
    return 0;
  });
  EXPECT_EQ(child, 0);
  EXPECT_EQ(text_from(both.near), "mine");
}

TEST(LocalSocket, LeaksNoDescriptors) {
  const std::size_t before = open_descriptor_count();
  {
    const std::string name = unique_name();
    const auto listener = LocalListener::listen(name);
    const auto near = LocalConnection::connect(name, kSoon);
    const auto far = listener->accept(kSoon);
    ASSERT_TRUE(near && far);
    EXPECT_FALSE(LocalListener::listen(name));
    EXPECT_FALSE(LocalConnection::connect(name + "x", kSoon));
    for (const int fd : {listener->descriptor(), near->descriptor(), far->descriptor()}) {
      EXPECT_EQ(::fcntl(fd, F_GETFD), FD_CLOEXEC);
    }
  }
  EXPECT_EQ(open_descriptor_count(), before);
}

}  // namespace
}  // namespace bitsnap::os
