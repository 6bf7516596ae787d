#include "interop/torch_zip/torch_zip.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "interop/pickle/pickle_reader.hpp"
#include "interop/torch_tensors/storage_split.hpp"
#include "interop/torch_tensors/tensor_walk.hpp"
#include "interop/zip/zip_directory.hpp"

namespace bitsnap::interop {

Result<std::uint64_t> write_torch_zip(const std::string& pickle, std::span<const std::uint64_t> storage_bytes,
                                      const WriteStorage& write, const ZipWriter::Sink& sink) {
  ZipWriter zip(sink);
  BITSNAP_TRY(zip.add("archive/data.pkl", as_byte_span(pickle)));
  BITSNAP_TRY(zip.add("archive/.format_version", as_byte_span("1")));
  BITSNAP_TRY(zip.add("archive/.storage_alignment", as_byte_span("64")));
  BITSNAP_TRY(zip.add("archive/byteorder", as_byte_span("little")));
  for (std::size_t i = 0; i < storage_bytes.size(); ++i) {
    BITSNAP_TRY(zip.begin("archive/data/" + std::to_string(i), storage_bytes[i]));
    BITSNAP_TRY(write(i, [&zip](ConstByteSpan bytes) { return zip.append(bytes); }));
  }
  BITSNAP_TRY(zip.add("archive/version", as_byte_span("3\n")));
  BITSNAP_TRY(zip.finish());
  return zip.size_bytes();
}

namespace {

// The entries below the folder of the archive, by their names in it.
using TorchEntries = std::map<std::string_view, const ZipEntry*>;

constexpr std::string_view kPickleEntry = "data.pkl";

// The one folder of the archive is the part of the first name before '/'.
Result<TorchEntries> name_entries(const std::vector<ZipEntry>& entries) {
  const std::string_view first = entries.empty() ? std::string_view() : std::string_view(entries.front().name);
  const std::string_view folder = first.substr(0, first.find('/') + 1);
  TorchEntries named;
  for (const ZipEntry& entry : entries) {
    const std::string_view name = entry.name;
    if (!folder.empty() && name.starts_with(folder)) named.emplace(name.substr(folder.size()), &entry);
  }
  if (!named.contains(kPickleEntry)) {
    return fail(ErrorKind::unsupported, "a ZIP archive, but not of torch: it has no entry data.pkl");
  }
  return named;
}

Result<std::string> read_entry(const FileBytes& bytes, const ZipEntry& entry, std::uint64_t most) {
  if (!entry.is_stored) {
    return fail(ErrorKind::unsupported, fmt::format("entry {} is compressed", quote_name(entry.name)));
  }
  if (entry.bytes > most) {
    return fail(ErrorKind::resource_exhausted,
                fmt::format("entry {} has {} bytes, the limit is {} bytes", quote_name(entry.name), entry.bytes, most));
  }
  return bytes.read_text(entry.offset, entry.bytes);
}

// Archives before torch 2.1 do not say it; almost all are little-endian.
Result<bool> is_big_endian_archive(const FileBytes& bytes, const TorchEntries& entries) {
  const auto found = entries.find("byteorder");
  if (found == entries.end()) return false;
  BITSNAP_ASSIGN(const std::string order, read_entry(bytes, *found->second, 16));
  if (order != "little" && order != "big") {
    return fail(ErrorKind::corrupt, fmt::format("byte order {} is unknown", quote_name(order)));
  }
  return order == "big";
}

// Where each storage lies. Entries of the folder that the pickle does not name become storages of bytes.
Result<std::vector<StorageRange>> find_storages(TorchObjects& objects, const TorchEntries& entries) {
  std::map<std::string_view, const ZipEntry*> unnamed;
  for (auto at = entries.lower_bound(objects.folder); at != entries.end(); ++at) {
    if (!at->first.starts_with(objects.folder)) break;
    unnamed.emplace(at->first.substr(objects.folder.size()), at->second);
  }
  std::vector<StorageRange> ranges;
  for (const TorchStorage& storage : objects.storages) {
    const auto found = unnamed.find(storage.key);
    if (found == unnamed.end()) {
      return fail(ErrorKind::corrupt, fmt::format("there is no entry for storage {}", quote_name(storage.key)));
    }
    if (!found->second->is_stored) {
      return fail(ErrorKind::unsupported, fmt::format("entry {} is compressed", quote_name(found->second->name)));
    }
    ranges.push_back({.offset = found->second->offset, .bytes = found->second->bytes});
    unnamed.erase(found);
  }
  for (const auto& [key, entry] : unnamed) {
    if (!entry->is_stored || entry->bytes == 0 || key.size() > kMaxStorageKeyBytes) continue;
    objects.storages.push_back({.key = key, .type = torch_dtype("uint8"), .elements = entry->bytes});
    ranges.push_back({.offset = entry->offset, .bytes = entry->bytes});
  }
  return ranges;
}

// One pickle of an archive with its storages. Each member refers to the ones before it.
struct ArchivedPickle {
  std::string text;
  PickleGraph graph;
  TorchObjects objects;
  std::vector<StorageRange> ranges;
  bool is_big_endian = false;
};

Result<void> read_archived(const FileBytes& bytes, const TorchEntries& entries, const ZipEntry& entry,
                           const PickleRole& role, UniqueNames& names, const DecodeLimits& limits,
                           ArchivedPickle& pickle) {
  BITSNAP_ASSIGN(pickle.is_big_endian, is_big_endian_archive(bytes, entries));
  BITSNAP_ASSIGN(pickle.text, read_entry(bytes, entry, limits.index_bytes));
  BITSNAP_ASSIGN(pickle.graph, read_pickle(pickle.text, limits));
  BITSNAP_ASSIGN(pickle.objects, find_torch_objects(pickle.graph, role, names, limits));
  BITSNAP_ASSIGN(pickle.ranges, find_storages(pickle.objects, entries));
  return {};
}

// The tensors of one pickle, added to `contents`.
Result<void> add_pickle(const FileBytes& bytes, const TorchEntries& entries, const ZipEntry& entry,
                        const PickleRole& role, UniqueNames& names, Contents& contents, const DecodeLimits& limits) {
  ArchivedPickle pickle;
  BITSNAP_TRY(read_archived(bytes, entries, entry, role, names, limits, pickle));
  BITSNAP_ASSIGN(Contents added, split_storages(pickle.objects, pickle.ranges, pickle.is_big_endian, names, limits));
  std::ranges::move(added.tensors, std::back_inserter(contents.tensors));
  std::ranges::move(added.views, std::back_inserter(contents.views));
  return {};
}

}  // namespace

Result<Contents> read_torch_zip(const FileBytes& bytes, const DecodeLimits& limits) {
  BITSNAP_ASSIGN(const std::vector<ZipEntry> zip, read_zip_directory(bytes, limits));
  BITSNAP_ASSIGN(const TorchEntries entries, name_entries(zip));
  UniqueNames names;
  Contents contents;
  BITSNAP_TRY(add_pickle(bytes, entries, *entries.at(kPickleEntry), {}, names, contents, limits));
  // TorchScript keeps the tensors of its code in a second pickle with its own storages.
  const auto constants = entries.find("constants.pkl");
  if (constants != entries.end() && constants->second->is_stored) {
    const PickleRole role{.folder = "constants/", .root = "constants"};
    BITSNAP_TRY(add_pickle(bytes, entries, *constants->second, role, names, contents, limits));
    std::ranges::sort(contents.tensors, {}, &FoundTensor::offset);
  }
  return contents;
}

Result<TorchState> read_torch_zip_state(const FileBytes& bytes, const DecodeLimits& limits) {
  BITSNAP_ASSIGN(const std::vector<ZipEntry> zip, read_zip_directory(bytes, limits));
  BITSNAP_ASSIGN(const TorchEntries entries, name_entries(zip));
  UniqueNames names;
  ArchivedPickle pickle;
  BITSNAP_TRY(read_archived(bytes, entries, *entries.at(kPickleEntry), {}, names, limits, pickle));
  BITSNAP_ASSIGN(TorchState state,
                 read_torch_state(pickle.graph, pickle.objects, pickle.ranges, pickle.is_big_endian, limits));
  if (const auto constant = entries.lower_bound("constants/");
      constant != entries.end() && constant->first.starts_with("constants/")) {
    state.left_out.emplace_back("constants (of TorchScript)");
  }
  return state;
}

}  // namespace bitsnap::interop
