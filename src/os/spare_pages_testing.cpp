#include "os/spare_pages_testing.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

namespace bitsnap::os {

void take_offered_pages() {
  std::ifstream smaps("/proc/self/smaps");
  std::uintptr_t first = 0;
  std::uintptr_t end = 0;
  for (std::string line; std::getline(smaps, line);) {
    unsigned long long from = 0;
    unsigned long long to = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &from, &to) == 2) {
      first = from;
      end = to;
    }
    unsigned long long offered = 0;
    if (std::sscanf(line.c_str(), "LazyFree: %llu", &offered) != 1 || offered == 0) continue;
    ::madvise(reinterpret_cast<void*>(first), end - first, MADV_PAGEOUT);
  }
}

}  // namespace bitsnap::os
