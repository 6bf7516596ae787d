// Random choices, the changes that survive a crash by them, and the names of a disk.
#include "os/fake_disk_testing.hpp"

#include <algorithm>
#include <ranges>
#include <set>
#include <utility>

namespace bitsnap::os::fake {
namespace {

using Name = std::pair<const Node*, std::string>;

NodePointer directory_at(const Node& directory, const std::string& name) {
  const auto entry = directory.entries.find(name);
  return entry == directory.entries.end() || !entry->second->is_directory ? nullptr : entry->second;
}

void assign(Entries& entries, const std::string& name, const NodePointer& node) {
  if (node == nullptr) {
    entries.erase(name);
  } else {
    entries[name] = node;
  }
}

bool contains(const std::vector<NodePointer>& nodes, const NodePointer& wanted) {
  return std::find(nodes.begin(), nodes.end(), wanted) != nodes.end();
}

// A directory with several names is listed below the first of them.
void list_names(const Node& directory, const std::string& path, std::map<const Node*, std::uint64_t>& numbers,
                std::vector<FakeFileSystem::DiskName>& out) {
  const auto list = [&](const std::string& name, const Node& child, bool is_seen, bool is_synced) {
    const std::string child_path = path + "/" + name;
    const auto [number, is_new] = numbers.try_emplace(&child, numbers.size());
    out.push_back({child_path, is_seen, is_synced, number->second, child.is_directory, child.contents,
                   child.synced_contents.size()});
    if (is_new && child.is_directory) list_names(child, child_path, numbers, out);
  };
  for (const auto& [name, child] : directory.entries) {
    const auto synced = directory.synced_entries.find(name);
    list(name, *child, true, synced != directory.synced_entries.end() && synced->second == child);
  }
  for (const auto& [name, child] : directory.synced_entries) {
    const auto seen = directory.entries.find(name);
    if (seen == directory.entries.end() || seen->second != child) list(name, *child, false, true);
  }
}

}  // namespace

bool holds(const Node& directory, const Node* wanted) {
  if (&directory == wanted) return true;
  return std::any_of(directory.entries.begin(), directory.entries.end(),
                     [&](const auto& entry) { return holds(*entry.second, wanted); });
}

NodePointer NodeCopies::of(const NodePointer& node) {
  if (node == nullptr) return nullptr;
  if (const auto known = copies_.find(node.get()); known != copies_.end()) return known->second;
  const auto copy = std::make_shared<Node>(node->is_directory, node->id);
  copies_.emplace(node.get(), copy);
  copy->modified = node->modified;
  copy->contents = node->contents;
  copy->synced_contents = node->synced_contents;
  for (const auto& [name, child] : node->entries) copy->entries.emplace(name, of(child));
  for (const auto& [name, child] : node->synced_entries) copy->synced_entries.emplace(name, of(child));
  return copy;
}

std::uint64_t SeededRandom::below(std::uint64_t limit) noexcept {
  std::uint64_t value = state_ += 0x9E3779B97F4A7C15u;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return (value ^ (value >> 31)) % limit;
}

bool UnsyncedChanges::Operation::touches(const Node& directory) const {
  return std::any_of(changes.begin(), changes.end(),
                     [&](const Change& change) { return change.directory.get() == &directory; });
}

void UnsyncedChanges::set_entry(const NodePointer& directory, const std::string& name, const NodePointer& node) {
  operations_.push_back({.kind = node == nullptr ? Operation::Kind::remove : Operation::Kind::create,
                         .changes = {{directory, name, node, directory_at(*directory, name)}},
                         .places = node != nullptr && node->is_directory ? node : nullptr});
  assign(directory->entries, name, node);
}

void UnsyncedChanges::move(const NodePointer& from_directory, const std::string& from, std::vector<NodePointer> way_to,
                           const std::string& to) {
  const NodePointer to_directory = way_to.back();
  const NodePointer node = from_directory->entries.at(from);
  Operation operation{
      .kind = node->is_directory ? Operation::Kind::move_directory : Operation::Kind::move_file,
      .changes = {{to_directory, to, node, directory_at(*to_directory, to)}, {from_directory, from, nullptr, nullptr}},
      .places = node->is_directory ? node : nullptr,
      .way_to = std::move(way_to)};
  if (from_directory == to_directory) {
    operation.kind = Operation::Kind::rename;
    operation.places.reset();
    operation.way_to.clear();
  }
  operations_.push_back(std::move(operation));
  assign(from_directory->entries, from, nullptr);
  assign(to_directory->entries, to, node);
}

void UnsyncedChanges::sync(const NodePointer& directory) {
  directory->synced_entries = directory->entries;
  std::vector<NodePointer> removed;
  for (Operation& operation : operations_) {
    const auto is_safe = [&](const Change& change) { return change.directory == directory; };
    if (!operation.touches(*directory)) continue;
    for (const Change& change : operation.changes) {
      if (is_safe(change) && change.removed_directory != nullptr) removed.push_back(change.removed_directory);
    }
    // Half of a move may be synced now. The other half must survive, too, except that a file may keep its old name.
    const bool lost_old_name = is_safe(operation.changes.back()) || operation.kind == Operation::Kind::move_directory;
    std::erase_if(operation.changes, is_safe);
    if (operation.kind == Operation::Kind::rename || !lost_old_name) continue;
    operation.must_survive = true;
    keep_way_to(operation);
  }
  std::erase_if(operations_, [](const Operation& operation) { return operation.changes.empty(); });
  // Of a directory that is removed for good, only what was moved out of it survives.
  const auto was_in_removed = [&](const Operation& operation) {
    return std::any_of(removed.begin(), removed.end(), [&](const auto& gone) { return operation.touches(*gone); });
  };
  std::erase_if(operations_, [&](const Operation& operation) {
    return operation.kind != Operation::Kind::move_file && operation.kind != Operation::Kind::move_directory &&
           was_in_removed(operation);
  });
  for (Operation& operation : operations_) {
    if (was_in_removed(operation)) operation.must_survive = true;
  }
}

void UnsyncedChanges::keep_way_to(const Operation& move) {
  for (Operation& operation : operations_) {
    if (&operation == &move) return;
    if (operation.places != nullptr && contains(move.way_to, operation.places)) operation.must_survive = true;
  }
}

void UnsyncedChanges::forget(const Node& directory, const std::string& name) {
  for (Operation& operation : operations_) {
    std::erase_if(operation.changes,
                  [&](const Change& change) { return change.directory.get() == &directory && change.name == name; });
  }
  std::erase_if(operations_, [](const Operation& operation) { return operation.changes.empty(); });
}

UnsyncedChanges UnsyncedChanges::copy(NodeCopies& copies) const {
  UnsyncedChanges copied;
  for (const Operation& operation : operations_) {
    Operation& made = copied.operations_.emplace_back(operation);
    for (Change& change : made.changes) {
      change.directory = copies.of(change.directory);
      change.after = copies.of(change.after);
      change.removed_directory = copies.of(change.removed_directory);
    }
    made.places = copies.of(made.places);
    for (NodePointer& directory : made.way_to) directory = copies.of(directory);
  }
  return copied;
}

// From the last to the first: if an operation must survive, so must those that it depends on.
void UnsyncedChanges::mark_needed() {
  std::set<Name> names;
  std::set<const Node*> emptied;  // directories that lose no change
  for (Operation& operation : std::views::reverse(operations_)) {
    for (const Change& change : operation.changes) {
      if (names.contains({change.directory.get(), change.name}) || emptied.contains(change.directory.get())) {
        operation.must_survive = true;
      }
    }
    if (!operation.must_survive) continue;
    keep_way_to(operation);
    for (const Change& change : operation.changes) {
      names.emplace(change.directory.get(), change.name);
      if (change.removed_directory != nullptr) emptied.insert(change.removed_directory.get());
    }
  }
}

void UnsyncedChanges::survive(SeededRandom& random) {
  mark_needed();
  const std::uint64_t eighths = 1 + 3 * random.below(3);  // some crashes lose most, some little
  std::set<Name> lost_names;
  std::set<const Node*> not_placed;
  std::set<const Node*> not_emptied;  // directories that lost a change
  for (const Operation& operation : operations_) {
    const bool chosen = random.chance(eighths);
    const bool keeps_old_name = random.chance(2) && operation.kind == Operation::Kind::move_file;
    const bool is_possible =
        std::none_of(operation.way_to.begin(), operation.way_to.end(),
                     [&](const NodePointer& directory) { return not_placed.contains(directory.get()); }) &&
        std::none_of(operation.changes.begin(), operation.changes.end(), [&](const Change& change) {
          return lost_names.contains({change.directory.get(), change.name}) ||
                 not_emptied.contains(change.removed_directory.get());
        });
    const bool survives = operation.must_survive || (chosen && is_possible);
    if (!survives) not_placed.insert(operation.places.get());
    for (const Change& change : operation.changes) {
      if (!survives) {
        lost_names.emplace(change.directory.get(), change.name);
        not_emptied.insert(change.directory.get());
      } else if (change.after != nullptr || !keeps_old_name) {
        assign(change.directory->synced_entries, change.name, change.after);
      }
    }
  }
  operations_.clear();
}

void lose_contents(Node& file, SeededRandom& random) {
  const std::size_t synced = file.synced_contents.size();
  const std::size_t unsynced = file.contents.size() - synced;
  const std::uint64_t fate = random.below(4);
  const auto survived = static_cast<std::size_t>(random.below(unsynced + 1));
  if (fate == 0 || unsynced == 0) return;
  const auto from = file.contents.begin() + static_cast<std::ptrdiff_t>(synced);
  file.synced_contents.insert(file.synced_contents.end(), from,
                              fate == 3 ? file.contents.end() : from + static_cast<std::ptrdiff_t>(survived));
  if (fate == 2) file.synced_contents.resize(file.contents.size());
}

void list_files(const Node& node, const std::string& path, std::vector<std::string>& out) {
  for (const auto& [name, child] : node.entries) {
    const std::string child_path = path + "/" + name;
    if (child->is_directory) {
      list_files(*child, child_path, out);
    } else {
      out.push_back(child_path);
    }
  }
}

std::vector<FakeFileSystem::DiskName> list_names(const Node& root) {
  std::map<const Node*, std::uint64_t> numbers = {{&root, 0}};
  std::vector<FakeFileSystem::DiskName> names;
  list_names(root, "", numbers, names);
  return names;
}

}  // namespace bitsnap::os::fake
