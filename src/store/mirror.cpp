#include "store/open_mirror.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "os/clock.hpp"
#include "os/process.hpp"
#include "store/label_record.hpp"
#include "store/mirror_copy.hpp"
#include "store/mirror_failures.hpp"
#include "store/mirror_files.hpp"
#include "store/mirror_labels.hpp"
#include "store/mirror_order.hpp"
#include "store/mirror_place.hpp"
#include "store/mirror_records.hpp"
#include "store/mirror_source.hpp"
#include "store/run_marker.hpp"

namespace bitsnap {

namespace {

using store::CommitRecord;
using store::MirroredStep;
using store::MirroredSteps;
using store::RunLayout;
using store::ShardFile;

// Attempts of an update, while writers of the run remove and replace what is copied.
constexpr int kUpdateAttempts = 8;
constexpr std::uint64_t kMirrorPollMs = 100;

}  // namespace

class Mirror::Impl {
 public:
  Impl(store::Home from, store::Home to, MirrorOptions options)
      : options_(std::move(options)),
        from_(from.files->without_links(from.path)),
        to_(to.files->without_links(to.path)),
        run_(from.path),
        copy_(to.path),
        run_records_(*from_, run_),
        there_(*from_, run_, *to_, copy_),
        files_(*from_, run_, *to_, copy_, options_),
        failures_(*from_, run_) {}

  Result<void> open() {
    if (copy_.root() == run_.root() || (copy_.root() + "/").starts_with(run_.root() + "/")) {
      return fail(
          ErrorKind::invalid_argument,
          fmt::format("{}: is the run {} itself, or lies in it; name another place", copy_.root(), run_.root()));
    }
    BITSNAP_TRY(store::check_run_address(run_.root()));
    BITSNAP_TRY(store::check_copy_place(*to_, copy_.root()));
    BITSNAP_ASSIGN(const store::RunRecord run, store::read_run_record(*from_, run_.run_record()));
    if (options_.step) {  // before anything is made
      BITSNAP_ASSIGN(const MirroredSteps here, run_records_.read());
      BITSNAP_TRY(check_step(here));
    }
    BITSNAP_TRY(make_directories());
    BITSNAP_TRY(take_lock());
    BITSNAP_ASSIGN(const store::RunMarker marker, store::find_marker(*to_, copy_));
    if (marker == store::RunMarker::none) {
      BITSNAP_TRY(store::write_run_record(*to_, copy_.run_record(), run, false));
      copied_run_ = run;
    } else {
      BITSNAP_ASSIGN(copied_run_, store::read_run_record(*to_, copy_.run_record()));
    }
    if (copied_run_.id != run.id) {
      return fail(ErrorKind::invalid_argument,
                  fmt::format("{}: is another run than {}: expected the id {}, found {}; give the copy an address of "
                              "its own",
                              copy_.root(), run_.root(), run.id, copied_run_.id));
    }
    BITSNAP_TRY(there_.read());
    BITSNAP_ASSIGN(source_, store::read_mirror_source(*to_, copy_));
    return files_.find_leftovers(there_.steps());
  }

  Result<MirrorReport> update() {
    const MirroredSteps before = there_.steps();
    files_.begin();
    for (int attempt = 1;; ++attempt) {
      Result<void> done = update_once();
      if (!done && (done.error().kind() != ErrorKind::not_found || attempt == kUpdateAttempts)) {
        return tl::unexpected(std::move(done).error());
      }
      if (!done) continue;
      // A writer of the run may have removed a file that was to be copied.
      if (failures_.is_empty() || attempt == kUpdateAttempts) return report(before);
      BITSNAP_ASSIGN(const MirroredSteps now, run_records_.read());
      if (!failures_.are_outdated(now)) return report(before);
    }
  }

