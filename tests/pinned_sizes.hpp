// The sizes of the real samples in tests/pinned with every codec, as the lines of sizes.csv, for the test that compares
// them and the program that writes them. See pinned/README.md.
#pragma once

#include <string>
#include <vector>

#include <bitsnap/error.hpp>

namespace bitsnap {

// The first line is the header: "sample,base,codec,raw_bytes,payload_bytes". The codec "lossless" means the choice of
// this policy. The lines omit codecs that code nothing, and zstd, whose sizes depend on the version of the library. A
// payload of the raw size means that the codec cannot shrink the sample. Fails if a sample cannot be read or a codec
// fails.
[[nodiscard]] Result<std::vector<std::string>> pinned_size_lines(const std::string& folder);

}  // namespace bitsnap
