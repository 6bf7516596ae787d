// A program outside bitsnap's tree. It sees only the installed headers, library and command. It saves a state in each
// of the three ways, a file, a store and an engine, restores it, compares the bits, and prints the version.
//
//     consumer DIRECTORY AGENT_PROGRAM
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <bitsnap/bitsnap.hpp>

namespace {

constexpr std::uint64_t kTimeoutMs = 60'000;

[[noreturn]] void fail(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::exit(1);
}

void expect(bool condition, const char* what) {
  if (!condition) fail(std::string("expected: ") + what);
}

// The value of a call; an error ends the program.
template <typename T>
T value_of(bitsnap::Result<T> result) {
  if (!result) fail(result.error().message());
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

// What a training owns: a matrix of weights and a counter.
struct Training {
  explicit Training(std::int64_t steps) : step(steps), weights(64 * 512) {
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i * 31 % 977) * 0.001F;
    weights[0] = static_cast<float>(steps);
  }

  // The tensors refer to the memory of the training, which must outlive the save.
  [[nodiscard]] bitsnap::State state() const {
    bitsnap::State state;
    state.tensors.push_back(
        value_of(bitsnap::TensorSource::of("layer.weight", bitsnap::DType::f32, {64, 512}, weights)));
    state.tensors.push_back(value_of(bitsnap::TensorSource::of("step", bitsnap::DType::i64, {}, std::span(&step, 1))));
    return state;
  }

  // Whether the snapshot has the same tensors, bit for bit.
  [[nodiscard]] bool equals(const bitsnap::Snapshot& snapshot) const {
    const auto same = [&](const char* name, std::span<const std::byte> expected) {
      const std::optional<std::size_t> tensor = snapshot.find(name);
      if (!tensor || snapshot.tensors()[*tensor].size_bytes != expected.size()) return false;
      std::vector<std::byte> bytes(expected.size());
      value_of(snapshot.read_bytes(*tensor, 0, bytes));
      return std::equal(bytes.begin(), bytes.end(), expected.begin());
    };
    return snapshot.tensors().size() == 2 && same("layer.weight", std::as_bytes(std::span(weights))) &&
           same("step", std::as_bytes(std::span(&step, 1)));
  }

  std::int64_t step;
  std::vector<float> weights;
};

void save_to_file(const std::string& path) {
  const Training training(1);
  value_of(bitsnap::save_snapshot(path, training.state()));
  expect(training.equals(*value_of(bitsnap::Snapshot::open(path))), "the file has the bits that were saved");
}

void save_to_store(const std::string& path) {
  const Training first(10);
  const Training second(20);
  {
    bitsnap::StoreOptions options;
    options.access = bitsnap::StoreAccess::write;
    const std::unique_ptr<bitsnap::Store> store = value_of(bitsnap::Store::open(path, options));
    value_of(store->save(10, first.state()));
    value_of(store->save(20, second.state()));
  }
  const std::unique_ptr<bitsnap::Store> store = value_of(bitsnap::Store::open(path));
  expect(value_of(store->steps()) == std::vector<std::uint64_t>{10, 20}, "the store lists both checkpoints");
  expect(first.equals(*value_of(store->snapshot(10))), "checkpoint 10 has the bits that were saved");
  expect(second.equals(*value_of(store->snapshot())), "the newest checkpoint has the bits that were saved");
}

void save_by_engine(const std::string& path, const std::string& agent_program) {
  bitsnap::EngineOptions options;
  options.path = path;
  options.agent.command = agent_program;
  options.timeout_ms = kTimeoutMs;
  options.agent.linger_ms = 1000;
  const Training training(7);
  {
    const std::unique_ptr<bitsnap::Engine> engine = value_of(bitsnap::Engine::attach(options));
    const std::uint64_t ticket = value_of(engine->save(7, training.state())).ticket;
    const bitsnap::SaveState saved = value_of(engine->wait(ticket, bitsnap::SaveStage::persisted, kTimeoutMs));
    expect(saved.stage == bitsnap::SaveStage::persisted, "the agent persists the state");
    expect(training.equals(*value_of(engine->restore(7)).snapshot), "the engine restores the bits that were saved");
  }
  // As the trainer does after a restart.
  std::unique_ptr<bitsnap::Engine> engine = value_of(bitsnap::Engine::attach(options));
  const std::optional<std::uint64_t> newest = value_of(engine->latest());
  expect(newest == 7, "the next trainer finds the step");
  expect(training.equals(*value_of(engine->restore(*newest)).snapshot), "the next trainer restores the bits");
  const std::string job = engine->job();
  engine.reset();
  value_of(bitsnap::stop_agent(job, false, kTimeoutMs));
  expect(training.equals(*value_of(value_of(bitsnap::Store::open(path))->snapshot(7))), "the store has the bits");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string directory = argv[1];
  save_to_file(directory + "/state.bsnap");
  save_to_store(directory + "/store");
  save_by_engine(directory + "/engine", argv[2]);
  const std::string version(bitsnap::version());
  const std::string level(bitsnap::cpu_level_name(bitsnap::cpu_level()));
  std::printf("bitsnap %s, %s\n", version.c_str(), level.c_str());
  return 0;
}
