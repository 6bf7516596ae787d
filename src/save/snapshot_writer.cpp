// Checks a state, lays it out, and runs the pipeline.
#include "save/snapshot_writer.hpp"

#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "container/index.hpp"
#include "os/atomic_file.hpp"
#include "os/memory_files.hpp"
#include "restore/snapshot_impl.hpp"
#include "save/snapshot_pipeline.hpp"
#include "save/state_layout.hpp"

namespace bitsnap::save {
Result<WriteSummary> write_snapshot(const State& state, const SaveOptions& options, BaseFinder* bases, StateTap* tap,
                                    os::WritableFile& file, exec::Executor& executor) {
  return no_throw("saving", [&]() -> Result<WriteSummary> {
    BITSNAP_ASSIGN(const plan::PlannerSettings planner_settings, plan::make_planner_settings(options.settings));
    SaveOptions complete = options;
    complete.settings = merge_settings(options.settings, default_settings());
    container::Index index;
    BITSNAP_ASSIGN(index.content, lay_out(state));
    BITSNAP_ASSIGN(index.streams, container::derive_streams(index.content));
    BITSNAP_ASSIGN(const auto masters, lay_out_masters(state, index.content, index.streams));
    index.chunks.resize(static_cast<std::size_t>(index.streams.first_chunk.back()));
    index.safetensors_header = state.safetensors_header;
    const StreamReader source(state, index.content, index.streams);
    BITSNAP_ASSIGN(std::vector<StreamLoss> losses,
                   plan_losses(state, complete, index.content, index.streams, source, masters, executor));
    const QuantizedSource quantized(source, index.streams, std::move(losses));
    const bool is_lossy = quantized.is_lossy();
    const PipelineParts parts{.source = is_lossy ? static_cast<const StreamSource&>(quantized) : source,
                              .settings = planner_settings,
                              .rules = {.max_depth = *complete.settings.max_depth},
                              .bases = bases,
                              .tap = tap,
                              .masters = masters,
                              .quantized = is_lossy ? &quantized : nullptr,
                              .progress = options.progress};
    return run_pipeline(index, parts, file, executor);
  });
}

}  // namespace bitsnap::save

namespace bitsnap {
namespace {

Result<void> check_not_in_store(const std::string& path) {
  for (const std::string_view record : {"commit.json", "retired.json"}) {
    BITSNAP_ASSIGN(const os::FileInfo beside,
                   os::real_file_system().stat(os::join_path(os::parent_directory(path), record)));
    if (!beside.exists) continue;
    return fail(ErrorKind::invalid_argument,
                path + ": cannot write into the directory of a checkpoint; save with the store instead");
  }
  return {};
}

}  // namespace

Result<SaveSummary> save_snapshot(const std::string& path, const State& state, const SaveOptions& options) {
  const auto save = [&]() -> Result<SaveSummary> {
    BITSNAP_TRY(check_not_in_store(path));
    if (const auto* base = dynamic_cast<const Snapshot*>(options.base.get()); base != nullptr && options.overwrite) {
      BITSNAP_TRY(base->check_not_needed(path));
    }
    BITSNAP_ASSIGN(os::AtomicFile file, os::AtomicFile::create(os::real_file_system(), path, options.overwrite));
    const auto executor = exec::make_executor(options.threads);
    std::optional<save::SingleBase> base;
    if (options.base != nullptr) base.emplace(options.base);
    save::BaseFinder* const bases = base ? &*base : nullptr;
    BITSNAP_ASSIGN(const save::WriteSummary written,
                   save::write_snapshot(state, options, bases, nullptr, file.file(), *executor));
    const auto check = [&](const std::string& temporary) -> Result<void> {
      if (!options.check) return {};
      OpenOptions open;
      if (options.base != nullptr) open.bases = bases_of(options.base);
      BITSNAP_ASSIGN(const std::shared_ptr<const Snapshot> snapshot, Snapshot::open(temporary, open));
      return options.check(*snapshot);
    };
    BITSNAP_TRY(file.commit(check));
    return written.summary;
  };
  auto result = no_throw("saving", save);
  if (!result) return tl::unexpected(name_file(std::move(result).error(), path));
  return result;
}

Result<SnapshotBytes> dump_snapshot(const State& state, const SaveOptions& options) {
  return no_throw("saving", [&]() -> Result<SnapshotBytes> {
    os::MemoryWriter file("a snapshot in memory");
    const auto executor = exec::make_executor(options.threads);
    std::optional<save::SingleBase> base;
    if (options.base != nullptr) base.emplace(options.base);
    save::BaseFinder* const bases = base ? &*base : nullptr;
    BITSNAP_ASSIGN(const save::WriteSummary written,
                   save::write_snapshot(state, options, bases, nullptr, file, *executor));
    return SnapshotBytes{.bytes = std::move(file).take(), .summary = written.summary};
  });
}

}  // namespace bitsnap
