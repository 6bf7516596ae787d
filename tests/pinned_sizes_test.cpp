// The compressed sizes of real samples change only on purpose: pinned/README.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "pinned_sizes.hpp"

namespace bitsnap {
namespace {

const std::string kFolder = std::string(BITSNAP_TESTS_DIR) + "/pinned";

TEST(PinnedSizes, AreUnchangedForEveryCodec) {
  std::vector<std::string> pinned;
  std::ifstream file(kFolder + "/sizes.csv");
  for (std::string line; std::getline(file, line);) pinned.push_back(line);
  const auto now = pinned_size_lines(kFolder);
  ASSERT_TRUE(now) << now.error().message();
  std::vector<std::string> changes;
  for (const std::string& line : *now) {
    if (std::ranges::find(pinned, line) == pinned.end()) changes.push_back("now " + line);
  }
  for (const std::string& line : pinned) {
    if (std::ranges::find(*now, line) == now->end()) changes.push_back("was " + line);
  }
  EXPECT_THAT(changes, testing::IsEmpty()) << "if that is meant: run write_pinned_sizes, and say what it is worth";
}

TEST(PinnedSizes, AreMeasuredOnLessThanAMegabyte) {
  std::uintmax_t total = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".raw") total += entry.file_size();
  }
  EXPECT_GT(total, 0U);
  EXPECT_LT(total, 1'000'000U);
}

}  // namespace
}  // namespace bitsnap
