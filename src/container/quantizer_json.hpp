// The record of a quantizer as JSON in the encoding section: docs/spec/snapshot.md, "Encoding".
#pragma once

#include <bitsnap/error.hpp>
#include <bitsnap/quantization.hpp>

#include "container/json_reader.hpp"
#include "container/json_writer.hpp"

namespace bitsnap::container {

void write_quantizer(JsonWriter& out, const QuantizerRecord& record);

// corrupt for values that no writer can have meant. Unknown keys are skipped, and so are parts that are no objects.
[[nodiscard]] Result<void> read_quantizer(JsonReader& in, QuantizerRecord& record);

}  // namespace bitsnap::container
