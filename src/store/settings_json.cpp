// Settings to JSON and back.
#include "store/settings_json.hpp"

#include <utility>
#include <variant>

#include <fmt/format.h>

#include "base/try.hpp"

namespace bitsnap::store {
namespace {

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
