// Quotes names for messages. Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

namespace bitsnap {

// Quotes a name from a file for messages: printable, in single quotes, cut after about 120 bytes.
[[nodiscard]] std::string quote_name(std::string_view name);

// "tensor 'x'", for messages.
[[nodiscard]] std::string quote_tensor(std::string_view name);

}  // namespace bitsnap
