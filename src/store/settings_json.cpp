#include "store/settings_json.hpp"

#include <optional>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/try.hpp"
#include "json/json_fields.hpp"

namespace bitsnap::store {
namespace {

Result<SettingValue> read_value(json::JsonReader& in, SettingKind kind) {
  switch (kind) {
    case SettingKind::number: return in.read_unsigned();
    case SettingKind::name: return in.read_string();
    case SettingKind::rules: break;
  }
  std::vector<std::string> rules;
  BITSNAP_TRY(in.read_array([&] { return json::read_json(in, rules.emplace_back()); }, "a list of rules"));
  return rules;
}

Result<void> read_known(json::JsonReader& in, const SettingField& field, CodingSettings& settings) {
  BITSNAP_ASSIGN(const SettingValue value, read_value(in, field.kind));
  Result<void> set = field.set(field, settings, value);
  if (set) return set;
  // The limits of numbers are the same in all versions.
  const bool is_unknown = field.kind != SettingKind::number;
  return fail(is_unknown ? ErrorKind::unsupported : ErrorKind::corrupt, set.error().message());
}

}  // namespace

void write_setting_value(json::JsonWriter& out, const SettingValue& value) {
  std::visit([&](const auto& member) { json::write_json(out, member); }, value);
}

void write_settings(json::JsonWriter& out, const CodingSettings& settings, SettingsScope scope) {
  for (const SettingField& field : setting_fields()) {
    if (scope == SettingsScope::remembered && !field.is_remembered) continue;
    const std::optional<SettingValue> value = field.get(settings);
    if (!value) continue;
    out.key(field.name);
    write_setting_value(out, *value);
  }
}

Result<void> read_setting(json::JsonReader& in, std::string_view key, CodingSettings& settings, SettingsScope scope) {
  const SettingField* const field = find_setting(key);
  if (field == nullptr || (scope == SettingsScope::remembered && !field->is_remembered)) return in.skip_value();
  Result<void> read = read_known(in, *field, settings);
  if (!read) return tl::unexpected(json::within_json_key(std::move(read).error(), key));
  return read;
}

}  // namespace bitsnap::store
