// `bitsnap convert`: writes what a training saved in another format.
#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <bitsnap/convert.hpp>
#include <bitsnap/object_store.hpp>
#include <bitsnap/safetensors.hpp>
#include <bitsnap/store.hpp>
#include <bitsnap/text.hpp>
#include <bitsnap/value.hpp>
#include <bitsnap/writer.hpp>

#include "cli/command.hpp"
#include "cli/file_paths.hpp"
#include "cli/input/model_folder.hpp"
#include "cli/input/run_path.hpp"
#include "cli/input/tensor_choice.hpp"
#include "cli/input/training_input.hpp"
#include "cli/number_option.hpp"
#include "cli/output/progress_bar.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

enum class Target : std::uint8_t { safetensors, torch, dcp, snapshot, run, hf };

constexpr std::array<std::pair<std::string_view, Target>, 6> kTargets = {{{"safetensors", Target::safetensors},
                                                                          {"torch", Target::torch},
                                                                          {"dcp", Target::dcp},
                                                                          {"bsnap", Target::snapshot},
                                                                          {"run", Target::run},
                                                                          {"hf", Target::hf}}};

constexpr std::array<std::pair<std::string_view, DType>, 3> kDtypes = {
    {{"bf16", DType::bf16}, {"fp16", DType::f16}, {"fp32", DType::f32}}};

// The size of the files that Transformers divides a model into.
constexpr std::uint64_t kModelFileBytes = 5'000'000'000;

constexpr std::array<std::pair<std::string_view, Target>, 6> kExtensions = {{{".safetensors", Target::safetensors},
                                                                             {".pt", Target::torch},
                                                                             {".pth", Target::torch},
                                                                             {".bin", Target::torch},
                                                                             {".ckpt", Target::torch},
                                                                             {".bsnap", Target::snapshot}}};

struct ConvertOptions {
  std::string input;
  std::string output;
  std::optional<std::string> format;
  std::uint64_t max_file_bytes = 0;
  TensorSelection selection;
  std::optional<std::string> like;
  std::optional<std::string> dtype;
  std::vector<std::string> bases;
  std::optional<std::uint64_t> shard;
  bool tensors_only = false;
  bool force = false;
};

struct ConvertReport {
  std::uint64_t tensors = 0;
  std::uint64_t raw_bytes = 0;
  std::uint64_t output_bytes = 0;
  double seconds = 0;
};

std::string_view name_of(Target target) {
  return std::ranges::find(kTargets, target, &std::pair<std::string_view, Target>::second)->first;
}

Result<Target> find_target(const ConvertOptions& options) {
  if (options.format) {
    return std::ranges::find(kTargets, *options.format, &std::pair<std::string_view, Target>::first)->second;
  }
  const std::string extension = std::filesystem::path(options.output).extension().string();
  const auto* const found = std::ranges::find(kExtensions, extension, &std::pair<std::string_view, Target>::first);
  if (found != kExtensions.end()) return found->second;
  BITSNAP_ASSIGN(const RunPath run, parse_run_path(options.output));
  if (run.step) return Target::run;
  return fail(ErrorKind::invalid_argument,
              fmt::format("{}: its name does not tell the format; name it *.safetensors, *.pt or *.bsnap, or give "
                          "--to (see `bitsnap convert --help`)",
                          options.output));
}

// Names the numbers, texts and other plain values of a tree by their places.
void name_values(const Value& value, const std::string& place, std::vector<std::string>& names) {
  const auto name_all = [&](const ValueList& items) {
    for (std::size_t i = 0; i < items.size(); ++i) name_values(items[i], fmt::format("{}[{}]", place, i), names);
  };
  const Value::Variant& held = value.get();
  if (std::holds_alternative<ValueTensor>(held)) return;
  if (const auto* list = std::get_if<ValueList>(&held)) return name_all(*list);
  if (const auto* tuple = std::get_if<ValueTuple>(&held)) return name_all(tuple->items);
  if (const auto* dict = std::get_if<ValueDict>(&held)) {
    for (const auto& [key, each] : dict->entries) {
      const auto* text = std::get_if<std::string>(&key.get());
      const std::string name = text != nullptr ? *text : serialize_value(key).value_or("key");
      name_values(each, place.empty() ? name : fmt::format("{}.{}", place, name), names);
    }
    return;
  }
  const auto* typed = std::get_if<ValueTyped>(&held);
  if (typed != nullptr && typed->type == "collections.OrderedDict") {
    // Its metadata are the versions of torch's modules.
    const auto* with_metadata = std::get_if<ValueTuple>(&typed->content.front().get());
    if (with_metadata == nullptr) return name_values(typed->content.front(), place, names);
    if (!with_metadata->items.empty()) name_values(with_metadata->items.front(), place, names);
    return;
  }
  names.push_back(place.empty() ? "the value itself" : fmt::format("value {}", place));
}

