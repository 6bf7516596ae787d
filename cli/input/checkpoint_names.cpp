#include "cli/input/checkpoint_names.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <span>

#include <fmt/format.h>

#include "cli/file_paths.hpp"
#include "cli/number_option.hpp"

namespace bitsnap::cli {

namespace {

constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kDeleting = ".deleting";

// In each row, longer words come before words that begin them.
constexpr std::array<std::string_view, 3> kStepWords = {"step", "iteration", "iter"};
constexpr std::array<std::string_view, 2> kCheckpointWords = {"checkpoint", "ckpt"};
constexpr std::array<std::string_view, 1> kEpochWords = {"epoch"};
constexpr std::array<std::string_view, 4> kUnfinishedEnds = {".temp", ".part", ".partial", ".incomplete"};
constexpr std::array<std::string_view, 9> kCopyWords = {"merged", "copy",      "backup", "bak",     "orig",
                                                        "old",    "converted", "export", "exported"};

std::string lower_case(std::string_view name) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

bool is_letter_or_digit(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

// The digits at `at`, unless letters follow: "10k" is no number.
std::optional<std::uint64_t> number_at(std::string_view name, std::size_t at) {
  const std::size_t end = std::min(name.find_first_not_of(kDigits, at), name.size());
  if (end == at || (end < name.size() && is_letter_or_digit(name[end]))) return std::nullopt;
  return parse_decimal(name.substr(at, end - at));
}

// Whether one of the parts of a name, between what is neither letter nor digit, is one of the words.
bool has_word(std::string_view name, std::span<const std::string_view> words) {
  for (std::size_t at = 0; at < name.size(); ++at) {
    const auto* const begin = name.begin() + static_cast<std::ptrdiff_t>(at);
    const auto part = static_cast<std::size_t>(std::find_if_not(begin, name.end(), is_letter_or_digit) - begin);
    if (std::ranges::find(words, name.substr(at, part)) != words.end()) return true;
    at += part;
  }
  return false;
}

// "3_500" in "checkpoint_3_500.pt".
bool has_second_number(std::string_view name, std::size_t number) {
  const std::size_t end = name.find_first_not_of(kDigits, number);
  return end + 1 < name.size() && name[end] == '_' && kDigits.find(name[end + 1]) != std::string_view::npos;
}

// The last number that follows one of the words, with separators in between or without. nullopt for `alone`, if a
// second number follows that one.
std::optional<std::uint64_t> number_after(std::string_view name, std::span<const std::string_view> words,
                                          bool alone = false) {
  std::optional<std::uint64_t> last;
  for (std::size_t at = 0; at < name.size(); ++at) {
    for (const std::string_view word : words) {
      if (!name.substr(at).starts_with(word)) continue;
      const std::size_t number = name.find_first_not_of("-_=. ", at + word.size());
      const bool is_negative =
          number != std::string_view::npos && number > at + word.size() + 1 && name[number - 1] == '-';
      if (number != std::string_view::npos && !is_negative) {
        if (alone && has_second_number(name, number)) return std::nullopt;
        if (const auto step = number_at(name, number)) last = step;
      }
      break;
    }
  }
  return last;
}

// "1000" and "1000.pt", but not "1000.0" or "1000.checkpoint-tmp-5".
std::optional<std::uint64_t> number_alone(std::string_view name) {
  const std::size_t dot = std::min(name.find('.'), name.size());
  const std::string_view extension = name.substr(std::min(dot + 1, name.size()));
  const bool is_extension =
      dot == name.size() || (!extension.empty() && kDigits.find(extension.front()) == std::string_view::npos &&
                             std::ranges::all_of(extension, is_letter_or_digit));
  return is_extension ? parse_decimal(name.substr(0, dot)) : std::nullopt;
}

}  // namespace

bool is_unfinished_name(std::string_view name) {
  const std::string lower = lower_case(name);
  constexpr std::array<std::string_view, 1> kTemporary = {"tmp"};
  return lower.starts_with('.') || has_word(lower, kTemporary) ||
         std::ranges::any_of(kUnfinishedEnds, [&](std::string_view end) { return lower.ends_with(end); });
}

std::optional<std::uint64_t> step_of_name(std::string_view name) {
  const std::string lower = lower_case(name);
  if (is_unfinished_name(lower) || has_word(lower, kCopyWords)) return std::nullopt;
  if (const auto step = number_after(lower, kStepWords)) return step;
  if (const auto step = number_after(lower, kCheckpointWords, true)) return step;
  if (const auto step = number_after(lower, kEpochWords)) return step;
  return number_alone(lower);
}

std::string deleting_path(const std::string& path) {
  const std::filesystem::path checkpoint = without_slash(path);
  return (checkpoint.parent_path() / fmt::format(".{}{}", checkpoint.filename().string(), kDeleting)).string();
}

std::optional<std::string> name_of_deleting(std::string_view name) {
  if (!name.starts_with('.') || !name.ends_with(kDeleting) || name.size() < kDeleting.size() + 2) return std::nullopt;
  return std::string(name.substr(1, name.size() - 1 - kDeleting.size()));
}

}  // namespace bitsnap::cli
