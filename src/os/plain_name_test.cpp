#include "os/plain_name.hpp"

#include <gtest/gtest.h>

#include <string_view>

namespace bitsnap::os {
namespace {

using namespace std::string_view_literals;

TEST(PlainName, LeadsNowhereElse) {
  for (const std::string_view name : {"a"sv, "..."sv, ".hidden"sv, "a..b"sv, "a b\n\\"sv, "\xff"sv}) {
    EXPECT_TRUE(is_plain_name(name)) << name;
    EXPECT_TRUE(is_plain_path(name)) << name;
  }
  for (const std::string_view name : {""sv, "."sv, ".."sv, "/"sv, "a/b"sv, "/a"sv, "a/"sv, "a\0b"sv}) {
    EXPECT_FALSE(is_plain_name(name)) << name;
  }
}

TEST(PlainPath, IsOfPlainNames) {
  EXPECT_TRUE(is_plain_path("a/b/..c"));
  for (const std::string_view path :
       {""sv, "/"sv, "/a"sv, "a/"sv, "a//b"sv, "a/../b"sv, "../a"sv, "a/.."sv, "a/./b"sv, "a/b\0c"sv}) {
    EXPECT_FALSE(is_plain_path(path)) << path;
  }
}

}  // namespace
}  // namespace bitsnap::os
