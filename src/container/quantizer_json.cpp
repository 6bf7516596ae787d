// The tables of fields of a quantizer's report.
#include "container/quantizer_json.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>

#include <fmt/format.h>

#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "json/json_fields.hpp"
#include "tensor/quantization_amounts.hpp"

namespace bitsnap {
namespace {

using json::json_field;
using json::JsonNeed;
using json::JsonReader;
using json::JsonWriter;

struct NameFormat {
  static Result<void> read(JsonReader& in, Quantization& to) {
    BITSNAP_ASSIGN(const std::string name, in.read_string());
    const auto quantization = quantization_from_name(name);
    if (!quantization) return fail(ErrorKind::corrupt, fmt::format("unknown quantizer {}", quote_name(name)));
    to = *quantization;
    return {};
  }
  static void write(JsonWriter& out, Quantization from) { out.string(quantization_name(from)); }
};

// A double that is not negative.
struct AmountFormat {
  static Result<void> read(JsonReader& in, double& to) {
    BITSNAP_ASSIGN(const json::JsonNumber number, in.read_number("a number of at least 0"));
    const bool is_real = number.kind == json::JsonNumber::Kind::real;
    const bool is_integer = number.kind == json::JsonNumber::Kind::integer && !number.negative;
    if (!is_integer && !(is_real && number.real >= 0)) {
      return fail(ErrorKind::corrupt, "expected a number of at least 0 and, without a fraction, of at most 64 bits");
    }
    to = is_real ? number.real : static_cast<double>(number.magnitude);
    return {};
  }
  static Result<void> read(JsonReader& in, std::optional<double>& to) { return read(in, to.emplace()); }

  // Sums may be infinite, which JSON has no number for.
  static void write(JsonWriter& out, double from) {
    out.number(std::isfinite(from) ? from : std::numeric_limits<double>::max());
  }
  static void write(JsonWriter& out, const std::optional<double>& from) { write(out, *from); }
};

// An object with fields of its own.
struct PartFormat {
  template <typename Part>
  static Result<void> read(JsonReader& in, Part& to) {
    BITSNAP_ASSIGN(const json::JsonType type, in.peek());
    return type == json::JsonType::object ? json::read_json(in, to) : in.skip_value();
  }
  template <typename Part>
  static void write(JsonWriter& out, const Part& from) {
    json::write_json(out, from);
  }
};

template <auto kMember>
constexpr auto count(std::string_view key) {
  return json_field<kMember>(key, JsonNeed::defaulted);
}
template <auto kMember>
constexpr auto amount(std::string_view key, JsonNeed need = JsonNeed::defaulted) {
  return json_field<kMember, AmountFormat>(key, need);
}

}  // namespace

static constexpr auto json_fields(std::type_identity<ErrorTally>) {
  return std::array{count<&ErrorTally::elements>("elements"),
                    count<&ErrorTally::changed>("changed"),
                    count<&ErrorTally::finite>("finite"),
                    count<&ErrorTally::nonzero>("nonzero"),
                    count<&ErrorTally::past_nearest>("past_nearest"),
                    amount<&ErrorTally::max_absolute>("max_absolute"),
                    amount<&ErrorTally::max_relative>("max_relative"),
                    amount<&ErrorTally::sum_square>("sum_square"),
                    amount<&ErrorTally::sum_relative>("sum_relative")};
}

static constexpr auto json_fields(std::type_identity<UpdateErrors>) {
  return std::array{count<&UpdateErrors::elements>("elements"),
                    amount<&UpdateErrors::largest>("largest"),
                    amount<&UpdateErrors::sum>("sum"),
                    amount<&UpdateErrors::sum_square>("sum_square"),
                    amount<&UpdateErrors::sum_update>("sum_update"),
                    amount<&UpdateErrors::sum_update_square>("sum_update_square")};
}

static constexpr auto json_fields(std::type_identity<AdamNumbers>) {
  return std::array{amount<&AdamNumbers::beta1>("beta1"), amount<&AdamNumbers::beta2>("beta2"),
                    amount<&AdamNumbers::eps>("epsilon"), count<&AdamNumbers::step>("step")};
}

static constexpr auto json_fields(std::type_identity<LossReport>) {
  using Report = LossReport;
  return std::array{json_field<&Report::quantization, NameFormat>("name"),
                    amount<&Report::bound>("bound", JsonNeed::optional),
                    amount<&Report::next_update_bound>("next_update_bound", JsonNeed::optional),
                    amount<&Report::all_updates_bound>("all_updates_bound", JsonNeed::optional),
                    amount<&Report::amount>("amount"),
                    json_field<&Report::reached, PartFormat>("reached", JsonNeed::defaulted),
                    json_field<&Report::updates, PartFormat>("updates", JsonNeed::defaulted),
                    json_field<&Report::adam, PartFormat>("adam", JsonNeed::optional)};
}

}  // namespace bitsnap

namespace bitsnap::container {

void write_quantizer(JsonWriter& out, const LossReport& report) { json::write_json(out, report); }

Result<void> read_quantizer(JsonReader& in, LossReport& report) {
  report = {};
  BITSNAP_TRY(json::read_json(in, report));
  if (!tensor::is_amount_of(report.quantization, report.amount)) {
    return fail(ErrorKind::corrupt,
                fmt::format("{} is not a valid amount for {}", report.amount, quantization_name(report.quantization)));
  }
  const auto is_beta = [](double beta) { return beta >= 0 && beta < 1; };
  if (report.adam && !(is_beta(report.adam->beta1) && is_beta(report.adam->beta2))) {
    return fail(ErrorKind::corrupt, fmt::format("betas {} and {}: expected numbers of at least 0 and below 1",
                                                report.adam->beta1, report.adam->beta2));
  }
  return {};
}

}  // namespace bitsnap::container
