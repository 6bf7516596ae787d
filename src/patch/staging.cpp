// Staging and writing: checks weights against a patch, and decodes what changes.
#include "patch/staging.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/quote_name.hpp"
#include "base/scratch.hpp"
#include "base/try.hpp"

namespace bitsnap::patch {
namespace {

// What the weights of a slab are, by their hash.
enum class Found : std::uint8_t { expected, result, other, untied };

struct SlabFinding {
  Found found = Found::expected;
  std::uint64_t hash = 0;
};

// "tensor 'x', elements 0 to 4095", and how many more tensors the slab has parts of.
std::string where_is(const OpenedPatch& patch, std::uint64_t slab) {
  const std::vector<Piece> pieces = patch.table.pieces(slab);
  const Piece& first = pieces.front();
  std::string where =
      fmt::format("{}, elements {} to {}", quote_tensor(patch.description.tensors[first.tensor].names[0]),
                  first.first_element, first.first_element + first.elements - 1);
  if (pieces.size() > 1) {
    where += fmt::format(", to {}", quote_tensor(patch.description.tensors[pieces.back().tensor].names[0]));
  }
  return where;
}

PatchState state_from(std::span<const SlabFinding> findings) {
  std::array<std::size_t, 4> counts{};
  for (const SlabFinding& own : findings) ++counts[static_cast<std::size_t>(own.found)];
  if (counts[2] > 0) return PatchState::other;
  if (counts[3] > 0) return PatchState::partly;  // written to one of tied tensors
  if (counts[1] == 0) return PatchState::applicable;
  return counts[0] == 0 ? PatchState::applied : PatchState::partly;
}

Error wrong_base(const OpenedPatch& patch, std::span<const std::uint64_t> changed,
                 std::span<const SlabFinding> findings) {
  const auto first =
      std::ranges::find_if(findings, [](const SlabFinding& own) { return own.found != Found::expected; });
  if (first == findings.end()) {
    return Error(ErrorKind::invalid_argument, "the weights changed while they were read")
        .with_code(ErrorCode::wrong_base);
  }
  const std::uint64_t slab = changed[static_cast<std::size_t>(first - findings.begin())];
  std::string name = "the patch";
  if (!patch.description.from.empty() || !patch.description.to.empty()) {
    name = fmt::format("the patch from {} to {}", quote_name(patch.description.from), quote_name(patch.description.to));
  }
  std::string message;
  switch (state_from(findings)) {
    case PatchState::applied: message = fmt::format("{} is applied already", name); break;
    case PatchState::partly: {
      const auto done = std::ranges::count(findings, Found::result, &SlabFinding::found);
      message = fmt::format(
          "{} was applied in part: {} of {} changed parts are as it makes them, the others as it expects "
          "them. Load a whole version. The first is at {}",
          name, done, findings.size(), where_is(patch, slab));
      break;
    }
    default: {
      const auto other = std::ranges::find(findings, Found::other, &SlabFinding::found);
      const auto at = static_cast<std::size_t>(other - findings.begin());
      message = fmt::format(
          "the weights are not what {} applies to: {} has hash {:08x}, expected {:08x} (or {:08x} if it "
          "was applied already)",
          name, where_is(patch, changed[at]), short_hash(other->hash), patch.slabs[changed[at]].expected,
          patch.slabs[changed[at]].result);
    }
  }
  return Error(ErrorKind::invalid_argument, std::move(message)).with_code(ErrorCode::wrong_base);
}

Error untied_error(const OpenedPatch& patch, std::size_t tensor) {
  const std::vector<std::string>& names = patch.description.tensors[tensor].names;
  return Error(ErrorKind::invalid_argument, fmt::format("{} and {} are tied in the patch, but differ here",
                                                        quote_tensor(names.front()), quote_tensor(names.back())))
      .with_code(ErrorCode::wrong_base);
}

SlabFinding compare_hash(const SlabEntry& entry, std::uint64_t hash) noexcept {
  const std::uint32_t own = short_hash(hash);
  const Found found = own == entry.expected ? Found::expected : own == entry.result ? Found::result : Found::other;
  return {.found = found, .hash = hash};
}

std::vector<std::uint64_t> changed_slabs(const OpenedPatch& patch) {
  std::vector<std::uint64_t> changed;
  for (std::uint64_t i = 0; i < patch.slabs.size(); ++i) {
    if (!patch.slabs[i].payload.empty()) changed.push_back(i);
  }
  return changed;
}

// The slabs that change, compared with the patch.
Result<std::vector<SlabFinding>> find_slabs(const OpenedPatch& patch, const SlabReader& reader,
                                            std::span<const std::uint64_t> changed, exec::Executor& executor) {
  std::vector<SlabFinding> findings(changed.size());
  std::vector<Scratch> scratch(executor.default_slots());
  const auto find = [&](std::size_t item, std::size_t slot) -> Result<void> {
    const Scratch::Frame frame(scratch[slot]);
    SlabReader::Read slab;
    BITSNAP_TRY(reader.read(changed[item], scratch[slot], slab));
    findings[item] = compare_hash(patch.slabs[changed[item]], hash_slab(slab.bytes));
    if (slab.untied && findings[item].found != Found::other) findings[item].found = Found::untied;
    return {};
  };
  BITSNAP_TRY(executor.run(changed.size(), scratch.size(), find));
  return findings;
}

// Hashes the slab as the patch makes it.
Result<std::uint64_t> hash_result(const SlabReader::Read& slab, const StagedSlab& staged, Scratch& scratch) {
  SlabHasher hasher;
  std::size_t at = 0;
  for (std::size_t p = 0; p < slab.pieces.size(); ++p) {
    const Scratch::Frame frame(scratch);
    BITSNAP_ASSIGN(const ByteSpan copy, scratch.take(slab.bytes[p].size()));
    std::ranges::copy(slab.bytes[p], copy.begin());
    write_changes(staged, slab.pieces[p], at, slab.memory.element_bytes(), copy);
    hasher.add(copy);
    at += static_cast<std::size_t>(slab.pieces[p].elements);
  }
  return hasher.digest();
}

// Stages one patch. Of the slabs that change, each is read, checked and decoded while it is in the cache.
class Stager {
 public:
  Stager(const OpenedPatch& patch, const SlabReader& reader, Verify verify, exec::Executor& executor)
      : patch_(patch), reader_(reader), verify_(verify), executor_(executor), changed_(changed_slabs(patch)) {}

