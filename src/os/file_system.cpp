// What all file systems share: paths as text, and reading a whole file.
#include "os/file_system.hpp"

#include <new>

namespace bitsnap::os {

std::unique_ptr<ReadAhead> RandomAccessFile::read_ahead(std::span<const FileRange> /*ranges*/,
                                                        std::uint64_t /*most_bytes*/) const {
  return nullptr;
}

std::uint64_t FileSystem::doubt_ms(const std::string& /*path*/) { return 0; }

Result<std::optional<FileSystem::Tree>> FileSystem::list_tree(const std::string& /*path*/) { return std::nullopt; }

std::string parent_directory(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  const std::size_t end = path.find_last_not_of('/', slash);
  return end == std::string_view::npos ? "/" : std::string(path.substr(0, end + 1));
}

std::string_view file_name(std::string_view path) noexcept {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::string join_path(std::string_view directory, std::string_view name) {
  if (directory.empty() || name.starts_with('/')) return std::string(name);
  std::string path(directory);
  if (!path.ends_with('/')) path += '/';
  return path.append(name);
}

Result<std::vector<std::byte>> read_file(FileSystem& file_system, const std::string& path, std::uint64_t limit_bytes) {
  BITSNAP_ASSIGN(const auto file, file_system.open(path, AccessPattern::sequential));
  const std::uint64_t size = file->size_bytes();
  if (size > limit_bytes) {
    return fail(ErrorKind::resource_exhausted, "read " + path + ": it has " + std::to_string(size) +
                                                   " bytes, the limit is " + std::to_string(limit_bytes));
  }
  std::vector<std::byte> contents;
  try {
    contents.resize(static_cast<std::size_t>(size));
  } catch (const std::exception&) {
    return fail(ErrorKind::resource_exhausted, "read " + path + ": no memory for " + std::to_string(size) + " bytes");
  }
  BITSNAP_TRY(file->read_at(0, contents));
  return contents;
}

}  // namespace bitsnap::os
