// Any bytes as the records of a store: read, and written again if they can be read; alone, and as the records of a
// store with real files, which is then listed, read, verified, pruned and repaired.
//
// The first byte says how the rest is taken:
//   0, 1, 2: as commit.json, bitsnap.json or the record of a shard.
//   3, 4, 5: likewise, as the body of one, which is sealed with the right hash, so that mutations get past it.
//   6: as the catalog.      7: as the entries of one, which is completed likewise.
//   9, 10: as labels.json, and as its body, likewise.
//   others: as a size (u16) and a body for each of the steps 10, 20 and 30 of a store. An empty body leaves the record
//   as it
//      was. The second byte says which steps are retired (bits 0 to 2), and what is kept (bit 3: 20; bit 4: rewritten).
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/cost_testing.hpp"
#include "base/hash.hpp"
#include "os/file_system_fake.hpp"
#include "store/catalog.hpp"
#include "store/run_testing.hpp"
#include "store/sealed_json.hpp"
#include "store/store_impl.hpp"

namespace {

using namespace bitsnap;
using namespace bitsnap::store;

constexpr std::uint64_t kStep = 30;
constexpr std::array<std::uint64_t, 3> kSteps = {10, 20, 30};
const RunLayout& layout() {
  static const RunLayout run("/run");
  return run;
}

void require(bool holds) {
  if (!holds) std::abort();
}

ConstByteSpan as_bytes(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

// What seal_json writes, of a body that need not be JSON.
std::string seal(std::string_view key, std::string_view body) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "{\"" + std::string(key) + "\":" + std::string(body) + ",\"hash\":\"";
  const std::uint64_t hash = hash64(as_bytes(body));
  for (int shift = 60; shift >= 0; shift -= 4) text += kDigits[hash >> shift & 15];
  return text + "\"}\n";
}

void run_commit(std::string_view text) {
  os::FakeFileSystem files;
  files.plant(layout().commit(kStep), as_bytes(text));
  const auto record = read_commit_record(files, layout(), kStep);
  if (!record) return;
  require(record->step == kStep && !record->shards.empty());
  for (const ShardFile& file : record->shards) {
    require(is_snapshot_file_name(file.file));
    for (const StepReference& reference : file.references) require(reference.step != kStep);
  }
  require(!record->files || (attempt_of_files(record->files->file) && record->files->references.empty()));
  (void)checkpoint_info(*record, text.size());
  files.plant(layout().commit(kStep), as_bytes(serialize_commit_record(*record)));
  const auto again = read_commit_record(files, layout(), kStep);
  require(again && *again == *record);
}

void run_shard(std::string_view text) {
  os::FakeFileSystem files;
  const std::string path = layout().step_file(kStep, "shard-00000-of-00001.a.json");
  files.plant(path, as_bytes(text));
  const auto record = read_shard_record(files, path);
  if (!record) return;
  require(write_shard_record(files, path, *record).has_value());
  const auto again = read_shard_record(files, path);
  require(again && static_cast<const CommitHeader&>(*again) == *record && again->file == record->file &&
          again->shard == record->shard && again->shards == record->shards);
}

void run_run(std::string_view text) {
  os::FakeFileSystem files;
  files.plant(layout().run_record(), as_bytes(text));
  const auto record = read_run_record(files, layout().run_record());
  if (!record) return;
  require(record->settings.max_depth <= kLongestChain);
  require(write_run_record(files, layout().run_record(), *record, true).has_value());
  const auto again = read_run_record(files, layout().run_record());
  require(again && again->id == record->id && again->settings == record->settings);
}

void run_labels(std::string_view text) {
  os::FakeFileSystem files;
  files.plant(layout().labels(), as_bytes(text));
  const auto record = read_label_record(files, layout());
  if (!record) return;
  for (const LabelEntry& entry : record->labels) {
    require(is_label(entry.label) && record->find(entry.label) == &entry);
    (void)record->mentions(entry.step);
  }
  require(write_label_record(files, layout(), *record).has_value());
  const auto again = read_label_record(files, layout());
  require(again && *again == *record);
}

void run_catalog(ConstByteSpan bytes) {
  os::FakeFileSystem files;
  files.plant(layout().catalog(), bytes);
  const Catalog catalog = Catalog::read(files, layout().catalog());
  require(catalog.size() <= bytes.size());
  StepEntry entry;
  entry.step = kStep;
  if (const Checkpoint* const found = catalog.find(entry)) require(found->step == kStep);
  require(catalog.write(files, layout().catalog()).has_value());
  require(Catalog::read(files, layout().catalog()).size() == catalog.size());
}

std::vector<std::byte> complete_catalog(ConstByteSpan entries) {
  constexpr std::size_t kEntryBytes = 96;
  const std::size_t count = entries.size() / kEntryBytes;
  std::vector<std::byte> bytes(16);
  store_le<std::uint64_t>(bytes.data(), 0x0A0D544143534289U);
  store_le<std::uint64_t>(bytes.data() + 8, count);
  const ConstByteSpan whole = entries.first(count * kEntryBytes);
  bytes.insert(bytes.end(), whole.begin(), whole.end());
  const std::uint64_t hash = hash64(bytes);
  bytes.resize(bytes.size() + 8);
  store_le<std::uint64_t>(bytes.data() + bytes.size() - 8, hash);
  return bytes;
}

std::unique_ptr<Store> open_to_write(os::FileSystem& files) {
  StoreOptions options;
  options.access = StoreAccess::write;
  auto store = open_store(files, layout().root(), options);
  require(store.has_value());
  return std::move(*store);
}

// Small, because each input is a store of its own: one stream that never changes, and one that does.
TestState state_of(std::uint64_t step) {
  constexpr std::size_t kBytes = 4096;
  std::vector<std::byte> frozen(kBytes);
  std::vector<std::byte> weight(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) {
    frozen[i] = static_cast<std::byte>(i * i >> 3);
    weight[i] = static_cast<std::byte>(i % 64 == 0 ? i / 64 + step : i % 5);
  }
  TestState state;
  state.add("frozen", DType::u8, std::move(frozen));
  state.add("weight", DType::u8, std::move(weight));
  return state;
}

const os::FakeFileSystem& sound_store() {
  static const std::unique_ptr<os::FakeFileSystem> files = [] {
    auto made = std::make_unique<os::FakeFileSystem>();
    const auto store = open_to_write(*made);
    RunOptions run;
    run.threads = 1;
    const CommitOptions commit{.files = {{"config.json", std::vector<std::byte>(20, std::byte{'x'})}}};
    for (const std::uint64_t step : kSteps) {
      require(store->save(step, state_of(step).state(), run, nullptr, commit).has_value());
    }
    return made;
  }();
  return *files;
}

// What is there can be listed and read, or is reported; nothing that is called by a reader changes anything.
void read_everything(os::FileSystem& files, const RunOptions& run) {
  const auto store = open_store(files, layout().root(), {});
  require(store.has_value());
  const auto list = (*store)->checkpoints();
  require(list.has_value());
  for (const Checkpoint& info : *list) {
    if (info.damage) continue;
    for (std::uint32_t shard = 0; shard < std::min(info.shards, 3U); ++shard) {
      const auto snapshot = (*store)->snapshot(info.step, shard);
      if (snapshot) (void)(*snapshot)->verify(true, run);
    }
    (void)(*store)->files(info.step);
  }
  for (const bool decode : {true, false}) {
    StoreVerifyOptions options;
    options.decode = decode;
    options.run = run;
    require((*store)->verify(options).has_value());
  }
}

void run_store(ConstByteSpan input) {
  if (input.empty()) return;
  const auto flags = std::to_integer<unsigned>(input[0]);
  input = input.subspan(1);
  const std::unique_ptr<os::FakeFileSystem> files = sound_store().copy();
  for (std::size_t i = 0; i < kSteps.size(); ++i) {
    std::size_t size = input.size() < 2 ? 0 : load_le<std::uint16_t>(input.data());
    input = input.subspan(std::min<std::size_t>(input.size(), 2));
    size = std::min(size, input.size());
    if (size > 0) files->plant(layout().commit(kSteps[i]), as_bytes(seal("commit", as_text(input.first(size)))));
    input = input.subspan(size);
    if ((flags >> i & 1) != 0)
      require(files->rename(layout().commit(kSteps[i]), layout().retired(kSteps[i])).has_value());
  }
  RunOptions run;
  run.threads = 1;
  read_everything(*files, run);

  const std::unique_ptr<os::FakeFileSystem> pruned = files->copy();
  {
    Retention retention;
    if ((flags & 8) != 0) retention.keep = {20};
    PruneOptions options;
    options.reencode = (flags & 16) != 0 ? Reencode::always : Reencode::when_it_pays;
    options.run = run;
    (void)open_to_write(*pruned)->prune(retention, options);
  }
  read_everything(*pruned, run);
  (void)open_to_write(*pruned)->save(kStep + 1, state_of(kStep + 1).state(), run);

  // Whatever was wrong: what a repair leaves is whole, but for the checkpoints that it reports as kept damaged, and
  // another repair finds nothing more to do.
  RepairOptions options;
  options.run = run;
  const auto repaired = repair_store(*files, layout().root(), options);
  if (!repaired) return;
  StoreVerifyOptions verify;
  verify.run = run;
  const auto found = open_to_write(*files)->verify(verify);
  require(found.has_value());
  for (const StoreDamage& damage : found->damages) {
    require(std::ranges::find(repaired->damaged, damage.step, &RepairReport::Damaged::step) != repaired->damaged.end());
  }
  const auto again = repair_store(*files, layout().root(), options);
  require(again && again->mended.empty() && again->dropped.empty() &&
          again->damaged.size() == repaired->damaged.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const CostCheck cost(size, {4 << 20, 1000, 1, 1e-3});
  const ConstByteSpan input = std::as_bytes(std::span(data, size)).subspan(1);
  switch (data[0]) {
    case 0: run_commit(as_text(input)); break;
    case 1: run_run(as_text(input)); break;
    case 2: run_shard(as_text(input)); break;
    case 3: run_commit(seal("commit", as_text(input))); break;
    case 4: run_run(seal("store", as_text(input))); break;
    case 5: run_shard(seal("shard", as_text(input))); break;
    case 6: run_catalog(input); break;
    case 7: run_catalog(complete_catalog(input)); break;
    case 9: run_labels(as_text(input)); break;
    case 10: run_labels(seal("labels", as_text(input))); break;
    default: run_store(input); break;
  }
  return 0;
}
