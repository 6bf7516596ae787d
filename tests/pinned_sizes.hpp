// What every codec makes of the real samples in tests/pinned, as the lines of sizes.csv: shared by the test that holds
// them and the program that writes them. pinned/README.md.
#pragma once

#include <string>
#include <vector>

#include <bitsnap/error.hpp>

namespace bitsnap {

// Header first: "sample,base,codec,raw_bytes,payload_bytes". The codec "lossless" stands for the policy's choice.
// Codecs that code nothing are left out, and zstd, whose sizes depend on the version of the library; a payload of the
// raw size is of a codec that cannot shrink the sample. Fails for a sample that cannot be read or a codec that fails.
[[nodiscard]] Result<std::vector<std::string>> pinned_size_lines(const std::string& folder);

}  // namespace bitsnap
