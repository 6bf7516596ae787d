#include <bitsnap/version.hpp>

#ifndef BITSNAP_VERSION
#error "the build defines BITSNAP_VERSION"
#endif

namespace bitsnap {

std::string_view version() noexcept { return BITSNAP_VERSION; }

}  // namespace bitsnap
