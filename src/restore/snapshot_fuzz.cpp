// Any bytes as a snapshot file: opened, verified and read under small limits, alone and as another snapshot's base.
// Every way of reading must return the same bytes or an error, with bounded memory and time.
//
// The first byte selects what the rest is:
//   0: the file.
//   1: the parts of a file, assembled with correct hashes so that mutations get past them: five sizes (u16: content,
//      encoding, chunk table, parameters, safetensors header), these sections, and the rest as payloads. Decoded hashes
//      are kept; stored hashes and the id are computed.
//   2: the same, and the file's first base is the file itself.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/cost_testing.hpp"
#include "base/hash.hpp"
#include "container/raw_file_testing.hpp"
#include "os/file_system_fake.hpp"
#include "restore/open_snapshot.hpp"
#include "restore/state_builder_testing.hpp"

namespace {

using namespace bitsnap;
using container::Bytes;

constexpr std::uint64_t kMostTensorBytes = 4'000'000;
constexpr double kMaxCost = 0.05;
// The tensors are read whole several times. An input of type 1 or 2 grows little.
constexpr CostBound kBound{16 << 20, 20, 1, 1e-4};

void require(bool holds) {
  if (!holds) std::abort();
}

Bytes take(ConstByteSpan& bytes, std::size_t size) {
  size = std::min(size, bytes.size());
  Bytes taken(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
  bytes = bytes.subspan(size);
  return taken;
}

// The chunk table with the hashes of its payloads.
void seal_chunks(Bytes& table, const Bytes& payloads) {
  for (std::size_t at = 0; at + container::kChunkEntryBytes <= table.size(); at += container::kChunkEntryBytes) {
    const std::uint64_t offset = load_le<std::uint64_t>(table.data() + at) - container::kHeaderBytes;
    const std::size_t size = load_le<std::uint32_t>(table.data() + at + 24);
    ConstByteSpan payload;
    if (size > 0 && offset <= payloads.size() && size <= payloads.size() - offset) {
      payload = ConstByteSpan(payloads).subspan(static_cast<std::size_t>(offset), size);
    }
    store_le(table.data() + at + 8, hash64(payload));
  }
}

// Replaces the id of the first base by the file's own.
void name_itself(Bytes& encoding, const SnapshotId& id) {
  constexpr std::string_view kKey = R"("id":")";
  const std::size_t at = as_text(encoding).find(kKey);
  if (at == std::string_view::npos || encoding.size() - at < kKey.size() + 32) return;
  std::memcpy(encoding.data() + at + kKey.size(), id.to_hex().data(), 32);
}

Bytes seal(ConstByteSpan input, bool in_a_circle) {
  std::array<std::size_t, 5> sizes{};
  for (std::size_t i = 0; i < 5; ++i) {
    const Bytes size = take(input, 2);
    if (size.size() == 2) sizes[i] = load_le<std::uint16_t>(size.data());
  }
  std::vector<container::RawSection> sections;
  std::array<Bytes, 5> parts;
  for (std::size_t i = 0; i < 5; ++i) parts[i] = take(input, sizes[i]);
  const Bytes payloads(input.begin(), input.end());
  seal_chunks(parts[2], payloads);
  container::RawFile identity;
  identity.content = as_text(parts[0]);
  identity.safetensors_header = std::string(as_text(parts[4]));
  for (std::size_t at = 0; at + container::kChunkEntryBytes <= parts[2].size(); at += container::kChunkEntryBytes) {
    identity.chunks.emplace_back().decoded_hash = load_le<std::uint64_t>(parts[2].data() + at + 16);
  }
  if (in_a_circle) name_itself(parts[1], identity.id());
  for (std::size_t i = 0; i < 5; ++i) {
    if (i > 2 && parts[i].empty()) continue;
    const std::uint64_t size = parts[i].size();
    sections.push_back({static_cast<std::uint32_t>(i + 1), 0, std::move(parts[i]), size});
  }
  return container::join_file(payloads, container::join_sections(sections), identity.id());
}

// Provides one snapshot without owning it, so that two can be each other's base.
class OneBase final : public BaseProvider {
 public:
  Result<std::shared_ptr<const Base>> find(const SnapshotId&) const override {
    return std::shared_ptr<const Base>(std::shared_ptr<const Base>(), target);
  }

