// `bitsnap add`: saves a folder or a file as the next checkpoint of a run, and prunes the run if a --keep option is
// given.
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>

#include <bitsnap/store.hpp>

#include "cli/checkpoint_input.hpp"
#include "cli/coding_options.hpp"
#include "cli/command.hpp"
#include "cli/file_paths.hpp"
#include "cli/number_option.hpp"
#include "cli/progress_bar.hpp"
#include "cli/retention_options.hpp"
#include "cli/run_path.hpp"
#include "cli/stored_sizes.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

struct AddOptions {
  std::string run;
  std::string input;
  std::optional<std::uint64_t> step;
  CodingOptions coding;  // settings that are not given are those of the run
  Retention retention;
  std::chrono::milliseconds wait{0};
};

struct AddReport {
  std::uint64_t input_bytes = 0;
  double seconds = 0;
  CodingSettings settings;
  bool durable = true;
  CheckpointInfo checkpoint;
};

Json report_json(const AddOptions& options, const AddReport& report) {
  const CheckpointInfo& checkpoint = report.checkpoint;
  Json document = {{"run", options.run},
                   {"input", options.input},
                   {"step", checkpoint.step},
                   {"time_unix_ms", checkpoint.time_unix_ms},
                   {"time", format_utc_time(checkpoint.time_unix_ms)}};
  add_policy(document, report.settings);
  document["base"] = checkpoint.base;
  document["base_damage"] = checkpoint.damage ? Json{{"kind", error_kind_name(checkpoint.damage->kind())},
                                                     {"message", checkpoint.damage->message()}}
                                              : Json();
  document["links"] = checkpoint.links;
  document["depth"] = checkpoint.depth;
  document["input_bytes"] = report.input_bytes;
  document["stored_bytes"] = checkpoint.stored_bytes;
  document["tensor_bytes"] = checkpoint.raw_bytes;
  document["ratio"] = ratio_json(report.input_bytes, checkpoint.stored_bytes);
  document["seconds"] = report.seconds;
  document["gbps"] = static_cast<double>(report.input_bytes) / report.seconds / 1e9;
  document["durable"] = report.durable;
  document["pruned"] = checkpoint.pruned;
  return document;
}

// The step is saved, but an earlier checkpoint is damaged, and a keyframe takes more space.
void warn_of_base(const AddOptions& options, const CheckpointInfo& checkpoint) {
  const Error& damage = *checkpoint.damage;
  print_warning(fmt::format("{} is saved as a keyframe, as its base cannot be used: {}; see `bitsnap verify`",
                            checkpoint_name(options.run, checkpoint.step), damage.message()),
                error_kind_name(damage.kind()));
}

// Read back from the store, so that the report shows what it holds.
Result<void> print_details(const Store& store, const AddReport& report) {
  BITSNAP_ASSIGN(auto written, store.snapshot(report.checkpoint.step));
  BITSNAP_ASSIGN(auto sizes, measure_sizes(*written));
  print_note(fmt::format("id {}, policy {}, depth {}\n", written->id().to_hex(), describe_policy(report.settings),
                         report.checkpoint.depth));
  print_note(render_roles(sizes, std::nullopt));
  return {};
}

Result<void> print_report(const Store& store, const AddOptions& options, const AddReport& report,
                          const CommonOptions& common) {
  const CheckpointInfo& checkpoint = report.checkpoint;
  print_note(describe_stored(options.input, report.input_bytes, checkpoint.stored_bytes, report.seconds) +
             fmt::format("{}, {}\n", printable(checkpoint_name(options.run, checkpoint.step)),
                         checkpoint.base ? fmt::format("base {}", *checkpoint.base) : "a keyframe"));
  if (!report.durable) {
    print_note(fmt::format("{}: this file system cannot sync directories; a crash of the machine may undo the step\n",
                           printable(options.run)));
  }
  if (checkpoint.pruned) {
    print_note(common.verbose ? render_pruning(*checkpoint.pruned) : render_pruning_sum(*checkpoint.pruned));
  }
  return common.verbose ? print_details(store, report) : Result<void>{};
}

Result<std::unique_ptr<Store>> open_run(const AddOptions& options) {
  StoreOptions open{.settings = options.coding.settings, .retention = options.retention};
  // Rules of the command line come before those of the run, and do not replace them.
  open.first_loss = std::exchange(open.settings.loss, std::nullopt).value_or(std::vector<LossRule>());
  return open_to_write(options.run, open, options.wait);
}

Result<int> add(const AddOptions& options, const CommonOptions& common) {
  BITSNAP_ASSIGN(auto input, open_input(options.input, "add", options.step));
  BITSNAP_TRY(check_outside(options.run, options.input));
  AddReport report;
  report.input_bytes = input.bytes;
  BITSNAP_ASSIGN(auto adam, adam_of(options.coding.adam));
  for (TensorSource& tensor : input.state.tensors) {
    tensor.adam = adam;
  }
  if (!common.quiet) {
    warn_of_plain_files(input);
    warn_of_idle_rules(options.coding.settings, input.state);
  }
  BITSNAP_ASSIGN(auto store, open_run(options));
  report.settings = store->settings();
  const auto start = std::chrono::steady_clock::now();
  {
    ProgressBar bar(file_name(options.input), !common.quiet);
    auto saved = store->save(*options.step, input.state, {common.threads, bar.callback()},
                             [&](const Snapshot& written) { return check_written(input, written, common.threads); });
    if (!saved) {
      return tl::unexpected(explain_adam(std::move(saved).error()));
    }
    report.checkpoint = std::move(*saved);
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  report.durable = store->is_durable();
  if (report.checkpoint.damage && !common.quiet) {
    warn_of_base(options, report.checkpoint);
  }
  if (report.checkpoint.prune_error) return tl::unexpected(*report.checkpoint.prune_error);
  if (common.json) {
    print_json(report_json(options, report));
  } else if (!common.quiet) {
    BITSNAP_TRY(print_report(*store, options, report, common));
  }
  return kExitOk;
}

}  // namespace

Command add_add(CLI::App& program, const CommonOptions& common) {
  auto options = std::make_shared<AddOptions>();
  CLI::App* app = program.add_subcommand("add", "Save a folder or a file as the next checkpoint of a run");
  app->group(kRunsGroup);
  app->add_option("RUN", options->run, "The directory of the run; made if it is not there")->required()->type_name("");
  app->add_option("IN", options->input, "The folder or file, as the training wrote it")->required()->type_name("");
  add_number_option(*app, "--step", options->step, 0, "The step it was saved at, above all steps of the run")
      ->required();
  add_coding_options(*app, options->coding, CodingTarget::run);
  add_keep_options(*app, options->retention);
  add_wait_option(*app, options->wait);
  app->footer(
      "Any folder or file is stored as it is, and `bitsnap extract` gives it back byte for byte. Tensors are found in\n"
      "safetensors, torch, DCP and numpy files. Before the step is saved, everything is decoded and compared.\n"
      "With --keep-last or --keep-every the run is pruned once the step is saved.\n"
      "A new run remembers the settings that it is made with; by default they are lossless, balanced, previous and a\n"
      "depth of 8. Options given later hold for that step only. Loss rules given later come before those of the run,\n"
      "which do not apply to another policy. No run remembers --codec.");
  return {app, [options, &common] { return add(*options, common); }};
}

}  // namespace bitsnap::cli
