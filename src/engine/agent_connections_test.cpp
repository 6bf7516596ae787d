// An agent and faulty connections: they send invalid, misplaced or endless messages, send nothing, or die. Each test
// checks that other connections are served at once and that no resource stays behind.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <bitsnap/engine.hpp>

#include <array>
#include <atomic>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/agent_thread_testing.hpp"
#include "engine/fetched_snapshots.hpp"
#include "engine/raw_connection_testing.hpp"
#include "os/clock.hpp"
#include "os/file_identity.hpp"
#include "os/forked_child_testing.hpp"
#include "os/temporary_directory_testing.hpp"
#include "store/training_testing.hpp"

namespace bitsnap::engine {
namespace {

using store::Training;

constexpr std::uint32_t kRanks = 8;

// Number of mappings of shared memory: arenas and fetched snapshots.
std::size_t shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:bitsnap") != std::string::npos ? 1U : 0U;
  return count;
}

std::string refusal(const std::optional<Packet>& answer) {
  if (!answer) return "closed";
  if (answer->kind != MessageKind::refused) return std::string(message_kind_name(answer->kind));
  return std::string(error_kind_name(parse_error(answer->body).kind()));
}

class AgentConnectionsTest : public ::testing::Test {
 protected:
  AgentConnectionsTest() : agent_(std::make_unique<AgentThread>(job_)) {
    // The first trainer makes the agent open what it keeps: the store and threads.
    serves_others();
    descriptors_ = os::open_descriptor_count();
    mappings_ = shared_mappings();
  }

  // Checks that a trainer of another rank is served soon.
  void serves_others() {
    const os::Stopwatch stopwatch;
    {
      RawConnection other(job_);
      EXPECT_EQ(refusal(other.say_hello(job_, directory_.path(), kRanks - 1, kRanks)), "welcome");
      EXPECT_EQ(refusal(other.ask(MessageKind::list, serialize_body(ListRequest{0}))), "steps");
      other.send(MessageKind::bye);
      EXPECT_TRUE(other.is_closed());
    }
    EXPECT_LT(stopwatch.elapsed_seconds(), kSoonSeconds);
  }

  // Waits up to a minute, because the agent learns of a death or a close a little later.
  void expect_nothing_left(std::size_t descriptors = 0, std::size_t mappings = 0) {
    const os::Stopwatch stopwatch;
    const auto is_level = [&] {
      return os::open_descriptor_count() <= descriptors_ + descriptors && shared_mappings() <= mappings_ + mappings;
    };
    // A new arena is mapped shortly before the old one is unmapped, so it is enough to be level once.
    while (stopwatch.elapsed_seconds() < 60) {
      if (is_level()) return;
      ::usleep(2000);
    }
    EXPECT_LE(os::open_descriptor_count(), descriptors_ + descriptors);
    EXPECT_LE(shared_mappings(), mappings_ + mappings);
  }

  std::optional<Packet> hello(RawConnection& peer, std::uint32_t rank = 0) {
    return peer.say_hello(job_, directory_.path(), rank, kRanks);
  }

