// `bitsnap diff`: compares the tensors of two checkpoints bit by bit.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <bitsnap/convert.hpp>
#include <bitsnap/folder.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/value.hpp>

#include "cli/command.hpp"
#include "cli/file_paths.hpp"
#include "cli/input/checkpoint_input.hpp"
#include "cli/input/run_path.hpp"
#include "cli/input/tensor_choice.hpp"
#include "cli/input/training_input.hpp"
#include "cli/number_option.hpp"
#include "cli/output/progress_bar.hpp"
#include "cli/output/table.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

struct DiffOptions {
  std::string a;
  std::string b;
  std::vector<std::string> bases;
  std::optional<std::uint64_t> shard;  // of both
  std::vector<std::string> mappings;   // of prefixes of names of A to those of B
};

struct DiffReport {
  std::vector<TensorDifference> tensors;
  bool metadata_equal = true;
  bool tree_equal = true;
  std::uint64_t differing = 0;
  std::uint64_t elements = 0;  // of tensors that could be compared
  std::uint64_t changed = 0;
  std::uint64_t largest_ulp = 0;

  [[nodiscard]] bool equal() const noexcept { return differing == 0 && metadata_equal && tree_equal; }
};

// The key in the JSON, and the words in the table.
std::pair<std::string_view, std::string_view> names(TensorDifference::Kind kind) noexcept {
  switch (kind) {
    case TensorDifference::Kind::equal: return {"equal", "equal"};
    case TensorDifference::Kind::changed: return {"changed", "changed"};
    case TensorDifference::Kind::only_in_a: return {"only_in_a", "only in A"};
    case TensorDifference::Kind::only_in_b: return {"only_in_b", "only in B"};
    case TensorDifference::Kind::incomparable: return {"incomparable", "other dtype or shape"};
  }
  return {"unknown", "unknown"};
}

bool is_comparable(const TensorDifference& difference) noexcept {
  return difference.kind == TensorDifference::Kind::equal || difference.kind == TensorDifference::Kind::changed;
}

// One of the two checkpoints.
struct Side {
  std::string path;
  std::shared_ptr<const Snapshot> snapshot;  // nullptr: what a training wrote
};

Result<Side> open_side(const std::string& path, const DiffOptions& options) {
  Side side{path, nullptr};
  BITSNAP_ASSIGN(const auto run, find_run_or_file(path));
  if (run) {
    // All shards are compared as one training state.
    BITSNAP_ASSIGN(OpenCheckpoint checkpoint, open_checkpoint(*run, options.shard.value_or(0)));
    if (options.shard || checkpoint.info.shards == 1) side.snapshot = std::move(checkpoint.snapshot);
    return side;
  }
  BITSNAP_ASSIGN(const auto input, find_input(path));
  if (input) return side;
  BITSNAP_ASSIGN(side.snapshot, open_snapshot(path, {.base_paths = options.bases}));
  return side;
}

// Whether the snapshots hold the same kind of thing: two states, or two folders with files of the same names.
bool are_alike(const Snapshot& a, const Snapshot& b) {
  if (!is_folder(a) && !is_folder(b)) return true;
  return is_folder(a) && is_folder(b) &&
         std::ranges::any_of(a.tensors(), [&](const TensorInfo& tensor) { return b.find(tensor.name).has_value(); });
}

bool trees_equal(const std::optional<Value>& a, const std::optional<Value>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  const auto text_a = serialize_value(*a);
  const auto text_b = serialize_value(*b);
  return text_a && text_b && *text_a == *text_b;
}

bool metadata_equal(const Snapshot& a, const Snapshot& b) {
  auto entries_a = a.metadata();
  auto entries_b = b.metadata();
  std::sort(entries_a.begin(), entries_a.end());
  std::sort(entries_b.begin(), entries_b.end());
  return entries_a == entries_b;
}

void print_report_json(const Side& a, const Side& b, const DiffReport& report) {
  const auto side = [](const Side& of) {
    const Snapshot* snapshot = of.snapshot.get();
    return Json{{"path", snapshot == nullptr ? of.path : snapshot->name()},
                {"id", snapshot == nullptr ? Json() : Json(snapshot->id().to_hex())}};
  };
  Json document = {{"equal", report.equal()},
                   {"a", side(a)},
                   {"b", side(b)},
                   {"metadata_equal", report.metadata_equal},
                   {"tree_equal", report.tree_equal},
                   {"differing_tensors", report.differing},
                   {"elements", report.elements},
                   {"changed", report.changed},
                   {"largest_ulp", report.largest_ulp},
                   {"tensors", Json::array()}};
  for (const TensorDifference& difference : report.tensors) {
    const auto elements = static_cast<double>(difference.elements);
    Json& tensor = document["tensors"].emplace_back(
        Json{{"name", difference.name}, {"kind", names(difference.kind).first}, {"elements", difference.elements}});
    if (is_comparable(difference)) {
      tensor["changed"] = difference.changed;
      tensor["changed_fraction"] = difference.elements == 0 ? 0.0 : static_cast<double>(difference.changed) / elements;
      tensor["largest_ulp"] = difference.largest_ulp;
    }
  }
  print_json(document);
}