// Fails if something would be lost, unless that is what the user wants.
Result<void> check_complete(const ConvertOptions& options, Target target, TrainingState& training,
                            const CommonOptions& common) {
  std::vector<std::string> lost = std::move(training.left_out);
  if (target == Target::torch || target == Target::dcp) {
    for (const auto& [key, value] : training.state.metadata) {
      if (key != "format") lost.push_back(fmt::format("metadata '{}'", key));
    }
  }
  if (options.tensors_only) {
    if (training.state.tree) name_values(*training.state.tree, "", lost);
    // The header of a safetensors file holds the values, too.
    if (training.state.tree) training.state.safetensors_header.reset();
    training.state.tree.reset();
    if (common.quiet) return {};
    constexpr std::size_t kMostNamed = 20;
    for (std::size_t i = 0; i < std::min(lost.size(), kMostNamed); ++i) {
      print_warning(fmt::format("{}: left out: {}", options.input, printable(lost[i])), "unsupported");
    }
    if (lost.size() > kMostNamed) {
      print_warning(fmt::format("{}: left out: {} more", options.input, format_count(lost.size() - kMostNamed)),
                    "unsupported");
    }
    return {};
  }
  if (lost.empty()) return {};
  const std::size_t others = lost.size() - 1;
  return fail(
      ErrorKind::unsupported,
      fmt::format("{}: this would be lost: {}{}; --tensors-only leaves out everything but plain tensors", options.input,
                  lost.front(), others == 0 ? "" : fmt::format(", and {} more", format_count(others))));
}

// config.json and the files of the tokenizer: of the folder that the user names, of the folder of the checkpoint, or
// those that were saved with it.
Result<ModelFiles> find_model_files(const ConvertOptions& options) {
  if (options.like) {
    BITSNAP_ASSIGN(ModelFiles files, model_files(*options.like));
    if (!files.empty()) return files;
    return fail(ErrorKind::not_found, fmt::format("{}: has no config.json", *options.like));
  }
  BITSNAP_ASSIGN(ModelFiles files, model_files(options.input));
  if (!files.empty()) return files;
  BITSNAP_ASSIGN(const auto run, find_run_or_file(options.input));
  if (run) {
    BITSNAP_ASSIGN(files, model_files(*run));
  }
  if (!files.empty()) return files;
  return fail(ErrorKind::invalid_argument,
              fmt::format("{}: has no config.json beside the tensors; --like FOLDER names a folder of the same model",
                          options.input));
}

// What is wrong with a model, and which options help.
Error explain(const ConvertOptions& options, const Error& error) {
  if (error.kind() != ErrorKind::not_found && error.kind() != ErrorKind::invalid_argument) {
    return Error(error).within(options.input);
  }
  const std::string like =
      options.like ? fmt::format("--like names a folder of the same model, got {}; ", *options.like) : "";
  return Error(error.kind(), fmt::format("{}: {}; {}--only chooses tensors, and --strip removes what their names begin "
                                         "with",
                                         options.input, error.message(), like));
}

// The tensors of the model, with the names that it gives them. Those of Transformers' Trainer may lie beside the
// reference to the checkpoint.
Result<State> find_model(const ConvertOptions& options, State training) {
  ModelOptions model;
  model.all_tensors = !options.selection.empty();
  if (options.like) {
    BITSNAP_TRY(read_model_tensors(*options.like, model));
  }
  if (options.dtype)
    model.dtype = std::ranges::find(kDtypes, *options.dtype, &std::pair<std::string_view, DType>::first)->second;
  auto made = model_state(std::move(training), model);
  const std::string beside = (std::filesystem::path(options.input) / "model.safetensors").string();
  std::error_code error;
  if (!made && made.error().kind() == ErrorKind::not_found && std::filesystem::exists(beside, error)) {
    BITSNAP_ASSIGN(State whole, open_safetensors(beside));
    model.all_tensors = true;
    made = model_state(std::move(whole), model);
  }
  if (!made) return tl::unexpected(explain(options, made.error()));
  return made;
}

