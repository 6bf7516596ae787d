// Verifies one chunk.
#pragma once

#include <cstdint>

#include <bitsnap/error.hpp>

#include "restore/snapshot_impl.hpp"

namespace bitsnap::restore {

// Whether an error is the fault of the machine, the caller or bitsnap, not of the file: verification cannot continue.
[[nodiscard]] inline bool ends_verification(const Error& error) noexcept {
  return error.kind() == ErrorKind::resource_exhausted || error.kind() == ErrorKind::internal ||
         error.kind() == ErrorKind::cancelled;
}

// Checks the payload's hash and, with `decode`, the hash of the decoded chunk.
[[nodiscard]] Result<void> verify_chunk(const Snapshot::Impl& impl, std::size_t stream, std::uint64_t chunk,
                                        bool decode, ReadContext& context);

}  // namespace bitsnap::restore
