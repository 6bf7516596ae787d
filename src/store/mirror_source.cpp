#include "store/mirror_source.hpp"

#include <array>
#include <type_traits>
#include <utility>

#include <bitsnap/snapshot.hpp>

#include <fmt/format.h>

#include "base/try.hpp"
#include "json/json_fields.hpp"
#include "os/file_identity.hpp"
#include "os/process.hpp"
#include "os/random.hpp"

namespace bitsnap::store {
namespace {

constexpr std::string_view kSourceKey = "mirror";

std::string path_in(const RunLayout& layout, std::string_view name) { return os::join_path(layout.root(), name); }

// A directory that was copied with its id is at another one.
std::string place_of(const RunLayout& run) {
  const auto found = os::identify_file(run.root());
  return found ? fmt::format("{} {} {}", os::machine_name(), found->device, found->inode) : std::string();
}

Result<MirrorSource> read(os::FileSystem& files, const std::string& path) {
  MirrorSource source;
  const auto done =
      read_sealed_json(files, path, kSourceKey, [&](json::JsonReader& in) { return json::read_json(in, source); });
  if (!done && done.error().kind() != ErrorKind::not_found) return tl::unexpected(done.error());
  return source;
}

Result<void> write(os::FileSystem& files, const std::string& path, const MirrorSource& source) {
  return write_sealed_json(files, path, kSourceKey, json::serialize_json(source), true).map([](bool) {});
}

}  // namespace

static constexpr auto json_fields(std::type_identity<MirrorSource>) {
  using json::json_field;
  using json::JsonNeed;
  return std::array{json_field<&MirrorSource::format>("format"), json_field<&MirrorSource::id>("id"),
                    json_field<&MirrorSource::host>("host", JsonNeed::defaulted),
                    json_field<&MirrorSource::steps>("steps", JsonNeed::defaulted)};
}

Result<MirrorSource> read_mirror_source(os::FileSystem& files, const RunLayout& copy) {
  return read(files, path_in(copy, kMirrorSourceName));
}

Result<void> write_mirror_source(os::FileSystem& files, const RunLayout& copy, const MirrorSource& source) {
  return write(files, path_in(copy, kMirrorSourceName), source);
}

Result<std::string> find_source_id(os::FileSystem& files, const RunLayout& run) {
  BITSNAP_ASSIGN(MirrorSource own, read(files, path_in(run, kMirrorIdName)));
  return own.host == place_of(run) ? std::move(own.id) : std::string();
}

Result<std::string> make_source_id(os::FileSystem& files, const RunLayout& run) {
  const MirrorSource own{
      .id = SnapshotId{os::random_u64(), os::random_u64()}.to_hex(), .host = place_of(run), .steps = {}};
  BITSNAP_TRY(write(files, path_in(run, kMirrorIdName), own));
  return own.id;
}

}  // namespace bitsnap::store