 private:
  // Copies what can be copied. Then failures_ says why the rest cannot.
  Result<void> update_once() {
    BITSNAP_ASSIGN(const MirroredSteps wanted, choose());
    BITSNAP_TRY(failures_.forget(wanted));
    BITSNAP_TRY(remove_other_saves(wanted));
    files_.expect(bytes_to_send(wanted));
    for (bool is_done = false; !is_done;) {
      std::set<std::uint64_t> held = failures_.steps();
      if (held.empty()) {
        BITSNAP_ASSIGN(is_done, become(wanted));
      } else {
        BITSNAP_ASSIGN(is_done, become(store::hold_back(there_.steps(), wanted, held)));
      }
    }
    held_back_.clear();
    for (const auto& [step, entry] : wanted) {
      const auto now = there_.steps().find(step);
      if (!entry.is_retired && (now == there_.steps().end() || now->second.is_retired)) held_back_.insert(step);
    }
    if (options_.step) {
      if (held_back_.empty()) {
        BITSNAP_TRY(store::bring_labels(*options_.step, run_records_.directories(), there_.directories()));
      }
    } else {
      BITSNAP_TRY(copy_small_records());
    }
    std::set<std::uint64_t> kept = failures_.steps();
    kept.insert(there_.unreadable().begin(), there_.unreadable().end());
    return files_.drop_leftovers(there_.steps(), kept);
  }

  // False if the files of a step cannot be read; failures_ has it then.
  Result<bool> become(const MirroredSteps& wanted) {
    for (const std::vector<std::uint64_t>& steps : store::mirror_order(there_.steps(), wanted)) {
      BITSNAP_TRY(files_.check_interrupt());
      for (const std::uint64_t step : steps) {
        const auto entry = wanted.find(step);
        if (entry == wanted.end()) continue;
        BITSNAP_ASSIGN(const bool is_sent, send_files(step, entry->second.record));
        if (!is_sent) return false;
      }
      for (const std::uint64_t step : steps) BITSNAP_TRY(there_.change(step, wanted));
    }
    return true;
  }

  // The files of a record that the copy does not have.
  [[nodiscard]] std::vector<const ShardFile*> new_files(std::uint64_t step, const CommitRecord& record) const {
    const auto before = there_.steps().find(step);
    std::vector<const ShardFile*> files;
    for (std::size_t number = 0; number < record.file_count(); ++number) {
      const ShardFile& file = record.file(number);
      if (before == there_.steps().end() || !store::has_file(before->second.record, file)) files.push_back(&file);
    }
    return files;
  }

  [[nodiscard]] std::uint64_t bytes_to_send(const MirroredSteps& wanted) const {
    std::uint64_t total = 0;
    for (const auto& [step, entry] : wanted) {
      for (const ShardFile* const file : new_files(step, entry.record)) total += file->bytes;
    }
    return total;
  }

  // False if one cannot be read.
  Result<bool> send_files(std::uint64_t step, const CommitRecord& record) {
    std::vector<const ShardFile*> files = new_files(step, record);
    if (files.empty()) return true;
    BITSNAP_ASSIGN(const bool are_there, have_all(step, record, files));
    if (!are_there) return false;
    BITSNAP_TRY(there_.directories().create(step));
    for (const ShardFile* const file : files) {
      BITSNAP_ASSIGN(std::optional<Error> unread, files_.send(step, *file));
      if (!unread) continue;
      BITSNAP_TRY(failures_.note(step, record, file->file, *std::move(unread)));
      return false;
    }
    BITSNAP_TRY(there_.directories().sync_step(step));
    BITSNAP_TRY(there_.directories().sync_checkpoints());
    return true;
  }

  // Whether the run has the files, before the first one is sent. A repair keeps a checkpoint that lacks some: then they
  // are taken from `files`.
  Result<bool> have_all(std::uint64_t step, const CommitRecord& record, std::vector<const ShardFile*>& files) {
    for (auto file = files.begin(); file != files.end();) {
      const std::string path = run_.step_file(step, (*file)->file);
      BITSNAP_ASSIGN(const os::FileInfo info, from_->stat(path));
      if (info.exists) {
        ++file;
      } else if (record.damaged_tensors > 0) {
        file = files.erase(file);
      } else {
        Error error(ErrorKind::not_found, fmt::format("{}: the file is missing", path));
        BITSNAP_TRY(failures_.note(step, record, (*file)->file, std::move(error)));
        return false;
      }
    }
    return true;
  }

