// Snapshot ids as text.
#include <bitsnap/snapshot.hpp>

#include <gtest/gtest.h>

namespace bitsnap {
namespace {

TEST(SnapshotIds, AreWrittenHighHalfFirst) {
  const SnapshotId id{0x0123456789abcdef, 0xfedcba9876543210};
  EXPECT_EQ(id.to_hex(), "fedcba98765432100123456789abcdef");
  EXPECT_EQ(SnapshotId::from_hex(id.to_hex()), id);
  EXPECT_FALSE(SnapshotId::from_hex("fedcba98765432100123456789abcde").has_value());
  EXPECT_FALSE(SnapshotId::from_hex("FEDCBA98765432100123456789abcdef").has_value());
  EXPECT_FALSE(SnapshotId::from_hex("+edcba98765432100123456789abcdef").has_value());
}

}  // namespace
}  // namespace bitsnap
