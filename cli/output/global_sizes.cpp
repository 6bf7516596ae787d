#include "cli/output/global_sizes.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <bitsnap/text.hpp>

#include "cli/output/losses.hpp"
#include "cli/output/table.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

void add(StreamSizes& sum, const StreamSizes& part) {
  sum.raw_bytes += part.raw_bytes;
  sum.stored_bytes += part.stored_bytes;
  sum.chunks += part.chunks;
  sum.depth = std::max(sum.depth, part.depth);
  for (const auto& [codec, count] : part.codecs) sum.codecs[codec] += count;
}

Json tensor_json(const WholeCheckpoint& checkpoint, const GlobalTensor& tensor, const GlobalSizes::Tensor& sizes) {
  Json object = {{"name", tensor.name},
                 {"dtype", tensor.dtype_name},
                 {"shape", tensor.shape},
                 {"role", role_name(tensor.role)},
                 {"raw_bytes", sizes.raw_bytes}};
  if (sizes.streams.chunks > 0) {
    object["stored_bytes"] = sizes.streams.stored_bytes;
    object["ratio"] = ratio_json(sizes.streams.raw_bytes, sizes.streams.stored_bytes);
    object["codec"] = sizes.streams.codec();
    object["codecs"] = sizes.streams.codecs;
    object["depth"] = sizes.streams.depth;
    object["reason"] = sizes.reason;
  } else if (sizes.is_alias) {
    object["alias"] = true;
  } else if (sizes.raw_bytes > 0) {
    object["pooled"] = true;
  }
  object["parts"] = Json::array();
  for (const TensorPart& part : tensor.parts) {
    Json& own =
        object["parts"].emplace_back(Json{{"shard", part.shard}, {"offset", part.offset}, {"shape", part.extent}});
    const Snapshot& snapshot = *checkpoint.snapshots[part.shard];
    const auto stream = snapshot.stream_of(part.tensor);
    if (!stream) continue;
    if (const auto& lost = snapshot.quantizer(*stream)) own["quantizer"] = *lost;
  }
  return object;
}

}  // namespace

Result<GlobalSizes> measure_sizes(const WholeCheckpoint& checkpoint) {
  GlobalSizes sizes;
  std::vector<SnapshotSizes> shards;
  for (const auto& shard : checkpoint.snapshots) {
    BITSNAP_ASSIGN(SnapshotSizes measured, measure_sizes(*shard));
    sizes += measured;
    sizes.file_bytes += shard->file_bytes();
    sizes.depth = std::max(sizes.depth, measured.depth);
    shards.push_back(std::move(measured));
  }
  for (auto& [role, of_role] : sizes.roles) of_role.tensors = 0;
  sizes.pool.tensors = 0;
  sizes.total.tensors = checkpoint.tensors->size();
  for (const GlobalTensor& tensor : *checkpoint.tensors) {
    GlobalSizes::Tensor& own = sizes.tensors.emplace_back();
    for (const TensorPart& part : tensor.parts) {
      const Snapshot& snapshot = *checkpoint.snapshots[part.shard];
      own.raw_bytes += snapshot.tensors()[part.tensor].size_bytes;
      const auto stream = snapshot.stream_of(part.tensor);
      if (snapshot.tensors()[part.tensor].alias_of) {
        own.is_alias = true;
      } else if (stream) {
        add(own.streams, shards[part.shard].streams[*stream]);
        if (own.reason.empty()) own.reason = snapshot.reason(*stream);
      }
    }
    const bool is_pooled = own.streams.chunks == 0 && !own.is_alias && own.raw_bytes > 0;
    ++(is_pooled ? sizes.pool : sizes.roles[tensor.role]).tensors;
  }
  return sizes;
}

Json global_json(const WholeCheckpoint& checkpoint, const GlobalSizes& sizes) {
  const Snapshot& first = *checkpoint.snapshots.front();
  Json document = {{"path", checkpoint_name(checkpoint.run, checkpoint.info.step)},
                   {"kind", "checkpoint"},
                   {"policy", first.policy()},
                   {"objective", first.objective().empty() ? Json() : Json(first.objective())},
                   {"file_bytes", sizes.file_bytes},
                   {"depth", sizes.depth},
                   {"tensors", Json::array()}};
  for (std::size_t i = 0; i < sizes.tensors.size(); ++i) {
    document["tensors"].push_back(tensor_json(checkpoint, (*checkpoint.tensors)[i], sizes.tensors[i]));
  }
  document["pool"] = nullptr;
  if (sizes.pool.tensors > 0) document["pool"] = sizes.pool;
  document["roles"] = roles_json(sizes.roles);
  document["index_bytes"] = sizes.overhead_bytes;
  document["total"] = sizes.total;
  return document;
}

std::string render_global(const WholeCheckpoint& checkpoint, const GlobalSizes& sizes, const CommonOptions& common) {
  Table table({{"tensor", Align::left, Narrow::middle},
               {"dtype", Align::left, Narrow::never, 1},
               {"shape", Align::left, Narrow::never, 2},
               {"role", Align::left, Narrow::never, 3},
               {"parts", Align::right, Narrow::never, 4},
               {"codec"},
               {"raw", Align::right, Narrow::never, 5},
               {"stored", Align::right},
               {"ratio", Align::right}});
  for (std::size_t i = 0; i < sizes.tensors.size(); ++i) {
    const GlobalTensor& tensor = (*checkpoint.tensors)[i];
    const GlobalSizes::Tensor& own = sizes.tensors[i];
    const StreamSizes& streams = own.streams;
    const bool has_streams = streams.chunks > 0;
    const std::string codec = common.verbose && streams.codecs.size() > 1 ? streams.codec_counts() : streams.codec();
    const std::string otherwise = own.is_alias ? "alias" : own.raw_bytes > 0 ? "(pool)" : "-";
    table.add_row({printable(tensor.name), printable(tensor.dtype_name), format_shape(tensor.shape),
                   std::string(role_name(tensor.role)), format_count(tensor.parts.size()),
                   has_streams ? codec : otherwise, format_size(own.raw_bytes),
                   has_streams ? format_size(streams.stored_bytes) : "-",
                   has_streams ? format_ratio(streams.raw_bytes, streams.stored_bytes) : "-"});
  }
  return table.render(common.table_width());
}

}  // namespace bitsnap::cli