  // What has changed since the records of the copy were `before`.
  [[nodiscard]] MirrorReport report(const MirroredSteps& before) const {
    MirrorReport report;
    const auto is_checkpoint = [](const MirroredSteps& steps, std::uint64_t step) {
      const auto found = steps.find(step);
      return found != steps.end() && !found->second.is_retired;
    };
    for (const auto& [step, entry] : there_.steps()) {
      if (entry.is_retired) continue;
      if (!is_checkpoint(before, step)) {
        report.added.push_back(step);
      } else if (before.at(step) != entry) {
        report.changed.push_back(step);
      }
    }
    for (const auto& [step, entry] : before) {
      if (!entry.is_retired && !is_checkpoint(there_.steps(), step)) report.removed.push_back(step);
    }
    report.newest = store::newest_of(there_.steps());
    report.sent_bytes = files_.sent_bytes();
    report.keeps_removed = !options_.step && own_id_.empty();
    report.failure = failures_.error(copy_.root(), held_back_);
    return report;
  }

  // Whether the run has the checkpoint that is copied alone.
  Result<void> check_step(const MirroredSteps& here) const {
    const auto found = here.find(*options_.step);
    if (found != here.end() && !found->second.is_retired) return {};
    return tl::unexpected(run_records_.directories().not_found(*options_.step));
  }

  // What the copy has to become.
  Result<MirroredSteps> choose() {
    BITSNAP_ASSIGN(MirroredSteps here, run_records_.read());
    BITSNAP_TRY(check_run(here));
    if (options_.step) {
      BITSNAP_TRY(check_step(here));
      MirroredSteps chosen{*here.find(*options_.step)};
      store::add_needed(chosen, here);
      MirroredSteps wanted = there_.steps();
      for (auto& [step, entry] : chosen) {
        const auto [place, is_new] = wanted.emplace(step, entry);
        if (!is_new && !store::is_same_save(place->second.record, entry.record)) {
          return fail(ErrorKind::invalid_argument,
                      fmt::format("{}: has another step {} than {}; nothing is replaced: name another directory, or "
                                  "remove that step first",
                                  copy_.root(), step, run_.root()));
        }
        // A file that others need may be that of a checkpoint.
        if (!is_new && !entry.is_retired) place->second = entry;
      }
      return wanted;
    }
    BITSNAP_TRY(follow(here));
    steps_of_run_.clear();
    for (const auto& [step, entry] : here) {
      if (!entry.is_retired) steps_of_run_.insert(step);
    }
    // Checkpoints that the copy had before it followed this run stay, with what they need, and all steps that are
    // damaged in the run: others may need them.
    MirroredSteps others;
    for (const auto& [step, entry] : there_.steps()) {
      const bool is_of_run = !own_id_.empty() && std::ranges::binary_search(source_.steps, step);
      const bool may_go = entry.is_retired || is_of_run;
      if (may_go && !lost_.contains(step)) continue;
      const auto found = here.find(step);
      if (found == here.end()) {
        others.emplace(step, entry);
      } else if (found->second.is_retired) {  // brought back for others
        found->second.is_retired = false;
      }
    }
    store::add_needed(others, there_.steps());
    here.merge(others);
    return here;
  }

  // Damage of the run must not spread to the copy.
  Result<void> check_run(MirroredSteps& here) {
    BITSNAP_ASSIGN(const store::RunRecord run, store::read_run_record(*from_, run_.run_record()));
    if (run.id != copied_run_.id) {
      return fail(ErrorKind::invalid_argument, fmt::format("{}: another run is there now: expected the id {}, found {}",
                                                           run_.root(), copied_run_.id, run.id));
    }
    if (!store::newest_of(here) && store::newest_of(there_.steps())) {
      return fail(ErrorKind::invalid_argument,
                  fmt::format("{}: has no checkpoint, and {} has some, which stay: a run keeps at least one; `bitsnap "
                              "mirror {}@latest DIR` brings one back",
                              run_.root(), copy_.root(), copy_.root()));
    }
    lost_.clear();
    BITSNAP_ASSIGN(const os::FileInfo damaged, from_->stat(run_.damaged()));
    if (damaged.exists) {
      BITSNAP_ASSIGN(const std::vector<std::string> names, from_->list_directory(run_.damaged()));
      for (const std::string& name : names) {
        if (const auto step = store::step_from_name(name.substr(0, name.find('.')))) lost_.insert(*step);
      }
    }
    lost_.insert(run_records_.unreadable().begin(), run_records_.unreadable().end());
    lost_.insert(run_records_.without_record().begin(), run_records_.without_record().end());
    for (auto& [step, entry] : here) {
      const auto whole = there_.steps().find(step);
      if (entry.record.damaged_tensors == 0 || whole == there_.steps().end()) continue;
      if (whole->second.record.damaged_tensors == 0 && store::is_same_save(whole->second.record, entry.record))
        lost_.insert(step);
    }
    for (const std::uint64_t step : lost_) {
      if (there_.steps().contains(step)) here.erase(step);
    }
    return {};
  }

