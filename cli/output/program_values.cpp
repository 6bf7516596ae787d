#include "cli/output/program_values.hpp"

#include <variant>

#include <fmt/format.h>

#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

constexpr std::size_t kNamesWidth = 100;

void count(const Value& value, ProgramValues& found) {
  if (const auto* list = std::get_if<ValueList>(&value.get())) {
    for (const Value& item : *list) count(item, found);
  } else if (const auto* tuple = std::get_if<ValueTuple>(&value.get())) {
    for (const Value& item : tuple->items) count(item, found);
  } else if (const auto* dict = std::get_if<ValueDict>(&value.get())) {
    for (const auto& [key, item] : dict->entries) count(item, found);
  } else if (const auto* typed = std::get_if<ValueTyped>(&value.get())) {
    const Value& content = typed->content.front();
    const auto* parts = std::get_if<ValueTuple>(&content.get());
    const auto* name =
        parts == nullptr || parts->items.empty() ? nullptr : std::get_if<std::string>(&parts->items.front().get());
    if (name != nullptr && typed->type == "registered") ++found.registered[*name];
    if (name != nullptr && typed->type == "pickle") ++found.pickled[*name];
    count(content, found);
  }
}

}  // namespace

ProgramValues program_values(const Value& tree) {
  ProgramValues found;
  count(tree, found);
  return found;
}

std::string counted_names(const std::map<std::string, std::uint64_t>& counts) {
  std::string text;
  for (const auto& [name, number] : counts) {
    text += text.empty() ? "" : ", ";
    text += printable(name);
    if (number > 1) text += fmt::format(" ({})", number);
    if (text.size() > kNamesWidth) break;
  }
  return elide_end(text, kNamesWidth);
}

}  // namespace bitsnap::cli
