// The --keep options, and reports of pruning.
#include "cli/retention_options.hpp"

#include <algorithm>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "cli/number_option.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

constexpr std::size_t kMostNeeded = 5;  // where not all are shown

// Bytes that pruning freed, less those that rewriting added; nullopt before rewriting is done.
std::optional<std::int64_t> freed_bytes(const PruneReport& report) {
  if (report.dry_run && !report.rewritten.empty()) return std::nullopt;
  auto freed = static_cast<std::int64_t>(report.removed_bytes);
  for (const PruneReport::Rewritten& rewritten : report.rewritten) {
    freed += static_cast<std::int64_t>(rewritten.bytes_before) - static_cast<std::int64_t>(rewritten.bytes_after);
  }
  return freed;
}

std::string describe_freed(const PruneReport& report) {
  const auto freed = freed_bytes(report);
  if (!freed) return fmt::format("would free up to {}", format_size(report.removed_bytes));
  if (*freed < 0) return fmt::format("took {} more", format_size(static_cast<std::uint64_t>(-*freed)));
  return fmt::format("{} {}", report.dry_run ? "would free" : "freed", format_size(static_cast<std::uint64_t>(*freed)));
}

std::string describe_needed(const PruneReport& report, const PruneReport::Needed& needed, std::uint64_t first_own) {
  const bool is_new = !needed.was_pruned;
  const std::string pruned = needed.step < first_own ? fmt::format("step {} is from before the branch", needed.step)
                             : !is_new               ? fmt::format("step {} was pruned before", needed.step)
                             : report.dry_run        ? fmt::format("would prune step {}", needed.step)
                                                     : fmt::format("step {} pruned", needed.step);
  return fmt::format("{}; its files {} until step {} no longer needs them ({})\n", pruned,
                     is_new && report.dry_run ? "would stay" : "stay", needed.by, format_size(needed.bytes));
}

}  // namespace

void add_keep_options(CLI::App& app, Retention& retention) {
  add_number_option(app, "--keep-last", retention.keep_last, 1, "Keep the N newest checkpoints");
  add_number_option(app, "--keep-every", retention.keep_every, 1, "Keep steps that are multiples of N");
}

void add_keep_steps_option(CLI::App& app, Retention& retention) {
  add_numbers_option(app, "--keep", retention.keep, "Keep these steps");
  app.add_flag("--keep-labelled", retention.keep_labelled, "Keep checkpoints with a label");
}

bool is_given(const Retention& retention) noexcept {
  return retention.keep_last || retention.keep_every || !retention.keep.empty() || retention.keep_labelled;
}

std::uint64_t first_own_step(const Store& store) {
  const auto branches = store.branches();
  if (!branches) return 0;
  const auto own = std::ranges::find(*branches, store.path(), &Branch::path);
  return own != branches->end() && own->origin ? own->origin->step : 0;
}

std::string render_needed(const std::vector<PruneReport::Needed>& needed, std::uint64_t first_own, bool some) {
  const std::size_t shown = some ? std::min(needed.size(), kMostNeeded) : needed.size();
  std::string out;
  for (const PruneReport::Needed& each : std::span(needed).first(shown)) {
    out += fmt::format("step {} {} step {} needs it ({})\n", each.step,
                       each.step < first_own ? "is from before the branch;" : "was pruned, but", each.by,
                       format_size(each.bytes));
  }
  if (shown < needed.size()) {
    out += fmt::format("and {} more; `bitsnap du` shows each\n", format_count(needed.size() - shown));
  }
  return out;
}

std::string render_outlook(const PruneReport& report) {
  std::string out = fmt::format("frees up to {} of {}", format_size(report.removed_bytes),
                                format_size(report.removed_bytes + report.held_bytes()));
  if (!report.rewritten.empty()) {
    std::uint64_t bytes = 0;
    for (const PruneReport::Rewritten& rewritten : report.rewritten) bytes += rewritten.bytes_before;
    out += fmt::format("; rewrites {} ({})", format_plural(report.rewritten.size(), "checkpoint"), format_size(bytes));
  }
  out += '\n';
  const std::size_t shown = std::min(report.needed.size(), kMostNeeded);
  for (const PruneReport::Needed& needed : std::span(report.needed).first(shown)) {
    out += fmt::format("step {} stays, because step {} needs it ({})\n", needed.step, needed.by,
                       format_size(needed.bytes));
  }
  if (shown < report.needed.size()) {
    out += fmt::format("and {} more stay; --dry-run shows each\n", format_count(report.needed.size() - shown));
  }
  return out;
}

