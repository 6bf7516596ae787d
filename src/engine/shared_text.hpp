// What one process hands another beside a packet, in frozen shared memory: texts of any length, and fetched files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/error.hpp>

#include "os/descriptor.hpp"
#include "os/shared_memory.hpp"

namespace bitsnap::engine {

[[nodiscard]] Result<os::Descriptor> share_text(std::string_view text);

// The memory that came with a packet; corrupt unless that is one descriptor of frozen memory.
[[nodiscard]] Result<os::MappedMemory> map_frozen(std::vector<os::Descriptor> descriptors, std::uint64_t max_bytes);

// The text that came with a packet whose body is a TextSize; corrupt if the memory is smaller.
[[nodiscard]] Result<std::string> read_shared_text(std::string_view body, std::vector<os::Descriptor> descriptors);

}  // namespace bitsnap::engine