  const Snapshot* target = nullptr;
};

OpenOptions small_limits() {
  OpenOptions options;
  options.limits.tensor_bytes = kMostTensorBytes;
  options.limits.chunk_decodes = 64;
  options.limits.max_cost = kMaxCost;
  return options;
}

void read_everything(const Snapshot& snapshot) {
  std::uint64_t total = 0;
  for (const TensorInfo& info : snapshot.tensors()) total += info.size_bytes;
  if (total > 2 * kMostTensorBytes) return;
  RunOptions options;
  options.threads = 1;
  const auto damages = snapshot.verify(true, options);
  (void)snapshot.verify(false, options);
  // With bases, the remaining budget depends on what is cached.
  const bool alone = snapshot.bases().empty();
  bool all = true;
  std::vector<Bytes> whole;
  for (std::size_t tensor = 0; tensor < snapshot.tensors().size(); ++tensor) {
    const auto size = static_cast<std::size_t>(snapshot.tensors()[tensor].size_bytes);
    Bytes& out = whole.emplace_back(size);
    const bool good = snapshot.read_bytes(tensor, 0, out).has_value();
    all = all && good;
    if (!good || size == 0) continue;
    Bytes part(size - size / 2);
    const bool again = snapshot.read_bytes(tensor, size / 2, part).has_value();
    require(again || !alone);
    if (again) require(std::memcmp(part.data(), out.data() + size / 2, part.size()) == 0);
  }
  if (alone && damages && damages->empty()) require(all);
  std::size_t tensor = 0;
  std::size_t at = 0;
  const auto streamed = snapshot.stream_all(
      [&](std::span<const std::byte> piece) -> Result<void> {
        while (at == whole[tensor].size()) {
          ++tensor;
          at = 0;
        }
        require(std::memcmp(piece.data(), whole[tensor].data() + at, piece.size()) == 0);
        at += piece.size();
        return {};
      },
      options);
  require(streamed.has_value() == all || !alone);
  for (std::size_t stream = 0; stream < snapshot.streams().size(); ++stream) {
    for (std::uint64_t chunk = 0; chunk < snapshot.streams()[stream].chunk_count(); ++chunk) {
      require(snapshot.chunk_info(stream, chunk).has_value());
      (void)snapshot.holder(stream, chunk);
    }
  }
  if (all && alone) {
    const auto differences = compare(snapshot, snapshot, options);
    require(differences.has_value());
    for (const TensorDifference& difference : *differences) require(difference.kind == TensorDifference::Kind::equal);
  }
}

void run_alone(Bytes bytes) {
  static os::FakeFileSystem no_files;
  const auto opened = restore::open_snapshot(std::make_unique<container::MemoryFile>("x.bsnap", std::move(bytes)),
                                             small_limits(), no_files);
  if (opened) read_everything(**opened);
}

// The file twice, each the other's base: a base may hold the content of the file itself.
void run_in_a_circle(const Bytes& bytes) {
  static os::FakeFileSystem no_files;
  std::array<std::shared_ptr<OneBase>, 2> bases = {std::make_shared<OneBase>(), std::make_shared<OneBase>()};
  std::array<std::shared_ptr<const Snapshot>, 2> snapshots;
  for (std::size_t i = 0; i < 2; ++i) {
    OpenOptions options = small_limits();
    options.bases = bases[i];
    auto opened = restore::open_snapshot(std::make_unique<container::MemoryFile>("x.bsnap", bytes), options, no_files);
    if (!opened) return;
    snapshots[i] = *opened;
  }
  bases[0]->target = snapshots[1].get();
  bases[1]->target = snapshots[0].get();
  read_everything(*snapshots[0]);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const CostCheck cost(size, kBound);
  const ConstByteSpan input = std::as_bytes(std::span(data, size)).subspan(1);
  switch (data[0]) {
    case 0: run_alone(Bytes(input.begin(), input.end())); break;
    case 1: run_alone(seal(input, false)); break;
    default: run_in_a_circle(seal(input, true)); break;
  }
  return 0;
}
