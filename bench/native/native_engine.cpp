// The list of all engines.
#include "bench/native/native_engine.hpp"

namespace bitsnap::bench {

const Engines& all_engines() {
  static const Engines engines = [] {
    Engines made;
    add_copy_engines(made);
    add_policy_engines(made);
    add_codec_engines(made);
    add_general_engines(made);
    add_huff0_engines(made);
    add_bitx_engines(made);
    return made;
  }();
  return engines;
}

}  // namespace bitsnap::bench
