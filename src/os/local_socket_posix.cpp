// Unix sockets of type SOCK_SEQPACKET, with SCM_RIGHTS for descriptors. Sending and receiving never block in the call
// itself, but wait in poll() until a deadline.
#include "os/local_socket.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/try.hpp"
#include "os/descriptor_posix.hpp"
#include "os/errno_error.hpp"
#include "os/file_identity.hpp"
#include "os/file_system.hpp"
#include "os/poll_posix.hpp"
#include "os/private_directory.hpp"
#include "os/process.hpp"

namespace bitsnap::os {
namespace {

constexpr int kBacklog = 128;
// How long another process may hold the lock of the directory, which takes microseconds unless that process is stopped.
constexpr std::int64_t kLockMs = 5'000;

struct Address {
  sockaddr_un name{};
  socklen_t size_bytes = 0;

  [[nodiscard]] const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&name); }
};

Result<void> check_name(std::string_view name, std::string_view operation) {
  constexpr std::string_view kForbidden("/\0", 2);
  if (!name.empty() && name.size() <= kMaxListenerNameBytes && name.find_first_of(kForbidden) == std::string_view::npos)
    return {};
  return fail(ErrorKind::invalid_argument, std::string(operation) + " a name of " + std::to_string(name.size()) +
                                               " bytes: expected 1 to " + std::to_string(kMaxListenerNameBytes) +
                                               " without NUL and slash");
}

Address address_of(const std::string& path) {
  Address address;
  constexpr std::size_t kLongestDirectory = std::string_view("/var/tmp/bitsnap-4294967295-XXXXXX/").size();
  static_assert(kLongestDirectory + kMaxListenerNameBytes < sizeof(address.name.sun_path));
  address.name.sun_family = AF_UNIX;
  path.copy(address.name.sun_path, sizeof(address.name.sun_path) - 1);
  address.size_bytes = sizeof(address.name);
  return address;
}

// Where this user's listeners have a file of this name.
std::vector<std::string> paths_of(std::string_view name) {
  std::vector<std::string> paths;
  for (const std::string_view above : shared_directories()) {
    if (const auto directory = find_private_directory(above)) paths.push_back(join_path(*directory, name));
  }
  return paths;
}

// The directory for a new listener, in the first place where this user can create one.
Result<std::string> directory_for_listener() {
  Result<std::string> directory = fail(ErrorKind::io, "no directory for sockets");
  for (const std::string_view above : shared_directories()) {
    auto made = make_private_directory(above);
    if (made) return made;
    if (above == shared_directories().front()) directory = std::move(made);
  }
  return directory;
}

tl::unexpected<Error> fail_timeout(std::string_view operation, std::string_view object, std::int64_t timeout_ms,
                                   std::string_view reason) {
  return fail(ErrorKind::busy, std::string(operation) + " " + std::string(object) + ": " + std::string(reason) +
                                   " within " + std::to_string(timeout_ms) + " ms");
}

Result<void> check_process(std::int64_t process, std::string_view operation, std::string_view object) {
  if (process == process_id()) return {};
  return fail(ErrorKind::invalid_argument, std::string(operation) + " " + std::string(object) + ": it is of process " +
                                               std::to_string(process) + ", which this one was forked from");
}

Descriptor open_socket(int more_flags) noexcept {
  return Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | more_flags, 0));
}

// The descriptors that came with a message, each owned before anything can fail.
void take_descriptors(msghdr& header, std::vector<Descriptor>& descriptors) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      descriptors.emplace_back(fd);
    }
  }
}

// Space for the maximum number of descriptors, aligned as the system requires.
struct ControlBuffer {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kMaxMessageDescriptors * sizeof(int))> bytes{};
};

}  // namespace

class LocalListener::Name {
 public:
  explicit Name(std::string path) : path_(std::move(path)), identity_(identify_file(path_)), process_(process_id()) {}
  Name(const Name&) = delete;
  Name& operator=(const Name&) = delete;
  ~Name() {
    if (process_ != process_id()) return;
    // Under the lock, so that the file of the next listener is not removed.
    const auto lock = lock_directory(parent_directory(path_), kLockMs);
    if (lock && identity_ && identify_file(path_) == identity_) ::unlink(path_.c_str());
  }

 private:
  const std::string path_;
  const std::optional<FileIdentity> identity_;
  const std::int64_t process_;
};

LocalConnection::LocalConnection(Descriptor descriptor, const PeerIdentity& peer) noexcept
    : descriptor_(std::move(descriptor)), peer_(peer), process_(process_id()) {}

