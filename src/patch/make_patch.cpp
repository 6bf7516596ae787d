// make_patch(): finds the tensors that changed, divides them into slabs, encodes these in parallel, and joins them in
// order.
#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <bitsnap/patch.hpp>

#include "base/no_throw.hpp"
#include "base/quote_name.hpp"
#include "base/scratch.hpp"
#include "base/try.hpp"
#include "container/packed_bytes.hpp"
#include "exec/executor.hpp"
#include "patch/numbers.hpp"
#include "patch/patch_layout.hpp"
#include "patch/slab_encode.hpp"
#include "patch/weight_table.hpp"

namespace bitsnap {
namespace patch {
namespace {

// Bytes that are compared as one piece of parallel work.
constexpr std::uint64_t kCompareBytes = std::uint64_t{4} << 20;
constexpr std::size_t kSampledRuns = 64;
constexpr std::size_t kSampledElements = 1024;  // of a run
constexpr int kZstdLevel = 19;                  // of the description, which is small

// A tensor in both versions, with all names that are tied in the weights, and tied or equal in the base.
struct Pair {
  std::vector<std::string> names;
  const WeightMemory* weight = nullptr;
  const WeightMemory* base = nullptr;
  bool changed = false;
};

Result<void> check_same(const WeightMemory& weight, const WeightMemory& base) {
  if (dtype_name_of(weight) == dtype_name_of(base) && weight.shape == base.shape &&
      weight.size_bytes == base.size_bytes) {
    return {};
  }
  return fail(ErrorKind::invalid_argument,
              fmt::format("{}: the weights have {}, the base has {}", quote_tensor(weight.name),
                          describe(dtype_name_of(weight), weight.shape), describe(dtype_name_of(base), base.shape)));
}

Result<std::vector<Pair>> pair_tensors(const WeightTable& weights, const WeightTable& base) {
  for (const WeightMemory& own : base.all()) {
    if (weights.find(own.name) != nullptr) continue;
    return fail(ErrorKind::invalid_argument,
                fmt::format("{} of the base is missing in the weights: a patch neither adds "
                            "nor removes tensors",
                            quote_tensor(own.name)));
  }
  std::vector<Pair> pairs;
  std::map<const std::byte*, std::vector<std::size_t>> tied;  // by the memory of the weights
  for (const WeightMemory& own : weights.all()) {
    const WeightMemory* const from = base.find(own.name);
    if (from == nullptr) {
      return fail(ErrorKind::invalid_argument,
                  fmt::format("{} is missing in the base: a patch neither adds nor removes "
                              "tensors",
                              quote_tensor(own.name)));
    }
    BITSNAP_TRY(check_same(own, *from));
    if (own.size_bytes == 0) continue;
    // A copy of weights that was made tensor by tensor has lost its ties, but its bytes are equal.
    std::vector<std::size_t>& known = tied[own.memory];
    const auto same = std::ranges::find_if(known, [&](std::size_t i) {
      return is_same_memory(*pairs[i].base, *from) || std::ranges::equal(bytes_of(*pairs[i].base), bytes_of(*from));
    });
    if (same == known.end()) {
      known.push_back(pairs.size());
      pairs.push_back({.names = {own.name}, .weight = &own, .base = from});
    } else {
      pairs[*same].names.push_back(own.name);
    }
  }
  return pairs;
}

// Compares all pairs block by block; of one that is found to have changed, no further block.
Result<void> find_changed(std::vector<Pair>& pairs, exec::Executor& executor) {
  struct Block {
    std::size_t pair;
    std::uint64_t offset;
  };
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (pairs[i].weight->memory == pairs[i].base->memory) continue;
    for (std::uint64_t at = 0; at < pairs[i].weight->size_bytes; at += kCompareBytes) blocks.push_back({i, at});
  }
  const auto changed = std::make_unique<std::atomic<bool>[]>(pairs.size());
  const auto compare = [&](std::size_t item, std::size_t) -> Result<void> {
    const auto [pair, offset] = blocks[item];
    if (changed[pair].load(std::memory_order_relaxed)) return {};
    const std::uint64_t size = std::min(kCompareBytes, pairs[pair].weight->size_bytes - offset);
    const auto of = [&](const WeightMemory& tensor) { return bytes_of(tensor).subspan(offset, size); };
    if (!std::ranges::equal(of(*pairs[pair].weight), of(*pairs[pair].base))) {
      changed[pair].store(true, std::memory_order_relaxed);
    }
    return {};
  };
  BITSNAP_TRY(executor.run(blocks.size(), 0, compare));
  for (std::size_t i = 0; i < pairs.size(); ++i) pairs[i].changed = changed[i].load();
  return {};
}

SampledChanges sample_changes(std::span<const Pair* const> pairs) noexcept {
  SampledChanges sample;
  std::uint64_t all = 0;
  for (const Pair* pair : pairs) all += pair->weight->size_bytes;
  const std::uint64_t every = std::max<std::uint64_t>(1, all / kSampledRuns);
  std::uint64_t next = 0;
  std::uint64_t before = 0;
  for (const Pair* pair : pairs) {
    const std::size_t bytes = element_size(pair->weight->dtype);
    for (; next < before + pair->weight->size_bytes; next += every) {
      const std::uint64_t begin = (next - before) / bytes * bytes;
      const std::uint64_t size = std::min<std::uint64_t>(kSampledElements * bytes, pair->weight->size_bytes - begin);
      std::uint32_t changed = 0;
      for (std::uint64_t at = begin; at < begin + size; at += bytes) {
        changed +=
            std::equal(pair->weight->memory + at, pair->weight->memory + at + bytes, pair->base->memory + at) ? 0U : 1U;
      }
      sample.elements += size / bytes;
      sample.changed += changed;
      if (size == kSampledElements * bytes) sample.most_of_1024 = std::max(sample.most_of_1024, changed);
    }
    before += pair->weight->size_bytes;
  }
  return sample;
}

// The changed tensors by dtype, in the order in which dtypes and tensors first occur.
struct Changed {
  Description description;
  std::vector<const Pair*> pairs;  // one per tensor of the description
};

Changed describe_changed(std::span<const Pair> pairs) {
  std::vector<std::pair<std::string, std::vector<const Pair*>>> by_dtype;
  for (const Pair& pair : pairs) {
    if (!pair.changed) continue;
    const std::string name = dtype_name_of(*pair.weight);
    auto at = std::ranges::find(by_dtype, name, &std::pair<std::string, std::vector<const Pair*>>::first);
    if (at == by_dtype.end()) at = by_dtype.insert(at, {name, {}});
    at->second.push_back(&pair);
  }
  Changed changed;
  for (const auto& [dtype, own] : by_dtype) {
    const DType native = own.front()->weight->dtype;
    changed.description.streams.push_back({.dtype = native,
                                           .slab_bits = choose_slab_bits(native, sample_changes(own)),
                                           .first_tensor = changed.pairs.size(),
                                           .tensors = own.size()});
    for (const Pair* pair : own) {
      changed.description.tensors.push_back({.names = pair->names,
                                             .dtype = native,
                                             .dtype_name = dtype,
                                             .shape = pair->weight->shape,
                                             .size_bytes = pair->weight->size_bytes});
      changed.pairs.push_back(pair);
    }
  }
  return changed;
}

// The encoded slabs, joined in order.
struct Slabs {
  std::vector<std::byte> table;
  std::vector<std::byte> payloads;
  std::vector<std::uint64_t> expected;   // of the slabs that changed
  std::vector<std::uint64_t> result;     // of the same
  std::vector<std::uint64_t> unchanged;  // of the others

