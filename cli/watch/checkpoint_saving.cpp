#include "cli/watch/checkpoint_saving.hpp"

#include <utility>

#include <fmt/format.h>

#include <bitsnap/snapshot.hpp>
#include <bitsnap/text.hpp>

#include "cli/file_paths.hpp"
#include "cli/input/checkpoint_input.hpp"
#include "cli/input/run_path.hpp"
#include "cli/output/progress_bar.hpp"
#include "cli/output/stored_sizes.hpp"
#include "cli/retention_options.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

// Read back from the store, so that the report shows what it holds.
Result<void> print_saved_details(const Store& store, const SavedCheckpoint& saved) {
  BITSNAP_ASSIGN(auto written, store.snapshot(saved.checkpoint.step));
  BITSNAP_ASSIGN(auto sizes, measure_sizes(*written));
  print_note(fmt::format("id {}, policy {}, depth {}\n", written->id().to_hex(), describe_policy(saved.settings),
                         saved.checkpoint.depth));
  print_note(render_roles(sizes, std::nullopt));
  return {};
}

}  // namespace

void add_save_options(CLI::App& app, RunSaveOptions& options) {
  add_coding_options(app, options.coding, CodingTarget::run);
  add_keep_options(app, options.retention);
  add_wait_option(app, options.wait);
}

Result<void> check_many(const RunSaveOptions& options) {
  if (!options.coding.adam.step) return {};
  return fail(ErrorKind::invalid_argument,
              "--adam-step holds for one checkpoint only; leave it out, and each checkpoint uses its own step");
}

Result<std::vector<std::uint64_t>> steps_of_run(const std::string& run) {
  BITSNAP_TRY(check_whole_run(run));
  if (!is_store(run)) return std::vector<std::uint64_t>();
  const auto store = open_to_read(run);
  if (!store && store.error().kind() == ErrorKind::not_found) return std::vector<std::uint64_t>();
  return store ? (*store)->steps() : tl::unexpected(store.error());
}

Result<std::unique_ptr<Store>> open_to_save(const RunSaveOptions& options) {
  StoreOptions open{.settings = options.coding.settings, .retention = options.retention};
  // Rules of the command line come before those of the run, and do not replace them.
  open.first_loss = std::exchange(open.settings.loss, std::nullopt).value_or(std::vector<LossRule>());
  return open_to_write(options.run, open, options.wait);
}

Result<void> prepare_input(FolderState& input, const RunSaveOptions& options, std::optional<std::uint64_t> adam_step,
                           const CommonOptions& common) {
  BITSNAP_ASSIGN(const auto adam, adam_of(options.coding.adam, adam_step));
  for (TensorSource& tensor : input.state.tensors) tensor.adam = adam;
  if (!common.quiet) {
    warn_of_plain_files(input);
    warn_of_idle_rules(options.coding.settings, input.state);
  }
  return {};
}

Result<SavedCheckpoint> save_measured(Store& store, const std::string& path, std::uint64_t input_bytes,
                                      const CommonOptions& common, const SaveCheckpoint& save) {
  SavedCheckpoint saved;
  saved.input = path;
  saved.input_bytes = input_bytes;
  saved.settings = store.settings();
  const auto start = std::chrono::steady_clock::now();
  ProgressBar bar(file_name(without_slash(path)), !common.quiet);
  auto checkpoint = save(bar.run(common));
  if (!checkpoint) return tl::unexpected(explain_adam(std::move(checkpoint).error()));
  saved.checkpoint = std::move(*checkpoint);
  saved.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  saved.durable = store.is_durable();
  return saved;
}

Result<SavedCheckpoint> save_input(Store& store, const FolderState& input, const std::string& path, std::uint64_t step,
                                   const CommonOptions& common, const std::function<Result<void>()>& check,
                                   const std::vector<std::string>& labels) {
  const auto check_all = [&](const Snapshot& written) -> Result<void> {
    BITSNAP_TRY(check_written(input, written, common.threads));
    return check ? check() : Result<void>{};
  };
  return save_measured(store, path, input.bytes, common, [&](const RunOptions& run) {
    return store.save(step, input.state, run, check_all, {.labels = labels});
  });
}

void warn_of_base(const std::string& run, const SavedCheckpoint& saved, const CommonOptions& common) {
  if (!saved.checkpoint.damage || common.quiet) return;
  const Error& damage = *saved.checkpoint.damage;
  print_warning(fmt::format("{} is saved as a keyframe, as its base cannot be used: {}; see `bitsnap verify`",
                            checkpoint_name(run, saved.checkpoint.step), damage.message()),
                error_kind_name(damage.kind()));
}

Json saved_json(const std::string& run, const SavedCheckpoint& saved) {
  const Checkpoint& checkpoint = saved.checkpoint;
  Json document = {{"run", run},
                   {"input", saved.input},
                   {"step", checkpoint.step},
                   {"time_unix_ms", checkpoint.time_unix_ms},
                   {"time", format_utc_time(checkpoint.time_unix_ms)}};
  add_policy(document, saved.settings);
  document["base"] = checkpoint.base;
  document["base_damage"] = checkpoint.damage ? Json{{"kind", error_kind_name(checkpoint.damage->kind())},
                                                     {"message", checkpoint.damage->message()}}
                                              : Json();
  document["links"] = checkpoint.links;
  document["depth"] = checkpoint.depth;
  document["input_bytes"] = saved.input_bytes;
  document["stored_bytes"] = checkpoint.stored_bytes;
  document["raw_bytes"] = checkpoint.raw_bytes;
  document["ratio"] = ratio_json(saved.input_bytes, checkpoint.stored_bytes);
  document["seconds"] = saved.seconds;
  document["gbps"] = static_cast<double>(saved.input_bytes) / saved.seconds / 1e9;
  document["durable"] = saved.durable;
  document["labels"] = checkpoint.labels;
  document["pruned"] = checkpoint.pruned;
  return document;
}

Result<void> print_saved(const Store& store, const std::string& run, const SavedCheckpoint& saved,
                         const CommonOptions& common) {
  const Checkpoint& checkpoint = saved.checkpoint;
  print_note(describe_stored(saved.input, saved.input_bytes, checkpoint.stored_bytes, saved.seconds) +
             fmt::format("{}, {}\n", printable(checkpoint_name(run, checkpoint.step)),
                         checkpoint.base ? fmt::format("base {}", *checkpoint.base) : "a keyframe"));
  if (!saved.durable) {
    print_note(fmt::format("{}: this file system cannot sync directories; a crash of the machine may undo the step\n",
                           printable(run)));
  }
  if (checkpoint.pruned) {
    const std::uint64_t first_own = first_own_step(store);
    print_note(common.verbose ? render_pruning(*checkpoint.pruned, first_own)
                              : render_pruning_sum(*checkpoint.pruned, first_own));
  }
  return common.verbose ? print_saved_details(store, saved) : Result<void>{};
}

}  // namespace bitsnap::cli