  os::TemporaryDirectory directory_;
  const std::string job_ = unique_job();
  Training trained_;
  std::unique_ptr<AgentThread> agent_;
  std::size_t descriptors_ = 0;
  std::size_t mappings_ = 0;
};

TEST_F(AgentConnectionsTest, InvalidBytesCloseOnlyTheirConnection) {
  std::mt19937 random(1);
  RawConnection bystander(job_);
  for (int round = 0; round < 60; ++round) {
    RawConnection peer(job_);
    std::vector<std::byte> bytes(1 + random() % 200);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    if (round % 3 == 1) bytes.resize(40'000);  // above the size limit of a packet
    if (round % 3 == 2) {
      bytes = serialize_packet({MessageKind::status, 1, "{}"}).value();
      bytes.pop_back();
    }
    ASSERT_TRUE(peer.send(bytes));
    EXPECT_TRUE(peer.is_closed()) << round;
  }
  EXPECT_EQ(refusal(bystander.ask(MessageKind::status)), "report");
  serves_others();
}

TEST_F(AgentConnectionsTest, RefusesAnotherProtocolAsUnsupported) {
  RawConnection peer(job_);
  auto bytes = serialize_packet({MessageKind::hello, 77, "{}"}).value();
  bytes[4] = std::byte{9};
  ASSERT_TRUE(peer.send(bytes));
  const auto answer = peer.receive();
  EXPECT_EQ(refusal(answer), "unsupported");
  EXPECT_EQ(answer->number, 77u);
  EXPECT_TRUE(peer.is_closed());
}

TEST_F(AgentConnectionsTest, RejectsRequestsBeforeHello) {
  for (const MessageKind kind : {MessageKind::arena, MessageKind::staged, MessageKind::list, MessageKind::fetch,
                                 MessageKind::bye, MessageKind::ok, MessageKind::welcome, MessageKind::progress}) {
    RawConnection peer(job_);
    EXPECT_EQ(refusal(peer.ask(kind)), "corrupt") << message_kind_name(kind);
    EXPECT_TRUE(peer.is_closed());
  }
  serves_others();
  expect_nothing_left();
}

TEST_F(AgentConnectionsTest, ClosesAConnectionThatSendsHelloTwice) {
  for (int round = 0; round < 3; ++round) {
    RawConnection peer(job_);
    ASSERT_EQ(refusal(hello(peer)), "welcome");
    for (int i = 0; i < 2000 && peer.send(MessageKind::hello, "{}"); ++i) {
    }
    EXPECT_TRUE(peer.is_closed());
    serves_others();
  }
  RawConnection peer(job_);
  ASSERT_EQ(refusal(hello(peer)), "welcome");
  EXPECT_EQ(refusal(peer.say_hello(job_, directory_.path(), 1, kRanks)), "corrupt");
}

TEST_F(AgentConnectionsTest, RefusesAStoreThatIsAnotherDirectoryForTheAgent) {
  Hello said;
  said.job = job_;
  said.store = directory_.path() + "/run";
  said.world_size = kRanks;
  const auto answer_to = [&](const std::optional<os::FoundFile>& place) {
    said.place = place;
    RawConnection peer(job_);
    return refusal(peer.ask(MessageKind::hello, serialize_body(said)));
  };
  const os::FoundFile right = os::nearest_file(said.store).value();
  EXPECT_EQ(right.path, directory_.path());
  for (const bool is_known : {false, true}) {  // before and after the agent has a job
    os::FoundFile other = right;
    ++other.identity.inode;
    EXPECT_EQ(answer_to(other), "invalid_argument");
    other = right;
    ++other.identity.device;
    EXPECT_EQ(answer_to(other), "invalid_argument");
    other = right;
    other.path += "/none";
    EXPECT_EQ(answer_to(other), "invalid_argument");
    if (!is_known) {
      EXPECT_EQ(answer_to(right), "welcome");
    }
  }
  EXPECT_EQ(answer_to(std::nullopt), "welcome");  // a trainer may leave the field out
}

TEST_F(AgentConnectionsTest, RefusesInvalidArenasAndKeepsTheConnection) {
  RawConnection peer(job_);
  ASSERT_EQ(refusal(hello(peer)), "welcome");
  const auto offer = [&](int descriptor, std::uint32_t slots, std::uint64_t slot_bytes) {
    return refusal(
        peer.ask(MessageKind::arena, serialize_body(ArenaOffer{slots, slot_bytes}), std::span(&descriptor, 1)));
  };
  const auto good = os::SharedMemory::create("bitsnap-test", 3 * kSlotUnit).value();
  for (const std::uint64_t slot_bytes :
       {std::uint64_t{0}, std::uint64_t{1}, kSlotUnit - 1, kSlotUnit + 1, 2 * kSlotUnit, 3 * kSlotUnit,
        std::uint64_t{1} << 63, UINT64_MAX - 4095, UINT64_MAX - 8191, (std::uint64_t{1} << 63) - kSlotUnit}) {
    EXPECT_EQ(offer(good.descriptor(), 2, slot_bytes), "invalid_argument") << slot_bytes;
  }
  EXPECT_EQ(offer(good.descriptor(), 1, kSlotUnit), "invalid_argument");

  const int plain = ::memfd_create("bitsnap-test", MFD_CLOEXEC);
  const int sealed_once = ::memfd_create("bitsnap-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(plain, 3 * 4096), 0);
  ASSERT_EQ(::ftruncate(sealed_once, 3 * 4096), 0);
  ASSERT_EQ(::fcntl(sealed_once, F_ADD_SEALS, F_SEAL_GROW), 0);
  const int folder = ::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  for (const int descriptor : {plain, sealed_once, folder, null, pipe[0], pipe[1]}) {
    EXPECT_EQ(offer(descriptor, 2, kSlotUnit), "invalid_argument") << descriptor;
    ::close(descriptor);
  }
  EXPECT_EQ(offer(good.descriptor(), 2, kSlotUnit), "ok");
  // An offer without shared memory.
  EXPECT_EQ(refusal(peer.ask(MessageKind::arena, serialize_body(ArenaOffer{2, kSlotUnit}))), "corrupt");
  EXPECT_TRUE(peer.is_closed());
  serves_others();
}

TEST_F(AgentConnectionsTest, ClosesUnexpectedDescriptorsAndTheirConnection) {
  const auto memory = os::SharedMemory::create("bitsnap-test", 3 * kSlotUnit).value();
  descriptors_ = os::open_descriptor_count();
  for (const MessageKind kind : {MessageKind::hello, MessageKind::status, MessageKind::list, MessageKind::arena}) {
    RawConnection peer(job_);
    if (kind != MessageKind::hello) {
      ASSERT_EQ(refusal(hello(peer)), "welcome");
    }
    const std::vector<int> many(kind == MessageKind::arena ? 40 : 1, memory.descriptor());
    peer.send(kind, serialize_body(ArenaOffer{2, kSlotUnit}), many);
    EXPECT_TRUE(peer.is_closed()) << message_kind_name(kind);
  }
  serves_others();
  expect_nothing_left();
}

TEST_F(AgentConnectionsTest, RefusesSlotsThatDoNotExist) {
  RawConnection peer(job_);
  ASSERT_EQ(refusal(hello(peer)), "welcome");
  const auto stage = [&](const Staged& staged) {
    return refusal(peer.ask(MessageKind::staged, serialize_body(staged)));
  };
  EXPECT_EQ(stage({.ticket = 1, .slot = 0, .step = 1, .bytes = 4096}), "invalid_argument");  // no arena yet
  ASSERT_EQ(refusal(peer.hand_over_arena(trained_.state())), "ok");
  peer.fill(0, trained_.state());
  Staged staged = peer.staged(1, 0, 1, false);
  for (const std::uint32_t slot : {2U, 3U, UINT32_MAX}) {
    staged.slot = slot;
    EXPECT_EQ(stage(staged), "invalid_argument");
  }
  staged.slot = 0;
  for (const std::uint64_t bytes : {peer.offer().slot_bytes + 1, std::uint64_t{1} << 63, UINT64_MAX}) {
    staged.bytes = bytes;
    EXPECT_EQ(stage(staged), "invalid_argument");
  }
  // If the message names too few bytes, the save fails, the slot becomes free, and the next save works.
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{31}, std::uint64_t{100}}) {
    staged.bytes = bytes;
    staged.ticket = 10 + bytes;
    EXPECT_EQ(stage(staged), "ok");
    const auto failed = peer.wait_for(staged.ticket, Stage::memory);
    ASSERT_TRUE(failed.has_value());
    EXPECT_EQ(failed->stage, Stage::failed);
    EXPECT_EQ(failed->error->kind(), ErrorKind::corrupt);
  }
  EXPECT_EQ(stage(peer.staged(200, 0, 1, false)), "ok");
  const auto saved = peer.wait_for(200, Stage::memory);
  ASSERT_TRUE(saved.has_value());
  EXPECT_EQ(saved->stage, Stage::memory) << (saved->error ? saved->error->message() : "");
  EXPECT_EQ(stage(peer.staged(201, 0, 2, false)), "invalid_argument");  // still held as the base of the next save
}

TEST_F(AgentConnectionsTest, WritingToASlotDuringEncodingDamagesOnlyThatState) {
  RawConnection peer(job_);
  ASSERT_EQ(refusal(hello(peer)), "welcome");
  ASSERT_EQ(refusal(peer.hand_over_arena(trained_.state())), "ok");
  std::size_t kept = 0;
  std::uint32_t slot = 0;
  for (std::uint64_t step = 1; step <= 6; ++step) {
    trained_.step();
    peer.fill(slot, trained_.state());
    std::atomic<bool> is_over = false;
    const std::size_t begin = step <= 3 ? 32 * kSlotUnit : 0;  // only tensors, or the whole slot
    std::thread scribbler([&] {
      std::mt19937_64 random(step);
      const ByteSpan bytes = peer.slot(slot).subspan(begin);
      while (!is_over) store_le(bytes.data() + random() % (bytes.size() - 8), std::uint64_t{random()});
    });
    EXPECT_EQ(refusal(peer.ask(MessageKind::staged, serialize_body(peer.staged(step, slot, step, false)))), "ok");
    const auto done = peer.wait_for(step, Stage::memory);
    is_over = true;
    scribbler.join();
    ASSERT_TRUE(done.has_value()) << step;
    kept += done->stage == Stage::memory ? 1U : 0U;
    if (done->stage != Stage::memory) continue;
    slot = 1 - slot;  // this slot is held now
    // The snapshot in memory is damaged at most in its values: it can be read completely.
    const auto answer = peer.ask(MessageKind::fetch, serialize_body(FetchRequest{step}));
    ASSERT_EQ(refusal(answer), "fetched");
    const auto memory = os::SharedMemory::adopt(std::move(peer.descriptors().front()), UINT64_MAX).value();
    const auto files = FetchedSnapshots::make(*parse_body<Fetched>(answer->body),
                                              memory.map(os::MemoryAccess::read).value(), "fetched", {});
    const auto snapshot = (*files)->open_wanted();
    ASSERT_TRUE(snapshot.has_value()) << snapshot.error().message();
    for (std::size_t i = 0; i < (*snapshot)->tensors().size(); ++i) {
      std::vector<std::byte> bytes(static_cast<std::size_t>((*snapshot)->tensors()[i].size_bytes));
      const auto read = (*snapshot)->read_bytes(i, 0, bytes);
      EXPECT_TRUE(read.has_value()) << read.error().message();
    }
    serves_others();
  }
  EXPECT_GT(kept, 0u);
}

TEST_F(AgentConnectionsTest, AFloodOfRequestsDelaysNoOtherConnection) {
  for (const MessageKind kind :
       {MessageKind::status, MessageKind::list, MessageKind::fetch, MessageKind::arena, MessageKind::staged}) {
    {
      RawConnection peer(job_);
      ASSERT_EQ(refusal(hello(peer)), "welcome");
      ASSERT_EQ(refusal(peer.hand_over_arena(trained_.state())), "ok");
      peer.fill(0, trained_.state());
      ASSERT_EQ(refusal(peer.ask(MessageKind::staged, serialize_body(peer.staged(1, 0, 1, false)))), "ok");
      ASSERT_TRUE(peer.wait_for(1, Stage::memory).has_value());
      std::string body = R"({"step":1,"wait_ms":60000})";  // for `list` and for `fetch`
      const int descriptor = peer.arena().descriptor();
      const std::span<const int> descriptors(&descriptor, kind == MessageKind::arena ? 1 : 0);
      if (kind == MessageKind::arena) body = serialize_body(peer.offer());
      if (kind == MessageKind::staged) body = serialize_body(peer.staged(2, 9, 2, false));
      std::size_t sent = 0;
      while (sent < 8000 && peer.send(kind, body, descriptors)) ++sent;
      EXPECT_GT(sent, 16u);
      serves_others();
      // Two descriptors for the connection and one for the arena; the rest are answers.
      EXPECT_LT(os::open_descriptor_count(), descriptors_ + 40) << message_kind_name(kind);
    }
    expect_nothing_left(3, 1);
  }
}

TEST_F(AgentConnectionsTest, SilentConnectionsAreClosedForNewOnes) {
  std::vector<std::unique_ptr<RawConnection>> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(std::make_unique<RawConnection>(job_));
  serves_others();
  // This process has both ends of each connection.
  EXPECT_LT(os::open_descriptor_count(), descriptors_ + 200 + 200);
  EXPECT_TRUE(silent.front()->is_closed());
  EXPECT_EQ(refusal(silent.back()->ask(MessageKind::status)), "report");
  silent.clear();
  serves_others();
  expect_nothing_left();
}

TEST_F(AgentConnectionsTest, KilledTrainersLeaveNoResources) {
  const auto die_at = [&](int stage) {
    RawConnection& peer = *new RawConnection(job_);  // never deleted: it ends with the process
    if (stage == 0) return 1;
    const bool is_welcome = refusal(hello(peer)) == "welcome";
    if (stage == 1) return is_welcome ? 1 : 0;
    bool has_arena = false;  // refused while the last trainer's save is being encoded
    for (int i = 0; i < 6000 && !has_arena; ++i, ::usleep(10'000)) {
      has_arena = refusal(peer.hand_over_arena(trained_.state())) == "ok";
    }
    if (stage == 2) return has_arena ? 1 : 0;
    peer.fill(0, trained_.state());
    if (stage == 3) return 1;
    const bool is_staged = refusal(peer.ask(MessageKind::staged, serialize_body(peer.staged(1, 0, 1, false)))) == "ok";
    if (stage == 4) return is_staged ? 1 : 0;
    // Sends requests and does not wait for the answers.
    peer.send(MessageKind::list, serialize_body(ListRequest{60'000}));
    peer.send(MessageKind::fetch, serialize_body(FetchRequest{1}));
    peer.send(MessageKind::staged, serialize_body(peer.staged(2, 1, 2, false)));
    return 1;
  };
  for (int stage = 0; stage <= 5; ++stage) {
    for (int round = 0; round < 3; ++round) {
      os::LivingChild child([&] { return die_at(stage); });
      EXPECT_EQ(child.said(), 1) << stage;
      child.kill();
      child.reap();
      serves_others();
      // The agent keeps the arena of a rank for its next trainer.
      expect_nothing_left(1, 1);
    }
  }
  // The next trainer gets the rank.
  RawConnection peer(job_);
  EXPECT_EQ(refusal(hello(peer)), "welcome");
}

}  // namespace
}  // namespace bitsnap::engine
