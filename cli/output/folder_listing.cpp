#include "cli/output/folder_listing.hpp"

#include <fmt/format.h>

#include <bitsnap/text.hpp>

#include "cli/output/table.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

std::string describe_kind(const FolderEntry& entry) {
  switch (entry.kind) {
    case EntryKind::file: return entry.container.empty() ? "bytes" : entry.container;
    case EntryKind::directory: return "directory";
    case EntryKind::symbolic_link: return fmt::format("-> {}", printable(entry.target));
    case EntryKind::hard_link: break;
  }
  return fmt::format("same file as {}", printable(entry.target));
}

}  // namespace

Json folder_json(const Folder& folder) {
  Json document = {{"name", printable(folder.name())}, {"entries", Json::array()}};
  for (const FolderEntry& entry : folder.entries()) {
    Json object = {{"path", printable(entry.path)},
                   {"kind", entry_kind_name(entry.kind)},
                   {"mode", fmt::format("{:04o}", entry.mode)},
                   {"modified_ns", entry.modified_ns}};
    if (!entry.target.empty()) object["target"] = printable(entry.target);
    if (entry.kind == EntryKind::file) {
      object["bytes"] = entry.size_bytes;
      object["container"] = entry.container.empty() ? Json() : Json(entry.container);
      object["tensors"] = entry.tensors.size();
      if (!entry.note.empty()) object["note"] = printable(entry.note);
    }
    document["entries"].push_back(std::move(object));
  }
  return document;
}

std::string render_folder(const Folder& folder, const CommonOptions& common) {
  Table table({{"file", Align::left, Narrow::middle},
               {"format"},
               {"mode", Align::left, Narrow::never, 2},
               {"raw", Align::right},
               {"tensors", Align::right, Narrow::never, 1},
               {"note", Align::left, Narrow::end, 3}});
  for (const FolderEntry& entry : folder.entries()) {
    if (entry.kind == EntryKind::directory && (entry.path.empty() || !common.verbose)) continue;
    const bool is_file = entry.kind == EntryKind::file;
    const std::string path = entry.path.empty() ? folder.name() : entry.path;
    table.add_row({printable(path), describe_kind(entry), fmt::format("{:04o}", entry.mode),
                   is_file ? format_size(entry.size_bytes) : "",
                   is_file && !entry.tensors.empty() ? format_count(entry.tensors.size()) : "", printable(entry.note)});
  }
  return table.empty() ? "" : table.render(common.table_width());
}

}  // namespace bitsnap::cli
