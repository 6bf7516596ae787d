// What the commands that store something take: a safetensors file, any other file, or a folder.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/folder.hpp>
#include <bitsnap/snapshot.hpp>

#include "cli/command.hpp"

namespace bitsnap::cli {

// Opens the input of `command`. `step`: as in FolderOptions. invalid_argument for snapshots and runs.
[[nodiscard]] Result<FolderState> open_input(const std::string& path, std::string_view command,
                                             std::optional<std::uint64_t> step = std::nullopt);

// What a training wrote, for commands that take snapshots as well: nullopt for a snapshot, and for a file of an unknown
// format, which is to be opened as a snapshot, because that explains best what is wrong with it. corrupt for a file
// that begins like one of a known format.
[[nodiscard]] Result<std::optional<FolderState>> find_input(const std::string& path, const DecodeLimits& limits = {});

// Opens a snapshot file. invalid_argument for what is certainly none, such as a directory or a torch file: the message
// says what it is, and which commands read it.
[[nodiscard]] Result<std::shared_ptr<const Snapshot>> open_snapshot(const std::string& path,
                                                                    const OpenOptions& options = {});

// The same as open_input(), with mode and time also for a single safetensors file.
[[nodiscard]] Result<FolderState> open_raw_input(const std::string& path, std::string_view command, std::uint64_t step);

// Warns about each file that looks like a container and is stored as plain bytes.
void warn_of_plain_files(const FolderState& input);

// Fails unless all of the snapshot can be decoded, and with cancelled after an interrupt.
[[nodiscard]] Result<void> check_decodes(const Snapshot& snapshot, unsigned threads);

// Fails unless every byte that was written can be decoded to the byte that was read, and the input is as it was when it
// was opened.
[[nodiscard]] Result<void> check_written(const FolderState& input, const Snapshot& written, unsigned threads);

}  // namespace bitsnap::cli