void print_report(const DiffReport& report, const CommonOptions& common) {
  std::string out;
  if (!report.tensors.empty()) {
    Table table({{"tensor", Align::left, Narrow::middle},
                 {"elements", Align::right},
                 {"difference"},
                 {"changed", Align::right},
                 {"largest ULP", Align::right}});
    for (const TensorDifference& difference : report.tensors) {
      const bool changed = difference.kind == TensorDifference::Kind::changed;
      table.add_row({printable(difference.name), format_count(difference.elements),
                     std::string(names(difference.kind).second),
                     changed ? format_share(difference.changed, difference.elements) : "",
                     changed ? format_count(difference.largest_ulp) : ""});
    }
    out = table.render(common.table_width()) + '\n';
  }
  if (report.equal()) {
    out += fmt::format("equal: {}, {}\n", format_plural(report.tensors.size(), "tensor"),
                       format_plural(report.elements, "element"));
  } else {
    out += fmt::format("{} of {} differ; {} of {} changed ({}), at most by {} ULP\n", format_count(report.differing),
                       format_plural(report.tensors.size(), "tensor"), format_count(report.changed),
                       format_plural(report.elements, "element"), format_share(report.changed, report.elements),
                       format_count(report.largest_ulp));
    out += report.metadata_equal ? "" : "the metadata differs\n";
    out += report.tree_equal ? "" : "the values that are stored with the tensors differ\n";
  }
  print_result(out);
}

// Snapshots of the same kind are compared with all that they hold, anything else by the tensors of the training.
Result<void> compare_sides(const Side& a, const Side& b, const DiffOptions& options, const RunOptions& run,
                           DiffReport& report) {
  const bool maps = !options.mappings.empty();
  if (maps || a.snapshot == nullptr || b.snapshot == nullptr || !are_alike(*a.snapshot, *b.snapshot)) {
    BITSNAP_ASSIGN(TrainingInput input_a, open_training(a.path, options.bases, options.shard));
    BITSNAP_ASSIGN(const TrainingInput input_b, open_training(b.path, options.bases, options.shard));
    if (maps) BITSNAP_TRY(rename_tensors(input_a.training.state, options.mappings));
    BITSNAP_ASSIGN(report.tensors, compare(input_a.training.state, input_b.training.state, run));
    return {};
  }
  BITSNAP_ASSIGN(report.tensors, compare(*a.snapshot, *b.snapshot, run));
  report.metadata_equal = metadata_equal(*a.snapshot, *b.snapshot);
  BITSNAP_ASSIGN(const auto tree_a, a.snapshot->tree());
  BITSNAP_ASSIGN(const auto tree_b, b.snapshot->tree());
  report.tree_equal = trees_equal(tree_a, tree_b);
  return {};
}

Result<int> diff(const DiffOptions& options, const CommonOptions& common) {
  BITSNAP_ASSIGN(const Side a, open_side(options.a, options));
  BITSNAP_ASSIGN(const Side b, open_side(options.b, options));
  DiffReport report;
  {
    ProgressBar bar(file_name(options.a) + " " + file_name(options.b), !common.quiet);
    BITSNAP_TRY(compare_sides(a, b, options, bar.run(common), report));
  }
  for (const TensorDifference& difference : report.tensors) {
    report.differing += difference.kind == TensorDifference::Kind::equal ? 0 : 1;
    if (is_comparable(difference)) {
      report.elements += difference.elements;
      report.changed += difference.changed;
      report.largest_ulp = std::max(report.largest_ulp, difference.largest_ulp);
    }
  }
  if (common.json) {
    print_report_json(a, b, report);
  } else if (!common.quiet) {
    print_report(report, common);
  }
  return report.equal() ? kExitOk : kExitDiffer;
}

}  // namespace

Command add_diff(CLI::App& program, const CommonOptions& common) {
  auto [app, options] =
      new_command<DiffOptions>(program, kBothGroup, "diff", "Compare two checkpoints tensor by tensor, bit by bit");
  add_argument(*app, "A", options->a, "A snapshot, a file or folder of a training, or a checkpoint as RUN@STEP");
  add_argument(*app, "B", options->b, "Another one");
  add_base_option(*app, options->bases,
                  "A snapshot, or a folder of them, that A or B may depend on, besides those in their own folders");
  add_number_option(*app, "--shard", options->shard, 0, "Only this shard of checkpoints, counted from 0");
  app->add_option("--map", options->mappings,
                  "Take the names of A that begin with OLD as if they began with NEW, such as 'model.=net.'; compares "
                  "tensors only; may be repeated")
      ->type_name("OLD=NEW")
      ->allow_extra_args(false);
  app->footer(
      "Checkpoints of different kinds are compared by their tensors, wherever these lie: a torch file against a DCP "
      "folder, all ranks together. Two folders with the same files are compared with everything in them.\n"
      "The exit status is 0 if they are equal and 1 if they differ; -q prints nothing.\n"
      "largest ULP: the largest distance between two elements, counted in representable values.");
  return {app, [options, &common] { return diff(*options, common); }};
}

}  // namespace bitsnap::cli