  // The id of the run's directory; it stays empty if it has none and cannot be written.
  Result<void> take_id() {
    if (!own_id_.empty()) return {};
    BITSNAP_ASSIGN(own_id_, store::find_source_id(*from_, run_));
    if (!own_id_.empty()) return {};
    auto made = store::make_source_id(*from_, run_);
    if (!made && options_.follows) {
      return tl::unexpected(std::move(made).error().within(fmt::format(
          "{}: cannot be followed, because this needs a file in it; without --watch, it is copied once", run_.root())));
    }
    own_id_ = std::move(made).value_or(std::string());
    return {};
  }

  // Notes in the copy, before it changes, which steps it will have from this run.
  Result<void> follow(const MirroredSteps& here) {
    BITSNAP_TRY(take_id());
    const bool is_followed = !own_id_.empty() && source_.id == own_id_;
    const auto newest = store::newest_of(there_.steps());
    if (newest && !(is_followed && std::ranges::binary_search(source_.steps, *newest))) {
      const auto found = here.find(*newest);
      const bool is_lost = is_followed && lost_.contains(*newest);
      if (!is_lost &&
          (found == here.end() || !store::is_same_save(found->second.record, there_.steps().at(*newest).record))) {
        return fail(ErrorKind::invalid_argument,
                    fmt::format("{}: has step {}, which {} does not have{}; restore that checkpoint into an empty "
                                "directory to go on from it, or give the copy of this run another address",
                                copy_.root(), *newest, run_.root(),
                                source_.host.empty() ? "" : ": a run on " + source_.host + " was copied there last"));
      }
    }
    if (own_id_.empty()) return {};
    store::MirrorSource now{.id = own_id_, .host = os::machine_name(), .steps = {}};
    std::set<std::uint64_t> steps;
    for (const auto& [step, entry] : here) {
      if (!entry.is_retired) steps.insert(step);
    }
    if (is_followed) {
      for (const std::uint64_t step : source_.steps) {
        if (there_.steps().contains(step)) steps.insert(step);
      }
    }
    now.steps.assign(steps.begin(), steps.end());
    if (now == source_) return {};
    BITSNAP_TRY(store::write_mirror_source(*to_, copy_, now));
    source_ = std::move(now);
    return {};
  }

  Result<void> make_directories() {
    for (const std::string& directory : {copy_.root(), copy_.checkpoints()}) {
      const auto made = to_->create_directory(directory);
      if (made || made.error().kind() != ErrorKind::invalid_argument) BITSNAP_TRY(made);
    }
    // If the directory above is unreadable, it cannot be synced.
    const std::string above = os::parent_directory(copy_.root());
    if (const auto synced = to_->sync_directory(above); !synced && to_->list_directory(above)) {
      return tl::unexpected(synced.error());
    }
    return to_->sync_directory(copy_.root()).map([](os::DirectorySync) {});
  }

  Result<void> take_lock() {
    const std::uint64_t start = os::monotonic_ns();
    for (;;) {
      auto lock = to_->lock(copy_.lock(), os::LockKind::exclusive);
      if (lock) {
        lock_ = *std::move(lock);
        return {};
      }
      const std::uint64_t waited_ms = (os::monotonic_ns() - start) / 1'000'000;
      const bool must_wait = waited_ms < options_.timeout_ms || to_->doubt_ms(copy_.lock()) > 0;
      if (lock.error().kind() != ErrorKind::busy || !must_wait) return tl::unexpected(std::move(lock).error());
      BITSNAP_TRY(files_.pause(kMirrorPollMs));
    }
  }

