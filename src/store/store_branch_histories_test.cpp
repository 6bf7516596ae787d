// Drawn histories of a run and its branches: saves, branches, prunes, removals, rollbacks and repairs of each of them
// in any order, compared with a model that keeps a plain copy of every checkpoint of every store. A failure names its
// seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "os/fake_disk_testing.hpp"
#include "os/file_system_fake.hpp"
#include "os/file_system_faulty.hpp"
#include "store/crash_trial_testing.hpp"
#include "store/store_impl.hpp"
#include "store/store_laws_testing.hpp"

namespace bitsnap::store {
namespace {

// The seed of the state of each step; a state follows from step and seed, so this is a copy of all checkpoints.
using Copies = std::map<std::uint64_t, std::uint64_t>;

class BranchHistory {
 public:
  explicit BranchHistory(std::uint64_t seed) : random_(seed) {
    if (random_.chance(8)) files_.refuse_links();
    copies_[""];
  }

  // Returns an empty string, or what is wrong.
  std::string live(int operations) {
    for (int i = 0; i < operations; ++i) {
      std::string wrong = next();
      if (wrong.empty()) wrong = look(false);
      if (!wrong.empty()) return fmt::format("operation {}, {}: {}", i, what_, wrong);
    }
    handles_.clear();
    what_ = "the end";
    return look(true);
  }
  [[nodiscard]] std::size_t made() const noexcept { return made_; }
  [[nodiscard]] std::size_t disturbed() const noexcept { return disturbed_; }

 private:
  static std::string path_of(const std::string& name) {
    return name.empty() ? std::string(kTestRun) : fmt::format("{}/branches/{}", kTestRun, name);
  }

  const std::string& draw_store() {
    return std::next(copies_.begin(), static_cast<std::ptrdiff_t>(random_.below(copies_.size())))->first;
  }

  // Handles stay open for some operations, so that what they know must not become wrong.
  Result<Store*> opened(const std::string& name) {
    if (random_.chance(6)) handles_.erase(name);
    if (const auto found = handles_.find(name); found != handles_.end()) return found->second.get();
    StoreOptions options;
    options.access = StoreAccess::write;
    options.settings.max_depth = static_cast<std::uint32_t>(random_.below(4));
    options.settings.base = random_.chance(3) ? BaseRule::keyframe : BaseRule::previous;
    options.keep_base_bytes = random_.chance(4) ? 1 << 20 : 0;
    // Codes for a retention, so that checkpoints get later bases. The model prunes.
    options.prunes = false;
    if (random_.chance(2)) options.retention.keep_last = 2 + random_.below(3);
    BITSNAP_ASSIGN(auto store, open_store(files_, path_of(name), options));
    return (handles_[name] = std::move(store)).get();
  }

  std::string next() {
    const std::string name = draw_store();
    const std::uint64_t choice = random_.below(100);
    Result<void> done = choice < 40   ? save(name)
                        : choice < 62 ? branch(name)
                        : choice < 76 ? prune(name)
                        : choice < 84 ? roll_back(name)
                        : choice < 90 ? remove_steps(name)
                        : choice < 95 ? remove_branch(name)
                                      : repair(name);
    return done ? "" : done.error().message();
  }

  Result<void> save(const std::string& name) {
    Copies& copies = copies_[name];
    const std::uint64_t step = (copies.empty() ? 0 : copies.rbegin()->first) + 1 + random_.below(2);
    const std::uint64_t seed = random_.chance(2) ? 0 : random_.below(3) * 1000 + random_.below(3);
    what_ = fmt::format("save {} of '{}'", step, name);
    BITSNAP_ASSIGN(Store * store, opened(name));
    BITSNAP_TRY(store->save(step, test_state(step, seed * 100).state(), kOneThread));
    copies[step] = seed;
    return {};
  }

  Result<void> branch(const std::string& name) {
    const Copies& copies = copies_[name];
    if (copies.empty() || copies_.size() > 4) return {};
    const auto from = std::next(copies.begin(), static_cast<std::ptrdiff_t>(random_.below(copies.size())));
    const std::string fresh = fmt::format("b{}", made_);
    const bool with_later = random_.chance(3);
    what_ = fmt::format("branch '{}' of '{}' at {}{}", fresh, name, from->first, with_later ? " and later" : "");
    Copies taken(from, with_later ? copies.end() : std::next(from));
    BITSNAP_ASSIGN(Store * store, opened(name));
    if (!with_later && random_.chance(3)) return branch_while_writing(*store, name, fresh, from->first);
    BITSNAP_ASSIGN(const Branch made,
                   store->make_branch(fresh, from->first, {.with_later = with_later, .run = kOneThread}));
    if (made.origin->branch != name || made.origin->step != from->first) return fail(ErrorKind::internal, "origin");
    if (made.checkpoints != taken.size()) return fail(ErrorKind::internal, "number of checkpoints");
    ++made_;
    copies_[fresh] = std::move(taken);
    return {};
  }

