#include "cli/output/branch_tree.hpp"

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "cli/output/table.hpp"
#include "cli/text_format.hpp"

namespace bitsnap {

void to_json(cli::Json& json, const Branch& branch) {
  json = {{"name", branch.name}, {"path", branch.path}};
  json["origin"] = branch.origin ? cli::Json{{"run_id", branch.origin->run_id},
                                             {"branch", branch.origin->branch},
                                             {"step", branch.origin->step}}
                                 : cli::Json();
  json["checkpoints"] = branch.checkpoints;
  json["newest"] = branch.newest;
  json["stored_bytes"] = branch.stored_bytes;
  json["own_bytes"] = branch.own_bytes;
  if (branch.damage) json["damage"] = branch.damage;
}

}  // namespace bitsnap

namespace bitsnap::cli {

namespace {

// The branch below which one is drawn; empty: the run.
std::string parent_of(const Branch& branch, const std::vector<Branch>& branches) {
  if (!branch.origin || branch.origin->branch.empty()) return "";
  const auto parent = std::ranges::find(branches, branch.origin->branch, &Branch::name);
  // A branch that was made again under the name of a removed one may have its own descendant as its origin.
  for (const Branch* above = parent == branches.end() ? nullptr : &*parent; above != nullptr;) {
    if (above->name == branch.name) return "";
    const auto next =
        above->origin ? std::ranges::find(branches, above->origin->branch, &Branch::name) : branches.end();
    above = next == branches.end() || &*next == &*parent ? nullptr : &*next;
  }
  return parent == branches.end() ? "" : parent->name;
}

std::string origin_text(const Branch& branch) {
  if (!branch.origin) return "-";
  if (branch.origin->branch.empty()) return fmt::format("{}", branch.origin->step);
  return fmt::format("{}@{}", printable(branch.origin->branch), branch.origin->step);
}

}  // namespace

std::string render_branches(const std::vector<Branch>& branches, const std::string& of,
                            std::optional<std::size_t> width) {
  Table table({{"branch", Align::left, Narrow::end},
               {"from", Align::right},
               {"checkpoints", Align::right, Narrow::never, 2},
               {"newest", Align::right},
               {"stored", Align::right, Narrow::never, 1},
               {"not shared", Align::right}});
  std::string damages;
  const std::function<void(const std::string&, const std::string&)> add_below = [&](const std::string& parent,
                                                                                    const std::string& indent) {
    std::vector<const Branch*> below;
    for (const Branch& branch : branches) {
      if (parent_of(branch, branches) == parent) below.push_back(&branch);
    }
    std::ranges::sort(below, {}, [](const Branch* branch) {
      return std::pair(branch->origin ? branch->origin->step : 0, std::string_view(branch->name));
    });
    for (const Branch* branch : below) {
      const bool is_last = branch == below.back();
      table.add_row({fmt::format("{}{}{}", indent, is_last ? "└─ " : "├─ ", printable(branch->name)),
                     origin_text(*branch), fmt::format("{}", branch->checkpoints),
                     branch->newest ? fmt::format("{}", *branch->newest) : "-", format_size(branch->stored_bytes),
                     format_size(branch->own_bytes)});
      if (branch->damage) {
        damages += fmt::format("branch {} [{}]: {}\n", printable(branch->name), error_kind_name(branch->damage->kind()),
                               printable(branch->damage->message()));
      }
      add_below(branch->name, indent + (is_last ? "   " : "│  "));
    }
  };
  add_below(of, "");
  return table.empty() ? "" : table.render(width) + damages;
}

}  // namespace bitsnap::cli
