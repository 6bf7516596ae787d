// The coders that the benchmark measures in C++: bitsnap's codecs and policy, copying, and baselines that are C
// libraries. Never part of the library.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <bitsnap/coder.hpp>

namespace bitsnap::bench {

using CoderPointer = std::shared_ptr<const Coder>;

// All coders, made at the first call.
[[nodiscard]] std::span<const CoderPointer> all_coders();

// Each is defined in the file of its name.
[[nodiscard]] CoderPointer make_streaming_copy_coder();        // "memcpy-nt": copies with non-temporal stores
[[nodiscard]] CoderPointer make_policy_coder(bool with_base);  // the policy lossless: one codec per chunk
[[nodiscard]] CoderPointer make_bzip2_coder();                 // "bzip2-9"
[[nodiscard]] CoderPointer make_bitx_coder();                  // BitX's method
[[nodiscard]] CoderPointer make_huff0_coder(bool with_base);   // ZipNN's method; nullptr without a fitting libzstd.a
[[nodiscard]] CoderPointer make_hashed_coder(CoderPointer coder);  // adds the two hashes of each chunk to a coder

}  // namespace bitsnap::bench
