// Names of output files, and the check that no output overwrites one of its inputs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/error.hpp>

namespace bitsnap::cli {

// `path` with the extension `from` replaced by `to`; without that extension, `to` is added.
[[nodiscard]] std::string replace_extension(const std::string& path, std::string_view from, std::string_view to);

// The path without slashes at its end, unless it is "/".
[[nodiscard]] std::string without_slash(std::string path);

// Absolute, without a separator at its end, links followed as far as the path exists.
[[nodiscard]] std::filesystem::path resolve_path(const std::string& path);

// The last part of a path, for messages and labels.
[[nodiscard]] std::string file_name(const std::string& path);

[[nodiscard]] Result<std::uint64_t> file_size(const std::string& path);

// Fails if the output lies in the folder `input`, which is read while the output is written.
[[nodiscard]] Result<void> check_not_within(const std::string& output, const std::string& input);

// Called before anything is written: fails if the output exists without `overwrite`, or is one of `inputs`.
[[nodiscard]] Result<void> check_output(const std::string& output, const std::vector<std::string>& inputs,
                                        bool overwrite);

}  // namespace bitsnap::cli
