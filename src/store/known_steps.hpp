// KnownSteps: what a writing handle knows of the steps of its store: which there are, and their records, each of which
// is read when it is first needed.
//
// The handle owns it. Its functions are for the call that holds the write turn, except those that are const. Whoever
// changes a step on the disk tells this class. A handle that holds no lock between its calls forgets everything first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "store/commit_record.hpp"
#include "store/retention_plan.hpp"
#include "store/step_directories.hpp"

namespace bitsnap::store {

struct KnownStep {
  StepState state = StepState::uncommitted;
  std::uint64_t record_bytes = 0;
  std::shared_ptr<const Result<CommitRecord>> record;

  void set_record(CommitRecord written) {
    record_bytes = serialize_commit_record(written).size();
    record = std::make_shared<const Result<CommitRecord>>(std::move(written));
  }
};

// What a caller assumes of a record that cannot be read.
enum class UnreadableRecord : std::uint8_t { refers_to_nothing, may_refer_to_any };

// What a plan has to know of a checkpoint with this record.
void describe(StepNode& node, const KnownStep& known, const CommitRecord& record);
void add_references(StepNode& node, const ShardFile& file);

class KnownSteps {
 public:
  // `directories` outlive this object.
  explicit KnownSteps(const StepDirectories& directories)
      : directories_(directories), file_system_(directories.file_system()), layout_(directories.layout()) {}

  void forget() noexcept { sight_ = Sight::nothing; }
  // Load all steps, or at least the newest checkpoint and the steps above it, unless they are known.
  [[nodiscard]] Result<void> load_all();
  [[nodiscard]] Result<void> load_newest();

  // Those that are known, by step.
  [[nodiscard]] std::map<std::uint64_t, KnownStep>& all() noexcept { return steps_; }
  [[nodiscard]] KnownStep& operator[](std::uint64_t step) { return steps_[step]; }
  void erase(std::uint64_t step) { steps_.erase(step); }
  // Looks for the step on disk if not all steps are known. Returns nullptr if the step does not exist.
  [[nodiscard]] Result<KnownStep*> find(std::uint64_t step);
  // Precondition: the step is known.
  [[nodiscard]] const Result<CommitRecord>& record(std::uint64_t step);
  // How many steps there are, as far as is known.
  [[nodiscard]] std::size_t count() const noexcept { return std::max(steps_.size(), listed_); }

  [[nodiscard]] std::optional<std::uint64_t> newest() const;
  // The newest known checkpoint before the step.
  [[nodiscard]] std::optional<std::uint64_t> newest_below(std::uint64_t step) const;
  [[nodiscard]] bool has_retired() const;
  // Whether the newest checkpoint was lost, because only retired ones are left. Precondition: all steps are known.
  bool note_lost_newest() { return has_lost_newest_ = !newest() && has_retired(); }
  // invalid_argument unless a save may add the step.
  [[nodiscard]] Result<void> check_new(std::uint64_t step);
  // Whether the step is a checkpoint that nothing with a record can need.
  [[nodiscard]] bool is_replaceable(std::uint64_t step) const;
  // Whether a record refers to the step.
  [[nodiscard]] bool is_referred_to(std::uint64_t step, UnreadableRecord unreadable);
  // What a checkpoint leads to by references, itself included.
  [[nodiscard]] std::set<std::uint64_t> needed_by(std::uint64_t step);

 private:
  enum class Sight : std::uint8_t {
    nothing,
    newest,  // the newest checkpoint, the steps above it, and the steps that were looked up
    all,
  };

  void know(const std::vector<StepEntry>& entries, Sight sight, std::size_t all_steps);

  const StepDirectories& directories_;
  os::FileSystem& file_system_;
  const RunLayout& layout_;
  std::map<std::uint64_t, KnownStep> steps_;
  Sight sight_ = Sight::nothing;  // how complete steps_ is
  std::size_t listed_ = 0;        // number of steps when they were last listed
  bool has_lost_newest_ = false;
};

}  // namespace bitsnap::store