  void add(const EncodedSlab& slab) {
    put_number(table, slab.payload.size());
    if (slab.payload.empty()) {
      unchanged.push_back(slab.expected);
      return;
    }
    for (const std::uint64_t hash : {slab.expected, slab.result}) {
      table.resize(table.size() + sizeof(std::uint32_t));
      store_le(table.data() + table.size() - sizeof(std::uint32_t), short_hash(hash));
    }
    payloads.insert(payloads.end(), slab.payload.begin(), slab.payload.end());
    expected.push_back(slab.expected);
    result.push_back(slab.result);
  }
};

Result<Slabs> encode_slabs(const SlabTable& table, const Changed& changed, exec::Executor& executor) {
  Slabs slabs;
  struct Slot {
    Scratch scratch;
    EncodedSlab encoded;
  };
  std::vector<Slot> slots(executor.default_slots());
  const auto encode = [&](std::size_t slab, std::size_t slot) -> Result<void> {
    const std::vector<Piece> pieces = table.pieces(slab);
    std::vector<ConstByteSpan> weights;
    std::vector<ConstByteSpan> base;
    const DType dtype = table.stream_of(slab).dtype;
    for (const Piece& piece : pieces) {
      const std::byte* const memory = changed.pairs[piece.tensor]->weight->memory;
      weights.push_back(bytes_of(piece, element_size(dtype), memory));
      base.push_back(bytes_of<const std::byte>(piece, element_size(dtype), changed.pairs[piece.tensor]->base->memory));
    }
    return encode_slab({.dtype = dtype, .pieces = pieces, .bytes = weights},
                       {.dtype = dtype, .pieces = pieces, .bytes = base}, slots[slot].scratch, slots[slot].encoded);
  };
  const auto commit = [&](std::size_t, std::size_t slot) -> Result<void> {
    slabs.add(slots[slot].encoded);
    return {};
  };
  BITSNAP_TRY(executor.run_ordered(table.size(), slots.size(), encode, commit));
  return slabs;
}

void hash_unchanged(const WeightTable& weights, Slabs& slabs, Description& description) {
  const std::vector<const WeightMemory*> rest = weights.without(description.tensors);
  hash_tensors(rest, slabs.unchanged);
  description.unchanged = {.tensors = rest.size(), .hash = joined_hash(slabs.unchanged)};
}

Result<std::vector<std::byte>> join(const Description& description, const Slabs& slabs) {
  const std::string json = write_description(description);
  if (json.size() > DecodeLimits().index_bytes || description.tensors.size() > DecodeLimits().tensors) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("the description of {} tensors has {} bytes, more than readers accept",
                            description.tensors.size(), json.size()));
  }
  BITSNAP_ASSIGN(const std::vector<std::byte> packed, container::pack_bytes(as_byte_span(json), kZstdLevel));
  const ConstByteSpan stored = packed.empty() ? as_byte_span(json) : ConstByteSpan(packed);
  std::vector<std::byte> out(kHeaderBytes);
  const std::size_t size = kHeaderBytes + stored.size() + slabs.table.size() + slabs.payloads.size() + kTailBytes;
  out.reserve(size);
  store_le(out.data(), kMagic);
  store_le(out.data() + 8, kFormatVersion);
  store_le<std::uint64_t>(out.data() + 16, size);
  store_le(out.data() + 24, static_cast<std::uint32_t>(stored.size()));
  store_le(out.data() + 28, static_cast<std::uint32_t>(json.size()));
  store_le(out.data() + 32, joined_hash(slabs.expected));
  store_le(out.data() + 48, joined_hash(slabs.result));
  for (const ConstByteSpan part : {stored, ConstByteSpan(slabs.table), ConstByteSpan(slabs.payloads)}) {
    out.insert(out.end(), part.begin(), part.end());
  }
  const std::uint64_t hash = hash64(out);
  out.resize(size);
  store_le(out.data() + size - kTailBytes, hash);
  return out;
}

