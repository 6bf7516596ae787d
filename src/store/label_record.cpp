#include "store/label_record.hpp"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "base/quote_name.hpp"
#include "base/similar_names.hpp"
#include "base/try.hpp"
#include "base/utf8.hpp"
#include "json/json_fields.hpp"
#include "store/sealed_json.hpp"

namespace bitsnap::store {

using json::json_field;
using json::JsonNeed;
using json::JsonReader;

static constexpr auto json_fields(std::type_identity<LabelEntry::Pending>) {
  return std::array{json_field<&LabelEntry::Pending::id>("id"),
                    json_field<&LabelEntry::Pending::before>("before", JsonNeed::optional)};
}

static constexpr auto json_fields(std::type_identity<LabelEntry>) {
  return std::array{
      json_field<&LabelEntry::label>("label").must("1 to 255 bytes without control characters",
                                                   [](const LabelEntry& entry) { return is_label(entry.label); }),
      json_field<&LabelEntry::step>("step"), json_field<&LabelEntry::pending>("pending", JsonNeed::optional)};
}

namespace {

constexpr std::string_view kLabelsKey = "labels";

struct LabelFormat {
  std::uint64_t format = kStoreFormat;
  LabelRecord record;
};

struct LabelList {
  static Result<void> read(JsonReader& in, LabelRecord& to) {
    const json::JsonListRules rules{.item = "label", .items = "labels", .most = kMaxLabels};
    BITSNAP_TRY(json::read_json_list(in, to.labels, json::read_json<LabelEntry>, rules));
    const auto is_above = [](const LabelEntry& a, const LabelEntry& b) { return a.label >= b.label; };
    const auto wrong = std::ranges::adjacent_find(to.labels, is_above);
    if (wrong == to.labels.end()) return {};
    return fail(ErrorKind::corrupt,
                fmt::format("label {} is repeated or not in order", quote_name(std::next(wrong)->label)));
  }
  static void write(json::JsonWriter& out, const LabelRecord& from) { json::write_json(out, from.labels); }
};

constexpr auto json_fields(std::type_identity<LabelFormat>) {
  return std::array{json_field<&LabelFormat::format>("format"), json_field<&LabelFormat::record, LabelList>("labels")};
}

}  // namespace

const LabelEntry* LabelRecord::find(std::string_view label) const noexcept {
  const auto found = std::ranges::lower_bound(labels, label, {}, &LabelEntry::label);
  return found == labels.end() || found->label != label ? nullptr : &*found;
}

void LabelRecord::set(LabelEntry entry) {
  const auto place = std::ranges::lower_bound(labels, entry.label, {}, &LabelEntry::label);
  if (place != labels.end() && place->label == entry.label) {
    *place = std::move(entry);
  } else {
    labels.insert(place, std::move(entry));
  }
}

bool LabelRecord::mentions(std::uint64_t step) const noexcept {
  return std::ranges::any_of(labels, [&](const LabelEntry& entry) {
    return entry.step == step || (entry.pending && entry.pending->before == step);
  });
}

// Also excludes U+0080 to U+009F, whose first byte in UTF-8 is 0xC2.
bool is_label(std::string_view label) noexcept {
  if (label.empty() || label.size() > kMaxLabelBytes || !is_utf8(label)) return false;
  for (std::size_t i = 0; i < label.size(); ++i) {
    const auto byte = static_cast<unsigned char>(label[i]);
    if (byte < 0x20 || byte == 0x7F) return false;
    if (byte == 0xC2 && static_cast<unsigned char>(label[i + 1]) < 0xA0) return false;
  }
  return true;
}

Result<void> check_labels(const std::vector<std::string>& labels) {
  for (const std::string& label : labels) {
    if (is_label(label)) continue;
    const std::string found = label.size() > kMaxLabelBytes ? fmt::format("{} bytes", label.size()) : quote_name(label);
    return tl::unexpected(
        Error(ErrorKind::invalid_argument,
              fmt::format("a label must have 1 to {} bytes of UTF-8 without control characters, got {}", kMaxLabelBytes,
                          found))
            .about("labels"));
  }
  return {};
}

Result<void> check_new_labels(const std::vector<std::string>& labels) {
  BITSNAP_TRY(check_labels(labels));
  for (const std::string& label : labels) {
    if (label.find_first_not_of(' ') == std::string::npos) {
      return tl::unexpected(
          Error(ErrorKind::invalid_argument, fmt::format("a label must not have spaces alone, got '{}'", label))
              .about("labels"));
    }
    if (label.find_first_not_of("0123456789") != std::string::npos) continue;
    return tl::unexpected(
        Error(ErrorKind::invalid_argument,
              fmt::format("a label must not have digits alone, because RUN@{0} is step {0}; got '{0}'", label))
            .about("labels"));
  }
  return {};
}

Result<LabelRecord> read_label_record(os::FileSystem& file_system, const RunLayout& layout) {
  LabelFormat labels;
  const auto read = [&](JsonReader& in) { return json::read_json(in, labels); };
  Result<void> done = read_sealed_json(file_system, layout.labels(), kLabelsKey, read);
  if (!done && done.error().kind() != ErrorKind::not_found) return tl::unexpected(std::move(done).error());
  return std::move(labels.record);
}

Result<bool> write_label_record(os::FileSystem& file_system, const RunLayout& layout, const LabelRecord& record) {
  if (record.labels.size() > kMaxLabels) {
    return fail(ErrorKind::invalid_argument, fmt::format("{}: a store has at most {} labels, got {}", layout.root(),
                                                         kMaxLabels, record.labels.size()));
  }
  return write_sealed_json(file_system, layout.labels(), kLabelsKey,
                           json::serialize_json(LabelFormat{.record = record}), true);
}

std::string similar_labels(const std::vector<std::string>& labels, std::string_view label) {
  const std::vector<std::string> similar = similar_names(labels, label);
  std::string text;
  for (std::size_t i = 0; i < similar.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == similar.size() ? " and " : ", ", quote_name(similar[i]));
  }
  if (text.empty()) return "";
  return fmt::format("; {} {}", similar.size() == 1 ? "a similar label is" : "similar labels are", text);
}

}  // namespace bitsnap::store