Result<LocalConnection> LocalConnection::adopt(Descriptor descriptor) {
  ucred credentials{};
  socklen_t size_bytes = sizeof(credentials);
  if (::getsockopt(descriptor.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size_bytes) != 0) {
    return fail_errno(errno, "ask who is at the other end of", "a local connection");
  }
  return LocalConnection(std::move(descriptor), {credentials.pid, credentials.uid, credentials.gid});
}

Result<LocalConnection> LocalConnection::connect(std::string_view name, std::int64_t timeout_ms) {
  BITSNAP_TRY(check_name(name, "connect to"));
  for (const std::string& path : paths_of(name)) {
    auto connection = connect_to_path(path, timeout_ms);
    if (connection || connection.error().kind() != ErrorKind::not_found) return connection;
  }
  return fail(ErrorKind::not_found, "connect to " + std::string(name) + ": no process of this user listens");
}

Result<LocalConnection> LocalConnection::connect_to_path(const std::string& object, std::int64_t timeout_ms) {
  const Address address = address_of(object);
  Descriptor fd = open_socket(0);
  if (!fd.is_open()) return fail_errno(errno, "connect to", object);
  const Deadline deadline(timeout_ms);
  for (;;) {
    // The only call that blocks: no event reports when a full listener has room again.
    const int left_ms = deadline.left_ms();
    timeval limit{};
    if (left_ms > 0) limit = {left_ms / 1000, left_ms % 1000 * 1000};
    if (left_ms == 0) limit.tv_usec = 1;  // 0 would be no limit
    if (::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) != 0) {
      return fail_errno(errno, "connect to", object);
    }
    if (::connect(fd.get(), address.get(), address.size_bytes) == 0) return adopt(std::move(fd));
    if (errno == ECONNREFUSED || errno == ENOENT)
      return fail(ErrorKind::not_found, "connect to " + object + ": no process listens");
    if (errno != EAGAIN && errno != EINTR) return fail_errno(errno, "connect to", object);
    if (left_ms == 0) return fail_timeout("connect to", object, timeout_ms, "its listener took nobody");
  }
}

Result<std::pair<LocalConnection, LocalConnection>> LocalConnection::pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return fail_errno(errno, "create", "a pair of local connections");
  }
  Descriptor one(ends[0]);
  Descriptor other(ends[1]);
  BITSNAP_ASSIGN(LocalConnection first, adopt(std::move(one)));
  BITSNAP_ASSIGN(LocalConnection second, adopt(std::move(other)));
  return std::pair(std::move(first), std::move(second));
}

