// Merging the tensors of shards, and the file tensors.json.
#include "store/tensor_index.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/hash.hpp"
#include "base/try.hpp"
#include "container/file_reader.hpp"
#include "exec/executor.hpp"
#include "json/json_fields.hpp"
#include "os/atomic_file.hpp"
#include "store/sealed_json.hpp"
#include "tensor/box.hpp"

namespace bitsnap::store {

using json::json_field;
using json::JsonField;
using json::JsonNeed;
using json::JsonReader;
using json::JsonWriter;

namespace {

constexpr std::string_view kTensorsKey = "tensors";
constexpr std::size_t kMaxDimensions = 64;

struct RoleFormat : json::JsonDefault {
  static Result<void> read(JsonReader& in, Role& to) {
    BITSNAP_ASSIGN(const std::string name, in.read_string());
    const std::optional<Role> role = role_from_name(name);
    if (!role) return fail(ErrorKind::corrupt, "expected a role");
    to = *role;
    return {};
  }
  static void write(JsonWriter& out, Role from) { out.string(role_name(from)); }
};

// A part is its shard, its tensor, its offset and its extent in one array: there may be hundreds of thousands.
struct PartsFormat {
  static Result<void> read(JsonReader& in, std::vector<TensorPart>& to) {
    std::vector<std::uint64_t> numbers;
    return in.read_array([&]() -> Result<void> {
      if (!read_plain(in, numbers)) {
        numbers.clear();
        BITSNAP_TRY(read_json_list(in, numbers, json::read_json<std::uint64_t>, {.most = 2 + 2 * kMaxDimensions}));
      }
      if (numbers.size() < 2 || numbers.size() % 2 != 0 || numbers[0] >= kMaxShards) {
        return fail(ErrorKind::corrupt, "expected a shard, a tensor, an offset and an extent");
      }
      TensorPart& part = to.emplace_back();
      part.shard = static_cast<std::uint32_t>(numbers[0]);
      part.tensor = static_cast<std::size_t>(numbers[1]);
      const auto middle = numbers.begin() + 2 + static_cast<std::ptrdiff_t>(numbers.size() / 2 - 1);
      part.offset.assign(numbers.begin() + 2, middle);
      part.extent.assign(middle, numbers.end());
      return {};
    });
  }
  // The numbers as write() writes them, several times as fast. False, with nothing read, for anything else.
  static bool read_plain(JsonReader& in, std::vector<std::uint64_t>& numbers) {
    const std::size_t begin = in.position();
    numbers.clear();
    bool is_plain = in.accept_literal("[");
    while (is_plain && numbers.size() < 2 + 2 * kMaxDimensions) {
      is_plain = in.accept_plain_unsigned(numbers.emplace_back());
      if (is_plain && in.accept_literal("]")) return true;
      is_plain = is_plain && in.accept_literal(",");
    }
    in.return_to(begin);
    return false;
  }
  static void write(JsonWriter& out, const std::vector<TensorPart>& from) {
    out.begin_array();
    for (const TensorPart& part : from) {
      out.begin_array();
      out.number(std::uint64_t{part.shard});
      out.number(std::uint64_t{part.tensor});
      for (const std::uint64_t number : part.offset) out.number(number);
      for (const std::uint64_t number : part.extent) out.number(number);
      out.end_array();
    }
    out.end_array();
  }
};

}  // namespace
}  // namespace bitsnap::store

namespace bitsnap {

static constexpr auto json_fields(std::type_identity<GlobalTensor>) {
  using store::PartsFormat;
  using store::RoleFormat;
  return std::array{json::json_field<&GlobalTensor::name>("name"), json::json_field<&GlobalTensor::dtype_name>("dtype"),
                    json::json_field<&GlobalTensor::shape>("shape"),
                    json::json_field<&GlobalTensor::role, RoleFormat>("role"),
                    json::json_field<&GlobalTensor::parts, PartsFormat>("parts")};
}

}  // namespace bitsnap