Result<std::uint64_t> save_to_run(const State& state, const ConvertOptions& options, const RunOptions& run) {
  BITSNAP_ASSIGN(const RunPath path, parse_run_path(options.output));
  if (!path.step) {
    return fail(ErrorKind::invalid_argument, fmt::format("{}: the step is missing: {}@STEP", path.run, path.run));
  }
  BITSNAP_ASSIGN(const auto store, open_to_write(path.run, {}, std::chrono::milliseconds(0)));
  return store->save(*path.step, state, run).map(&Checkpoint::stored_bytes);
}

Result<std::uint64_t> write(const State& state, Target target, const ConvertOptions& options, ModelFiles files,
                            const RunOptions& run) {
  const auto export_as = [&](StateFormat format) {
    return export_state(state, format, options.output, {options.force, options.max_file_bytes, std::move(files), run})
        .map(&ExportSummary::bytes);
  };
  switch (target) {
    case Target::safetensors: return export_as(StateFormat::safetensors);
    case Target::torch: return export_as(StateFormat::torch);
    case Target::dcp: return export_as(StateFormat::dcp);
    case Target::hf: return export_as(StateFormat::hf);
    case Target::run: return save_to_run(state, options, run);
    case Target::snapshot: break;
  }
  SaveOptions save;
  save.overwrite = options.force;
  save.threads = run.threads;
  save.progress = run.progress;
  return save_snapshot(options.output, state, save).map(&SaveSummary::stored_bytes);
}

Result<void> check_target(const ConvertOptions& options, Target target) {
  if (is_object_path(options.output)) {
    return fail(
        ErrorKind::invalid_argument,
        fmt::format("{}: is an address in an object store, where only runs can be: name a path of this machine, "
                    "or a checkpoint as in s3://bucket/run@STEP",
                    options.output));
  }
  std::error_code error;
  const bool is_directory = std::filesystem::is_directory(options.output, error);
  if (is_directory && (target == Target::dcp || target == Target::hf || options.max_file_bytes > 0)) {
    return fail(ErrorKind::invalid_argument, fmt::format("{}: exists already", options.output));
  }
  std::vector<std::string> inputs = options.bases;
  inputs.push_back(options.input);
  if (options.like) inputs.push_back(*options.like);
  BITSNAP_TRY(check_output(options.output, inputs, options.force));
  BITSNAP_TRY(check_not_within(options.output, options.input));
  for (std::filesystem::path folder = resolve_path(options.output).parent_path(); folder.has_relative_path();
       folder = folder.parent_path()) {
    if (is_store(folder.string())) return check_outside(folder.string(), options.output);
  }
  return {};
}

Result<void> check_options(const ConvertOptions& options, Target target) {
  if (options.max_file_bytes > 0 && target != Target::safetensors && target != Target::hf) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("--max-file-size divides safetensors files only, and the output is {}", name_of(target)));
  }
  if ((options.like || options.dtype) && target != Target::hf) {
    return fail(ErrorKind::invalid_argument, fmt::format("{} goes with --to hf, and the output is {}",
                                                         options.like ? "--like" : "--dtype", name_of(target)));
  }
  return {};
}

// Makes of the input what is written: the chosen tensors, the model, or everything. Fails if something would be lost
// that the user did not leave out.
Result<ModelFiles> prepare(const ConvertOptions& options, Target target, TrainingState& training,
                           const CommonOptions& common) {
  if (!options.selection.empty()) {
    auto selected = select_tensors(training.state, options.selection);
    if (!selected) return tl::unexpected(std::move(selected).error().within(options.input));
    training.state.metadata.clear();
    training.left_out.clear();
  }
  if (target != Target::hf) {
    BITSNAP_TRY(check_complete(options, target, training, common));
    return ModelFiles();
  }
  BITSNAP_ASSIGN(ModelFiles files, find_model_files(options));
  BITSNAP_ASSIGN(training.state, find_model(options, std::move(training.state)));
  std::vector<TensorInfo> infos;
  for (const TensorSource& tensor : training.state.tensors) infos.push_back(tensor.info);
  BITSNAP_TRY(set_config_dtype(files, infos));
  return files;
}

