// Loss reports as JSON: round trips, unknown keys, values that are corrupt.
#include "container/quantizer_json.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "container/directory.hpp"

namespace bitsnap::container {
namespace {

LossReport full_report() {
  LossReport report;
  report.quantization = Quantization::update_step;
  report.amount = 0.02;
  report.bound = 0.048;
  report.adam = AdamNumbers{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .step = 300};
  report.next_update_bound = 0.05;
  report.all_updates_bound = 0.7;
  report.reached = {.elements = 100,
                    .changed = 99,
                    .finite = 98,
                    .nonzero = 97,
                    .past_nearest = 1,
                    .max_absolute = 1e-5,
                    .max_relative = 0.5,
                    .sum_square = 1e-300,
                    .sum_relative = 3};
  report.updates = {
      .elements = 7, .largest = 0.03, .sum = 0.1, .sum_square = 0.01, .sum_update = 3, .sum_update_square = 4};
  return report;
}

Result<Encoding> parse(const std::string& quantizer) {
  return parse_encoding(R"({"writer":"w","policy":"p","streams":[{"reason":"r","quantizer":)" + quantizer + "}]}", 1,
                        {});
}

TEST(QuantizerJson, ReadsWhatItWrote) {
  for (const LossReport& report : {full_report(), LossReport{.quantization = Quantization::mantissa_bits}}) {
    Encoding encoding;
    encoding.streams.resize(2);
    encoding.streams[1].quantizer = report;
    const auto again = parse_encoding(serialize_encoding(encoding), 2, {});
    ASSERT_TRUE(again.has_value()) << again.error().message();
    EXPECT_FALSE(again->streams[0].quantizer.has_value());
    EXPECT_EQ(again->streams[1].quantizer, report);
  }
}

TEST(QuantizerJson, WritesInfinityAsTheLargestDouble) {
  LossReport report;
  report.reached.sum_square = std::numeric_limits<double>::infinity();
  json::JsonWriter json;
  write_quantizer(json, report);
  EXPECT_EQ(parse(json.text())->streams[0].quantizer->reached.sum_square, std::numeric_limits<double>::max());
}

TEST(QuantizerJson, SkipsUnknownKeys) {
  const auto parsed = parse(
      R"({"new":[{"name":"x","deep":[1,[2]]}],"name":"clusters","reached":{"elements":3,"later":{"elements":9}},"amount":16,)"
      R"("updates":[1,{"sum":2}],"whole":{"amount":4},"bound":2})");
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message();
  const LossReport& report = *parsed->streams[0].quantizer;
  EXPECT_EQ(report.quantization, Quantization::clusters);
  EXPECT_EQ(report.amount, 16);
  EXPECT_EQ(report.bound, 2.0);
  EXPECT_EQ(report.reached.elements, 3U);
  EXPECT_EQ(report.updates, UpdateErrors{});
  EXPECT_EQ(parsed->streams[0].reason, "r");
}

TEST(QuantizerJson, RejectsInvalidValues) {
  for (const std::string quantizer : {"3",
                                      "[]",
                                      R"("x")",
                                      R"({"name":"better"})",
                                      R"({"name":3})",
                                      R"({"amount":"x"})",
                                      R"({"amount":-1})",
                                      R"({"reached":{"elements":1.5}})",
                                      R"({"reached":{"elements":-3}})",
                                      R"({"adam":{"step":0.5}})",
                                      R"({"next_update_bound":null})",
                                      "{}",
                                      R"({"amount":3})",
                                      R"({"name":"mantissa_bits","amount":99})",
                                      R"({"name":"mantissa_bits","amount":2.5})",
                                      R"({"name":"master_bits","amount":16})",
                                      R"({"name":"clusters","amount":17})",
                                      R"({"name":"update_step"})",
                                      R"({"name":"update_step","amount":1e300})",
                                      R"({"name":"exact","bound":-1.5})",
                                      R"({"name":"exact","next_update_bound":-1.5})",
                                      R"({"name":"exact","reached":{"max_relative":-0.5}})",
                                      R"({"name":"exact","adam":{"beta1":1.5}})",
                                      R"({"name":"exact","adam":{"epsilon":-1.5}})"}) {
    const auto parsed = parse(quantizer);
    ASSERT_FALSE(parsed.has_value()) << quantizer;
    EXPECT_EQ(parsed.error().kind(), ErrorKind::corrupt) << quantizer;
    EXPECT_NE(parsed.error().message().find("stream 0"), std::string::npos) << parsed.error().message();
  }
}

}  // namespace
}  // namespace bitsnap::container
