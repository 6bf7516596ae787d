// The list of all coders.
#include "bench/native/native_coders.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <bitsnap/codec.hpp>

#include "cli/analysis/baseline_coders.hpp"

namespace bitsnap::bench {
namespace {

// Codecs that do not compress; and zstd, which is a baseline at three levels.
constexpr std::array<std::string_view, 4> kLeftOut{"raw", "constant", "same", "zstd"};

void add_codecs(std::vector<CoderPointer>& coders) {
  for (const CodecInfo& codec : list_codecs()) {
    if (std::ranges::find(kLeftOut, codec.name) != kLeftOut.end()) continue;
    for (const bool with_base : {false, true}) {
      const CoderPointer coder = make_codec_coder(codec.name, with_base).value();
      if (coder->accepts(DType::bf16) || coder->accepts(DType::f32)) coders.push_back(make_hashed_coder(coder));
    }
  }
}

void add_baselines(std::vector<CoderPointer>& coders) {
  for (const CoderPointer& coder : {cli::make_zstd_coder(1), cli::make_zstd_coder(3), cli::make_zstd_coder(19),
                                    cli::make_lz4_coder(), make_bzip2_coder()}) {
    coders.push_back(coder);
    coders.push_back(make_plane_coder(coder, BytePlanes::rotated));
    coders.push_back(make_plane_coder(coder, BytePlanes::of_xor));
  }
  for (const bool with_base : {false, true}) {
    if (CoderPointer coder = make_huff0_coder(with_base)) coders.push_back(std::move(coder));
  }
  coders.push_back(make_bitx_coder());
}

}  // namespace

std::span<const CoderPointer> all_coders() {
  static const std::vector<CoderPointer> coders = [] {
    std::vector<CoderPointer> made{cli::make_memcpy_coder(), make_streaming_copy_coder(),
                                   make_hashed_coder(make_policy_coder(false)),
                                   make_hashed_coder(make_policy_coder(true))};
    add_codecs(made);
    add_baselines(made);
    return made;
  }();
  return coders;
}

}  // namespace bitsnap::bench