namespace bitsnap::store {

struct TensorsRecord {
  std::vector<SnapshotId> ids;  // of the snapshots of all shards
  std::vector<GlobalTensor> tensors;
};

static constexpr auto json_fields(std::type_identity<TensorsRecord>) {
  return std::array{
      JsonField<TensorsRecord>{
          .key = "format",
          .read = [](JsonReader& in, TensorsRecord&) { return in.skip_value(); },
          .write = [](JsonWriter& out, const TensorsRecord&) { out.number(std::uint64_t{kStoreFormat}); }},
      json_field<&TensorsRecord::ids>("ids"), json_field<&TensorsRecord::tensors>("tensors")};
}

namespace {

std::string tensor_index_path(const RunLayout& layout, const CommitRecord& record) {
  return layout.step_file(record.step, kTensorsName);
}

std::vector<SnapshotId> ids_of(const CommitRecord& record) {
  std::vector<SnapshotId> ids;
  ids.reserve(record.shards.size());
  for (const ShardFile& file : record.shards) ids.push_back(file.id);
  return ids;
}

// What is read from a file may be wrong although its hash is right.
Result<void> check_tensor(GlobalTensor& tensor, std::size_t shards) {
  tensor.dtype = dtype_from_name(tensor.dtype_name);
  for (const TensorPart& part : tensor.parts) {
    if (part.shard >= shards || !tensor::lies_in({part.offset, part.extent}, tensor.shape)) {
      return fail(ErrorKind::corrupt, "a part does not lie in its tensor");
    }
  }
  return {};
}

// What the tensor index needs of a tensor in one shard.
struct ShardTensor {
  TensorInfo info;
  std::uint64_t content = 0;  // a hash: equal for equal bytes that are stored in the same way
  bool is_in_pool = false;    // then tensors with other hashes may have the same bytes
};

struct Entry {
  std::uint32_t shard = 0;
  std::size_t number = 0;
  const ShardTensor* tensor = nullptr;
};

bool is_same_tensor(const TensorInfo& a, const TensorInfo& b) {
  return a.dtype_name == b.dtype_name && a.shard.has_value() == b.shard.has_value() &&
         a.global_shape() == b.global_shape();
}

TensorPart part_of(const Entry& entry) {
  const TensorInfo& info = entry.tensor->info;
  std::vector<std::uint64_t> offset = info.shard ? info.shard->offset : std::vector<std::uint64_t>(info.shape.size());
  return {entry.shard, entry.number, std::move(offset), info.shape};
}

class Merger {
 public:
  explicit Merger(std::size_t names) { used_.reserve(names); }

  // The tensors of one name, in the order of shards.
  void add(const std::string& name, std::span<const Entry> entries) {
    const TensorInfo& first = entries.front().tensor->info;
    std::vector<Entry> together;
    std::vector<Entry> alone;
    for (const Entry& entry : entries) (is_same_tensor(entry.tensor->info, first) ? together : alone).push_back(entry);
    if (!first.shard && !are_equal(together)) {
      alone.assign(entries.begin(), entries.end());
      together.clear();
    }
    if (!together.empty()) add_tensor(name, together);
    for (const Entry& entry : alone) add_tensor(fmt::format("rank-{}/{}", entry.shard, name), {&entry, 1});
  }

  [[nodiscard]] std::vector<GlobalTensor> take() { return std::move(tensors_); }

 private:
  static bool are_equal(std::span<const Entry> entries) {
    return std::ranges::all_of(
        entries, [&](const Entry& entry) { return entry.tensor->content == entries.front().tensor->content; });
  }

