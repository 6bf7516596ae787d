#include "engine/shared_text.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "os/shared_memory.hpp"

namespace bitsnap::engine {

Result<os::Descriptor> share_text(std::string_view text) {
  BITSNAP_ASSIGN(os::SharedMemory memory, os::SharedMemory::create_for_writing_once("bitsnap-text", text.size()));
  {
    BITSNAP_ASSIGN(const os::MappedMemory mapping, memory.map(os::MemoryAccess::read_write));
    std::ranges::copy(as_byte_span(text), mapping.writable_bytes().begin());
  }
  BITSNAP_TRY(memory.freeze());
  return memory.duplicate();
}

Result<std::string> read_shared_text(std::vector<os::Descriptor> descriptors, std::uint64_t bytes) {
  if (descriptors.size() != 1) return fail(ErrorKind::corrupt, "the answer of the agent has no shared memory");
  BITSNAP_ASSIGN(const os::SharedMemory memory,
                 os::SharedMemory::adopt(std::move(descriptors.front()), kMaxSharedText));
  if (!memory.is_frozen())
    return fail(ErrorKind::corrupt, "the shared memory from the agent is not sealed against writes");
  BITSNAP_ASSIGN(const os::MappedMemory mapping, memory.map(os::MemoryAccess::read));
  if (bytes > mapping.bytes().size()) {
    return fail(ErrorKind::corrupt, fmt::format("the shared memory from the agent has {} bytes, expected {}",
                                                mapping.bytes().size(), bytes));
  }
  return std::string(as_text(mapping.bytes().first(static_cast<std::size_t>(bytes))));
}

}  // namespace bitsnap::engine