Result<void> LocalConnection::send(ConstByteSpan message, std::span<const int> descriptors,
                                   std::int64_t timeout_ms) const {
  const std::string operation = "send " + std::to_string(message.size()) + " bytes to";
  BITSNAP_TRY(check_process(process_, operation, peer_name()));
  if (message.empty() || message.size() > kMaxMessageBytes || descriptors.size() > kMaxMessageDescriptors) {
    return fail(ErrorKind::invalid_argument, operation + " " + peer_name() + " with " +
                                                 std::to_string(descriptors.size()) + " descriptors: expected 1 to " +
                                                 std::to_string(kMaxMessageBytes) + " bytes and at most " +
                                                 std::to_string(kMaxMessageDescriptors) + " descriptors");
  }
  iovec part{const_cast<std::byte*>(message.data()), message.size()};
  ControlBuffer control;
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    header.msg_control = control.bytes.data();
    header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
  }
  const Deadline deadline(timeout_ms);
  for (;;) {
    if (::sendmsg(descriptor_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return {};
    if (errno == EINTR) continue;
    if (errno == EPIPE || errno == ECONNRESET) {
      return fail(ErrorKind::io, operation + " " + peer_name() + ": the other end is gone");
    }
    if (errno != EAGAIN) return fail_errno(errno, operation, peer_name());
    const int error = poll_one(descriptor_.get(), POLLOUT, deadline);
    if (error == ETIMEDOUT) return fail_timeout(operation, peer_name(), timeout_ms, "it made no room");
    if (error != 0) return fail_errno(error, operation, peer_name());
  }
}

void LocalConnection::end_sending() const noexcept {
  if (process_id() == process_) ::shutdown(descriptor_.get(), SHUT_WR);
}

Result<std::optional<LocalMessage>> LocalConnection::receive(std::size_t max_bytes, std::size_t max_descriptors,
                                                             std::int64_t timeout_ms) const {
  constexpr std::string_view kOperation = "receive from";
  BITSNAP_TRY(check_process(process_, kOperation, peer_name()));
  if (max_bytes == 0 || max_bytes > kMaxMessageBytes || max_descriptors > kMaxMessageDescriptors) {
    return fail(ErrorKind::invalid_argument, "receive from " + peer_name() + " at most " + std::to_string(max_bytes) +
                                                 " bytes and " + std::to_string(max_descriptors) +
                                                 " descriptors: expected 1 to " + std::to_string(kMaxMessageBytes) +
                                                 " bytes and at most " + std::to_string(kMaxMessageDescriptors) +
                                                 " descriptors");
  }
  LocalMessage message{std::vector<std::byte>(max_bytes), {}};
  message.descriptors.reserve(kMaxMessageDescriptors + 1);
  ControlBuffer control;
  const Deadline deadline(timeout_ms);
  for (;;) {
    iovec part{message.bytes.data(), message.bytes.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (max_descriptors > 0) {
      header.msg_control = control.bytes.data();
      header.msg_controllen = CMSG_LEN(max_descriptors * sizeof(int));  // without padding, which could hold one more
    }
    const ssize_t got = ::recvmsg(descriptor_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0) {
      // The other end was closed with unread data: reported once, before the data that it had sent.
      if (errno == EINTR || errno == ECONNRESET) continue;
      if (errno != EAGAIN) return fail_errno(errno, kOperation, peer_name());
      const int error = poll_one(descriptor_.get(), POLLIN, deadline);
      if (error == ETIMEDOUT) return fail_timeout(kOperation, peer_name(), timeout_ms, "nothing came");
      if (error != 0) return fail_errno(error, kOperation, peer_name());
      continue;
    }
    take_descriptors(header, message.descriptors);
    if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
      const bool too_long = (header.msg_flags & MSG_TRUNC) != 0;
      return fail(ErrorKind::resource_exhausted,
                  "receive from " + peer_name() + ": a message has more than the expected " +
                      (too_long ? std::to_string(max_bytes) + " bytes"
                                : std::to_string(max_descriptors) + " descriptors, or than this process can open"));
    }
    // send() sends no empty messages, which look like the end.
    if (got == 0) return std::nullopt;
    message.bytes.resize(static_cast<std::size_t>(got));
    return message;
  }
}

LocalListener::LocalListener(Descriptor descriptor, std::string_view name, std::unique_ptr<Name> file)
    : descriptor_(std::move(descriptor)), name_(name), process_(process_id()), file_(std::move(file)) {}
LocalListener::LocalListener(LocalListener&&) noexcept = default;
LocalListener::~LocalListener() = default;

Result<LocalListener> LocalListener::listen(std::string_view name) {
  BITSNAP_TRY(check_name(name, "listen as"));
  BITSNAP_ASSIGN(const std::string directory, directory_for_listener());
  const std::string object = join_path(directory, name);
  // Excludes other listeners between looking for one and having the name.
  BITSNAP_ASSIGN(const Descriptor lock, lock_directory(directory, kLockMs));
  const auto other = LocalConnection::connect(name, 0);
  if (other || other.error().kind() == ErrorKind::busy) {
    return fail(ErrorKind::busy, "listen as " + object + ": another process has the name");
  }
  Descriptor fd = open_socket(SOCK_NONBLOCK);
  if (!fd.is_open()) return fail_errno(errno, "listen as", object);
  // Left by a listener that was killed.
  if (::unlink(object.c_str()) != 0 && errno != ENOENT) return fail_errno(errno, "listen as", object);
  const Address address = address_of(object);
  if (::bind(fd.get(), address.get(), address.size_bytes) != 0) return fail_errno(errno, "listen as", object);
  const auto give_up = [&](const std::string& what) -> Result<LocalListener> {
    const int error = errno;
    ::unlink(object.c_str());
    return fail_errno(error, "listen as", object + what);
  };
  // Before anybody can connect and wait: EINVAL is the answer of a system that lets this process accept.
  if (const Descriptor none = accept_descriptor(fd.get()); !none.is_open() && is_refused_call(errno)) {
    return give_up(": the system calls accept4 and accept");
  }
  if (::listen(fd.get(), kBacklog) != 0) return give_up("");
  return LocalListener(std::move(fd), name, std::make_unique<Name>(object));
}

Result<LocalConnection> LocalListener::accept(std::int64_t timeout_ms) const {
  const std::string& object = name_;
  BITSNAP_TRY(check_process(process_, "accept a connection to", object));
  const Deadline deadline(timeout_ms);
  for (;;) {
    const int error = poll_one(descriptor_.get(), POLLIN, deadline);
    if (error == ETIMEDOUT) return fail_timeout("accept a connection to", object, timeout_ms, "nobody came");
    if (error != 0) return fail_errno(error, "accept a connection to", object);
    Descriptor fd = accept_descriptor(descriptor_.get());
    if (fd.is_open()) return LocalConnection::adopt(std::move(fd));
    // The connection may be gone again, or another thread may have accepted it.
    if (errno != EINTR && errno != ECONNABORTED && errno != EAGAIN) {
      return fail_errno(errno, "accept a connection to", object);
    }
  }
}

}  // namespace bitsnap::os
