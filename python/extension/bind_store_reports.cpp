// What a store reports of its checkpoints, and of what it did with them. Names of files need not be text: they are
// decoded as os.fsdecode does.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <bitsnap/store.hpp>

#include "bindings.hpp"
#include "report_class.hpp"

namespace nb = nanobind;

namespace bitsnap::python {

namespace {

using FileNames = nb::typed<nb::list, nb::str>;

FileNames file_names(const std::vector<std::string>& names) {
  nb::list texts;
  for (const std::string& name : names) texts.append(file_name(name));
  return nb::borrow<FileNames>(texts);
}

// Whole milliseconds, which a float of seconds does not hold exactly.
nb::object utc_time(std::int64_t unix_ms) {
  const nb::module_ datetime = nb::module_::import_("datetime");
  const nb::object utc = datetime.attr("timezone").attr("utc");
  return datetime.attr("datetime").attr("fromtimestamp")(0, utc) + datetime.attr("timedelta")(0, 0, 0, unix_ms);
}

nb::str describe(const StoreDamage& damage) {
  const std::string where = damage.where.empty() ? "" : damage.where + ": ";
  return text_of_message(damage.file + ": " + where + damage.error.message());
}

void bind_global_tensor(nb::module_& module) {
  ReportClass<TensorPart>(module, "TensorPart", "One stored box of a tensor of a checkpoint.")
      .field("shard", &TensorPart::shard, "The shard that holds it.")
      .field("tensor", &TensorPart::tensor, "The number of the tensor in that shard.")
      .field(
          "offset", [](const TensorPart& self) { return to_tuple(self.offset); }, "In the whole tensor.")
      .field("shape", [](const TensorPart& self) { return to_tuple(self.extent); }, "The extent of the box.");

  ReportClass<PyGlobalTensor>(module, "GlobalTensor", "A tensor of a checkpoint, in one part or in several.")
      .field("name", [](const PyGlobalTensor& self) { return std::string_view(self.tensor->name); })
      .field(
          "dtype", [](const PyGlobalTensor& self) { return std::string_view(self.tensor->dtype_name); },
          "As safetensors names it, such as \"BF16\".")
      .field("shape", [](const PyGlobalTensor& self) { return to_tuple(self.tensor->shape); })
      .field("role", [](const PyGlobalTensor& self) { return role_name(self.tensor->role); })
      .field(
          "parts", [](const PyGlobalTensor& self) { return self.tensor->parts; },
          "The boxes that the shards hold, in the order of their offsets; none is empty.");
}

void bind_checkpoint(nb::module_& module) {
  ReportClass<Checkpoint>(module, "Checkpoint", "One committed checkpoint. Sizes are in bytes.")
      .field("step", &Checkpoint::step)
      .field(
          "time", [](const Checkpoint& self) { return utc_time(self.time_unix_ms); },
          nb::for_getter(nb::sig("def time(self, /) -> datetime.datetime")), "When it was committed, in UTC.")
      .field("raw_bytes", &Checkpoint::raw_bytes, "Size of the tensors of all shards; tied tensors count once.")
      .field("stored_bytes", &Checkpoint::stored_bytes, "Size of all its files.")
      .field("base", &Checkpoint::base, "The step that it is coded against. None: it is a keyframe.")
      .field("links", &Checkpoint::links, "Checkpoints on the way to its keyframe; 0 for a keyframe.")
      .field("depth", &Checkpoint::depth,
             "How many earlier checkpoints have to be decoded for one of its chunks, at most.")
      .field("shards", &Checkpoint::shards, "Ranks that saved it together.")
      .field(
          "metadata", [](const Checkpoint& self) { return to_dict(self.metadata); },
          "The strings that commit() was given.")
      .field(
          "metrics",
          [](const Checkpoint& self) {
            return std::map<std::string, double>(self.metrics.begin(), self.metrics.end());
          },
          "Numbers of the training, such as its loss, that save() was given.")
      .field("labels", &Checkpoint::labels, "Its labels, in order of their bytes.")
      .field("damage", &Checkpoint::damage,
             "In the result of a save: why the base could not be used; the checkpoint is complete and is a keyframe. "
             "In a list: why its record cannot be read, and `shards` is 0, because only the step is known then; or "
             "that a repair keeps it as damaged.")
      .field("pruned", &Checkpoint::pruned, "In the result of a save: what `keep_last` and `keep_every` removed.")
      .field("needed", &Checkpoint::needed,
             "From Store.checkpoint(): those that were pruned and stay because this one needs them.")
      .computed("ratio", &ratio_of<Checkpoint>, "Raw size divided by stored size.");

  ReportClass<CommitOutcome>(module, "CommitOutcome", "What commit() did. True if the checkpoint exists.")
      .field("checkpoint", &CommitOutcome::checkpoint, "None: shards are missing.")
      .field("missing", &CommitOutcome::missing, "The shards that are not saved yet, ascending.")
      .native()
      .def("__bool__", [](const CommitOutcome& self) { return static_cast<bool>(self); });
}

void bind_pruning(nb::module_& module) {
  ReportClass<PruneReport> report(module, "PruneReport", "What pruning did. Steps are ascending, sizes in bytes.");
  ReportClass<PruneReport::Removed>(report.native(), "Removed", "A checkpoint whose files were removed.")
      .field("step", &PruneReport::Removed::step)
      .field("bytes", &PruneReport::Removed::bytes)
      .field("was_pruned", &PruneReport::Removed::was_pruned,
             "An earlier call pruned it, and left its files because others needed them.");
  ReportClass<PruneReport::Needed>(report.native(), "Needed", "A pruned checkpoint whose files others need.")
      .field("step", &PruneReport::Needed::step)
      .field("bytes", &PruneReport::Needed::bytes)
      .field("by", &PruneReport::Needed::by, "A step that needs it.")
      .field("was_pruned", &PruneReport::Needed::was_pruned, "An earlier call pruned it.");
  ReportClass<PruneReport::Rewritten>(report.native(), "Rewritten", "A kept checkpoint that no longer needs others.")
      .field("step", &PruneReport::Rewritten::step)
      .field("bytes_before", &PruneReport::Rewritten::bytes_before)
      .field("bytes_after", &PruneReport::Rewritten::bytes_after, "0 in a dry run, where it is not known.");
  ReportClass<RunUsage>(module, "RunUsage", "What a run holds on disk. Sizes are in bytes.")
      .field("checkpoints", &RunUsage::checkpoints, "Their number.")
      .field("raw_bytes", &RunUsage::raw_bytes, "Size of their tensors.")
      .field("stored_bytes", &RunUsage::stored_bytes, "Size of their files.")
      .field("needed", &RunUsage::needed, "Those that were pruned and stay because these need them.")
      .field("needed_bytes", &RunUsage::needed_bytes)
      .computed("held_bytes", &RunUsage::held_bytes, "Size of all these files.")
      .computed(
          "ratio", [](const RunUsage& self) { return ratio_of_bytes(self.raw_bytes, self.held_bytes()); },
          "Raw size divided by what is held.");
  report.computed("dry_run", [](const PruneReport& self) { return self.dry_run; })
      .field("kept", &PruneReport::kept)
      .field("removed", &PruneReport::removed)
      .field("needed", &PruneReport::needed)
      .field("rewritten", &PruneReport::rewritten)
      .field("removed_bytes", &PruneReport::removed_bytes)
      .field("kept_raw_bytes", &PruneReport::kept_raw_bytes, "Size of the tensors of those that are kept.")
      .field("kept_bytes", &PruneReport::kept_bytes, "Size of their files afterwards.")
      .field("needed_bytes", &PruneReport::needed_bytes, "Size of the files of those in `needed`.")
      .computed("held_bytes", &PruneReport::held_bytes, "What the run then holds.")
      .field(
          "strays", [](const PruneReport& self) { return file_names(self.strays); },
          "Removed files that belonged to no checkpoint, relative to the store.");

  ReportClass<BranchOrigin>(module, "BranchOrigin", "The checkpoint from which a branch was made.")
      .field("run_id", &BranchOrigin::run_id, "The id of the store that had it.")
      .field("branch", &BranchOrigin::branch, "The name of that store, if it was a branch itself; else empty.")
      .field("step", &BranchOrigin::step);

  ReportClass<Branch>(module, "Branch", "A second line of a run, from one of its checkpoints: a store of its own.")
      .field("name", &Branch::name)
      .field(
          "path", [](const Branch& self) { return file_name(self.path); }, "The directory of its store.")
      .field("origin", &Branch::origin, "None if it is unknown, because a repair had to make bitsnap.json again.")
      .field("checkpoints", &Branch::checkpoints, "How many it has.")
      .field("newest", &Branch::newest, "The newest step.")
      .field("stored_bytes", &Branch::stored_bytes, "Of its files.")
      .field("own_bytes", &Branch::own_bytes, "Of these, what neither the run nor another branch holds.")
      .field("copied_bytes", &Branch::copied_bytes,
             "Of a branch that was just made: of files that were copied, because there are no hard links.")
      .field("damage", &Branch::damage, "Why it cannot be read, in a list.");

  ReportClass<RollbackReport>(module, "RollbackReport", "What a rollback removed.")
      .field("removed", &RollbackReport::removed, "Steps, newest first.")
      .field("removed_bytes", &RollbackReport::removed_bytes);
}

void bind_repair(nb::module_& module) {
  ReportClass<StoreDamage>(module, "StoreDamage", "One damaged place of a store.")
      .field("step", &StoreDamage::step)
      .field(
          "file", [](const StoreDamage& self) { return file_name(self.file); }, "Relative to the store.")
      .field(
          "where", [](const StoreDamage& self) { return text_of_message(self.where); },
          R"(Such as "tensor 'x', chunk 3"; empty for the file as a whole.)")
      .field("error", &StoreDamage::error)
      .native()
      .def("__str__", &describe);

  ReportClass<StoreVerification>(module, "StoreVerification", "What verifying a store found.")
      .field("checkpoints", &StoreVerification::checkpoints, "The number of checkpoints.")
      .field("bytes", &StoreVerification::bytes, "Size of the files that were read.")
      .field("damages", &StoreVerification::damages, "By step.")
      .field(
          "strays", [](const StoreVerification& self) { return file_names(self.strays); },
          "Files that belong to no checkpoint, relative to the store; the next prune or repair removes them.");

  ReportClass<RepairReport> report(module, "RepairReport", "What a repair did.");
  ReportClass<RepairReport::Dropped>(report.native(), "Dropped",
                                     "A checkpoint of which nothing can be read; its files were moved, not removed.")
      .field("step", &RepairReport::Dropped::step)
      .field("was_pruned", &RepairReport::Dropped::was_pruned, "It was kept only for checkpoints that need it.")
      .field(
          "moved_to", [](const RepairReport::Dropped& self) { return file_name(self.moved_to); },
          "Relative to the store.")
      .field("damages", &RepairReport::Dropped::damages);
  ReportClass<RepairReport::Damaged>(report.native(), "Damaged",
                                     "A checkpoint that stays as damaged; load(partial=True) reads its other tensors.")
      .field("step", &RepairReport::Damaged::step)
      .field("tensors", &RepairReport::Damaged::tensors, "The number of its tensors, of all shards.")
      .field("damaged_tensors", &RepairReport::Damaged::damaged_tensors, "How many of them cannot be read.")
      .field("damages", &RepairReport::Damaged::damages);
  ReportClass<RepairReport::Mended>(report.native(), "Mended", "One repaired record.")
      .field("step", &RepairReport::Mended::step, "None: the store itself.")
      .field("what", [](const RepairReport::Mended& self) { return text_of_message(self.what); });
  report.field("checkpoints", &RepairReport::checkpoints, "The number of complete checkpoints after the repair.")
      .field("newest", &RepairReport::newest,
             "The newest of these, from which a training can go on; None if there is none. To save steps that are not "
             "above the damaged ones, roll back to it first.")
      .field("dropped", &RepairReport::dropped)
      .field("damaged", &RepairReport::damaged)
      .field("mended", &RepairReport::mended)
      .field(
          "strays", [](const RepairReport& self) { return file_names(self.strays); },
          "Removed files that belonged to no checkpoint, relative to the store.");
}

}  // namespace

nb::str file_name(const std::string& name) {
  nb::object text = nb::steal(PyUnicode_DecodeFSDefaultAndSize(name.data(), static_cast<Py_ssize_t>(name.size())));
  if (!text.is_valid()) throw nb::python_error();
  return nb::borrow<nb::str>(text);
}

void bind_store_reports(nb::module_& module) {
  bind_checkpoint(module);
  bind_global_tensor(module);
  bind_pruning(module);
  bind_repair(module);
}

}  // namespace bitsnap::python
