// poll() and eventfd. There are few descriptors, and poll() has no kernel state that a fork would share.
#include "os/poll_set.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/try.hpp"
#include "os/descriptor_posix.hpp"
#include "os/errno_error.hpp"
#include "os/poll_posix.hpp"
#include "os/process.hpp"

namespace bitsnap::os {
namespace {

// Returns the number of descriptors with events, or minus an errno.
int poll_until(pollfd* descriptors, std::size_t count, const Deadline& deadline) noexcept {
  for (;;) {
    const int left_ms = deadline.left_ms();
    const int ready = ::poll(descriptors, static_cast<nfds_t>(count), left_ms);
    if (ready > 0) return ready;
    if (ready < 0 && errno != EINTR) return -errno;
    if (left_ms == 0 && ready == 0) return 0;
  }
}

}  // namespace

int poll_one(int fd, short events, const Deadline& deadline) noexcept {
  pollfd entry{fd, events, 0};
  const int ready = poll_until(&entry, 1, deadline);
  if (ready < 0) return -ready;
  if (ready == 0) return ETIMEDOUT;
  return (entry.revents & POLLNVAL) != 0 ? EBADF : 0;
}

void PollSet::watch(int descriptor, std::uint64_t token, bool for_writing) {
  for (Watched& known : watched_) {
    if (known.descriptor == descriptor) {
      known = {descriptor, token, for_writing};
      return;
    }
  }
  watched_.push_back({descriptor, token, for_writing});
}

void PollSet::forget(int descriptor) noexcept {
  std::erase_if(watched_, [&](const Watched& known) { return known.descriptor == descriptor; });
}

Result<std::vector<PollEvent>> PollSet::wait(std::int64_t timeout_ms) const {
  std::vector<pollfd> entries;
  entries.reserve(watched_.size());
  for (const Watched& known : watched_) {
    const int events = POLLIN | POLLRDHUP | (known.for_writing ? POLLOUT : 0);
    entries.push_back({known.descriptor, static_cast<short>(events), 0});
  }
  const int ready = poll_until(entries.data(), entries.size(), Deadline(timeout_ms));
  if (ready < 0) return fail_errno(-ready, "wait for", std::to_string(entries.size()) + " descriptors");
  std::vector<PollEvent> events;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const int found = entries[i].revents;
    if (found == 0) continue;
    if ((found & POLLNVAL) != 0) {
      return fail(ErrorKind::invalid_argument, "wait for " + std::to_string(entries.size()) +
                                                   " descriptors: " + std::to_string(entries[i].fd) + " is not open");
    }
    events.push_back({.token = watched_[i].token,
                      .readable = (found & POLLIN) != 0,
                      .writable = (found & POLLOUT) != 0,
                      .closed = (found & (POLLHUP | POLLRDHUP | POLLERR)) != 0});
  }
  return events;
}

EventSignal::EventSignal(Descriptor descriptor, Descriptor writer) noexcept
    : descriptor_(std::move(descriptor)), writer_(std::move(writer)), process_(process_id()) {}

Result<EventSignal> EventSignal::create() {
  Descriptor fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (fd.is_open()) return EventSignal(std::move(fd), Descriptor());
  if (!is_refused_call(errno)) return fail_errno(errno, "create", "an event signal");
  Pipe pipe = open_pipe(O_CLOEXEC | O_NONBLOCK);
  if (!pipe.reader.is_open()) return fail_errno(errno, "create", "an event signal: the system calls eventfd2 and pipe");
  return EventSignal(std::move(pipe.reader), std::move(pipe.writer));
}

void EventSignal::raise() const noexcept {
  if (process_ != process_id()) return;
  const int error = errno;
  const std::uint64_t one = 1;
  const int fd = writer_.is_open() ? writer_.get() : descriptor_.get();
  // Retried after an interruption. EAGAIN: it was raised 2^64 - 1 times, or the pipe is full, so it is raised.
  while (::write(fd, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
  errno = error;
}

void EventSignal::clear() const noexcept {
  if (process_ != process_id()) return;
  std::uint64_t counts[64];
  ssize_t got;
  do {
    got = ::read(descriptor_.get(), counts, sizeof(counts));
  } while (got == sizeof(counts) || (got < 0 && errno == EINTR));
}

}  // namespace bitsnap::os
