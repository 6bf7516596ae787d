// Deletes a raw checkpoint once its copy in a run is proved to be equal.
//
// A deletion renames the checkpoint to `.NAME.deleting` first, so that nobody takes a half-deleted folder for a
// checkpoint. After the rename, what the training may have changed meanwhile is compared again. What changed gets its
// name back, but replaces nothing. A process that is killed meanwhile leaves that folder, and a later call removes it.
#pragma once

#include <cstdint>
#include <string>

#include <bitsnap/error.hpp>
#include <bitsnap/store.hpp>

namespace bitsnap::cli {

struct RawDeletion {
  bool is_deleted = false;
  std::string reason;  // why it stays
  std::uint64_t bytes = 0;
};

// Compares every file, link, mode and time of the checkpoint at `path` with `step` of the store, which is open for
// writing so that nobody removes the step meanwhile, and deletes the checkpoint if all are equal. No symbolic link is
// followed. An error says that the copy could not be read, or the checkpoint not be removed.
[[nodiscard]] Result<RawDeletion> delete_verified(const Store& store, const std::string& path, std::uint64_t step,
                                                  unsigned threads);

// Removes what an earlier deletion left at `path`, a `.NAME.deleting`: if all of the step can be decoded, and each file
// that is left is equal to that in the step.
[[nodiscard]] Result<RawDeletion> finish_deletion(const Store& store, const std::string& path, std::uint64_t step,
                                                  unsigned threads);

}  // namespace bitsnap::cli