  void add_tensor(const std::string& name, std::span<const Entry> entries) {
    std::string unique = name;
    for (int count = 2; !used_.insert(unique).second; ++count) unique = fmt::format("{}#{}", name, count);
    const TensorInfo& info = entries.front().tensor->info;
    GlobalTensor& tensor = tensors_.emplace_back();
    tensor.name = std::move(unique);
    tensor.dtype = info.dtype;
    tensor.dtype_name = info.dtype_name;
    tensor.shape = info.global_shape();
    tensor.role = info.role;
    // A box that several shards hold is listed once, unless its values differ: then reading it fails.
    std::map<std::pair<std::vector<std::uint64_t>, std::vector<std::uint64_t>>, const ShardTensor*> boxes;
    for (const Entry& entry : entries) {
      TensorPart part = part_of(entry);
      if (std::ranges::find(part.extent, 0U) != part.extent.end()) continue;
      const auto [known, is_new] = boxes.try_emplace({part.offset, part.extent}, entry.tensor);
      if (is_new || known->second->content != entry.tensor->content) tensor.parts.push_back(std::move(part));
    }
    std::ranges::sort(tensor.parts, {},
                      [](const TensorPart& part) { return std::tie(part.offset, part.extent, part.shard); });
  }

  std::vector<GlobalTensor> tensors_;
  std::unordered_set<std::string> used_;
};

// Makes the hashes of small tensors tell whether their bytes are equal, if several shards hold the same box of one, or
// the whole: in a pool, equal bytes may have other hashes.
Result<void> compare_small(CheckpointReader& reader, const CommitRecord& record,
                           std::vector<std::vector<ShardTensor>>& shards) {
  std::uint64_t largest = 0;
  for (const std::vector<ShardTensor>& shard : shards) {
    for (const ShardTensor& tensor : shard) {
      if (tensor.is_in_pool) largest = std::max(largest, tensor.info.size_bytes);
    }
  }
  struct Seen {
    std::uint64_t content = 0;
    bool differs = false;
    bool is_in_pool = false;
  };
  std::map<std::tuple<std::string_view, std::vector<std::uint64_t>, std::vector<std::uint64_t>>, Seen> seen;
  std::vector<std::vector<Seen*>> seen_of(shards.size());
  for (std::size_t shard = 0; shard < shards.size(); ++shard) {
    for (const ShardTensor& tensor : shards[shard]) {
      Seen*& own = seen_of[shard].emplace_back(nullptr);
      const TensorInfo& info = tensor.info;
      if (info.size_bytes > largest || info.size_bytes == 0) continue;
      const auto [first, is_new] = seen.try_emplace(
          {info.global_name(), info.shard ? info.shard->offset : std::vector<std::uint64_t>(), info.shape},
          Seen{tensor.content, false, false});
      own = &first->second;
      own->differs = own->differs || own->content != tensor.content;
      own->is_in_pool = own->is_in_pool || tensor.is_in_pool;
    }
  }
  std::vector<std::byte> bytes;
  for (std::size_t shard = 0; shard < shards.size(); ++shard) {
    std::shared_ptr<const Snapshot> snapshot;
    for (std::size_t i = 0; i < shards[shard].size(); ++i) {
      const Seen* const own = seen_of[shard][i];
      if (own == nullptr || !own->differs || !own->is_in_pool) continue;
      ShardTensor& tensor = shards[shard][i];
      if (snapshot == nullptr) {
        BITSNAP_ASSIGN(snapshot, reader.open_file(record.step, record.shards[shard]));
      }
      bytes.resize(static_cast<std::size_t>(tensor.info.size_bytes));
      BITSNAP_TRY(snapshot->read_bytes(i, 0, bytes));
      tensor.content = hash64(bytes);
    }
  }
  return {};
}

// The tensors of a shard, by their number.
std::vector<ShardTensor> shard_tensors(const container::Index& index) {
  std::vector<ShardTensor> tensors(index.content.tensors.size());
  std::vector<std::uint64_t> hashes;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].info = index.content.tensors[i];
    const std::size_t holder = tensors[i].info.alias_of.value_or(i);
    std::optional<std::size_t> stream = index.streams.stream_of[holder];
    hashes.clear();
    if (!stream && index.content.pool_offsets[holder]) {
      tensors[i].is_in_pool = true;
      stream = index.streams.pool;
      hashes.push_back(*index.content.pool_offsets[holder]);
    }
    if (!stream) continue;  // empty
    for (std::uint64_t chunk = index.streams.first_chunk[*stream]; chunk < index.streams.first_chunk[*stream + 1];
         ++chunk) {
      hashes.push_back(index.chunks[static_cast<std::size_t>(chunk)].decoded_hash);
    }
    tensors[i].content = hash64(std::as_bytes(std::span(hashes)));
  }
  return tensors;
}

