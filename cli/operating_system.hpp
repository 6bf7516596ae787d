// The only code of the command that calls the operating system: the terminal, the standard streams, signals, priority,
// facts about files, and external commands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include <bitsnap/error.hpp>

namespace bitsnap::cli {

[[nodiscard]] bool is_terminal(std::FILE* stream) noexcept;

// Width of the terminal behind the stream, in columns; nullopt if it is no terminal or its width is unknown.
[[nodiscard]] std::optional<std::size_t> terminal_width(std::FILE* stream) noexcept;

// Whether the environment allows colour: NO_COLOR is not set, or empty, and TERM is not "dumb".
[[nodiscard]] bool wants_color() noexcept;

// Opens closed standard streams on /dev/null, so that no file that the command opens gets their numbers and receives
// messages.
void open_standard_streams() noexcept;

// After this call, the first SIGINT, SIGTERM or SIGHUP only asks the command to stop, so that it can remove its
// temporary files; the second one ends it at once. An ignored signal stays ignored (nohup).
void catch_interrupts() noexcept;

// Lets a write over the limit of file sizes (ulimit -f) fail, instead of ending the process with SIGXFSZ. External
// commands inherit that.
void ignore_file_size_signal() noexcept;

// The signal that asked the command to stop, or 0. Any thread may ask.
[[nodiscard]] int interrupt_signal() noexcept;

// Yields processors and disks to other processes: this thread, and those that it starts afterwards. Where the system
// refuses, the priority stays.
void lower_priority() noexcept;

[[nodiscard]] std::int64_t process_number() noexcept;

// Differs between calls and processes. (std::random_device binds the program to glibc 2.36.)
[[nodiscard]] std::uint64_t random_number() noexcept;

// ---- files

enum class NodeKind : std::uint8_t { file, directory, symbolic_link, other };

// What tells whether a file has changed. A file whose content, name or mode changes gets a new `changed_ns`, which
// programs cannot set, unlike `modified_ns`.
struct FileFacts {
  NodeKind kind = NodeKind::other;
  std::uint32_t mode = 0;        // permission bits
  std::uint64_t size_bytes = 0;  // 0 unless it is a file
  std::int64_t modified_ns = 0;  // since the Unix epoch, as changed_ns
  std::int64_t changed_ns = 0;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t links = 0;  // names of a file

  friend bool operator==(const FileFacts&, const FileFacts&) = default;
};

// Follows no symbolic link at the end of the path. nullopt if nothing is there.
[[nodiscard]] Result<std::optional<FileFacts>> read_facts(const std::string& path);

// Renames a file or folder within one file system. Fails, and changes nothing, if `to` exists, or if the file system
// cannot rename a file without replacing another one.
[[nodiscard]] Result<void> rename_no_replace(const std::string& from, const std::string& to);

// Makes everything that was written to the file system of this directory durable.
[[nodiscard]] Result<void> sync_file_system(const std::string& path);

// ---- external commands, as in git: `bitsnap NAME ...` runs the program `bitsnap-NAME ...`, which is in the folder of
// bitsnap or in PATH, and ends with its exit status. Built-in commands take precedence.

// An external command that the project provides; --help lists it even if it is not installed.
struct KnownExternal {
  std::string_view name;
  std::string_view description;
  std::string_view how_to_get;
};

inline constexpr KnownExternal kReport = {"report", "Write a page of plots about a run, for the browser",
                                          "it comes with the Python package: pip install 'bitsnap[report]'"};

// Not a command: it is this one with clients of object stores.
inline constexpr KnownExternal kRemote = {"remote", "",
                                          "it comes with the Python package: pip install 'bitsnap[remote]'"};

// The section of --help about them, with an empty line at its end.
[[nodiscard]] std::string external_help();

// Path of the program, or nullopt: searched in the folder of this program, then in the absolute folders of PATH. Names
// consist of letters, digits, - and _.
[[nodiscard]] std::optional<std::string> find_external(std::string_view name);

// Replaces this process by the program; `arguments` end with a null pointer. Returns only if that fails. The program
// gets the path of this one in the variable BITSNAP_COMMAND.
[[nodiscard]] Error run_external(const std::string& path, const char* const* arguments);

}  // namespace bitsnap::cli
