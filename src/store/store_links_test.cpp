// Symbolic links in a store that somebody else has prepared: no call changes what they lead to, and each error names
// the link. On the real file system.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/try.hpp"
#include "os/file_system_faulty.hpp"
#include "os/temporary_directory_testing.hpp"
#include "store/crash_trial_testing.hpp"
#include "store/run_layout.hpp"
#include "store/store_calls_testing.hpp"
#include "store/store_laws_testing.hpp"

namespace bitsnap::store {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLinkedSteps = 3;

// A store `run`, and a copy of it `outside`, which no call on the store may change.
class LinkedRun {
 public:
  LinkedRun() {
    static const os::TemporaryDirectory saved;
    if (!fs::exists(saved / "run")) save(saved / "run");
    fs::copy(saved / "run", root(), fs::copy_options::recursive);
    fs::copy(saved / "run", outside(), fs::copy_options::recursive);
    before_ = contents();
  }

  [[nodiscard]] std::string root() const { return directory_ / "run"; }
  [[nodiscard]] std::string outside() const { return directory_ / "outside"; }
  [[nodiscard]] std::string step(std::uint64_t step) const { return RunLayout("").step_directory(step); }

  // Replaces a directory or file of the store by a link to its copy.
  void link(const std::string& name) const {
    fs::rename(root() + "/" + name, directory_ / "moved");
    fs::create_symlink(outside() + "/" + name, root() + "/" + name);
  }
  void damage(std::uint64_t number) const {
    const std::string file = root() + "/" + step(number) + "/" + shard_file_name(0, 1, "");
    fs::resize_file(file, fs::file_size(file) / 2);
  }
  [[nodiscard]] bool is_outside_unchanged() const { return contents() == before_; }

 private:
  static void save(const std::string& path) {
    const std::unique_ptr<Store> store = open_store(os::real_file_system(), path, writing()).value();
    for (std::uint64_t step = 1; step <= kLinkedSteps; ++step) {
      EXPECT_TRUE(store->save(step, TestState(step).state(), kOneThread));
    }
    fs::create_directory(path + "/damaged");
  }
  [[nodiscard]] std::map<std::string, std::uintmax_t> contents() const {
    std::map<std::string, std::uintmax_t> found;
    for (const auto& entry : fs::recursive_directory_iterator(outside())) {
      found[entry.path()] = entry.is_regular_file() ? entry.file_size() : 0;
    }
    return found;
  }

