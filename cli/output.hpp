// Output of the command: results on standard output, everything else on standard error. A failure to write a result
// stays in the stream until main() reports it; a failure to write a note is ignored.
#pragma once

#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include <bitsnap/error.hpp>
#include <bitsnap/tensor.hpp>

namespace bitsnap::cli {

using Json = nlohmann::ordered_json;  // keeps the order in which keys are set

void print_result(std::string_view text);
void print_note(std::string_view text);
// "bitsnap: error: <message> [<kind>]"
void print_error(std::string_view message, std::string_view kind);
// "bitsnap: warning: <message> [<kind>]"
void print_warning(std::string_view message, std::string_view kind);

// A command prints one document. Indented by two spaces, with a line end; bytes that are not UTF-8, which paths may
// contain, become U+FFFD.
void print_json(const Json& document);

[[nodiscard]] Json to_json(const Error& error);

// raw / stored; null if nothing is stored.
[[nodiscard]] Json ratio_json(std::uint64_t raw_bytes, std::uint64_t stored_bytes);

// name, dtype, shape, role and bytes.
[[nodiscard]] Json to_json(const TensorInfo& tensor);

}  // namespace bitsnap::cli
