// Tests of FunctionRef.
#include "base/function_ref.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <memory>

namespace bitsnap {
namespace {

int twice(int value) { return 2 * value; }

int call_with(FunctionRef<int(int)> function, int value) { return function(value); }

TEST(FunctionRef, CallsFunctionsLambdasAndFunctionObjects) {
  int calls = 0;
  const auto count = [&calls](int value) { return ++calls + value; };
  const std::function<int(int)> object = twice;
  EXPECT_EQ(call_with(twice, 4), 8);
  EXPECT_EQ(call_with(&twice, 5), 10);
  EXPECT_EQ(call_with(object, 6), 12);
  EXPECT_EQ(call_with(count, 10), 11);
  EXPECT_EQ(call_with(count, 10), 12);
  EXPECT_EQ(call_with([](int value) { return value - 1; }, 3), 2);
  EXPECT_EQ(calls, 2);
}

TEST(FunctionRef, RefersToTheOriginalObject) {
  int state = 0;
  auto function = [state]() mutable { return ++state; };
  const FunctionRef<int()> reference = function;
  const FunctionRef<int()> copy = reference;
  EXPECT_EQ(reference(), 1);
  EXPECT_EQ(copy(), 2);
  EXPECT_EQ(function(), 3);
}

TEST(FunctionRef, PassesMoveOnlyArgumentsAndDropsAResultForVoid) {
  std::unique_ptr<int> kept;
  const auto keep = [&kept](std::unique_ptr<int> value) {
    kept = std::move(value);
    return *kept;
  };
  const FunctionRef<void(std::unique_ptr<int>)> reference = keep;
  reference(std::make_unique<int>(9));
  EXPECT_EQ(*kept, 9);
}

}  // namespace
}  // namespace bitsnap