std::string render_pruning(const PruneReport& report, std::uint64_t first_own) {
  const std::string_view removed_word = report.dry_run ? "would remove" : "removed";
  std::string out;
  for (const PruneReport::Removed& removed : report.removed) {
    out += fmt::format("{} step {} ({})\n", removed_word, removed.step, format_size(removed.bytes));
  }
  for (const PruneReport::Rewritten& rewritten : report.rewritten) {
    out += report.dry_run
               ? fmt::format("would rewrite step {} ({})\n", rewritten.step, format_size(rewritten.bytes_before))
               : fmt::format("rewrote step {} ({} -> {})\n", rewritten.step, format_size(rewritten.bytes_before),
                             format_size(rewritten.bytes_after));
  }
  for (const PruneReport::Needed& needed : report.needed) out += describe_needed(report, needed, first_own);
  for (const std::string& stray : report.strays) {
    out += fmt::format("{} {}, which belongs to no checkpoint\n", removed_word, printable(stray));
  }
  return out + render_pruning_sum(report, first_own);
}

std::string render_pruning_sum(const PruneReport& report, std::uint64_t first_own) {
  const auto is_new = [](const auto& entry) { return !entry.was_pruned; };
  const auto is_earlier = [&](const auto& entry) { return entry.step < first_own; };
  const auto removed = static_cast<std::size_t>(std::ranges::count_if(report.removed, is_new));
  const auto staying = static_cast<std::size_t>(std::ranges::count_if(report.needed, is_new));
  const std::size_t removed_later = report.removed.size() - removed;
  const std::size_t still_staying = report.needed.size() - staying;

  const std::string pruned = format_count(removed + staying);
  std::string out = removed + staying == 0 ? "nothing to prune"
                    : report.dry_run       ? fmt::format("would prune {}", pruned)
                                           : fmt::format("{} pruned", pruned);
  if (staying > 0) {
    out += fmt::format(", of which {} {} as files for others", format_count(staying),
                       report.dry_run ? "would stay"
                       : staying == 1 ? "stays"
                                      : "stay");
  }
  if (removed_later > 0) {
    const bool has_earlier = std::ranges::any_of(report.removed, is_earlier);
    out += fmt::format("; {} {} {}", report.dry_run ? "would remove" : "removed", format_count(removed_later),
                       has_earlier          ? "from before the branch"
                       : removed_later == 1 ? "that was pruned before"
                                            : "that were pruned before");
  }
  if (!report.rewritten.empty()) {
    out += fmt::format("; {} {}", report.dry_run ? "would rewrite" : "rewrote", format_count(report.rewritten.size()));
  }
  if (!report.removed.empty() || !report.rewritten.empty()) out += "; " + describe_freed(report);
  out += fmt::format("; {} kept", format_count(report.kept.size()));
  if (!report.dry_run || report.rewritten.empty()) {
    out += fmt::format(" in {} ({})", format_size(report.held_bytes()),
                       format_ratio(report.kept_raw_bytes, report.held_bytes()));
  }
  const bool has_earlier = std::ranges::any_of(report.needed, is_earlier);
  if (still_staying > 0) {
    out += fmt::format(", {} {} still needed", format_count(still_staying),
                       has_earlier ? "from before the branch" : "pruned before");
  }
  return out + '\n';
}

}  // namespace bitsnap::cli

namespace bitsnap {

static void to_json(cli::Json& json, const PruneReport::Removed& removed) {
  json = {{"step", removed.step}, {"bytes", removed.bytes}};
}

void to_json(cli::Json& json, const PruneReport::Needed& needed) {
  json = {{"step", needed.step}, {"bytes", needed.bytes}, {"by", needed.by}};
}

void to_json(cli::Json& json, const PruneReport& report) {
  json = {{"dry_run", report.dry_run},
          {"kept", report.kept},
          {"removed", report.removed},
          {"needed", report.needed},
          {"rewritten", cli::Json::array()},
          {"removed_bytes", report.removed_bytes},
          {"freed_bytes", cli::freed_bytes(report)},
          {"kept_raw_bytes", report.kept_raw_bytes},
          {"kept_bytes", report.kept_bytes},
          {"needed_bytes", report.needed_bytes},
          {"held_bytes", report.held_bytes()},
          {"strays", report.strays}};
  for (const PruneReport::Rewritten& rewritten : report.rewritten) {
    json["rewritten"].push_back({{"step", rewritten.step},
                                 {"bytes_before", rewritten.bytes_before},
                                 {"bytes_after", report.dry_run ? cli::Json() : cli::Json(rewritten.bytes_after)}});
  }
}

}  // namespace bitsnap
