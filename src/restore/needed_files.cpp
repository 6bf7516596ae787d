// Protects the files that a snapshot is read from against being replaced.
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include <fmt/format.h>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "container/file_reader.hpp"
#include "os/file_system.hpp"
#include "restore/snapshot_impl.hpp"

namespace bitsnap {

Result<void> Snapshot::check_not_needed(const std::string& path) const {
  return no_throw("snapshot", [&]() -> Result<void> {
    const auto file = os::real_file_system().open(path);
    if (!file) return {};  // not readable, so nothing is read from it
    const auto footer = container::read_footer(**file);
    if (!footer) return {};  // not a snapshot

    std::vector<const Snapshot*> pending{this};
    std::vector<std::shared_ptr<const Base>> kept_alive;
    std::unordered_set<const Snapshot*> known{this};
    while (!pending.empty()) {
      const Snapshot* const snapshot = pending.back();
      pending.pop_back();
      if (snapshot->impl_->reader->footer() == *footer) {
        return fail(ErrorKind::invalid_argument,
                    fmt::format("{}: cannot be replaced while {} is read from it", path, name()));
      }
      for (std::size_t i = 0; i < snapshot->bases().size(); ++i) {
        auto found = snapshot->impl_->base(i);
        if (!found) {
          return tl::unexpected(std::move(found).error().within(
              fmt::format("{}: cannot determine whether {} is read from it", path, name())));
        }
        const auto* const next = dynamic_cast<const Snapshot*>(found->get());
        if (next != nullptr && known.insert(next).second) {
          pending.push_back(next);
          kept_alive.push_back(std::move(*found));
        }
      }
    }
    return {};
  });
}

}  // namespace bitsnap
