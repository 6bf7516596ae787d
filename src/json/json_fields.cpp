// The parts of reading by field tables that depend on no type.
#include "json/json_fields.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/quote_name.hpp"

namespace bitsnap::json {

Result<void> skip_unknown_key(JsonReader& in, std::string_view) { return in.skip_value(); }

Result<void> reject_as_corrupt(JsonReader&, std::string_view key) {
  return fail(ErrorKind::corrupt, fmt::format("unknown key {}", quote_name(key)));
}

Result<void> reject_as_unsupported(JsonReader&, std::string_view key) {
  return fail(ErrorKind::unsupported, fmt::format("unknown key {}", quote_name(key)));
}

Error missing_json_key(std::string_view key) {
  return Error(ErrorKind::corrupt, fmt::format("key '{}' is missing", key));
}

tl::unexpected<Error> bad_json_key(std::string_view key, std::string_view expected) {
  return fail(ErrorKind::corrupt, fmt::format("key '{}': expected {}", key, expected));
}

Error within_json_key(Error error, std::string_view key) {
  return std::move(error).within(fmt::format("key {}", quote_name(key)));
}

Error wrong_json_length(std::size_t expected) {
  return Error(ErrorKind::corrupt, fmt::format("expected an array of {} items", expected));
}

Error unknown_json_name(std::span<const std::string_view> names) {
  return Error(ErrorKind::corrupt, fmt::format("expected one of {}", fmt::join(names, ", ")));
}

Error too_many_json_items(const JsonListRules& rules) {
  const bool is_limit = rules.too_many == ErrorKind::resource_exhausted;
  return Error(rules.too_many, is_limit ? fmt::format("more {} than the limit of {}", rules.items, rules.most)
                                        : fmt::format("more than {} {}", rules.most, rules.items));
}

Error within_json_item(Error error, const JsonListRules& rules, std::size_t index) {
  return std::move(error).within(fmt::format("{} {}", rules.item, index));
}

Error bad_json_id(std::string_view text) {
  return Error(ErrorKind::corrupt, fmt::format("{} is not 32 lower-case hexadecimal digits", quote_name(text)));
}

}  // namespace bitsnap::json
