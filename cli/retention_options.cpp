// Which checkpoints are to stay, and what pruning did.
#include "cli/retention_options.hpp"

#include <fmt/format.h>

#include "cli/number_option.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

// What pruning gave back: what rewriting took is counted against it. Not known before rewriting is done.
std::optional<std::int64_t> freed_bytes(const PruneReport& report, bool dry_run) {
  if (dry_run && !report.rewritten.empty()) {
    return std::nullopt;
  }
  auto freed = static_cast<std::int64_t>(report.removed_bytes);
  for (const PruneReport::Rewritten& rewritten : report.rewritten) {
    freed += static_cast<std::int64_t>(rewritten.bytes_before) - static_cast<std::int64_t>(rewritten.bytes_after);
  }
  return freed;
}

std::string describe_freed(const PruneReport& report, bool dry_run) {
  const auto freed = freed_bytes(report, dry_run);
  if (!freed) {
    return fmt::format("free up to {}", format_size(report.removed_bytes));
  }
  if (*freed < 0) {
    return fmt::format("took {} more", format_size(static_cast<std::uint64_t>(-*freed)));
  }
  return fmt::format("{} {}", dry_run ? "free" : "freed", format_size(static_cast<std::uint64_t>(*freed)));
}

}  // namespace

void add_keep_options(CLI::App& app, Retention& retention) {
  add_number_option(app, "--keep-last", retention.keep_last, 1, "Keep the newest so many");
  add_number_option(app, "--keep-every", retention.keep_every, 1, "Keep the steps that are multiples of this");
}

void add_keep_steps_option(CLI::App& app, Retention& retention) {
  add_numbers_option(app, "--keep", retention.keep, "Keep these steps");
}

bool is_given(const Retention& retention) noexcept {
  return retention.keep_last || retention.keep_every || !retention.keep.empty();
}

std::string render_pruning(const PruneReport& report, bool dry_run) {
  std::string out;
  for (const PruneReport::Removed& removed : report.removed) {
    out += fmt::format("{} step {} ({})\n", dry_run ? "would remove" : "removed", removed.step,
                       format_size(removed.bytes));
  }
  for (const PruneReport::Rewritten& rewritten : report.rewritten) {
    out += dry_run ? fmt::format("would rewrite step {} ({})\n", rewritten.step, format_size(rewritten.bytes_before))
                   : fmt::format("rewrote step {} ({} -> {})\n", rewritten.step, format_size(rewritten.bytes_before),
                                 format_size(rewritten.bytes_after));
  }
  for (const PruneReport::Needed& needed : report.needed) {
    out += fmt::format("step {} stays: step {} needs it ({})\n", needed.step, needed.by, format_size(needed.bytes));
  }
  for (const std::string& stray : report.strays) {
    out +=
        fmt::format("{} {}, which belongs to no checkpoint\n", dry_run ? "would remove" : "removed", printable(stray));
  }
  return out + render_pruning_sum(report, dry_run);
}

std::string render_pruning_sum(const PruneReport& report, bool dry_run) {
  std::string out = report.removed.empty() ? "nothing to remove"
                                           : fmt::format("{} {}", dry_run ? "would remove" : "removed",
                                                         format_plural(report.removed.size(), "checkpoint"));
  if (!report.rewritten.empty()) {
    out += fmt::format(", {} {}", dry_run ? "rewrite" : "rewrote", format_count(report.rewritten.size()));
  }
  if (!report.removed.empty() || !report.rewritten.empty()) {
    out += ", " + describe_freed(report, dry_run);
  }
  out += fmt::format("; {} kept", format_count(report.kept.size()));
  if (!report.needed.empty()) {
    out += fmt::format(", {} more needed by them", format_count(report.needed.size()));
  }
  return out + '\n';
}

Json to_json(const PruneReport& report, bool dry_run) {
  Json document = {{"dry_run", dry_run}, {"kept", report.kept}};
  document["removed"] = Json::array();
  for (const PruneReport::Removed& removed : report.removed) {
    document["removed"].push_back({{"step", removed.step}, {"bytes", removed.bytes}});
  }
  document["needed"] = Json::array();
  for (const PruneReport::Needed& needed : report.needed) {
    document["needed"].push_back({{"step", needed.step}, {"bytes", needed.bytes}, {"by", needed.by}});
  }
  document["rewritten"] = Json::array();
  for (const PruneReport::Rewritten& rewritten : report.rewritten) {
    document["rewritten"].push_back({{"step", rewritten.step},
                                     {"bytes_before", rewritten.bytes_before},
                                     {"bytes_after", dry_run ? Json() : Json(rewritten.bytes_after)}});
  }
  const auto freed = freed_bytes(report, dry_run);
  document["removed_bytes"] = report.removed_bytes;
  document["freed_bytes"] = freed ? Json(*freed) : Json();
  document["strays"] = report.strays;
  return document;
}

}  // namespace bitsnap::cli