// In the order in which the names appear first.
std::vector<GlobalTensor> merge_shards(std::span<const std::vector<ShardTensor>> shards) {
  std::map<std::string_view, std::vector<Entry>> by_name;
  std::vector<std::string_view> names;
  for (std::uint32_t shard = 0; shard < shards.size(); ++shard) {
    for (std::size_t i = 0; i < shards[shard].size(); ++i) {
      const ShardTensor& tensor = shards[shard][i];
      std::vector<Entry>& entries = by_name[tensor.info.global_name()];
      if (entries.empty()) names.push_back(tensor.info.global_name());
      entries.push_back({shard, i, &tensor});
    }
  }
  Merger merger(names.size());
  for (const std::string_view name : names) merger.add(std::string(name), by_name[name]);
  return merger.take();
}

}  // namespace

Result<std::vector<GlobalTensor>> index_tensors(os::FileSystem& file_system, const RunLayout& layout,
                                                CheckpointReader& reader, const CommitRecord& record,
                                                const DecodeLimits& limits, unsigned threads) {
  std::vector<std::vector<ShardTensor>> shards(record.shards.size());
  const auto executor = exec::make_executor(threads);
  BITSNAP_TRY(
      executor->run(shards.size(), executor->default_slots(), [&](std::size_t shard, std::size_t) -> Result<void> {
        const ShardFile& file = record.shards[shard];
        const std::string path = layout.step_file(record.step, file.file);
        BITSNAP_ASSIGN(auto opened, file_system.open(path));
        BITSNAP_ASSIGN(const auto parsed, container::FileReader::open(std::move(opened), limits));
        if (parsed->index().id != file.id) {
          return fail(ErrorKind::corrupt, fmt::format("{}: holds snapshot {}, the commit record says {}", path,
                                                      parsed->index().id.to_hex(), file.id.to_hex()));
        }
        shards[shard] = shard_tensors(parsed->index());
        return {};
      }));
  BITSNAP_TRY(compare_small(reader, record, shards));
  return merge_shards(shards);
}

Result<std::vector<GlobalTensor>> list_tensors(os::FileSystem& file_system, const RunLayout& layout,
                                               CheckpointReader& reader, const CommitRecord& record,
                                               const DecodeLimits& limits, unsigned threads) {
  if (auto read = read_tensor_index(file_system, layout, record)) return *std::move(read);
  return index_tensors(file_system, layout, reader, record, limits, threads);
}

std::optional<std::vector<GlobalTensor>> read_tensor_index(os::FileSystem& file_system, const RunLayout& layout,
                                                           const CommitRecord& record) {
  TensorsRecord read;
  const auto read_body = [&](JsonReader& in) -> Result<void> {
    BITSNAP_TRY(json::read_json(in, read));
    for (GlobalTensor& tensor : read.tensors) BITSNAP_TRY(check_tensor(tensor, record.shards.size()));
    return {};
  };
  const auto done = read_sealed_json(file_system, tensor_index_path(layout, record), kTensorsKey, read_body);
  if (!done || read.ids != ids_of(record)) return std::nullopt;
  return std::move(read.tensors);
}

Result<void> write_tensor_index(os::FileSystem& file_system, const RunLayout& layout, const CommitRecord& record,
                                std::span<const GlobalTensor> tensors) {
  const TensorsRecord written{ids_of(record), {tensors.begin(), tensors.end()}};
  const std::string text = seal_json(kTensorsKey, json::serialize_json(written));
  BITSNAP_ASSIGN(os::AtomicFile file, os::AtomicFile::create(file_system, tensor_index_path(layout, record), true,
                                                             os::kDefaultFileMode, os::Durability::cached));
  BITSNAP_TRY(file.file().append(as_byte_span(text)));
  return file.commit();
}

}  // namespace bitsnap::store
