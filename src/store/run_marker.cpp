#include "store/run_marker.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>

#include "base/bytes.hpp"
#include "base/try.hpp"

namespace bitsnap::store {
namespace {

// No reference has a longer beginning: the whitespace that an editor adds, and a version number.
constexpr std::size_t kLongestBeginning = 256;

constexpr std::string_view kRunRecordBeginning = R"({"store":)";
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool skip_text(std::string_view& text, std::string_view expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}

std::size_t skip_any(std::string_view& text, std::string_view characters) {
  const std::size_t count = std::min(text.find_first_not_of(characters), text.size());
  text.remove_prefix(count);
  return count;
}

// Tokens of JSON, with whitespace before each of them.
bool skip_tokens(std::string_view& text, std::initializer_list<std::string_view> tokens) {
  return std::ranges::all_of(tokens, [&](std::string_view token) {
    skip_any(text, " \t\r\n");
    return skip_text(text, token);
  });
}

bool begins_as_reference(std::string_view text) {
  skip_text(text, kByteOrderMark);
  if (!skip_tokens(text, {"{", R"("version")", ":"})) return false;
  skip_any(text, " \t\r\n");
  return skip_any(text, "0123456789") > 0 && skip_tokens(text, {",", R"("run")", ":", R"(")"});
}

}  // namespace

RunMarker marker_of(std::string_view beginning) {
  if (beginning.starts_with(kRunRecordBeginning)) return RunMarker::run_record;
  return begins_as_reference(beginning) ? RunMarker::reference : RunMarker::damaged;
}

Result<RunMarker> find_marker(os::FileSystem& file_system, const RunLayout& layout) {
  const std::string path = layout.run_record();
  BITSNAP_ASSIGN(const os::FileInfo info, file_system.stat(path));
  if (!info.is_regular) return RunMarker::none;
  const auto file = file_system.open(path);
  if (!file) return RunMarker::damaged;
  std::array<std::byte, kLongestBeginning> bytes{};
  const ByteSpan start(bytes.data(), std::min<std::size_t>(bytes.size(), (*file)->size_bytes()));
  if (!(*file)->read_at(0, start)) return RunMarker::damaged;
  return marker_of(as_text(start));
}

}  // namespace bitsnap::store