  const os::TemporaryDirectory directory_;
  std::map<std::string, std::uintmax_t> before_;
};

using StoreCall = std::function<Result<void>(os::FileSystem&, const std::string&)>;

template <typename Change>
StoreCall on_a_store(Change change) {
  return [change](os::FileSystem& files, const std::string& path) -> Result<void> {
    BITSNAP_ASSIGN(const std::unique_ptr<Store> store, open_store(files, path, writing()));
    BITSNAP_TRY(change(*store));
    return {};
  };
}

// The calls that remove, move or write files.
const std::vector<std::pair<std::string, StoreCall>>& changing_calls() {
  static const std::vector<std::pair<std::string, StoreCall>> calls = {
      {"save", on_a_store([](Store& store) {
         return store.save(kLinkedSteps + 1, TestState(kLinkedSteps + 1).state(), kOneThread);
       })},
      {"prune", on_a_store([](Store& store) {
         return store.prune({.keep_last = 1}, {.reencode = Reencode::always, .run = kOneThread});
       })},
      {"rollback", on_a_store([](Store& store) { return store.rollback(1); })},
      {"repair",
       [](os::FileSystem& files, const std::string& path) -> Result<void> {
         BITSNAP_TRY(repair_store(files, path, {.run = kOneThread}));
         return {};
       }},
  };
  return calls;
}

void expect_link_named(const Result<void>& result, const LinkedRun& run, const std::string& link,
                       const std::string& what) {
  ASSERT_FALSE(result) << what << " with a link at " << link;
  EXPECT_EQ(result.error().kind(), ErrorKind::invalid_argument) << what << ": " << result.error().message();
  EXPECT_NE(result.error().message().find(run.root() + "/" + link + ": it is a symbolic link"), std::string::npos)
      << what << ": " << result.error().message();
}

TEST(StoreLinks, NoCallChangesWhatALinkToADirectoryLeadsTo) {
  for (const auto& [name, call] : changing_calls()) {
    for (const std::string& link :
         {std::string("checkpoints"), std::string("damaged"), LinkedRun().step(kLinkedSteps)}) {
      LinkedRun run;
      run.damage(2);
      run.link(link);
      expect_link_named(call(os::real_file_system(), run.root()), run, link, name);
      EXPECT_TRUE(run.is_outside_unchanged()) << name << ", " << link;
    }
  }
}

TEST(StoreLinks, ALinkToAnOlderStepIsNotFollowed) {
  for (const auto& [name, call] : changing_calls()) {
    LinkedRun run;
    const std::string link = run.step(2);
    run.link(link);
    const Result<void> result = call(os::real_file_system(), run.root());
    EXPECT_TRUE(run.is_outside_unchanged()) << name;
    // A save codes against step 3, whose base cannot be read, and becomes a keyframe.
    if (name != "save") expect_link_named(result, run, link, name);
  }
}

TEST(StoreLinks, NoCallWritesAFileThroughALink) {
  for (const auto& [name, call] : changing_calls()) {
    for (const std::string link : {"lock", "catalog", "bitsnap.json"}) {
      LinkedRun run;
      fs::remove(run.root() + "/" + link);
      fs::create_symlink(run.outside() + "/none", run.root() + "/" + link);
      const Result<void> result = call(os::real_file_system(), run.root());
      EXPECT_TRUE(run.is_outside_unchanged()) << name << ", " << link;
      // The catalog is a cache.
      if (link != "catalog") expect_link_named(result, run, link, name);
    }
  }
}

TEST(StoreLinks, ReadersNameTheLink) {
  LinkedRun run;
  run.link(run.step(2) + "/" + shard_file_name(0, 1, ""));
  const std::unique_ptr<Store> store = open_store(os::real_file_system(), run.root(), {}).value();
  EXPECT_EQ(store->steps()->size(), kLinkedSteps);
  const auto snapshot = store->snapshot(2);
  ASSERT_FALSE(snapshot);
  EXPECT_NE(snapshot.error().message().find("it is a symbolic link, expected a file"), std::string::npos);
  const auto verified = store->verify();
  ASSERT_TRUE(verified);
  ASSERT_EQ(verified->damages.size(), 2U) << "step 3 is coded against step 2";
  EXPECT_NE(verified->damages.front().error.message().find("it is a symbolic link"), std::string::npos);
}

TEST(StoreLinks, ThePathOfTheStoreMayBeALink) {
  for (const auto& [name, call] : changing_calls()) {
    LinkedRun run;
    const std::string alias = run.root() + "-alias";
    fs::create_directory_symlink(run.root(), alias);
    const Result<void> result = call(os::real_file_system(), alias);
    EXPECT_TRUE(result) << name << ": " << result.error().message();
  }
}

// Another program replaces a directory by a link before each file operation that changes or lists something.
TEST(StoreLinks, ALinkThatAppearsDuringACallIsNotFollowed) {
  for (const auto& [name, call] : changing_calls()) {
    for (const std::string& link : {std::string("checkpoints"), LinkedRun().step(2), LinkedRun().step(3)}) {
      bool is_reached = true;
      for (std::uint64_t at = 0; is_reached; at += takes_samples() ? 7U : 1U) {
        LinkedRun run;
        if (name == "repair") run.damage(2);
        os::FaultyFileSystem files(os::real_file_system());
        std::optional<std::uint64_t> before = at;
        files.watch([&](const os::FaultyFileSystem::Step& step) {
          if (!changes_something(step) && step.operation != os::FileOperation::list_directory) return;
          if (!before || (*before)-- > 0) return;
          before.reset();
          if (fs::exists(run.root() + "/" + link)) run.link(link);
        });
        static_cast<void>(call(files, run.root()));
        is_reached = !before;
        EXPECT_TRUE(run.is_outside_unchanged()) << name << ", " << link << " before change " << at;
      }
    }
  }
}

}  // namespace
}  // namespace bitsnap::store
