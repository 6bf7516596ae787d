#include "store/settings_json.hpp"

#include <optional>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "base/try.hpp"
#include "container/json_fields.hpp"

namespace bitsnap::store {
namespace {

Result<SettingValue> read_value(container::JsonReader& in, SettingKind kind) {
  switch (kind) {
    case SettingKind::number: return in.read_unsigned();
    case SettingKind::name: return in.read_string();
    case SettingKind::rules: break;
  }
  std::vector<std::string> rules;
  BITSNAP_TRY(in.read_array([&] { return container::read_json(in, rules.emplace_back()); }, "a list of rules"));
  return rules;
}

Result<void> read_known(container::JsonReader& in, const SettingField& field, CodingSettings& settings) {
  BITSNAP_ASSIGN(const SettingValue value, read_value(in, field.kind));
  Result<void> set = field.set(field, settings, value);
  if (set) return set;
  // The limits of numbers are the same in all versions.
  const bool is_unknown = field.kind != SettingKind::number;
  return fail(is_unknown ? ErrorKind::unsupported : ErrorKind::corrupt, set.error().message());
}

Result<SettingValue> value_of(const Json& json) {
  if (json.is_number_unsigned()) return json.get<std::uint64_t>();
  if (json.is_string()) return json.get<std::string>();
  std::vector<std::string> texts;
  if (!json.is_array()) return fail(ErrorKind::corrupt, "expected a number, a string or an array of strings");
  for (const Json& text : json) {
    if (!text.is_string()) return fail(ErrorKind::corrupt, "expected strings");
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

}  // namespace

void write_setting_value(container::JsonWriter& out, const SettingValue& value) {
  std::visit([&](const auto& member) { container::write_json(out, member); }, value);
}

void write_settings(container::JsonWriter& out, const CodingSettings& settings, SettingsScope scope) {
  for (const SettingField& field : setting_fields()) {
    if (scope == SettingsScope::remembered && !field.is_remembered) continue;
    const std::optional<SettingValue> value = field.get(settings);
    if (!value) continue;
    out.key(field.name);
    write_setting_value(out, *value);
  }
}

Result<void> read_setting(container::JsonReader& in, const std::string& key, CodingSettings& settings,
                          SettingsScope scope) {
  const SettingField* const field = find_setting(key);
  if (field == nullptr || (scope == SettingsScope::remembered && !field->is_remembered)) return in.skip_value();
  Result<void> read = read_known(in, *field, settings);
  if (!read) return tl::unexpected(container::within_json_key(std::move(read).error(), key));
  return read;
}

void put_settings(Json& to, const CodingSettings& settings, SettingsToWrite which) {
  for (const SettingField& field : setting_fields()) {
    if (which == SettingsToWrite::remembered && !field.is_remembered) continue;
    const std::optional<SettingValue> value = field.get(settings);
    if (value) std::visit([&](const auto& member) { to[std::string(field.name)] = member; }, *value);
  }
}

Result<void> take_settings(const Json& from, CodingSettings& settings) {
  for (const SettingField& field : setting_fields()) {
    const std::string key(field.name);
    const Json* const member = json_member(from, key.c_str());
    if (member == nullptr) continue;
    Result<SettingValue> value = value_of(*member);
    if (!value) return tl::unexpected(std::move(value).error().within(fmt::format("key \"{}\"", key)));
    Result<void> set = field.set(field, settings, *value);
    if (set) continue;
    // A newer version may know the name or the rule; types and limits of numbers are the same in all versions.
    const bool is_unknown = (field.kind == SettingKind::name && member->is_string()) ||
                            (field.kind == SettingKind::rules && member->is_array());
    return fail(is_unknown ? ErrorKind::unsupported : ErrorKind::corrupt,
                fmt::format("key \"{}\": {}", key, set.error().message()));
  }
  return {};
}

}  // namespace bitsnap::store
