// How a state is coded: one struct, which SaveOptions, StoreOptions and EngineOptions embed, and one table of its
// fields. What stores and agents keep of it as JSON, its checks, its merging, the command's options and Python's
// arguments come from the table, so that a new setting is a member here and a row there (src/plan/settings.cpp).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/quantization.hpp>

namespace bitsnap {

// Which codecs may be used, and how one is chosen.
enum class Policy : std::uint8_t {
  lossless,  // the best of all codecs, chunk by chunk
  lmc,       // LMC (arXiv 2505.09810): byte planes of the tensor or of its XOR with the base, Huffman coded
  bounded,   // as lossless, after masters, second and first moments lost what stated bounds allow
  bitsnap,   // BitSnap (arXiv 2511.12376): weights as a packed mask and the values that changed since the base;
             // moments as the nearest of the values of their cluster, which is lossy
  raw,       // stored as it is
};

[[nodiscard]] std::string_view policy_name(Policy policy) noexcept;
[[nodiscard]] std::optional<Policy> policy_from_name(std::string_view name) noexcept;
// Whether the policy chooses codecs for an objective: `lossless` and `bounded`.
[[nodiscard]] bool chooses_by_objective(Policy policy) noexcept;

// What the policies `lossless` and `bounded` choose a chunk's codec for. Times are modelled from recorded speeds and
// never measured, so that every machine makes the same choice.
enum class Objective : std::uint8_t {
  ratio,     // fewest bytes
  balanced,  // least time to encode, to write at 2 GB/s, and to read back once in ten saves
  speed,     // least time to encode, to write at 20 GB/s, and to read back after every save
};

[[nodiscard]] std::string_view objective_name(Objective objective) noexcept;
[[nodiscard]] std::optional<Objective> objective_from_name(std::string_view name) noexcept;

// What a store codes a checkpoint against.
enum class BaseRule : std::uint8_t {
  previous,  // the checkpoint before it: smallest; reading follows the chain back to the keyframe
  keyframe,  // the last keyframe: reading opens two checkpoints
};

[[nodiscard]] std::string_view base_rule_name(BaseRule rule) noexcept;
[[nodiscard]] std::optional<BaseRule> base_rule_from_name(std::string_view name) noexcept;

// The longest chain that CodingSettings::max_depth allows: half of what the file format does, so that references to
// unchanged chunks always have room.
inline constexpr std::uint32_t kLongestChain = 32;

// A field without a value has the default that its comment names; in StoreOptions and EngineOptions it has the value
// that the store remembers, and a new store remembers the defaults. Stores remember all fields but `codec`.
struct CodingSettings {
  std::optional<Policy> policy = {};        // lossless
  std::optional<Objective> objective = {};  // balanced; used by the policies lossless and bounded
  // Bytes per second of the store that the objective assumes, 10^6 to 10^12. 0, the default: the objective's own.
  std::optional<std::uint64_t> store_speed = {};
  std::optional<BaseRule> base = {};  // previous; used by stores
  // 8: the longest chain of snapshots that decoding one chunk may follow, at most kLongestChain. When the checkpoints
  // of a store form a chain of that length, the next one is a keyframe. 0: nothing is coded against another snapshot,
  // and an unchanged chunk is referred to only where it needs no further snapshot.
  std::optional<std::uint32_t> max_depth = {};
  // What tensors may lose: none. The first rule that fits a tensor holds; the policy's own rules come last.
  std::optional<std::vector<LossRule>> loss = {};
  // A codec by name: it codes every chunk that it accepts, and other chunks are stored raw. None is forced.
  std::optional<std::string> codec = {};

  friend bool operator==(const CodingSettings&, const CodingSettings&) = default;
};

// A setting outside of C++: a number; a name; texts, one for each loss rule.
using SettingValue = std::variant<std::uint64_t, std::string, std::vector<std::string>>;

enum class SettingKind : std::uint8_t { name, number, rules };

// A row of the table.
struct SettingField {
  std::string_view name;     // key in JSON, argument in Python, Error::field(); the command's option is "--max-depth"
  std::string_view metavar;  // of the command's option: "N"
  std::string_view help;     // what it does, for the command
  SettingKind kind = SettingKind::name;
  std::span<const std::string_view> names = {};  // that a field of names may have; empty for other fields
  bool is_remembered = true;                     // by stores

  // invalid_argument, with the setting's name as field(), for a value of another type or out of range.
  Result<void> (*set)(const SettingField& field, CodingSettings& settings, const SettingValue& value) = nullptr;
  std::optional<SettingValue> (*get)(const CodingSettings& settings) = nullptr;
  // Gives `settings` the value of `others` where it has none.
  void (*merge)(CodingSettings& settings, const CodingSettings& others) = nullptr;
};

// In the order in which stores write them.
[[nodiscard]] std::span<const SettingField> setting_fields() noexcept;
// nullptr if no setting has the name.
[[nodiscard]] const SettingField* find_setting(std::string_view name) noexcept;
// Gives the setting of that name the value. invalid_argument, with the name as field(), for an unknown name, a value of
// another type, or one out of range.
[[nodiscard]] Result<void> set_setting(CodingSettings& settings, std::string_view name, const SettingValue& value);

// The defaults of all settings that have one.
[[nodiscard]] const CodingSettings& default_settings();
// invalid_argument, with field(), for the first setting that is out of range.
[[nodiscard]] Result<void> check_settings(const CodingSettings& settings);
// `settings`, with the values of `others` where it has none. Loss rules belong to the policy that they were given with:
// those of `others` are left out where `settings` has another policy.
[[nodiscard]] CodingSettings merge_settings(const CodingSettings& settings, const CodingSettings& others);

}  // namespace bitsnap
