// Stored bytes and codecs of tensors and roles.
#include "cli/stored_sizes.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "cli/error_macros.hpp"
#include "cli/table.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

constexpr std::string_view kSameCodec = "same";  // implies the base

Result<StreamSizes> measure_stream(const Snapshot& snapshot, std::size_t stream) {
  StreamSizes sizes;
  sizes.chunks = snapshot.streams()[stream].chunk_count();
  for (std::uint64_t chunk = 0; chunk < sizes.chunks; ++chunk) {
    BITSNAP_ASSIGN(auto info, snapshot.chunk_info(stream, chunk));
    sizes.raw_bytes += info.raw_bytes;
    sizes.stored_bytes += info.stored_bytes;
    sizes.depth = std::max(sizes.depth, info.depth);
    std::string label(info.codec);
    if (info.uses_base && info.codec != kSameCodec) {
      label += "+base";
    }
    ++sizes.codecs[label];
  }
  return sizes;
}

std::string bits_per_element(const RoleSizes& sizes) {
  return sizes.elements == 0 ? "-"
                             : fmt::format("{:.2f}", 8.0 * static_cast<double>(sizes.stored_bytes) /
                                                         static_cast<double>(sizes.elements));
}

}  // namespace

std::string StreamSizes::codec() const {
  if (codecs.empty()) {
    return "-";
  }
  return codecs.size() == 1 ? codecs.begin()->first : "mix";
}

std::string StreamSizes::codec_counts() const {
  std::string text;
  for (const auto& [codec, count] : codecs) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", codec, count);
  }
  return text;
}

Result<SnapshotSizes> measure_sizes(const Snapshot& snapshot) {
  SnapshotSizes sizes;
  const auto streams = snapshot.streams();
  sizes.streams.reserve(streams.size());
  for (std::size_t i = 0; i < streams.size(); ++i) {
    BITSNAP_ASSIGN(auto measured, measure_stream(snapshot, i));
    sizes.total.raw_bytes += measured.raw_bytes;
    sizes.total.stored_bytes += measured.stored_bytes;
    sizes.depth = std::max(sizes.depth, measured.depth);
    if (!streams[i].tensor) {
      sizes.pool = i;
    }
    sizes.streams.push_back(std::move(measured));
  }
  const auto tensors = snapshot.tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& tensor = tensors[i];
    const auto stream = snapshot.stream_of(i);
    ++sizes.total.tensors;
    if (!tensor.alias_of) {
      sizes.total.elements += tensor.element_count();
      if (!stream && tensor.size_bytes > 0) {
        ++sizes.pooled_tensors;
        continue;
      }
    }
    RoleSizes& role = sizes.roles[tensor.role];
    ++role.tensors;
    if (stream && !tensor.alias_of) {
      role.elements += tensor.element_count();
      role.raw_bytes += sizes.streams[*stream].raw_bytes;
      role.stored_bytes += sizes.streams[*stream].stored_bytes;
    }
  }
  const std::uint64_t file_bytes = snapshot.file_bytes();
  sizes.overhead_bytes = file_bytes > sizes.total.stored_bytes ? file_bytes - sizes.total.stored_bytes : 0;
  return sizes;
}

std::string render_roles(const Snapshot& snapshot, const SnapshotSizes& sizes, std::optional<std::size_t> width) {
  Table table({{"role"},
               {"tensors", Align::right, Narrow::never, 2},
               {"raw", Align::right, Narrow::never, 3},
               {"stored", Align::right},
               {"ratio", Align::right},
               {"bits/element", Align::right, Narrow::never, 1}});
  const auto add = [&](std::string name, const RoleSizes& role) {
    table.add_row({std::move(name), format_count(role.tensors), format_size(role.raw_bytes),
                   format_size(role.stored_bytes), format_ratio(role.raw_bytes, role.stored_bytes),
                   bits_per_element(role)});
  };
  for (const Role role : kRoleOrder) {
    if (const auto found = sizes.roles.find(role); found != sizes.roles.end()) {
      add(std::string(role_name(role)), found->second);
    }
  }
  if (sizes.pool) {
    const StreamSizes& pool = sizes.streams[*sizes.pool];
    table.add_row({"(pool)", format_count(sizes.pooled_tensors), format_size(pool.raw_bytes),
                   format_size(pool.stored_bytes), format_ratio(pool.raw_bytes, pool.stored_bytes), "-"});
  }
  table.add_row({"(index)", "", "", format_size(sizes.overhead_bytes), "", ""});
  table.add_rule();
  RoleSizes all = sizes.total;
  all.stored_bytes = snapshot.file_bytes();
  add("total", all);
  return table.render(width);
}

}  // namespace bitsnap::cli
