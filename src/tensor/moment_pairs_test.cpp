// Tests of pair_moments().
#include "tensor/moment_pairs.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace bitsnap::tensor {
namespace {

using Pairs = std::vector<std::optional<std::size_t>>;

TensorInfo info(std::string name, Role role, DType dtype = DType::f32, std::uint64_t elements = 8) {
  TensorInfo made;
  made.name = std::move(name);
  made.role = role;
  made.dtype = dtype;
  made.shape = {elements};
  made.size_bytes = elements * element_size(dtype);
  return made;
}

TEST(PairMoments, FindsSecondMomentsByTheirNames) {
  const std::vector<TensorInfo> tensors = {info("optimizer.state.0.exp_avg", Role::exp_avg),
                                           info("optimizer.state.1.exp_avg", Role::exp_avg),
                                           info("optimizer.state.1.max_exp_avg_sq", Role::exp_avg_sq),
                                           info("optimizer.state.1.exp_avg_sq", Role::exp_avg_sq),
                                           info("exp_avg/a.w", Role::exp_avg),
                                           info("exp_avg_sq/a.w", Role::exp_avg_sq),
                                           info("model.a.w", Role::weight)};
  EXPECT_EQ(pair_moments(tensors), (Pairs{{}, 3, {}, {}, 5, {}, {}}));
}

TEST(PairMoments, IgnoresOtherDtypesOtherSizesAndAliases) {
  std::vector<TensorInfo> tensors = {info("exp_avg.a", Role::exp_avg, DType::bf16),
                                     info("exp_avg_sq.a", Role::exp_avg_sq),
                                     info("exp_avg.b", Role::exp_avg),
                                     info("exp_avg_sq.b", Role::exp_avg_sq, DType::bf16),
                                     info("exp_avg.c", Role::exp_avg),
                                     info("exp_avg_sq.c", Role::exp_avg_sq, DType::f32, 9),
                                     info("exp_avg.d", Role::exp_avg),
                                     info("exp_avg_sq.d", Role::exp_avg_sq)};
  tensors[7].alias_of = 1;
  EXPECT_EQ(pair_moments(tensors), Pairs(tensors.size()));
  tensors[7].alias_of.reset();
  EXPECT_EQ(pair_moments(tensors)[6], 7U);
}

}  // namespace
}  // namespace bitsnap::tensor
