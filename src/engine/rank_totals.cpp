#include "engine/rank_totals.hpp"

#include <utility>

namespace bitsnap::engine {

void RankTotals::begin_trainer() {
  const std::lock_guard lock(mutex_);
  totals_.ended.clear();
}

void RankTotals::begin_save(std::uint64_t step) {
  const std::lock_guard lock(mutex_);
  std::erase_if(totals_.ended, [&](const EndedSave& each) { return each.step == step; });
}

void RankTotals::add_encoded(const ProgressEvent& event, bool is_in_memory) {
  const std::lock_guard lock(mutex_);
  if (is_in_memory) ++totals_.saves;
  totals_.raw_bytes += event.raw_bytes;
  totals_.stored_bytes += event.stored_bytes;
  totals_.encode_us += event.encode_us;
}

void RankTotals::add_persisted(std::uint64_t step, const ProgressEvent& event) {
  const std::lock_guard lock(mutex_);
  ++totals_.persisted;
  totals_.write_us += event.write_us;
  totals_.last_persisted_step = step;
  add_ended({.step = step, .stage = "persisted"});
}

void RankTotals::add_failed(std::uint64_t step, const ProgressEvent& event, bool is_for_store) {
  const std::lock_guard lock(mutex_);
  const Error& error = *event.error;
  if (is_for_store) {
    add_ended({.step = step,
               .stage = event.skipped ? "skipped" : "failed",
               .kind = std::string(error_kind_name(error.kind())),
               .code = std::string(error_code_name(error)),
               .message = error.message()});
  }
  if (event.skipped) {
    ++totals_.skipped;
  } else {
    ++totals_.failed;
    totals_.last_error = error.message();
  }
}

void RankTotals::set_last_error(const Error& error) {
  const std::lock_guard lock(mutex_);
  totals_.last_error = error.message();
}

SaveTotals RankTotals::get() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

void RankTotals::add_ended(EndedSave ended) {
  if (totals_.ended.size() >= kMaxEnded) totals_.ended.erase(totals_.ended.begin());
  totals_.ended.push_back(std::move(ended));
}

}  // namespace bitsnap::engine
