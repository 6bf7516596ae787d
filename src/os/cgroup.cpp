// Finds the group in /proc/self/cgroup and its mount point in /proc/self/mountinfo, and walks up from there.
#include "os/cgroup.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "os/text_file.hpp"

namespace bitsnap::os {
namespace {

bool has(const std::vector<std::string_view>& parts, std::string_view part) {
  return std::find(parts.begin(), parts.end(), part) != parts.end();
}

std::optional<unsigned> quota_cpus(std::optional<std::int64_t> quota, std::optional<std::int64_t> period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  const std::int64_t cpus = *quota / *period + (*quota % *period != 0 ? 1 : 0);
  return static_cast<unsigned>(std::min<std::int64_t>(cpus, 1 << 20));
}

// The quota of the one group in this directory.
std::optional<unsigned> directory_cpus(const std::string& directory, bool unified, TextReader read) {
  if (unified) {
    const std::optional<std::string> max = read(directory + "/cpu.max");  // "150000 100000" or "max 100000"
    if (!max) return std::nullopt;
    const std::vector<std::string_view> parts = split_text(*max, ' ');
    if (parts.size() != 2) return std::nullopt;
    return quota_cpus(parse_number<std::int64_t>(parts[0]), parse_number<std::int64_t>(parts[1]));
  }
  const std::optional<std::string> quota = read(directory + "/cpu.cfs_quota_us");
  const std::optional<std::string> period = read(directory + "/cpu.cfs_period_us");
  if (!quota || !period) return std::nullopt;
  return quota_cpus(parse_number<std::int64_t>(*quota), parse_number<std::int64_t>(*period));
}

struct Mount {
  std::string_view root;   // the group that the mount point shows
  std::string_view point;  // the mount point
};

// mountinfo: id parent device root point options [tags...] - type source super-options
std::optional<Mount> find_mount(std::string_view mountinfo, std::string_view controller, bool unified) {
  for (const std::string_view line : split_text(mountinfo, '\n')) {
    const std::vector<std::string_view> fields = split_text(line, ' ');
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.size() < 6 || fields.end() - dash < 4) continue;
    const bool found =
        unified ? dash[1] == "cgroup2" : dash[1] == "cgroup" && has(split_text(dash[3], ','), controller);
    if (found) return Mount{fields[3], fields[4]};
  }
  return std::nullopt;
}

// From the group up to the mount point.
void visit_hierarchy(std::string_view group, const Mount& mount, bool unified, GroupVisitor visit) {
  std::string_view below = group;
  if (mount.root != "/") {
    // A group outside the mount is not visible; the mounted one is the nearest that is.
    const bool inside =
        group.starts_with(mount.root) && (group.size() == mount.root.size() || group[mount.root.size()] == '/');
    below = inside ? group.substr(mount.root.size()) : std::string_view();
  }
  if (below.find("..") != std::string_view::npos) below = {};
  for (;;) {
    while (below.ends_with('/')) below.remove_suffix(1);
    visit(std::string(mount.point).append(below), unified);
    const std::size_t slash = below.rfind('/');
    if (slash == std::string_view::npos) return;
    below = below.substr(0, slash);
  }
}

}  // namespace

void visit_cgroups(std::string_view controller, TextReader read, GroupVisitor visit) {
  const std::optional<std::string> groups = read("/proc/self/cgroup");
  const std::optional<std::string> mountinfo = read("/proc/self/mountinfo");
  if (!groups || !mountinfo) return;
  for (const std::string_view line : split_text(*groups, '\n')) {  // id:controllers:group
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && !has(split_text(controllers, ','), controller)) continue;
    const std::optional<Mount> mount = find_mount(*mountinfo, controller, unified);
    if (mount) visit_hierarchy(line.substr(second + 1), *mount, unified, visit);
  }
}

std::optional<unsigned> cgroup_cpus(TextReader read) {
  std::optional<unsigned> least;
  visit_cgroups("cpu", read, [&](const std::string& directory, bool unified) {
    const auto cpus = directory_cpus(directory, unified, read);
    if (cpus && (!least || *cpus < *least)) least = cpus;
  });
  return least;
}

}  // namespace bitsnap::os
