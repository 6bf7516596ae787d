// The default for codecs without parameters.

#include "base/try.hpp"
#include "codec/decoder.hpp"
#include "codec/payload_checks.hpp"

namespace bitsnap::codec {

Result<void> Decoder::check_parameters(ConstByteSpan parameters) const {
  if (parameters.empty()) return {};
  return corrupt("parameters of codec {}: expected none, found {} bytes", name(), parameters.size());
}

}  // namespace bitsnap::codec
