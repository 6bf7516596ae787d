// Names of files that stay the same from step to step.
#include <array>
#include <cctype>

#include "interop/container/unique_names.hpp"
#include "interop/folder/folder_description.hpp"

namespace bitsnap::interop {
namespace {

constexpr std::array<std::string_view, 5> kStepWords{"step", "iter", "iteration", "checkpoint", "ckpt"};

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

// Whether a number directly after `before` is a step: "global_step", "checkpoint-", "iter_", "step=".
bool announces_step(std::string_view before) noexcept {
  if (!before.empty() && std::string_view("-_=.").find(before.back()) != std::string_view::npos)
    before.remove_suffix(1);
  for (const std::string_view word : kStepWords) {
    if (before.size() < word.size()) continue;
    const std::string_view end = before.substr(before.size() - word.size());
    bool is_equal = true;
    for (std::size_t i = 0; i < word.size(); ++i) {
      is_equal = is_equal && std::tolower(static_cast<unsigned char>(end[i])) == word[i];
    }
    if (is_equal) return true;
  }
  return false;
}

}  // namespace

std::string stable_name(std::string_view path, std::optional<std::uint64_t> step) {
  std::string name = escape_invalid_utf8(path);
  if (!step) return name;
  const std::string digits = std::to_string(*step);
  std::string stable;
  for (std::size_t at = 0; at < name.size();) {
    if (!is_digit(name[at])) {
      stable += name[at++];
      continue;
    }
    std::size_t end = at;
    while (end < name.size() && is_digit(name[end])) ++end;
    std::string_view number = std::string_view(name).substr(at, end - at);
    const std::string_view written = number;
    while (number.size() > digits.size() && number.front() == '0') number.remove_prefix(1);
    stable += number == digits && announces_step(std::string_view(name).substr(0, at)) ? "{step}" : written;
    at = end;
  }
  return stable;
}

}  // namespace bitsnap::interop
