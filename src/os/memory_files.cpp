// Files in memory.
#include "os/memory_files.hpp"

#include <algorithm>
#include <new>

#include "base/try.hpp"

namespace bitsnap::os {

Result<void> MemoryReader::read_at(std::uint64_t offset, ByteSpan out) const {
  if (offset > bytes_.size() || out.size() > bytes_.size() - offset) {
    return fail(ErrorKind::truncated, name_ + ": has " + std::to_string(bytes_.size()) + " bytes, expected at least " +
                                          std::to_string(offset + out.size()));
  }
  std::ranges::copy(bytes_.subspan(static_cast<std::size_t>(offset), out.size()), out.begin());
  return {};
}

Result<void> MemoryWriter::append(ConstByteSpan bytes) {
  try {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  } catch (const std::bad_alloc&) {
    return fail(ErrorKind::resource_exhausted, name_ + ": out of memory");
  }
  return {};
}

}  // namespace bitsnap::os
