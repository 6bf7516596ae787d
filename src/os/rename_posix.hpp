// The ways to move a file without replacing another, from the best to the last resort. Of this floor only.
//
// Each returns 0 or an errno; EEXIST if something stands at `to`. Where `to` is refused, nothing has changed.
#pragma once

namespace bitsnap::os {

// renameat2() with RENAME_NOREPLACE: atomic. EINVAL, ENOSYS or EOPNOTSUPP where the file system or kernel lacks it.
[[nodiscard]] int rename_exclusive(const char* from, const char* to) noexcept;

// A hard link and an unlink: `to` appears atomically; a crash between leaves both names. EPERM or EOPNOTSUPP where
// there are no hard links; files only.
[[nodiscard]] int rename_by_link(const char* from, const char* to) noexcept;

// Claims `to` with an empty file, then renames over that: for a moment, or after a crash for ever, `to` is empty.
[[nodiscard]] int rename_by_placeholder(const char* from, const char* to) noexcept;

// The first of these that the file system can do.
[[nodiscard]] int rename_no_replace(const char* from, const char* to) noexcept;

}  // namespace bitsnap::os
