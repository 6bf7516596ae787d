// Memory accounting from /proc/self/status, and pages by mmap() and madvise().
#include "os/memory.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <optional>
#include <string>

#include "base/try.hpp"
#include "os/text_file.hpp"

namespace bitsnap::os {

Result<ProcessMemory> process_memory() {
  const std::optional<std::string> status = read_text_file("/proc/self/status");
  if (!status) return fail(ErrorKind::unsupported, "memory of this process: /proc/self/status cannot be read");
  const std::optional<std::uint64_t> resident = field_bytes(*status, "VmRSS");
  const std::optional<std::uint64_t> peak = field_bytes(*status, "VmHWM");
  const std::optional<std::uint64_t> anonymous = field_bytes(*status, "RssAnon");
  if (!resident || !peak || !anonymous) {
    return fail(ErrorKind::unsupported, "memory of this process: /proc/self/status lacks VmRSS, VmHWM or RssAnon");
  }
  return ProcessMemory{*resident, *peak, *anonymous};
}

void PageDeleter::operator()(std::byte* pages) const noexcept { ::munmap(pages, size_bytes); }

Pages allocate_pages(std::size_t size_bytes) noexcept {
  void* const pages = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return nullptr;
  return Pages(static_cast<std::byte*>(pages), PageDeleter{size_bytes});
}

void shrink_pages(Pages& pages, std::size_t size_bytes) noexcept {
  const std::size_t page = page_size_bytes();
  const std::size_t kept = (size_bytes + page - 1) / page * page;
  std::size_t& whole = pages.get_deleter().size_bytes;
  if (kept >= whole || ::munmap(pages.get() + kept, whole - kept) != 0) return;
  whole = kept;
}

#if defined(MADV_FREE) && defined(MADV_WIPEONFORK) && defined(MADV_HUGEPAGE)
namespace {

bool limits_addresses() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY) return true;
  static const bool is_strict = [] {
    const std::optional<std::string> overcommit = read_text_file("/proc/sys/vm/overcommit_memory");
    return overcommit && overcommit->starts_with('2');
  }();
  return is_strict;
}

}  // namespace

Pages allocate_spare_pages(std::size_t size_bytes) noexcept {
  if (limits_addresses()) return nullptr;
  Pages pages = allocate_pages(size_bytes);
  if (pages == nullptr || ::madvise(pages.get(), size_bytes, MADV_FREE) != 0) return nullptr;
  // A child that had the pages, too, would keep the system from taking them.
  ::madvise(pages.get(), size_bytes, MADV_WIPEONFORK);
  ::madvise(pages.get(), size_bytes, MADV_HUGEPAGE);  // few pages are offered faster than many
  return pages;
}

void offer_pages(std::byte* first, std::size_t size_bytes) noexcept {
  const std::size_t page = page_size_bytes();
  const auto address = reinterpret_cast<std::uintptr_t>(first);
  const std::size_t before = (page - address % page) % page;
  if (before >= size_bytes) return;
  const std::size_t whole = (size_bytes - before) / page * page;
  if (whole > 0) ::madvise(first + before, whole, MADV_FREE);
}
#else
Pages allocate_spare_pages(std::size_t) noexcept { return nullptr; }
void offer_pages(std::byte*, std::size_t) noexcept {}
#endif

void share_one_heap() noexcept {
#ifdef __GLIBC__
  ::mallopt(M_ARENA_MAX, 1);
#endif
}

void return_free_memory() noexcept {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

std::size_t page_size_bytes() noexcept {
  const long size = ::sysconf(_SC_PAGESIZE);
  return size > 0 ? static_cast<std::size_t>(size) : 4096;
}

}  // namespace bitsnap::os
