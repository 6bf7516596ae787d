// Texts of any length that one process hands another beside a packet, in frozen shared memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/error.hpp>

#include "os/descriptor.hpp"

namespace bitsnap::engine {

inline constexpr std::uint64_t kMaxSharedText = std::uint64_t{1} << 30;

[[nodiscard]] Result<os::Descriptor> share_text(std::string_view text);

// The first `bytes` bytes of what came with a packet; corrupt where that is no one descriptor of frozen memory, or
// less.
[[nodiscard]] Result<std::string> read_shared_text(std::vector<os::Descriptor> descriptors, std::uint64_t bytes);

}  // namespace bitsnap::engine
