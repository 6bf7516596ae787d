// One chunk of a verification.
#pragma once

#include <cstdint>

#include <bitsnap/error.hpp>

#include "restore/snapshot_impl.hpp"

namespace bitsnap::restore {

// Of the machine, the caller or bitsnap, not of the file: verification cannot go on.
[[nodiscard]] inline bool ends_verification(const Error& error) noexcept {
  return error.kind() == ErrorKind::resource_exhausted || error.kind() == ErrorKind::internal ||
         error.kind() == ErrorKind::cancelled;
}

// The payload against its stored hash and, where `decode`, what it decodes to against the other.
[[nodiscard]] Result<void> verify_chunk(const Snapshot::Impl& impl, std::size_t stream, std::uint64_t chunk,
                                        bool decode, ReadContext& context);

}  // namespace bitsnap::restore
