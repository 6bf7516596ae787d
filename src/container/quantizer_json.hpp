// The loss report of a tensor as JSON in the encoding section: docs/spec/snapshot.md, "Encoding".
#pragma once

#include <bitsnap/error.hpp>
#include <bitsnap/quantization.hpp>

#include "json/json_reader.hpp"
#include "json/json_writer.hpp"

namespace bitsnap::container {

void write_quantizer(json::JsonWriter& out, const LossReport& report);

// Fails with corrupt for values that no writer produces. Skips unknown keys and parts that are not objects.
[[nodiscard]] Result<void> read_quantizer(json::JsonReader& in, LossReport& report);

}  // namespace bitsnap::container
