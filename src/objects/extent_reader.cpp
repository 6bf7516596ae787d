#include "objects/extent_reader.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <system_error>
#include <utility>

namespace bitsnap::objects {
namespace {

constexpr std::uint64_t kMostExtentBytes = std::uint64_t{8} << 20;
// A gap is read if it has at most this part of the ranges on both sides, so that all gaps together are an eighth.
constexpr std::uint64_t kGapShare = 16;
constexpr std::size_t kMostThreads = 8;
// Twice the chunks of a batch (chunk_groups.cpp), which are read in another order than they lie in.
constexpr std::size_t kMostJump = 32;

}  // namespace

std::vector<Extent> extents_of(std::span<const os::FileRange> ranges, std::uint64_t most_bytes) {
  std::vector<std::size_t> by_offset(ranges.size());
  std::iota(by_offset.begin(), by_offset.end(), std::size_t{0});
  std::ranges::sort(by_offset, {}, [&](std::size_t i) { return ranges[i].offset; });
  struct Ordered {
    std::size_t first_use;
    Extent extent;
  };
  std::vector<Ordered> found;
  std::uint64_t last_size = 0;  // of the range before
  std::size_t last_use = 0;
  for (const std::size_t i : by_offset) {
    const os::FileRange& range = ranges[i];
    if (range.size == 0) continue;
    if (!found.empty()) {
      auto& [first_use, extent] = found.back();
      const std::uint64_t end = extent.offset + extent.size;
      const std::uint64_t gap = range.offset - std::min(end, range.offset);
      const std::uint64_t joined = std::max(end, range.offset + range.size) - extent.offset;
      const std::size_t jump = std::max(i, last_use) - std::min(i, last_use);
      last_use = i;
      if (range.offset < end ||
          (gap <= (last_size + range.size) / kGapShare && joined <= most_bytes && jump <= kMostJump)) {
        extent.size = joined;
        ++extent.ranges;
        first_use = std::min(first_use, i);
        last_size = range.size;
        continue;
      }
    }
    found.push_back({i, {range.offset, range.size, 1}});
    last_use = i;
    last_size = range.size;
  }
  std::ranges::sort(found, {}, &Ordered::first_use);
  std::vector<Extent> extents;
  extents.reserve(found.size());
  for (const Ordered& one : found) extents.push_back(one.extent);
  return extents;
}

ExtentReader::ExtentReader(ReadObject read, std::span<const os::FileRange> ranges, std::uint64_t most_bytes)
    : read_(std::move(read)), most_bytes_(most_bytes) {
  for (const Extent& extent : extents_of(ranges, std::min(kMostExtentBytes, most_bytes))) {
    extents_.push_back({extent, State::waiting, nullptr});
  }
  by_offset_.resize(extents_.size());
  std::iota(by_offset_.begin(), by_offset_.end(), std::size_t{0});
  std::ranges::sort(by_offset_, {}, [this](std::size_t i) { return extents_[i].extent.offset; });
  if (extents_.size() < 2) return;
  const auto in_memory = static_cast<std::size_t>(most_bytes / kMostExtentBytes);
  const std::size_t threads = std::min(std::clamp<std::size_t>(in_memory, 1, kMostThreads), extents_.size());
  threads_.reserve(threads);
  try {
    for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
  } catch (const std::system_error&) {  // no more threads: those that there are, or the readers alone
    return;
  }
}

ExtentReader::~ExtentReader() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool ExtentReader::take(std::uint64_t offset, ByteSpan out) {
  std::unique_lock lock(mutex_);
  const auto after =
      std::ranges::upper_bound(by_offset_, offset, {}, [this](std::size_t i) { return extents_[i].extent.offset; });
  if (after == by_offset_.begin()) return false;
  Fetched& one = extents_[*std::prev(after)];
  if (offset + out.size() > one.extent.offset + one.extent.size) return false;
  if (one.state == State::waiting && (one.extent.ranges == 1 || is_stopping_)) {
    one.state = State::done;  // the caller reads it straight to where it belongs
    return false;
  }
  if (one.state == State::waiting && !has_room_for(one)) {
    --one.extent.ranges;  // the caller reads this one alone
    return false;
  }
  if (one.state == State::waiting) fetch(one, lock);
  changed_.wait(lock, [&] { return one.state != State::fetching; });
  if (one.state == State::done) return false;
  const std::shared_ptr<Buffer> bytes = one.bytes;
  if (--one.extent.ranges == 0) finish(one);
  lock.unlock();
  std::memcpy(out.data(), bytes->get() + (offset - one.extent.offset), out.size());
  return true;
}

bool ExtentReader::has_room_for(const Fetched& one) const {
  return held_bytes_ == 0 || held_bytes_ + one.extent.size <= most_bytes_;
}

void ExtentReader::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    while (next_ < extents_.size() && extents_[next_].state != State::waiting) ++next_;
    if (is_stopping_ || next_ == extents_.size()) return;
    Fetched& one = extents_[next_];
    if (!has_room_for(one)) {
      changed_.wait(lock);
      continue;
    }
    fetch(one, lock);
  }
}

void ExtentReader::fetch(Fetched& one, std::unique_lock<std::mutex>& lock) {
  one.state = State::fetching;
  held_bytes_ += one.extent.size;
  lock.unlock();
  std::shared_ptr<Buffer> bytes;
  bool is_read = false;
  try {
    const auto size = static_cast<std::size_t>(one.extent.size);
    bytes = std::make_shared<Buffer>(std::make_unique_for_overwrite<std::byte[]>(size));
    is_read = read_(one.extent.offset, ByteSpan(bytes->get(), size)).has_value();
  } catch (...) {
    is_read = false;
  }
  lock.lock();
  if (is_read) {
    one.bytes = std::move(bytes);
    one.state = State::ready;
  } else {
    is_stopping_ = true;
    finish(one);  // those who need it read it alone, and get the error
  }
  changed_.notify_all();
}

void ExtentReader::finish(Fetched& one) {
  one.state = State::done;
  one.bytes.reset();
  held_bytes_ -= one.extent.size;
  changed_.notify_all();
}

}  // namespace bitsnap::objects
