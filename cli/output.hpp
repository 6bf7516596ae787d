// What the command says: results on standard output, all else on standard error. A failure to write a result is kept by
// the stream and reported at the end by main; a failure to write a note is nobody's business.
#pragma once

#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include <bitsnap/error.hpp>
#include <bitsnap/tensor.hpp>

namespace bitsnap::cli {

using Json = nlohmann::ordered_json;  // keys stand in the order in which they are set

void print_result(std::string_view text);
void print_note(std::string_view text);
// "bitsnap: error: <message> [<kind>]"
void print_error(std::string_view message, std::string_view kind);
// "bitsnap: warning: <message> [<kind>]"
void print_warning(std::string_view message, std::string_view kind);

// One document for each run. Two spaces of indentation and a line end; text that is not UTF-8 (paths may be anything)
// has U+FFFD in its place.
void print_json(const Json& document);

[[nodiscard]] Json to_json(const Error& error);

// raw / stored; null where nothing is stored.
[[nodiscard]] Json ratio_json(std::uint64_t raw_bytes, std::uint64_t stored_bytes);

// name, dtype, shape, role and bytes.
[[nodiscard]] Json to_json(const TensorInfo& tensor);

}  // namespace bitsnap::cli
