// What codecs without parameters have in common.
#include <string>

#include "base/try.hpp"
#include "codec/decoder.hpp"

namespace bitsnap::codec {

Result<void> Decoder::check_parameters(ConstByteSpan parameters) const {
  if (parameters.empty()) return {};
  return fail(ErrorKind::corrupt, "parameters of codec " + std::string(name()) + ": expected none, found " +
                                      std::to_string(parameters.size()) + " bytes");
}

}  // namespace bitsnap::codec
