// The steps: write a temporary file, sync it, rename it, sync the directory.
#include "os/atomic_file.hpp"

#include <cstdio>
#include <utility>

#include "os/plain_name.hpp"
#include "os/random.hpp"

namespace bitsnap::os {
namespace {

constexpr std::size_t kMaxNamePart = 200;  // of the target's name; a file name may have 255 bytes in all
constexpr std::size_t kRandomDigits = 16;
constexpr std::string_view kSuffix = ".tmp";
constexpr int kNameAttempts = 8;  // 64-bit random numbers do not collide; an existing name means something else

tl::unexpected<Error> already_exists(const std::string& path) {
  return fail(ErrorKind::invalid_argument, "create " + path + ": it already exists");
}

}  // namespace

std::string temporary_name(std::string_view name) {
  if (name.size() > kMaxNamePart) {
    std::size_t end = kMaxNamePart;
    while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0u) == 0x80u) --end;  // whole UTF-8 characters
    name = name.substr(0, end);
  }
  char digits[kRandomDigits + 1];
  std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(random_u64()));
  return std::string(".").append(name).append(".").append(digits).append(kSuffix);
}

bool AtomicFile::is_temporary_name(std::string_view name) noexcept {
  constexpr std::size_t kMinBytes = 1 + 1 + 1 + kRandomDigits + kSuffix.size();  // a dot, a byte of name, a dot
  if (name.size() < kMinBytes || !name.starts_with('.') || !name.ends_with(kSuffix)) return false;
  name.remove_suffix(kSuffix.size());
  const std::string_view digits = name.substr(name.size() - kRandomDigits);
  return name[name.size() - kRandomDigits - 1] == '.' &&
         digits.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

AtomicFile::Temporary::Temporary(FileSystem& file_system, std::string path)
    : file_system_(file_system), path_(std::move(path)) {}

void AtomicFile::Temporary::remove() noexcept {
  if (!std::exchange(is_there_, false)) return;
  try {
    static_cast<void>(file_system_.remove(path_));  // if this fails, too, there is no caller left to report it to
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory while making an error's message
  }
}

AtomicFile::AtomicFile(FileSystem& file_system, std::string path, std::string temporary_path, bool overwrite,
                       Durability durability, std::unique_ptr<WritableFile> file)
    : file_system_(&file_system),
      path_(std::move(path)),
      overwrite_(overwrite),
      durability_(durability),
      temporary_(std::make_unique<Temporary>(file_system, std::move(temporary_path))),
      file_(std::move(file)) {}

Result<AtomicFile> AtomicFile::create(FileSystem& file_system, const std::string& path, bool overwrite, FileMode mode,
                                      Durability durability) {
  const std::string_view name = file_name(path);
  if (!is_plain_name(name)) return fail(ErrorKind::invalid_argument, "create " + path + ": it does not name a file");
  BITSNAP_ASSIGN(const FileInfo target, file_system.stat(path));
  if (target.exists && !overwrite) return already_exists(path);
  if (target.exists && !target.is_regular) {
    return fail(ErrorKind::invalid_argument,
                "create " + path + ": " + (target.is_directory ? "it is a directory" : "it is not a regular file"));
  }
  const std::size_t directory_bytes = path.size() - name.size();
  for (int attempt = 1;; ++attempt) {
    std::string temporary = path.substr(0, directory_bytes) + temporary_name(name);
    auto file = file_system.create(temporary, mode);
    if (file)
      return AtomicFile(file_system, path, std::move(temporary), overwrite, durability, std::move(file).value());
    if (attempt == kNameAttempts || file.error().kind() != ErrorKind::invalid_argument) {
      return tl::unexpected<Error>(std::move(file).error());
    }
    // The target exists, or its name is unusable: stat() gives the clearer error.
    BITSNAP_ASSIGN(const FileInfo info, file_system.stat(temporary));
    if (!info.exists) return tl::unexpected<Error>(std::move(file).error());
  }
}

Result<void> AtomicFile::commit(const std::function<Result<void>(const std::string& path)>& check) {
  if (file_ == nullptr) {
    return fail(ErrorKind::invalid_argument, "commit " + path_ + ": it was already committed or abandoned");
  }
  const auto finish = [&]() -> Result<void> {
    if (durability_ == Durability::synced) BITSNAP_TRY(file_->sync());
    BITSNAP_TRY(file_->close());
    if (check) BITSNAP_TRY(check(temporary_path()));
    if (overwrite_) return file_system_->rename(temporary_path(), path_);
    return file_system_->rename_no_replace(temporary_path(), path_);
  };
  Result<void> finished = finish();
  file_.reset();
  if (!finished) {
    temporary_->remove();
    return finished;
  }
  temporary_->keep();
  if (durability_ == Durability::cached) return {};
  auto synced = file_system_->sync_directory(parent_directory(path_));
  if (!synced) {
    return tl::unexpected<Error>(
        std::move(synced).error().within(path_ + " is written, but may not outlive a crash of the machine"));
  }
  directory_synced_ = *synced == DirectorySync::done;
  return {};
}

}  // namespace bitsnap::os
