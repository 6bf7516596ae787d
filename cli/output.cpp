// Output of the command.
#include "cli/output.hpp"

#include <cstdio>

#include <fmt/format.h>

#include "cli/exit_code.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

void print_result(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void print_note(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void print_error(std::string_view message, std::string_view kind) {
  print_note(fmt::format("bitsnap: error: {} [{}]\n", printable(message), kind));
}

void print_warning(std::string_view message, std::string_view kind) {
  print_note(fmt::format("bitsnap: warning: {} [{}]\n", printable(message), kind));
}

void print_json(const Json& document) {
  print_result(document.dump(2, ' ', false, Json::error_handler_t::replace) + '\n');
}

Json to_json(const Error& error) {
  return {
      {"kind", error_kind_name(error.kind())}, {"message", error.message()}, {"exit_code", exit_code(error.kind())}};
}

Json ratio_json(std::uint64_t raw_bytes, std::uint64_t stored_bytes) {
  return stored_bytes == 0 ? Json() : Json(static_cast<double>(raw_bytes) / static_cast<double>(stored_bytes));
}

Json to_json(const TensorInfo& tensor) {
  return {{"name", tensor.name},
          {"dtype", tensor.dtype_name},
          {"shape", tensor.shape},
          {"role", role_name(tensor.role)},
          {"raw_bytes", tensor.size_bytes}};
}

}  // namespace bitsnap::cli
