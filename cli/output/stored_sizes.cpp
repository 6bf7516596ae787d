// Stored bytes and codecs of tensors and roles.
#include "cli/output/stored_sizes.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "cli/output/table.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

constexpr std::string_view kSameCodec = "same";

Result<StreamSizes> measure_stream(const Snapshot& snapshot, std::size_t stream) {
  StreamSizes sizes;
  sizes.chunks = snapshot.streams()[stream].chunk_count();
  for (std::uint64_t chunk = 0; chunk < sizes.chunks; ++chunk) {
    BITSNAP_ASSIGN(auto info, snapshot.chunk_info(stream, chunk));
    sizes.raw_bytes += info.raw_bytes;
    sizes.stored_bytes += info.stored_bytes;
    sizes.depth = std::max(sizes.depth, info.depth);
    std::string label(info.codec);
    if (info.uses_base && info.codec != kSameCodec) label += "+base";
    ++sizes.codecs[label];
  }
  return sizes;
}

}  // namespace

RoleSizes& RoleSizes::operator+=(const RoleSizes& other) noexcept {
  tensors += other.tensors;
  elements += other.elements;
  raw_bytes += other.raw_bytes;
  stored_bytes += other.stored_bytes;
  return *this;
}

void to_json(Json& json, const RoleSizes& sizes) {
  json = {{"tensors", sizes.tensors},
          {"elements", sizes.elements},
          {"raw_bytes", sizes.raw_bytes},
          {"stored_bytes", sizes.stored_bytes},
          {"ratio", ratio_json(sizes.raw_bytes, sizes.stored_bytes)}};
}

Sizes& Sizes::operator+=(const Sizes& other) {
  for (const auto& [role, sizes] : other.roles) roles[role] += sizes;
  pool += other.pool;
  overhead_bytes += other.overhead_bytes;
  total += other.total;
  return *this;
}

std::string StreamSizes::codec() const {
  if (codecs.empty()) return "-";
  return codecs.size() == 1 ? codecs.begin()->first : "mix";
}

std::string StreamSizes::codec_counts() const {
  std::string text;
  for (const auto& [codec, count] : codecs) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", codec, count);
  return text;
}

Result<SnapshotSizes> measure_sizes(const Snapshot& snapshot) {
  SnapshotSizes sizes;
  const auto streams = snapshot.streams();
  sizes.streams.reserve(streams.size());
  for (std::size_t i = 0; i < streams.size(); ++i) {
    BITSNAP_ASSIGN(auto measured, measure_stream(snapshot, i));
    sizes.total += {0, 0, measured.raw_bytes, measured.stored_bytes};
    sizes.depth = std::max(sizes.depth, measured.depth);
    if (!streams[i].tensor) {
      sizes.pool_stream = i;
      sizes.pool += {0, 0, measured.raw_bytes, measured.stored_bytes};
    }
    sizes.streams.push_back(std::move(measured));
  }
  const auto tensors = snapshot.tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& tensor = tensors[i];
    const std::uint64_t elements = tensor.alias_of ? 0 : tensor.element_count();
    const auto stream = snapshot.stream_of(i);
    sizes.total += {1, elements, 0, 0};
    if (!tensor.alias_of && !stream && tensor.size_bytes > 0) {
      sizes.pool += {1, elements, 0, 0};
    } else if (stream && !tensor.alias_of) {
      const StreamSizes& own = sizes.streams[*stream];
      sizes.roles[tensor.role] += {1, elements, own.raw_bytes, own.stored_bytes};
    } else {
      ++sizes.roles[tensor.role].tensors;
    }
  }
  const std::uint64_t file_bytes = snapshot.file_bytes();
  sizes.overhead_bytes = file_bytes - std::min(file_bytes, sizes.total.stored_bytes);
  sizes.total.stored_bytes = file_bytes;
  return sizes;
}

Json roles_json(const std::map<Role, RoleSizes>& roles) {
  Json object = Json::object();
  for (const auto& [role, sizes] : roles) object[std::string(role_name(role))] = sizes;
  return object;
}

std::string render_roles(const Sizes& sizes, std::optional<std::size_t> width, std::uint64_t needed_bytes) {
  Table table({{"role"},
               {"tensors", Align::right, Narrow::never, 4},
               {"raw", Align::right, Narrow::never, 3},
               {"stored", Align::right},
               {"ratio", Align::right, Narrow::never, 2},
               {"bits/element", Align::right, Narrow::never, 5},
               {"share", Align::right, Narrow::never, 1}});
  const auto add = [&](std::string name, const RoleSizes& role) {
    table.add_row({std::move(name), format_count(role.tensors), format_size(role.raw_bytes),
                   format_size(role.stored_bytes), format_ratio(role.raw_bytes, role.stored_bytes),
                   role.elements == 0 ? "-"
                                      : fmt::format("{:.2f}", 8.0 * static_cast<double>(role.stored_bytes) /
                                                                  static_cast<double>(role.elements)),
                   format_share(role.stored_bytes, sizes.total.stored_bytes)});
  };
  const auto add_stored = [&](std::string name, std::uint64_t bytes) {
    table.add_row({std::move(name), "", "", format_size(bytes), "", "", format_share(bytes, sizes.total.stored_bytes)});
  };
  for (const Role role : kRoleOrder) {
    if (const auto found = sizes.roles.find(role); found != sizes.roles.end()) {
      add(std::string(role_name(role)), found->second);
    }
  }
  if (sizes.pool.tensors > 0) add("(pool)", sizes.pool);
  add_stored("(index)", sizes.overhead_bytes);
  if (needed_bytes > 0) add_stored("(needed)", needed_bytes);
  table.add_rule();
  add("total", sizes.total);
  return table.render(width);
}

}  // namespace bitsnap::cli
