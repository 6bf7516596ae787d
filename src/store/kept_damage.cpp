#include "store/kept_damage.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "base/try.hpp"

namespace bitsnap::store {
namespace {

// nullopt if no shard can be opened.
Result<std::optional<Readable>> look_into(CheckpointReader& reader, const SearchedStep& step, unsigned threads) {
  std::optional<Readable> readable;
  std::uint64_t unopened = 0;
  for (const ShardFile& file : step.record->shards) {
    const auto snapshot = reader.open_partially(step.record->step, file);
    if (!snapshot && !is_damage(snapshot.error())) return tl::unexpected(snapshot.error());
    if (!snapshot) {
      ++unopened;
      continue;
    }
    if (!readable) readable.emplace();
    if (step.is_retired) continue;
    BITSNAP_ASSIGN(const std::vector<DamagedTensor> damaged, (*snapshot)->damaged_tensors({threads, nullptr}));
    readable->tensors += (*snapshot)->tensors().size();
    readable->damaged += damaged.size();
  }
  if (readable) {
    readable->tensors += unopened;
    readable->damaged = std::max<std::uint64_t>(readable->damaged + unopened, 1);
  }
  return readable;
}

}  // namespace

Result<std::map<std::uint64_t, Readable>> choose_kept(CheckpointReader& reader,
                                                      const std::map<std::uint64_t, SearchedStep>& steps,
                                                      unsigned threads) {
  std::map<std::uint64_t, Readable> kept;
  std::map<std::uint64_t, Readable> others;
  for (const auto& [number, step] : steps) {
    if (!step.is_damaged) continue;
    BITSNAP_ASSIGN(const std::optional<Readable> readable, look_into(reader, step, threads));
    if (readable) (readable->tensors > readable->damaged ? kept : others).emplace(number, *readable);
  }
  std::vector<std::uint64_t> pending;
  for (const auto& entry : kept) pending.push_back(entry.first);
  std::set<std::uint64_t> seen(pending.begin(), pending.end());
  while (!pending.empty()) {
    const auto step = steps.find(pending.back());
    pending.pop_back();
    if (step == steps.end()) continue;
    for (const ShardFile& file : step->second.record->shards) {
      for (const StepReference& reference : file.references) {
        if (!seen.insert(reference.step).second) continue;
        pending.push_back(reference.step);
        kept.insert(others.extract(reference.step));
      }
    }
  }
  return kept;
}

}  // namespace bitsnap::store
