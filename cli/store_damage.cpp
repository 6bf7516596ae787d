// What a verification of a store found.
#include "cli/store_damage.hpp"

#include <fmt/format.h>

#include "cli/text_format.hpp"

namespace bitsnap::cli {

std::string render_damages(std::span<const StoreDamage> damages) {
  std::string out;
  for (const StoreDamage& damage : damages) {
    out +=
        fmt::format("  {}{}{} [{}]: {}\n", printable(damage.file), damage.where.empty() ? "" : ": ",
                    printable(damage.where), error_kind_name(damage.error.kind()), printable(damage.error.message()));
  }
  return out;
}

Json to_json(std::span<const StoreDamage> damages) {
  Json list = Json::array();
  for (const StoreDamage& damage : damages) {
    list.push_back({{"file", damage.file},
                    {"where", damage.where},
                    {"kind", error_kind_name(damage.error.kind())},
                    {"message", damage.error.message()}});
  }
  return list;
}

}  // namespace bitsnap::cli
