// Baselines: general-purpose compressors that bitsnap is compared with, each as a Coder of bytes. `bench`, `analyze`
// and the benchmark in bench/ share them; the library does not depend on them.
#pragma once

#include <memory>
#include <vector>

#include <bitsnap/coder.hpp>

namespace bitsnap::cli {

using Coders = std::vector<std::shared_ptr<const Coder>>;

[[nodiscard]] std::shared_ptr<const Coder> make_memcpy_coder();  // the ceiling: no coder is faster
[[nodiscard]] std::shared_ptr<const Coder> make_zstd_coder(int level);
[[nodiscard]] std::shared_ptr<const Coder> make_lz4_coder();    // at its default speed
[[nodiscard]] std::shared_ptr<const Coder> make_bzip2_coder();  // level 9: slow, with a good ratio on weights

// The baselines of `bench` and `analyze`: zstd at levels 1 and 3, lz4, bzip2.
[[nodiscard]] Coders baseline_coders();

}  // namespace bitsnap::cli
