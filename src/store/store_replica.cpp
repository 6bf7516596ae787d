// Replicas: equal shards of one attempt, as ranks save them that train the same state. Their file is stored once: a
// shard that finds its file published by another rank becomes a second name (a hard link) of that file.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/try.hpp"
#include "store/blob.hpp"
#include "store/store_impl.hpp"

namespace bitsnap {
namespace {

// Most records of other shards that a shard reads: with thousands of ranks, reading all would take each of them as many
// reads.
constexpr std::size_t kMostLooks = 16;
constexpr std::size_t kCompareBytes = std::size_t{1} << 20;

Result<bool> is_equal(const os::RandomAccessFile& first, const os::RandomAccessFile& second) {
  if (first.size_bytes() != second.size_bytes()) return false;
  std::vector<std::byte> of_first(kCompareBytes);
  std::vector<std::byte> of_second(kCompareBytes);
  for (std::uint64_t offset = 0; offset < first.size_bytes(); offset += kCompareBytes) {
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(kCompareBytes, first.size_bytes() - offset));
    BITSNAP_TRY(first.read_at(offset, ByteSpan(of_first).first(size)));
    BITSNAP_TRY(second.read_at(offset, ByteSpan(of_second).first(size)));
    if (std::memcmp(of_first.data(), of_second.data(), size) != 0) return false;
  }
  return true;
}

}  // namespace

bool Store::Impl::link_if_equal(std::uint64_t step, const os::RandomAccessFile& file, const std::string& other,
                                const std::string& name) {
  const std::string path = layout_.step_file(step, other);
  const std::string link = layout_.step_file(step, name);
  const auto opened = file_system_.open(path);
  if (!opened) return false;
  const auto equal = is_equal(file, **opened);
  if (!equal || !*equal) return false;  // what cannot be read is no replica; its own rank and a verification report it
  if (file_system_.link(path, link)) return true;
  // Not all file systems have links, and each has its own error for that. The file is stored a second time, which has
  // errors of its own, under the same name: so the link must not be there after all.
  static_cast<void>(file_system_.remove(link));
  return false;
}

Result<std::vector<std::uint32_t>> Store::Impl::published_shards(const store::PendingSave& save) {
  const ShardPlace& own = *save.place;
  auto listed = file_system_.list_directory(layout_.step_directory(save.step));
  if (!listed && listed.error().kind() == ErrorKind::not_found) return std::vector<std::uint32_t>();
  BITSNAP_ASSIGN(const std::vector<std::string> names, std::move(listed));
  const auto before = save.coding.finder ? known_[*save.coding.finder].record : nullptr;
  const auto was_equal = [&](std::uint32_t shard) {
    if (before == nullptr || !*before || (*before)->shards.size() != own.shards) return false;
    return (*before)->shards[shard].id == (*before)->shards[own.shard].id;
  };
  std::vector<std::uint32_t> shards;
  std::vector<std::uint32_t> others;
  for (std::uint32_t shard = 0; shard < own.shards; ++shard) {
    const std::string record = store::shard_record_name(shard, own.shards, own.attempt);
    if (shard == own.shard || !std::ranges::binary_search(names, record)) continue;
    (was_equal(shard) ? shards : others).push_back(shard);
  }
  shards.insert(shards.end(), others.begin(), others.end());
  if (shards.size() > kMostLooks) shards.resize(kMostLooks);
  return shards;
}

Result<void> Store::Impl::link_replica(store::PendingSave& save, const std::vector<std::uint32_t>& published) {
  for (const std::uint32_t shard : published) {
    const std::string record_name = store::shard_record_name(shard, save.place->shards, save.place->attempt);
    const auto record = store::read_shard_record(file_system_, layout_.step_file(save.step, record_name));
    if (!record || record->file.id != save.file.id || record->file.bytes != save.file.bytes) continue;
    const std::string path = layout_.step_file(save.step, save.file_name);
    std::unique_ptr<os::RandomAccessFile> file;
    std::string name = save.file_name;
    if (save.blob != nullptr) {
      file = store::blob_file(save.blob, path);
    } else {
      BITSNAP_ASSIGN(file, file_system_.open(path));
      // The file that was written is removed when its replacement is there.
      BITSNAP_ASSIGN(name, directories_.free_file_name(save.step, store::rewritten_file_name(name)));
    }
    if (!link_if_equal(save.step, *file, record->file.file, name)) continue;
    if (save.blob == nullptr) static_cast<void>(directories_.remove_file(save.step, save.file_name));
    save.file_name = name;
    save.file.file = std::move(name);
    save.file.is_link = true;
    return {};
  }
  return {};
}

}  // namespace bitsnap