  // Removes the steps that were saved again since under the same names of files, and those that need them.
  Result<void> remove_other_saves(const MirroredSteps& wanted) {
    MirroredSteps kept = there_.steps();
    std::set<std::uint64_t> gone;
    for (const auto& [step, entry] : there_.steps()) {
      const auto now = wanted.find(step);
      if (now == wanted.end() || store::is_same_save(now->second.record, entry.record)) continue;
      for (std::size_t number = 0; number < now->second.record.file_count(); ++number) {
        const ShardFile& file = now->second.record.file(number);
        if (store::has_name(entry.record, file.file) && !store::has_file(entry.record, file)) gone.insert(step);
      }
      if (!gone.contains(step)) continue;
      std::vector<const ShardFile*> files = new_files(step, now->second.record);
      BITSNAP_ASSIGN(const bool are_there, have_all(step, now->second.record, files));
      if (!are_there) gone.erase(step);
    }
    if (gone.empty()) return {};
    for (bool has_grown = true; has_grown;) {
      has_grown = false;
      for (const auto& [step, entry] : there_.steps()) {
        if (!gone.contains(step) && store::refers_to(entry.record, gone)) has_grown = gone.insert(step).second;
      }
    }
    for (const std::uint64_t step : gone) kept.erase(step);
    return become(kept).map([](bool) {});
  }

  // The labels, and the settings of the run.
  Result<void> copy_small_records() {
    const auto labels = store::read_label_record(*from_, run_);
    if (!labels && !store::is_damage(labels.error())) return tl::unexpected(labels.error());
    if (!copied_labels_) {
      auto found = store::read_label_record(*to_, copy_);
      if (!found && !store::is_damage(found.error())) return tl::unexpected(std::move(found).error());
      if (found) copied_labels_ = *std::move(found);
    }
    if (labels) {
      const store::LabelRecord before = copied_labels_.value_or(store::LabelRecord());
      store::LabelRecord merged = store::merge_labels(*labels, before, there_.steps(), steps_of_run_, lost_);
      if (merged != copied_labels_) BITSNAP_TRY(store::write_label_record(*to_, copy_, merged));
      copied_labels_ = std::move(merged);
    }
    const auto run = store::read_run_record(*from_, run_.run_record());
    if (run && run->id == copied_run_.id && run->settings != copied_run_.settings) {
      BITSNAP_TRY(store::write_run_record(*to_, copy_.run_record(), *run, true));
      copied_run_ = *run;
    }
    return {};
  }

  const MirrorOptions options_;
  const std::shared_ptr<os::FileSystem> from_;
  const std::shared_ptr<os::FileSystem> to_;
  const RunLayout run_;
  const RunLayout copy_;
  store::MirrorRecords run_records_;
  store::MirrorCopy there_;  // the copy, as it is
  store::MirrorFiles files_;
  store::MirrorFailures failures_;
  std::unique_ptr<os::FileLock> lock_;
  store::RunRecord copied_run_;
  std::optional<store::LabelRecord> copied_labels_;
  store::MirrorSource source_;
  std::string own_id_;                    // empty: the run cannot be written
  std::set<std::uint64_t> held_back_;     // checkpoints of the run that the copy does not have
  std::set<std::uint64_t> steps_of_run_;  // its checkpoints, without those that are lost
  std::set<std::uint64_t> lost_;          // steps that are damaged in the run: the copy keeps what it has of them
};

Mirror::Mirror(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Mirror::Mirror(Mirror&&) noexcept = default;
Mirror& Mirror::operator=(Mirror&&) noexcept = default;
Mirror::~Mirror() = default;

Result<Mirror> store::open_mirror(const Home& from, const Home& to, MirrorOptions options) {
  auto impl = std::make_unique<Mirror::Impl>(from, to, std::move(options));
  BITSNAP_TRY(impl->open());
  return Mirror(std::move(impl));
}

Result<Mirror> Mirror::open(const std::string& from, const std::string& to, MirrorOptions options) {
  return no_throw("mirror", [&]() -> Result<Mirror> {
    BITSNAP_ASSIGN(store::Home run, store::find_home(from));
    BITSNAP_ASSIGN(store::Home copy, store::find_home(to));
    for (store::Home* const home : {&run, &copy}) home->path = store::canonical_home(home->path);
    return store::open_mirror(run, copy, std::move(options));
  });
}

Result<MirrorReport> Mirror::update() {
  return no_throw("mirror", [&] { return impl_->update(); });
}

}  // namespace bitsnap
