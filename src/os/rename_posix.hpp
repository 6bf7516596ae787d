// Moves a file without replacing another: the ways to do it, from the best to the last resort. Used by src/os only.
//
// Each function returns 0 or an errno: EEXIST, with nothing changed, if `to` exists.
#pragma once

namespace bitsnap::os {

// A path relative to an open directory, or to AT_FDCWD.
struct RenamePath {
  int directory;
  const char* name;
};

// renameat2() with RENAME_NOREPLACE: atomic. EINVAL, ENOSYS or EOPNOTSUPP if the file system or kernel lacks it.
[[nodiscard]] int rename_exclusive(const RenamePath& from, const RenamePath& to) noexcept;

// A hard link and an unlink: `to` appears atomically; a crash in between leaves both names. For files only; EPERM or
// EOPNOTSUPP without hard links.
[[nodiscard]] int rename_by_link(const RenamePath& from, const RenamePath& to) noexcept;

// Creates `to` as an empty file, then renames over it: `to` is empty for a moment, or for good after a crash.
[[nodiscard]] int rename_by_placeholder(const RenamePath& from, const RenamePath& to) noexcept;

// Uses the first of these that the file system supports.
[[nodiscard]] int rename_no_replace(const RenamePath& from, const RenamePath& to) noexcept;

}  // namespace bitsnap::os
