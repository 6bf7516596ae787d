// Compares what a parser found with the tensors that torch wrote: the files x.txt beside the fixtures.
#pragma once

#include <string>
#include <string_view>

#include "interop/container/contents.hpp"

namespace bitsnap::interop {

// The file interop/<path>; BITSNAP_TESTS_DIR is the folder of the tests.
[[nodiscard]] std::string read_interop_file(const std::string& tests_folder, const std::string& path);

// A difference between `listing` and the contents of the file; empty if every tensor of the listing was found, with its
// dtype, shape and bytes.
[[nodiscard]] std::string compare_with_listing(std::string_view file, const Contents& contents,
                                               const std::string& listing);

// "name F32 [2, 3] @ 64, ...": the tensors, then the views after "|".
[[nodiscard]] std::string describe_contents(const Contents& contents);

}  // namespace bitsnap::interop