  // A reader makes the branch, and at one of its file operations the writer changes what is branched.
  Result<void> branch_while_writing(Store& writer, const std::string& name, const std::string& fresh,
                                    std::uint64_t step) {
    Copies& copies = copies_[name];
    const std::uint64_t before = copies.at(step);
    os::FaultyFileSystem watched(files_);
    BITSNAP_ASSIGN(const auto reader, open_store(watched, path_of(name), {}));
    std::uint64_t left = random_.below(90);
    const std::uint64_t way = random_.below(3);
    what_ += fmt::format(", the writer comes {} operations later in way {}", left, way);
    Result<void> written;
    watched.watch([&](const os::FaultyFileSystem::Step&) {
      if (left-- == 0) written = disturb(writer, copies, step, way);
    });
    const auto made = reader->make_branch(fresh, step, {.run = kOneThread});
    watched.watch(nullptr);
    BITSNAP_TRY(written);
    ++disturbed_;
    if (!made) {
      const bool is_gone = made.error().kind() == ErrorKind::not_found && !copies.contains(step);
      return is_gone ? Result<void>() : tl::unexpected(made.error());
    }
    ++made_;
    copies_[fresh][step] = before;
    // The writer may have saved the step again before the branch was made.
    const auto branch = open_store(files_, path_of(fresh), {});
    if (branch && !check_step(**branch, step, test_state(step, before * 100)).empty() && copies.contains(step)) {
      copies_[fresh][step] = copies.at(step);
    }
    return {};
  }

  Result<void> disturb(Store& writer, Copies& copies, std::uint64_t step, std::uint64_t way) {
    if (way == 0) {
      Retention newest;
      newest.keep_last = 1;
      BITSNAP_TRY(writer.prune(newest, {.reencode = Reencode::always, .run = kOneThread}));
      copies.erase(copies.begin(), std::prev(copies.end()));
      return {};
    }
    const auto above = copies.find(step);
    if (above == copies.begin()) return {};
    const std::uint64_t below = std::prev(above)->first;
    BITSNAP_TRY(writer.rollback(below, kOneThread));
    copies.erase(above, copies.end());
    if (way == 1) return {};
    BITSNAP_TRY(writer.save(step, test_state(step, 700).state(), kOneThread));
    copies[step] = 7;
    return {};
  }

  Result<void> prune(const std::string& name) {
    Copies& copies = copies_[name];
    if (copies.empty()) return {};
    Retention retention;
    retention.keep_last = 1 + random_.below(3);
    for (const auto& [step, seed] : copies) {
      if (random_.chance(3)) retention.keep.push_back(step);
    }
    const auto reencode = static_cast<Reencode>(random_.below(3));
    what_ = fmt::format("prune '{}', keep_last {} and {}, reencode {}", name, *retention.keep_last, retention.keep,
                        static_cast<int>(reencode));
    BITSNAP_ASSIGN(Store * store, opened(name));
    BITSNAP_TRY(store->prune(retention, {.reencode = reencode, .run = kOneThread}));
    const std::uint64_t oldest =
        std::prev(copies.end(), static_cast<std::ptrdiff_t>(std::min(copies.size(), *retention.keep_last)))->first;
    std::erase_if(copies, [&](const auto& entry) {
      return entry.first < oldest && std::ranges::find(retention.keep, entry.first) == retention.keep.end();
    });
    return {};
  }

  Result<void> remove_steps(const std::string& name) {
    Copies& copies = copies_[name];
    std::vector<std::uint64_t> steps;
    for (const auto& [step, seed] : copies) {
      if (random_.chance(2)) steps.push_back(step);
    }
    if (steps.size() == copies.size()) return {};
    what_ = fmt::format("remove {} of '{}'", steps, name);
    BITSNAP_ASSIGN(Store * store, opened(name));
    const auto reencode = static_cast<Reencode>(random_.below(3));
    BITSNAP_TRY(store->remove(steps, {.reencode = reencode, .run = kOneThread}));
    for (const std::uint64_t step : steps) copies.erase(step);
    return {};
  }

