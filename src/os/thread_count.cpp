// Uses affinity and quota: in a container or under a batch system the hardware's number is too large.
#include "os/thread_count.hpp"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <vector>

#include "os/cgroup.hpp"
#include "os/text_file.hpp"

namespace bitsnap::os {
namespace {

unsigned affinity_cpus() {
  // The system's mask may be longer than cpu_set_t: grow until it takes ours.
  for (std::size_t sets = 1; sets <= 64; sets *= 2) {
    std::vector<cpu_set_t> mask(sets);
    const std::size_t size_bytes = sets * sizeof(cpu_set_t);
    if (::sched_getaffinity(0, size_bytes, mask.data()) == 0) {
      const int cpus = CPU_COUNT_S(size_bytes, mask.data());
      return static_cast<unsigned>(std::max(cpus, 1));
    }
    if (errno != EINVAL) break;
  }
  return std::max(std::thread::hardware_concurrency(), 1u);
}

}  // namespace

unsigned usable_threads() {
  const unsigned affinity = affinity_cpus();
  // Once per process: the list of mounts takes longer to read than a small tensor.
  static const std::optional<unsigned> quota = cgroup_cpus(read_text_file);
  return std::max(1u, quota ? std::min(affinity, *quota) : affinity);
}

}  // namespace bitsnap::os
