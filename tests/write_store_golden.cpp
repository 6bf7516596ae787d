// Writes the golden stores: write_store_golden <folder>. See golden/README.md.
//
// Existing stores are kept: golden files are written once and read forever, and times and run ids would differ. Beside
// each store, <name>.json describes what a reader must find: the shard ids of each checkpoint, and a digest of the
// bytes of each tensor.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <bitsnap/store.hpp>

#include "os/file_system.hpp"
#include "store/catalog.hpp"
#include "store/run_testing.hpp"
#include "store_digest_testing.hpp"

namespace bitsnap::store {
namespace {

using Json = nlohmann::ordered_json;

// Ends the program on an error.
template <typename T>
T must(Result<T> result) {
  if (!result) {
    std::fprintf(stderr, "write_store_golden: %s\n", result.error().message().c_str());
    std::exit(1);
  }
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

StoreOptions writing(BaseRule rule, std::uint32_t max_depth) {
  StoreOptions options;
  options.access = StoreAccess::write;
  options.settings.base = rule;
  options.settings.max_depth = max_depth;
  return options;
}

// Steps 10, 20, ..., so that no reader can assume consecutive numbers.
std::unique_ptr<Store> save_steps(const std::string& path, std::uint64_t checkpoints, BaseRule rule,
                                  std::uint32_t max_depth) {
  auto store = must(Store::open(path, writing(rule, max_depth)));
  for (std::uint64_t i = 1; i <= checkpoints; ++i) must(store->save(10 * i, TestState(10 * i).state()));
  return store;
}

// Two keyframes with checkpoints that depend on them, and a catalog of all checkpoints except those that are too new.
void write_chain(const std::string& path) {
  save_steps(path, 5, BaseRule::previous, 2);
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  must(write_catalog(StepDirectories(os::real_file_system(), RunLayout(path))));
}

void write_keyframes(const std::string& path) { save_steps(path, 2, BaseRule::previous, 0); }
void write_on_keyframe(const std::string& path) { save_steps(path, 3, BaseRule::keyframe, 3); }

void prune(const std::string& path, std::vector<std::uint64_t> keep, Reencode reencode) {
  Retention retention;
  retention.keep = std::move(keep);
  PruneOptions options;
  options.reencode = reencode;
  must(save_steps(path, 5, BaseRule::previous, 2)->prune(retention, options));
}

// Removed checkpoints whose files others need, completely or in part.
void write_retired(const std::string& path) { prune(path, {30}, Reencode::never); }
// Checkpoints that were rewritten without the removed ones.
void write_rewritten(const std::string& path) { prune(path, {20, 30}, Reencode::always); }

constexpr std::uint32_t kShards = 2;

void write_shards(Store& store, std::uint64_t step, const std::string& attempt, std::uint64_t state) {
  for (std::uint32_t shard = 0; shard < kShards; ++shard) {
    must(store.save_shard(step, {shard, kShards, attempt}, TestState(state, shard).state()));
  }
}

// Two ranks; the last checkpoint is complete but not committed.
void write_sharded(const std::string& path) {
  StoreOptions options = writing(BaseRule::previous, 2);
  options.access = StoreAccess::shared;
  const auto store = must(Store::open(path, options));
  write_shards(*store, 5, "a1", 5);
  must(store->commit(5, kShards, "a1"));
  write_shards(*store, 12'345'678'901, "retry-2", 6);
  must(store->commit(12'345'678'901, kShards, "retry-2"));
  write_shards(*store, 12'345'678'902, "a1", 7);
}

// Labels, one of which may be pending, and files and strings of the caller.
void write_files(const std::string& path) {
  const auto file = [](std::string name, std::size_t size) {
    CheckpointFile made{std::move(name), std::vector<std::byte>(size)};
    for (std::size_t i = 0; i < size; ++i) made.bytes[i] = static_cast<std::byte>(i * i / 7);
    return made;
  };
  StoreOptions options = writing(BaseRule::previous, 2);
  options.access = StoreAccess::shared;
  {
    const auto store = must(Store::open(path, options));
    write_shards(*store, 5, "a1", 5);
    must(store->commit(5, kShards, "a1",
                       {.labels = {"best", "\xC3\xA4 1"},
                        .metadata = {{"epoch", "3"}},
                        .files = {file("config.json", 100), file("empty", 0), file("large", 5000)}}));
    write_shards(*store, 6, "a1", 6);
    must(store->commit(6, kShards, "a1", {.metadata = {{"epoch", "4"}}}));
  }
  const auto store = must(Store::open(path, writing(BaseRule::previous, 2)));
  must(store->save(7, TestState(7).state(), {}, nullptr, {.labels = {"best"}, .files = {file("config.json", 9)}}));
}

struct GoldenStore {
  const char* name;
  void (*write)(const std::string& path);
};

constexpr GoldenStore kStores[] = {
    {"chain", write_chain},     {"keyframes", write_keyframes}, {"on-keyframe", write_on_keyframe},
    {"retired", write_retired}, {"rewritten", write_rewritten}, {"sharded", write_sharded},
    {"files", write_files},
};

Json expectation(const std::string& path) {
  const auto store = must(Store::open(path));
  Json json = {{"run_id", store->run_id()}};
  json["checkpoints"] = Json::array();
  for (const Checkpoint& info : must(store->checkpoints())) {
    json["checkpoints"].push_back(describe_checkpoint(*store, info));
  }
  return json;
}

}  // namespace
}  // namespace bitsnap::store

int main(int argc, char** argv) {
  using namespace bitsnap::store;
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_store_golden <folder>\n");
    return 1;
  }
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  for (const GoldenStore& golden : kStores) {
    const std::filesystem::path path = folder / golden.name;
    if (std::filesystem::exists(path)) continue;
    golden.write(path);
    std::ofstream(path.string() + ".json") << expectation(path).dump(1) << '\n';
  }
  return 0;
}
