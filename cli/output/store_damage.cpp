// Damages of a store as text and as JSON.
#include "cli/output/store_damage.hpp"

#include <string_view>

#include <fmt/format.h>

#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

// The message without the file and the place, which the line has before it.
std::string_view what_is_wrong(const StoreDamage& damage) {
  std::string_view message = damage.error.message();
  const std::size_t at = damage.file.empty() ? std::string_view::npos : message.find(damage.file);
  if (at == std::string_view::npos || message.substr(0, at).find(": ") != std::string_view::npos) {
    return message;  // it begins with something else
  }
  message.remove_prefix(at);
  for (const std::string_view part : {std::string_view(damage.file), std::string_view(damage.where)}) {
    if (message.starts_with(part)) {
      message.remove_prefix(part.size());
      message.remove_prefix(message.starts_with(", ") || message.starts_with(": ") ? 2 : 0);
    }
  }
  return message;
}

}  // namespace

std::string render_damages(std::span<const StoreDamage> damages) {
  std::string out;
  for (const StoreDamage& damage : damages) {
    out += fmt::format("  {}{}{} [{}]: {}\n", printable(damage.file), damage.where.empty() ? "" : ": ",
                       printable(damage.where), error_kind_name(damage.error.kind()), printable(what_is_wrong(damage)));
  }
  return out;
}

}  // namespace bitsnap::cli

namespace bitsnap {

void to_json(cli::Json& json, const StoreDamage& damage) {
  json = {{"file", damage.file},
          {"where", damage.where},
          {"kind", error_kind_name(damage.error.kind())},
          {"message", damage.error.message()}};
}

}  // namespace bitsnap
