// One entry of the content section's 'tensors' as plain data, with its table of fields: docs/spec/snapshot.md,
// "Content". For content_reader.cpp; directory.cpp writes the same fields.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <bitsnap/limits.hpp>

#include "json/json_fields.hpp"

namespace bitsnap::container {

struct TensorEntry {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::string role;
  std::optional<std::uint64_t> alias = {};
  std::optional<std::uint64_t> pool = {};
  std::optional<std::uint64_t> bytes = {};
  std::optional<std::vector<std::uint64_t>> global_shape = {};
  std::optional<std::vector<std::uint64_t>> offset = {};
  std::optional<std::string> global_name = {};
  const DecodeLimits* limits = nullptr;  // set before reading
};

// A list of dimensions, of which there are at most limits->dimensions.
template <auto kMember>
[[nodiscard]] constexpr json::JsonField<TensorEntry> dimensions_field(std::string_view key, json::JsonNeed need) {
  json::JsonField<TensorEntry> field = json::json_field<kMember>(key, need);
  field.read = [](json::JsonReader& in, TensorEntry& to) -> Result<void> {
    std::vector<std::uint64_t> numbers;
    BITSNAP_TRY(json::read_json_list(in, numbers, json::read_json<std::uint64_t>,
                                     {.item = "dimension",
                                      .items = "dimensions",
                                      .most = to.limits->dimensions,
                                      .too_many = ErrorKind::resource_exhausted}));
    to.*kMember = std::move(numbers);
    return {};
  };
  return field;
}

constexpr auto json_fields(std::type_identity<TensorEntry>) {
  using Entry = TensorEntry;
  return std::array{json::json_field<&Entry::name>("name"),
                    json::json_field<&Entry::dtype>("dtype"),
                    dimensions_field<&Entry::shape>("shape", json::JsonNeed::required),
                    json::json_field<&Entry::role>("role"),
                    json::json_field<&Entry::alias>("alias", json::JsonNeed::optional),
                    json::json_field<&Entry::pool>("pool", json::JsonNeed::optional),
                    json::json_field<&Entry::bytes>("bytes", json::JsonNeed::optional),
                    dimensions_field<&Entry::global_shape>("global_shape", json::JsonNeed::optional),
                    dimensions_field<&Entry::offset>("offset", json::JsonNeed::optional),
                    json::json_field<&Entry::global_name>("global_name", json::JsonNeed::optional)};
}

}  // namespace bitsnap::container
