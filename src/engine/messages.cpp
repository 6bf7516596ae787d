#include "engine/messages.hpp"

#include <utility>

#include <fmt/format.h>

#include "base/hash.hpp"
#include "base/try.hpp"
#include "store/settings_json.hpp"

namespace bitsnap {

static constexpr auto json_fields(std::type_identity<Retention>) {
  using json::json_field;
  using json::JsonNeed;
  return std::array{json_field<&Retention::keep_last>("keep_last", JsonNeed::optional),
                    json_field<&Retention::keep_every>("keep_every", JsonNeed::optional)};
}

}  // namespace bitsnap

namespace bitsnap::engine {

// The body of `refused`.
struct Refusal {
  std::string kind;
  std::string message;
  std::string code;   // empty: the kind says it all
  std::string field;  // empty: the error is about no argument
};

static constexpr auto json_fields(std::type_identity<Refusal>) {
  return std::array{json_field<&Refusal::kind>("kind"), json_field<&Refusal::message>("message"),
                    json_field<&Refusal::code>("code", JsonNeed::optional),
                    json_field<&Refusal::field>("field", JsonNeed::optional)};
}

namespace {

Error error_of(const Refusal& refusal) {
  for (auto number = static_cast<int>(ErrorKind::invalid_argument); number <= static_cast<int>(ErrorKind::internal);
       ++number) {
    const auto kind = static_cast<ErrorKind>(number);
    if (refusal.kind != error_kind_name(kind)) continue;
    const ErrorCode code = error_code_from_name(refusal.code).value_or(ErrorCode::none);
    return Error(kind, refusal.message).with_code(code).about(refusal.field);
  }
  return {ErrorKind::internal, fmt::format("error of an unknown kind from another version of bitsnap: {}: {}",
                                           refusal.kind, refusal.message)};
}

}  // namespace

bool is_job_name(std::string_view name) noexcept {
  const auto is_allowed = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  return !name.empty() && name.size() <= kMaxJobBytes && std::ranges::all_of(name, is_allowed);
}

Result<void> check_job_name(std::string_view name) {
  if (is_job_name(name)) return {};
  return fail(ErrorKind::invalid_argument, fmt::format("job must have 1 to {} of the characters A-Z a-z 0-9 . _ -, "
                                                       "got '{}'",
                                                       kMaxJobBytes, name));
}

std::string socket_name(std::string_view job) { return fmt::format("agent-{:016x}", hash64(as_byte_span(job))); }

Result<void> WriteSettingsFormat::read(JsonReader& in, WriteSettings& to) {
  const auto read_other = [&](JsonReader& from, std::string_view key) {
    return store::read_setting(from, key, to.coding, store::SettingsScope::all);
  };
  return json::read_json_fields<Retention>(in, to.retention, json::json_fields_of<Retention>(), read_other);
}

void WriteSettingsFormat::write(JsonWriter& out, const WriteSettings& from) {
  out.begin_object();
  store::write_settings(out, from.coding, store::SettingsScope::all);
  json::write_json_members(out, from.retention, json::json_fields_of<Retention>());
  out.end_object();
}

std::optional<SettingDifference> first_difference(const WriteSettings& expected, const WriteSettings& found) {
  const auto text_of = [](const std::optional<SettingValue>& value) {
    JsonWriter out;
    if (value) store::write_setting_value(out, *value);
    return value ? out.take_text() : "none";
  };
  std::optional<SettingDifference> first;
  const auto compare = [&](std::string_view name, const std::optional<SettingValue>& one,
                           const std::optional<SettingValue>& other) {
    if (!first && one != other) first = {std::string(name), text_of(one), text_of(other)};
  };
  for (const SettingField& field : setting_fields()) {
    compare(field.name, field.get(expected.coding), field.get(found.coding));
  }
  compare("keep_last", expected.retention.keep_last, found.retention.keep_last);
  compare("keep_every", expected.retention.keep_every, found.retention.keep_every);
  return first;
}

Result<void> ErrorFormat::read(JsonReader& in, std::optional<Error>& to) {
  Refusal refusal;
  BITSNAP_TRY(read_json(in, refusal));
  to = error_of(refusal);
  return {};
}

void ErrorFormat::write(JsonWriter& out, const std::optional<Error>& from) {
  // A message may list thousands of names. This part of it fits into a packet, even if each character takes six bytes
  // in JSON.
  constexpr std::size_t kMaxMessage = 4096;
  constexpr std::size_t kMaxField = 512;
  write_json(out, Refusal{.kind = std::string(error_kind_name(from->kind())),
                          .message = from->message().substr(0, kMaxMessage),
                          .code = from->code() == ErrorCode::none ? "" : std::string(error_code_name(*from)),
                          .field = from->field().substr(0, kMaxField)});
}

std::string serialize_body(const Error& error) {
  JsonWriter out;
  ErrorFormat::write(out, error);
  return out.take_text();
}

Error parse_error(std::string_view body) {
  const auto refusal = parse_body<Refusal>(body);
  if (refusal) return error_of(*refusal);
  return {ErrorKind::internal, fmt::format("unreadable error from another version of bitsnap: {}", body)};
}

}  // namespace bitsnap::engine
