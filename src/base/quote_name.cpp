// Quoted names, cut between two characters.
#include "base/quote_name.hpp"

#include <algorithm>
#include <cstddef>

#include <bitsnap/text.hpp>

namespace bitsnap {
namespace {

constexpr std::size_t kLongestQuotedBytes = 120;

}  // namespace

std::string quote_name(std::string_view name) {
  std::string text = "'";
  for (std::size_t at = 0; at < name.size();) {
    if (text.size() > kLongestQuotedBytes) {
      text.append("...");
      break;
    }
    const std::string_view character = name.substr(at, std::max<std::size_t>(utf8_sequence(name, at), 1));
    text.append(printable(character));
    at += character.size();
  }
  text.push_back('\'');
  return text;
}

std::string quote_tensor(std::string_view name) { return "tensor " + quote_name(name); }

}  // namespace bitsnap
