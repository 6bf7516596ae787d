// The options of the library's calls as classes of Python: attributes to set, with the defaults of the library.
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <bitsnap/engine.hpp>
#include <bitsnap/store.hpp>
#include <bitsnap/writer.hpp>

#include "bindings.hpp"
#include "python_error.hpp"

namespace nb = nanobind;

namespace bitsnap::python {

namespace {

template <typename Value, std::size_t kCount>
using Names = std::array<std::pair<std::string_view, Value>, kCount>;

constexpr Names<StoreAccess, 3> kAccess{
    {{"read", StoreAccess::read}, {"write", StoreAccess::write}, {"shared", StoreAccess::shared}}};
constexpr Names<Reencode, 3> kReencode{
    {{"auto", Reencode::when_it_pays}, {"never", Reencode::never}, {"always", Reencode::always}}};
constexpr Names<WhenBusy, 2> kWhenBusy{{{"wait", WhenBusy::wait}, {"skip", WhenBusy::skip}}};

template <typename Value, std::size_t kCount>
std::string_view name_of(Value wanted, const Names<Value, kCount>& names) {
  for (const auto& [name, value] : names) {
    if (value == wanted) return name;
  }
  return {};
}

template <typename Value, std::size_t kCount>
Value value_named(std::string_view wanted, std::string_view what, const Names<Value, kCount>& names) {
  std::string expected;
  for (std::size_t i = 0; i < kCount; ++i) {
    if (names[i].first == wanted) return names[i].second;
    expected += fmt::format("{}'{}'", i == 0 ? "" : i + 1 < kCount ? ", " : " or ", names[i].first);
  }
  raise(Error(ErrorKind::invalid_argument, fmt::format("unknown {} '{}', expected {}", what, wanted, expected)));
}

// An attribute that is one of some names.
template <typename Options, typename Value, std::size_t kCount>
void name_attribute(nb::class_<Options>& options, const char* attribute, Value Options::* member,
                    const Names<Value, kCount>& names) {
  options.def_prop_rw(
      attribute, [member, &names](const Options& self) { return name_of(self.*member, names); },
      [attribute, member, &names](Options& self, std::string_view given) {
        self.*member = value_named(given, attribute, names);
      });
}

// An attribute that is a path, as bytes.
template <typename Options>
void path_attribute(nb::class_<Options>& options, const char* attribute, std::string Options::* member) {
  options.def_prop_rw(
      attribute, [member](const Options& self) { return nb::bytes((self.*member).data(), (self.*member).size()); },
      [member](Options& self, nb::bytes path) { self.*member = to_path(path); });
}

void bind_engine_options(nb::module_& module) {
  nb::class_<JobOptions>(module, "JobOptions")
      .def_rw("name", &JobOptions::name)
      .def_rw("rank", &JobOptions::rank)
      .def_rw("world_size", &JobOptions::world_size)
      .def_rw("session", &JobOptions::session);

  nb::class_<MemoryOptions> memory(module, "MemoryOptions");
  memory.def_rw("budget_bytes", &MemoryOptions::budget_bytes)
      .def_rw("slots", &MemoryOptions::slots)
      .def_rw("snapshots", &MemoryOptions::snapshots);
  name_attribute(memory, "when_busy", &MemoryOptions::when_busy, kWhenBusy);

  nb::class_<AgentOptions> agent(module, "AgentOptions");
  agent.def_rw("threads", &AgentOptions::threads)
      .def_rw("linger_ms", &AgentOptions::linger_ms)
      .def_rw("upload_bytes_per_second", &AgentOptions::upload_bytes_per_second);
  path_attribute(agent, "command", &AgentOptions::command);
  path_attribute(agent, "log", &AgentOptions::log);

  nb::class_<EngineOptions> engine(module, "EngineOptions");
  engine.def(nb::init<>())
      .def_rw("job", &EngineOptions::job)
      .def_rw("settings", &EngineOptions::settings)
      .def_rw("retention", &EngineOptions::retention)
      .def_rw("memory", &EngineOptions::memory)
      .def_rw("agent", &EngineOptions::agent)
      .def_rw("timeout_ms", &EngineOptions::timeout_ms)
      .def_rw("threads", &EngineOptions::threads);
  path_attribute(engine, "path", &EngineOptions::path);
}

}  // namespace

void bind_options(nb::module_& module) {
  nb::class_<Retention>(module, "Retention", "Which checkpoints stay.")
      .def(
          "__init__",
          [](Retention* self, std::optional<std::uint64_t> keep_last, std::optional<std::uint64_t> keep_every,
             std::vector<std::uint64_t> keep,
             bool keep_labelled) { new (self) Retention{keep_last, keep_every, std::move(keep), keep_labelled}; },
          nb::kw_only(), nb::arg("keep_last").none(), nb::arg("keep_every").none(), nb::arg("keep") = nb::make_tuple(),
          nb::arg("keep_labelled") = false);

  nb::class_<ShardPlace>(module, "ShardPlace", "The shard that one rank writes of a checkpoint of several ranks.")
      .def(
          "__init__",
          [](ShardPlace* self, std::uint32_t shard, std::uint32_t shards, std::string attempt) {
            new (self) ShardPlace{shard, shards, std::move(attempt)};
          },
          nb::kw_only(), nb::arg("shard"), nb::arg("shards"), nb::arg("attempt"));

  nb::class_<CommitOptions>(module, "CommitOptions", "What a checkpoint gets when it is committed, beside its state.")
      .def(
          "__init__",
          [](CommitOptions* self, std::vector<std::string> labels, bool replace, Metadata metadata,
             const std::vector<std::pair<std::string, nb::bytes>>& files) {
            new (self) CommitOptions{.labels = std::move(labels), .replace = replace, .metadata = std::move(metadata)};
            for (const auto& [name, content] : files) {
              const auto* const begin = static_cast<const std::byte*>(content.data());
              self->files.push_back({name, {begin, begin + content.size()}});
            }
          },
          nb::kw_only(), nb::arg("labels"), nb::arg("replace") = false, nb::arg("metadata") = nb::make_tuple(),
          nb::arg("files") = nb::make_tuple());

  nb::class_<StoreOptions> store(module, "StoreOptions");
  store.def(nb::init<>())
      .def_rw("create", &StoreOptions::create)
      .def_rw("settings", &StoreOptions::settings)
      .def_rw("retention", &StoreOptions::retention)
      .def_rw("prunes", &StoreOptions::prunes)
      .def_rw("keep_base_bytes", &StoreOptions::keep_base_bytes)
      .def_rw("loads_bases", &StoreOptions::loads_bases)
      .def_rw("timeout_ms", &StoreOptions::timeout_ms);
  name_attribute(store, "access", &StoreOptions::access, kAccess);

  nb::class_<PruneOptions>(module, "PruneOptions")
      .def(
          "__init__",
          [](PruneOptions* self, std::string_view reencode, bool dry_run) {
            new (self) PruneOptions{.reencode = value_named(reencode, "reencode", kReencode), .dry_run = dry_run};
          },
          nb::kw_only(), nb::arg("reencode"), nb::arg("dry_run"));

  nb::class_<SaveOptions>(module, "SaveOptions")
      .def(
          "__init__",
          [](SaveOptions* self, const CodingSettings& settings, const std::optional<AdamNumbers>& adam,
             const PySnapshot* base, bool overwrite, unsigned threads) {
            new (self) SaveOptions{.settings = settings, .adam = adam, .overwrite = overwrite, .threads = threads};
            if (base != nullptr) self->base = base->snapshot;
          },
          nb::kw_only(), nb::arg("settings"), nb::arg("adam").none() = nb::none(), nb::arg("base").none(),
          nb::arg("overwrite"), nb::arg("threads"));

  bind_engine_options(module);
}

}  // namespace bitsnap::python