  Result<void> roll_back(const std::string& name) {
    Copies& copies = copies_[name];
    if (copies.empty()) return {};
    const auto to = std::next(copies.begin(), static_cast<std::ptrdiff_t>(random_.below(copies.size())));
    what_ = fmt::format("roll '{}' back to {}", name, to->first);
    BITSNAP_ASSIGN(Store * store, opened(name));
    BITSNAP_TRY(store->rollback(to->first, kOneThread));
    copies.erase(std::next(to), copies.end());
    return {};
  }

  Result<void> remove_branch(const std::string& name) {
    if (name.empty()) return {};
    what_ = fmt::format("remove branch '{}'", name);
    handles_.erase(name);
    BITSNAP_ASSIGN(const Store* store, opened(""));
    BITSNAP_TRY(store->remove_branch(name));
    copies_.erase(name);
    return {};
  }

  Result<void> repair(const std::string& name) {
    what_ = fmt::format("repair '{}'", name);
    handles_.erase(name);
    if (!files_.stat(path_of(name))->exists) return {};
    BITSNAP_ASSIGN(const RepairReport report, repair_store(files_, path_of(name), {false, kOneThread}));
    const bool is_whole = report.dropped.empty() && report.damaged.empty() && report.mended.empty();
    return is_whole ? Result<void>() : fail(ErrorKind::internal, "found damage");
  }

  // All stores show their steps. One step of each is compared bit for bit; with `all`, every one, and verified.
  std::string look(bool all) {
    if (!files_.stat(kTestRun)->exists) return "";
    for (const auto& [name, copies] : copies_) {
      const auto store = open_store(files_, path_of(name), {});
      if (!store) return fmt::format("'{}': {}", name, store.error().message());
      const auto steps = (*store)->steps();
      if (!steps) return fmt::format("'{}': {}", name, steps.error().message());
      if (!std::ranges::equal(copies, *steps, {}, [](const auto& entry) { return entry.first; })) {
        return fmt::format("'{}' shows {}", name, *steps);
      }
      if (copies.empty()) continue;
      const std::uint64_t chosen = (*steps)[random_.below(steps->size())];
      for (const auto& [step, seed] : copies) {
        if (!all && step != chosen) continue;
        const std::string wrong = check_step(**store, step, test_state(step, seed * 100));
        if (!wrong.empty()) return fmt::format("'{}', step {}: {}", name, step, wrong);
      }
      const auto verified = all ? (*store)->verify({.run = kOneThread}) : Result<StoreVerification>();
      if (!verified) return verified.error().message();
      if (!verified->damages.empty()) return fmt::format("'{}': {}", name, verified->damages[0].error.message());
    }
    const auto run = open_store(files_, kTestRun, {});
    const auto branches = (*run)->branches();
    if (!branches) return branches.error().message();
    if (branches->size() != copies_.size() - 1) return "lists other branches";
    const auto names = files_.list_directory(RunLayout(kTestRun).branches());
    const auto is_left = [](const std::string& name) { return name.starts_with('.') && name != ".lock"; };
    return names && std::ranges::any_of(*names, is_left) ? "an unfinished branch is left" : "";
  }

  os::fake::SeededRandom random_;
  os::FakeFileSystem files_;
  std::map<std::string, std::unique_ptr<Store>> handles_;
  std::map<std::string, Copies> copies_;  // by branch; "" is the run
  std::string what_;
  std::size_t made_ = 0;
  std::size_t disturbed_ = 0;
};

TEST(StoreBranchHistories, RunAndBranchesMatchPlainCopies) {
  // BITSNAP_HISTORIES=5000 takes some minutes.
  const char* const asked = std::getenv("BITSNAP_HISTORIES");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  const std::uint64_t histories = asked != nullptr ? std::stoull(asked) : takes_samples() ? 40 : 300;
  constexpr int kOperations = 25;
  std::size_t made = 0;
  std::size_t disturbed = 0;
  for (std::uint64_t seed = 1; seed <= histories; ++seed) {
    BranchHistory history(seed);
    ASSERT_EQ(history.live(kOperations), "") << "seed " << seed;
    made += history.made();
    disturbed += history.disturbed();
  }
  std::cout << histories << " histories, " << made << " branches, " << disturbed << " of them beside a writer\n";
}

}  // namespace
}  // namespace bitsnap::store
