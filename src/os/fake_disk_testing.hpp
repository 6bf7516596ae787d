// The parts of the in-memory file system: nodes, each with the state that programs see and the state that survives a
// crash, and the changes of names that are not synced yet. Used by FakeFileSystem only, under its lock.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "os/file_system_fake.hpp"

namespace bitsnap::os::fake {

struct Node;
using NodePointer = std::shared_ptr<Node>;
using Entries = std::map<std::string, NodePointer, std::less<>>;

struct Node {
  Node(bool directory, std::uint64_t file_id) : is_directory(directory), id(file_id) {}

  const bool is_directory;
  const std::uint64_t id;
  std::int64_t modified = 0;
  std::vector<std::byte> contents;         // what programs see
  std::vector<std::byte> synced_contents;  // what survives a crash; a prefix of `contents`
  Entries entries;
  Entries synced_entries;
};

// Whether a node is in the tree of a directory.
[[nodiscard]] bool holds(const Node& directory, const Node* wanted);

// Copies a tree of nodes, each node once.
class NodeCopies {
 public:
  // The copy of a node with everything below it, now or after a crash; nullptr for nullptr.
  NodePointer of(const NodePointer& node);

 private:
  std::map<const Node*, NodePointer> copies_;
};

// Returns the same numbers for the same seed on every machine.
class SeededRandom {
 public:
  explicit SeededRandom(std::uint64_t seed) noexcept : state_(seed) {}

  std::uint64_t below(std::uint64_t limit) noexcept;
  bool chance(std::uint64_t eighths) noexcept { return below(8) < eighths; }

 private:
  std::uint64_t state_;
};

// The changes of names since their directories were synced, in the order they were made. A crash may keep any of them,
// within what file systems guarantee:
//
// - A name never gets a state that it never had: if one of its changes survives, so do all earlier ones.
// - A rename survives whole or not at all. Only a file that moved to another directory may have both names afterwards.
//   A moved file is never lost, even if the new directory's own name does not survive or the old directory's removal
//   does.
class UnsyncedChanges {
 public:
  // The name now refers to `node`; nullptr: the name is removed.
  void set_entry(const NodePointer& directory, const std::string& name, const NodePointer& node);
  // `way_to`: the directories that lead to the new name; the last one holds it.
  void move(const NodePointer& from_directory, const std::string& from, std::vector<NodePointer> way_to,
            const std::string& to);

  // The directory's names, as programs see them, now survive a crash.
  void sync(const NodePointer& directory);
  // One name now survives a crash for another reason.
  void forget(const Node& directory, const std::string& name);
  void clear() noexcept { operations_.clear(); }
  // The same changes, applied to the copied nodes.
  [[nodiscard]] UnsyncedChanges copy(NodeCopies& copies) const;

  // Chooses which changes survive a crash, and applies them to the synced state.
  void survive(SeededRandom& random);

 private:
  struct Change {
    NodePointer directory;
    std::string name;
    NodePointer after;              // nullptr: the name is removed
    NodePointer removed_directory;  // the directory that had the name, unless it moved; nullptr: none
  };
  struct Operation {
    enum class Kind : std::uint8_t { create, remove, rename, move_file, move_directory };  // rename: within a directory
    Kind kind;
    std::vector<Change> changes;        // one, or the new name and then the old one
    NodePointer places{};               // the directory that is created or moved
    std::vector<NodePointer> way_to{};  // of a move: if one of these is lost, the new name may be lost, too
    bool must_survive = false;

    bool touches(const Node& directory) const;
  };

  void keep_way_to(const Operation& move);
  void mark_needed();

  std::deque<Operation> operations_;
};

// Applies a crash to the contents that were not synced: nothing of them survives, a prefix, a prefix and then zeros
// (the size reached the disk before the bytes), or everything.
void lose_contents(Node& file, SeededRandom& random);

// Adds the paths of all files below `path` that programs see.
void list_files(const Node& node, const std::string& path, std::vector<std::string>& out);

// FakeFileSystem::all_names().
[[nodiscard]] std::vector<FakeFileSystem::DiskName> list_names(const Node& root);

}  // namespace bitsnap::os::fake
