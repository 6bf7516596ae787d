// Settings as members of a JSON object, by the table of bitsnap/settings.hpp: in the record of a store and in the
// messages to an agent.
#pragma once

#include <cstdint>
#include <string>

#include <bitsnap/settings.hpp>

#include "json/json_reader.hpp"
#include "json/json_writer.hpp"

namespace bitsnap::store {

enum class SettingsScope : std::uint8_t {
  remembered,  // by stores
  all,
};

// Writes the members of the settings that have a value, within an object that the caller begins and ends.
void write_settings(json::JsonWriter& out, const CodingSettings& settings, SettingsScope scope);
void write_setting_value(json::JsonWriter& out, const SettingValue& value);

// Reads the member of that key into `settings`; skips it if no setting of the scope has that name. For use as
// OnUnknownKey (json/json_fields.hpp). unsupported for a name or a rule that this version does not know, because a
// later version may; corrupt for any other value that the setting does not allow.
[[nodiscard]] Result<void> read_setting(json::JsonReader& in, std::string_view key, CodingSettings& settings,
                                        SettingsScope scope);

}  // namespace bitsnap::store
