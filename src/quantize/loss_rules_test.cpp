// Tests of loss rules: text, matching, and validation.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "quantize/loss_rules.hpp"

namespace bitsnap {
namespace {

TEST(LossRules, UpdateStepsAreForFirstMomentsOnly) {
  for (const std::string_view role : {"master", "weight", "exp_avg_sq", "other"}) {
    const auto refused = parse_loss_rule(std::string(role) + ":*.w=update_step:0.02");
    ASSERT_FALSE(refused.has_value()) << role;
    EXPECT_EQ(refused.error().kind(), ErrorKind::invalid_argument);
    EXPECT_NE(refused.error().message().find(std::string("not to ") + std::string(role)), std::string::npos);
  }
  EXPECT_TRUE(parse_loss_rule("exp_avg=update_step:0.02").has_value());
  EXPECT_TRUE(parse_loss_rule("*=update_step:0.02").has_value());
}

TEST(LossRules, ParsesAndFormatsText) {
  for (const std::string_view text :
       {"exp_avg=exact", "*=exact", "exp_avg_sq=mantissa_bits:3", "master:blocks.*.w=master_bits:8",
        "exp_avg:*a=b*=update_step:0.02", "*:?.w=clusters:256", "weight=mantissa_bits:0"}) {
    const auto rule = parse_loss_rule(text);
    ASSERT_TRUE(rule.has_value()) << text << ": " << rule.error().message();
    EXPECT_EQ(format_loss_rule(*rule), text);
    EXPECT_EQ(parse_loss_rule(format_loss_rule(*rule)).value(), *rule);
  }
  const LossRule rule = parse_loss_rule("exp_avg_sq:*.embed*=mantissa_bits:5").value();
  EXPECT_EQ(rule.role, Role::exp_avg_sq);
  EXPECT_EQ(rule.name, "*.embed*");
  EXPECT_EQ(rule.quantization, Quantization::mantissa_bits);
  EXPECT_EQ(rule.amount, 5);
}

TEST(LossRules, RefusesInvalidRulesAndStatesTheValidForms) {
  for (const std::string_view text :
       {"", "=", "exp_avg", "exp_avg=", "exp_avg=exact:1", "exp_avg=nothing", "moment=exact", "exp_avg=update_step",
        "exp_avg=update_step:", "exp_avg=update_step:x", "exp_avg=update_step:0.1x", "=exact", "exp_avg =exact"}) {
    const auto rule = parse_loss_rule(text);
    ASSERT_FALSE(rule.has_value()) << text;
    EXPECT_EQ(rule.error().kind(), ErrorKind::invalid_argument);
    EXPECT_NE(rule.error().message().find("ROLE[:PATTERN]=WHAT"), std::string::npos) << rule.error().message();
  }
  for (const auto& [text, expected] :
       std::vector<std::pair<std::string_view, std::string_view>>{{"*=mantissa_bits:23", "from 0 to 22"},
                                                                  {"*=mantissa_bits:-1", "from 0 to 22"},
                                                                  {"*=mantissa_bits:1.5", "an integer"},
                                                                  {"*=mantissa_bits:nan", "an integer"},
                                                                  {"*=master_bits:16", "from 0 to 15"},
                                                                  {"*=update_step:0", "above 0 and at most 1"},
                                                                  {"*=update_step:1.01", "above 0 and at most 1"},
                                                                  {"*=update_step:nan", "above 0 and at most 1"},
                                                                  {"*=clusters:15", "16 or 256"}}) {
    const auto rule = parse_loss_rule(text);
    ASSERT_FALSE(rule.has_value()) << text;
    EXPECT_NE(rule.error().message().find(expected), std::string::npos) << rule.error().message();
  }
}

TEST(LossRules, PatternsMatchWholeNames) {
  using quantize::matches_pattern;
  EXPECT_TRUE(matches_pattern("", ""));
  EXPECT_TRUE(matches_pattern("", "**"));
  EXPECT_FALSE(matches_pattern("", "?"));
  EXPECT_TRUE(matches_pattern("a.b.c", "a*c"));
  EXPECT_TRUE(matches_pattern("a.b.c", "*.b.*"));
  EXPECT_TRUE(matches_pattern("aXbXbXc", "a*bXc")) << "the first match of b*X is not the right one";
  EXPECT_FALSE(matches_pattern("a.b.c", "a*b"));
  EXPECT_FALSE(matches_pattern("a.b.c", "b*"));
  EXPECT_TRUE(matches_pattern("layers.7.w", "layers.?.w"));
  EXPECT_FALSE(matches_pattern("layers.17.w", "layers.?.w"));
  EXPECT_TRUE(matches_pattern("*", "*"));
  EXPECT_FALSE(matches_pattern(std::string(10'000, 'a'), "*a*a*a*a*a*a*a*a*b")) << "in linear time";
}

TEST(LossRules, TheFirstMatchWinsAndTheCallersRulesComeFirst) {
  const std::vector<LossRule> rules{parse_loss_rule("exp_avg:*.x=exact").value(),
                                    parse_loss_rule("*:*.y=mantissa_bits:1").value()};
  const auto preset = quantize::preset_rules(Policy::bounded);
  const auto found = [&](Role role, std::string_view name) {
    const LossRule* const rule = quantize::find_rule(role, name, rules, preset);
    return rule == nullptr ? std::string("none") : format_loss_rule(*rule);
  };
  EXPECT_EQ(found(Role::exp_avg, "a.x"), "exp_avg:*.x=exact");
  EXPECT_EQ(found(Role::exp_avg, "a.y"), "*:*.y=mantissa_bits:1");
  EXPECT_EQ(found(Role::exp_avg, "a.z"), "exp_avg=update_step:0.02");
  EXPECT_EQ(found(Role::exp_avg_sq, "a.x"), "exp_avg_sq=mantissa_bits:3");
  EXPECT_EQ(found(Role::master, "a.x"), "master=master_bits:8");
  EXPECT_EQ(found(Role::weight, "a.x"), "none");
  EXPECT_TRUE(quantize::preset_rules(Policy::lossless).empty());
  EXPECT_TRUE(quantize::preset_rules(Policy::lmc).empty());
  EXPECT_TRUE(quantize::preset_rules(Policy::raw).empty());
}

}  // namespace
}  // namespace bitsnap
