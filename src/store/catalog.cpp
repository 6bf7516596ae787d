// Fixed-width entries, one after another.
#include "store/catalog.hpp"

#include <algorithm>
#include <array>
#include <type_traits>

#include "base/bytes.hpp"
#include "base/hash.hpp"
#include "base/try.hpp"
#include "os/atomic_file.hpp"
#include "os/clock.hpp"
#include "store/commit_record.hpp"

namespace bitsnap::store {
namespace {

constexpr std::array<unsigned char, 8> kMagic{0x89, 0x42, 0x53, 0x43, 0x41, 0x54, 0x0D, 0x0A};
constexpr std::size_t kHeaderBytes = 16;
constexpr std::size_t kEntryBytes = 96;
constexpr std::size_t kHashBytes = 8;
constexpr std::uint64_t kMaxCatalogBytes = std::uint64_t{1} << 30;
constexpr std::size_t kBase = 56;
constexpr std::size_t kFlags = 76;
constexpr std::uint32_t kHasBase = 1;
constexpr std::int64_t kSettledNs = 1'000'000'000;

// Calls `each` with the offset of each number of an entry, and the number.
template <typename Entry, typename Each>
void for_each_number(Entry& entry, const Each& each) {
  each(0, entry.info.step);
  each(8, entry.modified_ns);
  each(16, entry.file_id);
  each(24, entry.record_bytes);
  each(32, entry.info.time_unix_ms);
  each(40, entry.info.raw_bytes);
  each(48, entry.info.stored_bytes);
  each(64, entry.info.shards);
  each(68, entry.info.links);
  each(72, entry.info.depth);
}

}  // namespace

Catalog Catalog::read(os::FileSystem& file_system, const std::string& path) {
  Catalog catalog;
  const auto bytes = os::read_file(file_system, path, kMaxCatalogBytes);
  if (!bytes || bytes->size() < kHeaderBytes + kHashBytes) return catalog;
  const std::byte* const data = bytes->data();
  const std::uint64_t count = load_le<std::uint64_t>(data + 8);
  const std::size_t body = bytes->size() - kHashBytes;
  if (!std::equal(kMagic.begin(), kMagic.end(), reinterpret_cast<const unsigned char*>(data)) ||
      (body - kHeaderBytes) % kEntryBytes != 0 || count != (body - kHeaderBytes) / kEntryBytes ||
      load_le<std::uint64_t>(data + body) != hash64(ConstByteSpan(*bytes).first(body))) {
    return catalog;
  }
  catalog.entries_.resize(static_cast<std::size_t>(count));
  const std::byte* at = data + kHeaderBytes;
  for (Entry& entry : catalog.entries_) {
    for_each_number(entry, [&]<typename Number>(std::size_t offset, Number& number) {
      number = static_cast<Number>(load_le<std::make_unsigned_t<Number>>(at + offset));
    });
    if ((load_le<std::uint32_t>(at + kFlags) & kHasBase) != 0) entry.info.base = load_le<std::uint64_t>(at + kBase);
    at += kEntryBytes;
  }
  return catalog;
}

const Checkpoint* Catalog::find(const StepEntry& entry) const noexcept {
  const auto found = std::ranges::lower_bound(entries_, entry.step, {}, [](const Entry& e) { return e.info.step; });
  if (found == entries_.end() || found->info.step != entry.step || found->modified_ns != entry.record.modified_ns ||
      found->file_id != entry.record.file_id || found->record_bytes != entry.record.size_bytes) {
    return nullptr;
  }
  return &found->info;
}

void Catalog::add(const StepEntry& entry, const Checkpoint& info) {
  if (!info.metadata.empty() || info.damage) return;  // an entry has no room for it
  entries_.push_back({entry.record.modified_ns, entry.record.file_id, entry.record.size_bytes, info});
}

Result<void> Catalog::write(os::FileSystem& file_system, const std::string& path) const {
  std::vector<std::byte> bytes(kHeaderBytes + entries_.size() * kEntryBytes + kHashBytes);
  std::ranges::copy(std::as_bytes(std::span(kMagic)), bytes.begin());
  store_le<std::uint64_t>(bytes.data() + 8, entries_.size());
  std::byte* at = bytes.data() + kHeaderBytes;
  for (const Entry& entry : entries_) {
    for_each_number(entry, [&]<typename Number>(std::size_t offset, Number number) {
      using Stored = std::make_unsigned_t<Number>;
      store_le<Stored>(at + offset, static_cast<Stored>(number));
    });
    store_le<std::uint64_t>(at + kBase, entry.info.base.value_or(0));
    store_le<std::uint32_t>(at + kFlags, entry.info.base ? kHasBase : 0);
    at += kEntryBytes;
  }
  const std::size_t body = bytes.size() - kHashBytes;
  store_le<std::uint64_t>(bytes.data() + body, hash64(ConstByteSpan(bytes).first(body)));
  BITSNAP_ASSIGN(os::AtomicFile file,
                 os::AtomicFile::create(file_system, path, true, os::kDefaultFileMode, os::Durability::cached));
  BITSNAP_TRY(file.file().append(bytes));
  return file.commit();
}

Result<void> write_catalog(const StepDirectories& directories) {
  os::FileSystem& file_system = directories.file_system();
  const RunLayout& layout = directories.layout();
  const Catalog old = Catalog::read(file_system, layout.catalog());
  const std::int64_t now_ns = os::unix_time_ms() * 1'000'000;
  BITSNAP_ASSIGN(const std::vector<StepEntry> entries, directories.list());
  Catalog catalog;
  for (const StepEntry& entry : entries) {
    if (entry.state != StepState::committed || entry.record.modified_ns > now_ns - kSettledNs) continue;
    if (const Checkpoint* const known = old.find(entry)) {
      catalog.add(entry, *known);
      continue;
    }
    // The file may have been replaced between the look and the reading: what it was before and after must agree.
    const auto record = read_commit_record(file_system, layout, entry.step);
    const auto again = directories.look(entry.step);
    if (record && again && again->record.file_id == entry.record.file_id &&
        again->record.modified_ns == entry.record.modified_ns) {
      catalog.add(entry, checkpoint_info(*record, entry.record.size_bytes));
    }
  }
  return catalog.write(file_system, layout.catalog());
}

}  // namespace bitsnap::store
