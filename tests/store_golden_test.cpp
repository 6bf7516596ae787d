// Tests of the golden stores, which golden/README.md describes.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <bitsnap/store.hpp>

#include "store_digest_testing.hpp"

namespace bitsnap::store {
namespace {

const std::filesystem::path kGolden = std::filesystem::path(BITSNAP_TESTS_DIR) / "golden" / "store";

class StoreGolden : public testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] static std::string path() { return (kGolden / GetParam()).string(); }
};

TEST_P(StoreGolden, HoldsTheExpectedCheckpoints) {
  const auto expected = nlohmann::ordered_json::parse(std::ifstream(path() + ".json"));
  const auto store = Store::open(path());
  ASSERT_TRUE(store) << store.error().message();
  EXPECT_EQ((*store)->run_id(), expected.at("run_id").get<std::string>());
  auto checkpoints = nlohmann::ordered_json::array();
  const auto found = (*store)->checkpoints();
  ASSERT_TRUE(found) << found.error().message();
  for (const Checkpoint& info : *found) {
    EXPECT_FALSE(info.damage) << info.damage->message();
    checkpoints.push_back(describe_checkpoint(**store, info));
  }
  EXPECT_EQ(checkpoints, expected.at("checkpoints"));
}

TEST_P(StoreGolden, PassesVerification) {
  const auto store = Store::open(path());
  ASSERT_TRUE(store) << store.error().message();
  for (const bool decode : {true, false}) {
    const auto verification = (*store)->verify({.decode = decode});
    ASSERT_TRUE(verification) << verification.error().message();
    EXPECT_EQ(verification->checkpoints, (*store)->steps()->size());
    for (const StoreDamage& damage : verification->damages) ADD_FAILURE() << damage.error.message();
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, StoreGolden,
                         testing::Values("chain", "keyframes", "on-keyframe", "retired", "rewritten", "sharded",
                                         "files"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace bitsnap::store
