// Names of output files.
#include "cli/file_paths.hpp"

#include <algorithm>
#include <system_error>

#include <fmt/format.h>

#include "cli/command.hpp"

namespace bitsnap::cli {

namespace fs = std::filesystem;

std::string replace_extension(const std::string& path, std::string_view from, std::string_view to) {
  if (path.size() > from.size() && path.ends_with(from)) return path.substr(0, path.size() - from.size()).append(to);
  return path + std::string(to);
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

fs::path resolve_path(const std::string& path) {
  std::error_code error;
  fs::path resolved = fs::weakly_canonical(fs::absolute(path, error), error);
  if (error) resolved = path;
  return resolved.has_filename() ? resolved : resolved.parent_path();
}

std::string file_name(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  return name.empty() ? path : name;
}

Result<std::uint64_t> file_size(const std::string& path) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  if (error) return fail(ErrorKind::io, fmt::format("{}: cannot find its size: {}", path, error.message()));
  return size;
}

Result<void> check_not_within(const std::string& output, const std::string& input) {
  const fs::path folder = resolve_path(input);
  const fs::path path = resolve_path(output);
  if (std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first != folder.end() || folder == path) {
    return {};
  }
  return fail(ErrorKind::invalid_argument, fmt::format("{}: lies in {}, the folder that is stored", output, input));
}

Result<void> check_output(const std::string& output, const std::vector<std::string>& inputs, bool overwrite) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(output, error);
  if (!fs::exists(status)) return {};
  if (fs::is_directory(status)) {
    return fail(ErrorKind::invalid_argument, fmt::format("{}: is a directory; name another output", output));
  }
  for (const std::string& input : inputs) {
    if (fs::equivalent(output, input, error)) {
      return fail(ErrorKind::invalid_argument,
                  fmt::format("{}: is an input of this command; name another output", output));
    }
  }
  if (!overwrite) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("{}: exists already; -f overwrites it, or name another output", output));
  }
  return {};
}

}  // namespace bitsnap::cli
