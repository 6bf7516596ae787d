#include "engine/shared_text.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "engine/messages.hpp"

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

Result<os::MappedMemory> map_frozen(std::vector<os::Descriptor> descriptors, std::uint64_t max_bytes) {
  if (descriptors.size() != 1) return fail(ErrorKind::corrupt, "the answer of the agent has no shared memory");
  BITSNAP_ASSIGN(const os::SharedMemory memory, os::SharedMemory::adopt(std::move(descriptors.front()), max_bytes));
  if (!memory.is_frozen())
    return fail(ErrorKind::corrupt, "the shared memory from the agent is not sealed against writes");
  return memory.map(os::MemoryAccess::read);
}

Result<std::string> read_shared_text(std::string_view body, std::vector<os::Descriptor> descriptors) {
  constexpr std::uint64_t kMaxSharedText = std::uint64_t{1} << 30;
  BITSNAP_ASSIGN(const auto [bytes], parse_body<TextSize>(body));
  BITSNAP_ASSIGN(const os::MappedMemory mapping, map_frozen(std::move(descriptors), kMaxSharedText));
  if (bytes > mapping.bytes().size()) {
    return fail(ErrorKind::corrupt, fmt::format("the shared memory from the agent has {} bytes, expected {}",
                                                mapping.bytes().size(), bytes));
  }
  return std::string(as_text(mapping.bytes().first(static_cast<std::size_t>(bytes))));
}

}  // namespace bitsnap::engine