Result<std::vector<std::byte>> make(std::span<const WeightMemory> weights, std::span<const WeightMemory> base,
                                    const PatchOptions& options) {
  BITSNAP_ASSIGN(const WeightTable own, WeightTable::make(weights, "the weights"));
  BITSNAP_ASSIGN(const WeightTable from, WeightTable::make(base, "the base"));
  BITSNAP_ASSIGN(std::vector<Pair> pairs, pair_tensors(own, from));
  const auto executor = exec::make_executor(options.threads);
  BITSNAP_TRY(find_changed(pairs, *executor));
  Changed changed = describe_changed(pairs);
  changed.description.from = options.from;
  changed.description.to = options.to;
  changed.description.metadata = options.metadata;
  BITSNAP_ASSIGN(const SlabTable table, SlabTable::make(changed.description));
  BITSNAP_ASSIGN(Slabs slabs, encode_slabs(table, changed, *executor));
  if (options.hash_unchanged) hash_unchanged(own, slabs, changed.description);
  return join(changed.description, slabs);
}

}  // namespace
}  // namespace patch

Result<std::vector<std::byte>> make_patch(std::span<const WeightMemory> weights, std::span<const WeightMemory> base,
                                          const PatchOptions& options) {
  return no_throw("making a patch", [&] { return patch::make(weights, base, options); });
}

}  // namespace bitsnap
