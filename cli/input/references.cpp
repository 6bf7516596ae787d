#include "cli/input/references.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <fmt/format.h>

#include <bitsnap/store.hpp>

#include "cli/command.hpp"
#include "cli/file_paths.hpp"
#include "cli/input/run_path.hpp"
#include "src/base/try.hpp"

namespace bitsnap::cli {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLargestReference = 1U << 16;
constexpr std::string_view kRunBeside = "bitsnap";  // where a training has the run of its references
constexpr std::string_view kRunRecord = R"({"store":)";
constexpr std::string_view kBeginning = R"({"version": 0, "run": ")";
constexpr std::string_view kSavedPath = "bitsnap.path";  // the key in the metadata of a step that was saved to a path
constexpr std::string_view kStateBeginning = R"({"bitsnap": )";  // of a file whose state a reference beside it leads to

bool is_folder_reference(const fs::path& path) {
  return std::ranges::find(kFolderReferences, path.filename().string()) != kFolderReferences.end();
}

// Where the reference of a folder is, or would be.
fs::path reference_in(const fs::path& folder) {
  std::error_code error;
  for (const std::string_view name : kFolderReferences) {
    if (fs::exists(fs::symlink_status(folder / name, error))) return folder / name;
  }
  return folder / kFolderReferences.front();
}

enum class Sort : std::uint8_t { other, run_record, state, damaged, reference };

struct SmallFile {
  Sort sort = Sort::other;
  Reference reference;
};

// nullopt if there is no regular file, or one that is larger than any reference. Links are followed, as a training
// does.
Result<std::optional<std::string>> read_small_file(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::optional<std::string>();
  const auto size = fs::file_size(path, error);
  if (error || size > kLargestReference) return std::optional<std::string>();
  std::ifstream in(path, std::ios::binary);
  std::string text(kLargestReference, '\0');
  if (in) in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in.is_open() || in.bad()) {
    if (!fs::exists(path, error)) return std::optional<std::string>();
    return fail(ErrorKind::io, fmt::format("{}: cannot be read, and may refer to a run", path.string()));
  }
  text.resize(static_cast<std::size_t>(in.gcount()));
  return std::optional(std::move(text));
}

// JSON that an editor has saved again may begin otherwise than a training writes it.
bool begins_object(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  return start != std::string_view::npos && text[start] == '{';
}

bool is_run_id(std::string_view text) {
  constexpr std::size_t kIdDigits = 32;
  return text.size() == kIdDigits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool parse_save(const Json& step, const Json& word, std::vector<ReferencedSave>& saves) {
  if (!step.is_number_unsigned() || !word.is_string()) return false;
  saves.push_back({step.get<std::uint64_t>(), word.get<std::string>()});
  return true;
}

bool parse_saves(const Json& content, Reference& reference) {
  if (!parse_save(content["step"], content.value("save", Json("")), reference.saves)) return false;
  const Json earlier = content.value("earlier", Json::array());
  return earlier.is_array() && std::ranges::all_of(earlier, [&](const Json& each) {
           return each.is_array() && each.size() == 2 && parse_save(each[0], each[1], reference.saves);
         });
}

SmallFile parse_small_file(const fs::path& path, const std::string& text) {
  SmallFile found;
  found.reference.path = path.string();
  const Json content = begins_object(text) ? Json::parse(text, nullptr, false) : Json(Json::value_t::discarded);
  const bool has_keys = content.is_object() && content.contains("version") && content["version"].is_number_unsigned() &&
                        content.contains("run") && content["run"].is_string() && content.contains("run_id") &&
                        content["run_id"].is_string() && is_run_id(content["run_id"].get<std::string>()) &&
                        content.contains("step");
  if (has_keys) {
    found.sort = Sort::reference;
    found.reference.version = content["version"].get<std::uint64_t>();
    found.reference.run = (path.parent_path() / content["run"].get<std::string>()).lexically_normal().string();
    found.reference.run_id = content["run_id"].get<std::string>();
    if (!parse_saves(content, found.reference)) found.reference.saves.clear();
    return found;
  }
  const bool is_cut = !text.empty() && (text.starts_with(kBeginning) || kBeginning.starts_with(text));
  const bool is_blank = std::ranges::all_of(text, [](char c) { return c == '\0'; });
  if (text.starts_with(kRunRecord)) {
    found.sort = path.filename() == kFolderReferences.back() ? Sort::run_record : Sort::other;
  } else if (text.starts_with(kStateBeginning) &&
             (content.is_discarded() || (content.contains("shard") && content.contains("name")))) {
    found.sort = Sort::state;
  } else if (is_cut || is_folder_reference(path) ||
             (is_blank && is_store((path.parent_path() / kRunBeside).string()))) {
    found.sort = Sort::damaged;
  }
  return found;
}

Result<SmallFile> look(const fs::path& path) {
  BITSNAP_ASSIGN(const auto text, read_small_file(path));
  return text ? parse_small_file(path, *text) : SmallFile();
}

std::string describe(const SmallFile& found) {
  switch (found.sort) {
    case Sort::run_record: return fmt::format("is the run {}", found.reference.path);
    case Sort::state: return "refers to the run that the reference in its folder names";
    case Sort::damaged:
    case Sort::reference: return describe(found.reference);
    case Sort::other: break;
  }
  return {};
}

// What the file at `path` is, if it is no content of a checkpoint.
Result<std::optional<std::string>> held_elsewhere(const fs::path& path) {
  BITSNAP_ASSIGN(const SmallFile found, look(path));
  return found.sort == Sort::other ? std::optional<std::string>() : std::optional(describe(found));
}

}  // namespace