  Result<std::vector<StagedSlab>> stage() {
    std::vector<StagedSlab> slabs(patch_.slabs.size());
    std::vector<std::uint64_t> expected(changed_.size());
    std::vector<std::uint64_t> result(verify_ == Verify::all ? changed_.size() : 0);
    std::vector<Scratch> scratch(executor_.default_slots());
    std::atomic<bool> is_wrong = false;
    const auto stage_one = [&](std::size_t item, std::size_t slot) -> Result<void> {
      if (is_wrong.load(std::memory_order_relaxed)) return {};
      const Scratch::Frame frame(scratch[slot]);
      const std::uint64_t slab = changed_[item];
      SlabReader::Read read;
      BITSNAP_TRY(reader_.read(slab, scratch[slot], read));
      if (read.untied) return tl::unexpected(untied_error(patch_, *read.untied));
      SlabHasher hasher;
      Result<void> decoded = decode_slab(patch_.slabs[slab].payload, read.memory, scratch[slot], hasher, slabs[slab]);
      // Of a wrong base, decoding may fail before all of it is hashed.
      expected[item] = decoded ? hasher.digest() : hash_slab(read.bytes);
      if (short_hash(expected[item]) != patch_.slabs[slab].expected) {
        is_wrong.store(true, std::memory_order_relaxed);
        return {};
      }
      if (!decoded) return tl::unexpected(std::move(decoded).error().within(where_is(patch_, slab)));
      if (verify_ == Verify::all) {
        BITSNAP_ASSIGN(result[item], hash_result(read, slabs[slab], scratch[slot]));
      }
      return {};
    };
    BITSNAP_TRY(executor_.run(changed_.size(), scratch.size(), stage_one));
    if (is_wrong.load()) {
      BITSNAP_ASSIGN(const std::vector<SlabFinding> findings, find_slabs(patch_, reader_, changed_, executor_));
      return tl::unexpected(wrong_base(patch_, changed_, findings));
    }
    if (joined_hash(expected) != patch_.expected) {
      return tl::unexpected(Error(ErrorKind::invalid_argument, "the weights are not what the patch applies to")
                                .with_code(ErrorCode::wrong_base));
    }
    if (verify_ == Verify::all && joined_hash(result) != patch_.result) {
      return fail(ErrorKind::corrupt, "the patch does not make what it says: its result has another hash");
    }
    return slabs;
  }

