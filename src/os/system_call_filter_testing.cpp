// One filter for each call: loads the number and the argument of a call, and compares them.
#include "os/system_call_filter_testing.hpp"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <bit>
#include <cstddef>

// Sanitizers need pipe2 and madvise themselves.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BITSNAP_IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(undefined_behavior_sanitizer)
#define BITSNAP_IS_SANITIZED 1
#endif
#endif
#ifndef BITSNAP_IS_SANITIZED
#define BITSNAP_IS_SANITIZED 0
#endif

namespace bitsnap::os {

std::vector<RefusedCall> refusable_calls() {
  constexpr long kCloseRange = 436;
  constexpr long kPidfdSendSignal = 424;
  constexpr long kPidfdOpen = 434;
  return {{"eventfd2", SYS_eventfd2},
          {"accept4", SYS_accept4},
#if defined(SYS_pipe) && !BITSNAP_IS_SANITIZED
          {"pipe2", SYS_pipe2},
#endif
#if !BITSNAP_IS_SANITIZED
          {"madvise", SYS_madvise},
#endif
          {"madvise(MADV_DONTFORK)", SYS_madvise, 2, MADV_DONTFORK},
          {"memfd_create", SYS_memfd_create},
          {"fcntl(F_ADD_SEALS)", SYS_fcntl, 1, F_ADD_SEALS},
          {"pidfd_open", kPidfdOpen},
          {"pidfd_send_signal", kPidfdSendSignal},
          {"close_range", kCloseRange},
          {"renameat2", SYS_renameat2},
          {"getrandom", SYS_getrandom}};
}

bool refuse_call(const RefusedCall& call, int error) {
  static_assert(std::endian::native == std::endian::little);
  constexpr auto kCompare = static_cast<std::uint16_t>(BPF_JMP | BPF_JEQ | BPF_K);
  constexpr auto kLoad = static_cast<std::uint16_t>(BPF_LD | BPF_W | BPF_ABS);
  constexpr auto kReturn = static_cast<std::uint16_t>(BPF_RET | BPF_K);
  std::vector<sock_filter> filter;
  filter.push_back({kLoad, 0, 0, offsetof(seccomp_data, nr)});
  if (call.argument) {
    filter.push_back({kCompare, 0, 3, static_cast<std::uint32_t>(call.number)});
    const auto offset =
        static_cast<std::uint32_t>(offsetof(seccomp_data, args) + *call.argument * sizeof(std::uint64_t));
    filter.push_back({kLoad, 0, 0, offset});
    filter.push_back({kCompare, 0, 1, call.value});
  } else {
    filter.push_back({kCompare, 0, 1, static_cast<std::uint32_t>(call.number)});
  }
  filter.push_back({kReturn, 0, 0, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error)});
  filter.push_back({kReturn, 0, 0, SECCOMP_RET_ALLOW});
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace bitsnap::os