Result<std::optional<Reference>> read_reference(const std::string& path) {
  std::error_code error;
  const fs::path given = without_slash(path);
  BITSNAP_ASSIGN(SmallFile found, look(fs::is_directory(given, error) ? reference_in(given) : given));
  if (found.sort == Sort::state) {
    // Its folder has the reference, or the folder above, if each rank has a folder.
    for (const fs::path& folder : {given.parent_path(), given.parent_path().parent_path()}) {
      BITSNAP_ASSIGN(found, look(reference_in(folder)));
      if (found.sort == Sort::reference) break;
    }
  }
  if (found.sort != Sort::reference && found.sort != Sort::damaged) return std::optional<Reference>();
  return std::optional(std::move(found.reference));
}

std::string saved_word(const Metadata& metadata) {
  for (const auto& [key, value] : metadata) {
    if (key != kSavedPath) continue;
    const Json content = Json::parse(value, nullptr, false);
    if (content.is_object() && content.contains("save") && content["save"].is_string()) {
      return content["save"].get<std::string>();
    }
  }
  return {};
}

Metadata without_saved_path(Metadata metadata) {
  std::erase_if(metadata, [](const auto& each) { return each.first == kSavedPath; });
  return metadata;
}

Result<std::uint64_t> count_other_files(const std::string& folder) {
  std::uint64_t count = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    if (fs::is_directory(it->symlink_status(gone))) {
      if (is_store(it->path().string())) it.disable_recursion_pending();
      continue;
    }
    BITSNAP_ASSIGN(const SmallFile found, look(it->path()));
    if (found.sort == Sort::other) ++count;
  }
  if (error) return fail(ErrorKind::io, fmt::format("{}: cannot be listed: {}", folder, error.message()));
  return count;
}

std::string describe(const Reference& reference) {
  if (reference.saves.empty()) return "is a damaged reference to a run";
  return fmt::format("refers to step {} of the run {}", reference.saves.front().step, reference.run);
}

Result<std::optional<std::string>> find_held_elsewhere(const std::string& path) {
  std::error_code error;
  const fs::path root = without_slash(path);
  if (!fs::is_directory(fs::symlink_status(root, error))) return held_elsewhere(root);
  // The reference of a folder explains more than those of the files in it.
  BITSNAP_ASSIGN(auto own, held_elsewhere(reference_in(root)));
  if (own) return own;
  for (fs::recursive_directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
    const fs::path& each = it->path();
    const std::string name = each.lexically_relative(root).string();
    if (fs::is_directory(fs::symlink_status(each, error)) && is_store(each.string())) {
      return std::optional(fmt::format("contains the run {}", name));
    }
    BITSNAP_ASSIGN(const auto found, held_elsewhere(each));
    if (found) return std::optional(fmt::format("contains {}, which {}", name, *found));
    error.clear();
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return fail(ErrorKind::io, fmt::format("{}: cannot be listed: {}", path, error.message()));
  }
  return std::optional<std::string>();
}

std::string skip_reason(const std::string& held, const std::optional<Reference>& reference) {
  const bool is_readable = reference && !reference->saves.empty();
  return fmt::format("it {}{}", held, is_readable ? "; `bitsnap add` copies that checkpoint to another run" : "");
}

Result<std::optional<std::string>> find_reason_to_skip(const std::string& path) {
  BITSNAP_ASSIGN(auto found, find_held_elsewhere(path));
  if (!found) return found;
  BITSNAP_ASSIGN(const auto reference, read_reference(path));
  return std::optional(skip_reason(*found, reference));
}

Result<void> check_holds_itself(const std::string& path, std::string_view command) {
  BITSNAP_ASSIGN(const auto found, find_held_elsewhere(path));
  if (!found) return {};
  BITSNAP_ASSIGN(const auto reference, read_reference(path));
  const std::string advice = reference && !reference->saves.empty()
                                 ? fmt::format("; `bitsnap extract {}` writes that checkpoint",
                                               checkpoint_name(reference->run, reference->saves.front().step))
                                 : "";
  return fail(ErrorKind::invalid_argument,
              fmt::format("{}: {}, and `{}` would not store what the run holds{}", path, *found, command, advice));
}

}  // namespace bitsnap::cli
