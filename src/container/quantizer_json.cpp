// Every number has a name; objects within the object hold those of one kind.
#include "container/quantizer_json.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "container/json_text.hpp"
#include "tensor/quantization_amounts.hpp"

namespace bitsnap::container {
namespace {

// Calls take(part, name, number) for every number of a record, which are std::uint64_t& or double&, of const records
// const.
template <typename Record, typename Take>
void for_numbers(Record& record, const Take& take) {
  take("", "amount", record.amount);
  auto& reached = record.reached;
  take("reached", "elements", reached.elements);
  take("reached", "changed", reached.changed);
  take("reached", "finite", reached.finite);
  take("reached", "nonzero", reached.nonzero);
  take("reached", "past_nearest", reached.past_nearest);
  take("reached", "max_absolute", reached.max_absolute);
  take("reached", "max_relative", reached.max_relative);
  take("reached", "sum_square", reached.sum_square);
  take("reached", "sum_relative", reached.sum_relative);
  auto& updates = record.updates;
  take("updates", "elements", updates.elements);
  take("updates", "largest", updates.largest);
  take("updates", "sum", updates.sum);
  take("updates", "sum_square", updates.sum_square);
  take("updates", "sum_update", updates.sum_update);
  take("updates", "sum_update_square", updates.sum_update_square);
}

template <typename Adam, typename Take>
void for_adam(Adam& adam, const Take& take) {
  take("adam", "beta1", adam.beta1);
  take("adam", "beta2", adam.beta2);
  take("adam", "epsilon", adam.epsilon);
  take("adam", "step", adam.step);
}

void append_number(std::string& to, std::uint64_t number) { append_decimal(to, number); }
void append_number(std::string& to, double number) {
  // Sums can be beyond what JSON has.
  append_double(to, std::isfinite(number) ? number : std::numeric_limits<double>::max());
}

bool take_number(const JsonToken& token, std::uint64_t& to) noexcept {
  to = token.magnitude;
  return token.is_unsigned();
}
bool take_number(const JsonToken& token, double& to) noexcept {
  to = token.is(JsonToken::Type::real) ? token.real : static_cast<double>(token.magnitude);
  return token.is_unsigned() || (token.is(JsonToken::Type::real) && token.real >= 0);
}

}  // namespace

void append_quantizer(std::string& to, const QuantizerRecord& record) {
  to += fmt::format("{{\"name\":\"{}\"", quantization_name(record.quantization));
  std::string_view open;
  const auto append = [&](std::string_view part, std::string_view name, auto number) {
    if (part != open) {
      if (!open.empty()) to += '}';
      to += fmt::format(",\"{}\":{{\"{}\":", part, name);
      open = part;
    } else {
      to += fmt::format(",\"{}\":", name);
    }
    append_number(to, number);
  };
  if (record.bound) append("", "bound", *record.bound);
  if (record.next_update_bound) append("", "next_update_bound", *record.next_update_bound);
  if (record.all_updates_bound) append("", "all_updates_bound", *record.all_updates_bound);
  for_numbers(record, append);
  if (record.adam) for_adam(*record.adam, append);
  to += open.empty() ? "}" : "}}";
}

Result<bool> QuantizerReader::take(JsonToken& token) {
  using Type = JsonToken::Type;
  const bool opens = token.is(Type::begin_object) || token.is(Type::begin_array);
  const bool closes = token.is(Type::end_object) || token.is(Type::end_array);
  if (skipped_ > 0) {
    if (opens) ++skipped_;
    if (closes) --skipped_;
    return false;
  }
  if (closes) {
    if (part_.empty()) {
      BITSNAP_TRY(check());
      return true;
    }
    part_.clear();
    return false;
  }
  if (token.is(Type::key)) {
    key_ = std::move(token.text);
    return false;
  }
  if (opens) {
    const bool is_known = part_.empty() && (key_ == "reached" || key_ == "updates" || key_ == "adam");
    if (!is_known || token.is(Type::begin_array)) {
      skipped_ = 1;
      return false;
    }
    part_ = key_;
    if (part_ == "adam") record_.adam.emplace();
    return false;
  }
  BITSNAP_TRY(take_value(token));
  return false;
}

// What no writer can have meant.
Result<void> QuantizerReader::check() const {
  if (!has_name_) return fail(ErrorKind::corrupt, "a quantizer without a name");
  if (!tensor::is_amount_of(record_.quantization, record_.amount)) {
    return fail(ErrorKind::corrupt,
                fmt::format("{} of {}, which there is not", quantization_name(record_.quantization), record_.amount));
  }
  const auto is_beta = [](double beta) { return beta >= 0 && beta < 1; };
  if (record_.adam && !(is_beta(record_.adam->beta1) && is_beta(record_.adam->beta2))) {
    return fail(ErrorKind::corrupt, fmt::format("betas {} and {}, expected numbers from 0 on and below 1",
                                                record_.adam->beta1, record_.adam->beta2));
  }
  return {};
}

Result<void> QuantizerReader::take_value(const JsonToken& token) {
  if (part_.empty() && key_ == "name") {
    if (!token.is(JsonToken::Type::string)) return tl::unexpected(unexpected_token("a string as 'name'", token));
    const auto quantization = quantization_from_name(token.text);
    if (!quantization)
      return fail(ErrorKind::corrupt, fmt::format("no quantizer is called {}", quote_name(token.text)));
    record_.quantization = *quantization;
    has_name_ = true;
    return {};
  }
  bool fits = true;
  const auto take = [&](std::string_view part, std::string_view name, auto& number) {
    if (part == part_ && name == key_) fits = take_number(token, number);
  };
  for_numbers(record_, take);
  if (record_.adam) for_adam(*record_.adam, take);
  for (const auto& [name, bound] :
       {std::pair("bound", &record_.bound), std::pair("next_update_bound", &record_.next_update_bound),
        std::pair("all_updates_bound", &record_.all_updates_bound)}) {
    if (part_.empty() && name == key_) fits = take_number(token, bound->emplace());
  }
  if (fits) return {};
  return tl::unexpected(unexpected_token(fmt::format("a number from 0 on as {}", quote_name(key_)), token));
}

}  // namespace bitsnap::container
