// Settings as members of a JSON object, by the table of bitsnap/settings.hpp: in the record of a store and in the
// messages to an agent.
#pragma once

#include <bitsnap/settings.hpp>

#include "store/sealed_json.hpp"

namespace bitsnap::store {

enum class SettingsToWrite : std::uint8_t { remembered, all };

// Adds the settings that have a value.
void put_settings(Json& to, const CodingSettings& settings, SettingsToWrite which);

// Gives `settings` the values that `from` has; other members are skipped. unsupported for a name or rule that this
// version does not know, corrupt for anything else that no setting allows.
[[nodiscard]] Result<void> take_settings(const Json& from, CodingSettings& settings);

}  // namespace bitsnap::store
