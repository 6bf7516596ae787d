// Finds a base, and everything that it depends on, by id: for opening a file that was just coded against it.
#pragma once

#include <memory>
#include <utility>

#include <bitsnap/snapshot.hpp>

namespace bitsnap::save {

// Thread-safe. Owns a share of the base.
class BaseChain final : public BaseProvider {
 public:
  // Precondition: not nullptr.
  explicit BaseChain(std::shared_ptr<const Base> base) noexcept : base_(std::move(base)) {}

  [[nodiscard]] Result<std::shared_ptr<const Base>> find(const SnapshotId& id) const override;

 private:
  std::shared_ptr<const Base> base_;
};

}  // namespace bitsnap::save
