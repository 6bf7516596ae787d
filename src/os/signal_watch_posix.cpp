// Uses signal handlers. signalfd would need the signals blocked in every thread, and in every program that is started.
#include "os/signal_watch.hpp"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <optional>
#include <utility>

#include "base/try.hpp"

namespace bitsnap::os {
namespace {

constexpr int kSignals[] = {SIGTERM, SIGINT};

// What a handler may use. Never destroyed, because a handler may run while a watch ends.
struct Watching {
  std::optional<EventSignal> came;
  pid_t process = 0;
  struct ::sigaction before[std::size(kSignals)] = {};
};

std::atomic<bool> is_watching{false};
std::atomic<const Watching*> handled{nullptr};
std::atomic<unsigned> count_come{0};
static_assert(std::atomic<const Watching*>::is_always_lock_free && std::atomic<unsigned>::is_always_lock_free);

Watching& watching() noexcept {
  static Watching* const the_one = new Watching;
  return *the_one;
}

extern "C" void bitsnap_signal_came(int signal) {
  const int error = errno;
  const Watching* const target = handled.load();
  if (target != nullptr && target->process == ::getpid()) {
    count_come.fetch_add(1);
    target->came->raise();
  } else if (target != nullptr) {
    // A forked child: nothing reads the descriptor.
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
  errno = error;
}

}  // namespace

Result<SignalWatch> SignalWatch::start() {
  if (is_watching.exchange(true)) {
    return fail(ErrorKind::busy, "watch the signals of this process: it has a SignalWatch already");
  }
  Watching& target = watching();
  auto signal = EventSignal::create();
  if (!signal) {
    is_watching = false;
    return tl::unexpected(std::move(signal).error());
  }
  target.came.emplace(std::move(signal).value());
  target.process = ::getpid();
  count_come = 0;
  handled = &target;
  struct ::sigaction action{};
  action.sa_handler = bitsnap_signal_came;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &action, &target.before[i]);
  return SignalWatch();
}

SignalWatch::SignalWatch(SignalWatch&& other) noexcept : is_active_(std::exchange(other.is_active_, false)) {}

SignalWatch::~SignalWatch() {
  if (!is_active_) return;
  Watching& target = watching();
  for (std::size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &target.before[i], nullptr);
  handled = nullptr;
  is_watching = false;
}

int SignalWatch::descriptor() const noexcept { return watching().came->descriptor(); }

unsigned SignalWatch::count() const noexcept { return count_come.load(); }

}  // namespace bitsnap::os