 private:
  const OpenedPatch& patch_;
  const SlabReader& reader_;
  const Verify verify_;
  exec::Executor& executor_;
  const std::vector<std::uint64_t> changed_;
};

// Hashes what the patch does not change: slabs of tensors that it changes elsewhere, and all other tensors.
Result<void> check_unchanged(const OpenedPatch& patch, const SlabReader& reader, const Targets& targets,
                             const WeightTable& weights) {
  if (!patch.description.unchanged) {
    return tl::unexpected(
        Error(ErrorKind::invalid_argument,
              "the patch has no hash of what does not change, so not all of the weights can be verified")
            .about("verify"));
  }
  std::vector<std::uint64_t> hashes;
  Scratch scratch;
  for (std::uint64_t i = 0; i < patch.slabs.size(); ++i) {
    if (!patch.slabs[i].payload.empty()) continue;
    SlabReader::Read slab;
    BITSNAP_TRY(reader.read(i, scratch, slab));
    hashes.push_back(hash_slab(slab.bytes));
  }
  const std::vector<const WeightMemory*> rest = weights.without(patch.description.tensors);
  const auto reject = [](std::string message) -> Result<void> {
    return tl::unexpected(Error(ErrorKind::invalid_argument, std::move(message)).with_code(ErrorCode::wrong_base));
  };
  if (rest.size() != patch.description.unchanged->tensors) {
    return reject(fmt::format("the weights have {} tensors beside those that the patch changes, its maker had {}",
                              rest.size(), patch.description.unchanged->tensors));
  }
  std::set<const std::byte*> changing;
  for (const TargetTensor& target : targets) {
    for (const std::byte* const memory : target.all()) changing.insert(memory);
  }
  const auto tied = std::ranges::find_if(rest, [&](const WeightMemory* own) { return changing.contains(own->memory); });
  if (tied != rest.end()) {
    return reject(fmt::format("{} is tied to a tensor that the patch changes, but was not where the patch was made",
                              quote_tensor((*tied)->name)));
  }
  hash_tensors(rest, hashes);
  if (joined_hash(hashes) == patch.description.unchanged->hash) return {};
  return reject("the weights are not what the patch applies to: they differ where it changes nothing");
}

}  // namespace

Result<std::vector<StagedPart>> stage_parts(std::span<const std::shared_ptr<const OpenedPatch>> patches,
                                            const WeightTable& weights, Verify verify, exec::Executor& executor) {
  if (verify == Verify::all && patches.size() > 1) {
    return tl::unexpected(
        Error(ErrorKind::unsupported, "several patches in one cannot verify all of the weights").about("verify"));
  }
  std::vector<StagedPart> parts;
  std::vector<SlabReader::Layer> layers;
  parts.reserve(patches.size());
  for (std::size_t i = 0; i < patches.size(); ++i) {
    const auto name_part = [&](Error error) {
      if (patches.size() == 1) return tl::unexpected(std::move(error));
      return tl::unexpected(std::move(error).within(fmt::format("patch {} of {}", i + 1, patches.size())));
    };
    StagedPart& part = parts.emplace_back(StagedPart{.patch = patches[i], .targets = {}, .slabs = {}});
    Result<Targets> targets = find_targets(*part.patch, weights);
    if (!targets) return name_part(std::move(targets).error());
    part.targets = std::move(*targets);
    const SlabReader reader(*part.patch, part.targets, layers);
    if (verify == Verify::all) BITSNAP_TRY(check_unchanged(*part.patch, reader, part.targets, weights));
    Result<std::vector<StagedSlab>> slabs = Stager(*part.patch, reader, verify, executor).stage();
    if (!slabs) return name_part(std::move(slabs).error());
    part.slabs = std::move(*slabs);
    SlabReader::Layer& layer = layers.emplace_back();
    layer.patch = part.patch.get();
    layer.slabs = part.slabs;
    for (std::size_t t = 0; t < part.targets.size(); ++t) {
      for (const std::byte* const memory : part.targets[t].all()) layer.tensors.emplace(memory, t);
    }
  }
  return parts;
}

Result<PatchState> state_of_weights(const OpenedPatch& patch, const WeightTable& weights, exec::Executor& executor) {
  BITSNAP_ASSIGN(const Targets targets, find_targets(patch, weights));
  const SlabReader reader(patch, targets, {});
  BITSNAP_ASSIGN(const auto findings, find_slabs(patch, reader, changed_slabs(patch), executor));
  return state_from(findings);
}

// Writes one staged patch.
void write_part(const StagedPart& part, exec::Executor& executor) {
  const auto write = [&](std::size_t slab, std::size_t) -> Result<void> {
    if (part.patch->slabs[slab].payload.empty()) return {};
    const std::size_t bytes = element_size(part.patch->table.stream_of(slab).dtype);
    std::size_t at = 0;
    for (const Piece& piece : part.patch->table.pieces(slab)) {
      const TargetTensor& target = part.targets[piece.tensor];
      write_changes(part.slabs[slab], piece, at, bytes, bytes_of(piece, bytes, target.memory));
      for (std::byte* const copy : target.copies) {
        write_changes(part.slabs[slab], piece, at, bytes, bytes_of(piece, bytes, copy));
      }
      at += static_cast<std::size_t>(piece.elements);
    }
    return {};
  };
  static_cast<void>(executor.run(part.patch->table.size(), 0, write));
}

namespace {

// What a patch changes in the tensor with this number.
void add_changes(const StagedPart& part, std::size_t number, std::map<std::uint64_t, std::span<const std::byte>>& to) {
  const Patch::Tensor& tensor = part.patch->description.tensors[number];
  const std::size_t bytes = element_size(tensor.dtype);
  const SlabTable& table = part.patch->table;
  const SlabTable::Range slabs = table.slabs_of(number, 0, tensor.size_bytes / bytes);
  for (std::uint64_t slab = slabs.first; slab <= slabs.last; ++slab) {
    const StagedSlab& staged = part.slabs[slab];
    const auto add = [&](std::uint64_t element, std::size_t value) {
      to[element] = std::span(staged.values).subspan(value * bytes, bytes);
    };
    std::size_t at = 0;
    for (const Piece& piece : table.pieces(slab)) {
      for (std::size_t i = 0; piece.tensor == number && staged.is_whole && i < piece.elements; ++i) {
        if (staged.changed[at + i]) add(piece.first_element + i, at + i);
      }
      for (std::size_t i = 0; piece.tensor == number && i < staged.places.size(); ++i) {
        const std::uint32_t place = staged.places[i];
        if (place >= piece.first_place && place < piece.first_place + piece.elements) {
          add(piece.first_element + place - piece.first_place, i);
        }
      }
      at += static_cast<std::size_t>(piece.elements);
    }
  }
}

}  // namespace

Result<StagedPatch::Changes> changes_of(std::span<const StagedPart> parts, const std::string& tensor) {
  std::map<std::uint64_t, std::span<const std::byte>> merged;  // later patches win
  const std::byte* memory = nullptr;
  for (const StagedPart& part : parts) {
    const auto& tensors = part.patch->description.tensors;
    for (std::size_t i = 0; i < tensors.size() && memory == nullptr; ++i) {
      if (std::ranges::find(tensors[i].names, tensor) != tensors[i].names.end()) memory = part.targets[i].memory;
    }
  }
  bool is_known = false;
  for (const StagedPart& part : parts) {
    const auto own = std::ranges::find_if(part.targets, [&](const TargetTensor& target) { return target.has(memory); });
    if (memory == nullptr || own == part.targets.end()) continue;
    is_known = true;
    add_changes(part, static_cast<std::size_t>(own - part.targets.begin()), merged);
  }
  if (!is_known) return fail(ErrorKind::not_found, fmt::format("the patch has no {}", quote_tensor(tensor)));
  StagedPatch::Changes changes;
  for (const auto& [place, value] : merged) {
    changes.places.push_back(place);
    changes.values.insert(changes.values.end(), value.begin(), value.end());
  }
  return changes;
}

}  // namespace bitsnap::patch
