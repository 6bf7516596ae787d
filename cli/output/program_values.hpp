// The values of a state that only a program makes again: those of registered types, and pickled ones.
// docs/spec/typed_tree.md. Pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <bitsnap/value.hpp>

namespace bitsnap::cli {

struct ProgramValues {
  std::map<std::string, std::uint64_t> registered;  // how many, by tag
  std::map<std::string, std::uint64_t> pickled;     // how many, by the name of their type
};

[[nodiscard]] ProgramValues program_values(const Value& tree);

// For people: `my.Scale, my.Schedule (2)`, with escaped control characters. Long texts are cut.
[[nodiscard]] std::string counted_names(const std::map<std::string, std::uint64_t>& counts);

}  // namespace bitsnap::cli