Result<int> convert(ConvertOptions options, const CommonOptions& common) {
  BITSNAP_ASSIGN(const Target target, find_target(options));
  BITSNAP_TRY(check_options(options, target));
  if (target == Target::hf && options.max_file_bytes == 0) options.max_file_bytes = kModelFileBytes;
  if (target != Target::run) BITSNAP_TRY(check_target(options, target));
  BITSNAP_ASSIGN(TrainingInput input, open_training(options.input, options.bases, options.shard));
  if (target != Target::run && options.force) {
    for (const auto& snapshot : input.snapshots) BITSNAP_TRY(snapshot->check_not_needed(options.output));
  }
  TrainingState& training = input.training;
  BITSNAP_ASSIGN(ModelFiles files, prepare(options, target, training, common));
  if (training.state.tensors.empty() && !training.state.tree) {
    return fail(ErrorKind::invalid_argument, fmt::format("{}: holds no plain tensors", options.input));
  }
  ConvertReport report;
  report.tensors = training.state.tensors.size();
  for (const TensorSource& tensor : training.state.tensors) report.raw_bytes += tensor.info.size_bytes;
  const auto start = std::chrono::steady_clock::now();
  {
    ProgressBar bar(file_name(options.input), !common.quiet);
    BITSNAP_ASSIGN(report.output_bytes, write(training.state, target, options, std::move(files), bar.run(common)));
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (common.json) {
    print_json({{"input", options.input},
                {"output", options.output},
                {"format", name_of(target)},
                {"tensors", report.tensors},
                {"raw_bytes", report.raw_bytes},
                {"output_bytes", report.output_bytes},
                {"seconds", report.seconds}});
  } else if (!common.quiet) {
    print_note(fmt::format("{} : {} of {} -> {}  ({})  {}\n", printable(options.input),
                           format_plural(report.tensors, "tensor"), format_size(report.raw_bytes),
                           format_size(report.output_bytes), format_speed(report.raw_bytes, report.seconds),
                           printable(options.output)));
  }
  return kExitOk;
}

}  // namespace

Command add_convert(CLI::App& program, const CommonOptions& common) {
  auto [app, options] = new_command<ConvertOptions>(program, kBothGroup, "convert",
                                                    "Write a checkpoint in another format, its tensors bit for bit");
  add_argument(*app, "IN", options->input,
               "A safetensors, torch, DCP or numpy file, a folder of them, a snapshot, or a checkpoint as RUN@STEP");
  add_argument(*app, "OUT", options->output, "Where to write: a file, a folder, or RUN@STEP");
  std::vector<std::string> formats;
  for (const auto& [name, target] : kTargets) formats.emplace_back(name);
  app->add_option("--to", options->format, "The format of OUT, if its name does not tell it")
      ->type_name("FORMAT")
      ->check(CLI::IsMember(formats));
  app->add_option("--max-file-size", options->max_file_bytes,
                  "Divide the tensors among safetensors files of this size, such as 5GB, and write their index; 5GB "
                  "with --to hf")
      ->type_name("SIZE")
      ->transform(CLI::AsSizeValue(true));
  app->add_option(
         "--only", options->selection.only,
         "Only the tensors whose names fit, such as 'model.*', without the values beside them; may be repeated")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  app->add_option("--strip", options->selection.strip, "Remove this from the beginning of each name")
      ->type_name("PREFIX");
  app->add_option(
         "--like", options->like,
         "With --to hf: a folder of the same model, whose names of tensors, config.json and tokenizer are used")
      ->type_name("FOLDER");
  std::vector<std::string> dtypes;
  for (const auto& [name, dtype] : kDtypes) dtypes.emplace_back(name);
  app->add_option("--dtype", options->dtype, "With --to hf: the dtype of the weights; default: as they are stored")
      ->type_name("DTYPE")
      ->check(CLI::IsMember(dtypes));
  app->add_flag("--tensors-only", options->tensors_only, "Leave out everything but plain tensors");
  add_base_option(*app, options->bases,
                  "A snapshot, or a folder of them, that IN may depend on, besides those in its own folder");
  add_number_option(*app, "--shard", options->shard, 0, "Only this shard of a checkpoint, counted from 0");
  app->add_flag("-f,--force", options->force, "Overwrite an output that is a file");
  app->footer(
      "OUT is a torch file if it ends in .pt, .pth, .bin or .ckpt; torch.load reads it with weights_only=True.\n"
      "--to hf writes the weights of the model as a folder that from_pretrained() of Transformers loads.\n"
      "The shards of all ranks are put together, unless --shard chooses one. Nothing in IN is executed.");
  return {app, [options, &common] { return convert(*options, common); }};
}

}  // namespace bitsnap::cli
