// What the file system in memory is made of: nodes, each with what programs see and what is safe from a crash, and the
// changes of names that were made but not synced. Of the fake only, which calls everything here under its lock.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.hpp"

namespace bitsnap::os::fake {

struct Node;
using NodePointer = std::shared_ptr<Node>;
using Entries = std::map<std::string, NodePointer, std::less<>>;

struct Node {
  Node(bool directory, std::uint64_t file_id) : is_directory(directory), id(file_id) {}

  const bool is_directory;
  const std::uint64_t id;
  std::int64_t modified = 0;
  std::vector<std::byte> contents;         // as programs see them
  std::vector<std::byte> synced_contents;  // as a crash leaves them; a beginning of `contents`
  Entries entries;
  Entries synced_entries;
};

// Makes a second tree of nodes of a first one, each node once.
class NodeCopies {
 public:
  // The copy of a node with all that stands below it now or may after a crash; of nothing nothing.
  NodePointer of(const NodePointer& node);

 private:
  std::map<const Node*, NodePointer> copies_;
};

// The same numbers for the same seed, everywhere.
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
// - A name is never in a state that it never had: its changes survive from the first up to some one of them.
// - A rename survives whole or not at all. Only a file that moved from one directory to another may afterwards have
//   both names. What was moved is never lost: not with a new directory whose own name did not survive, nor with an old
//   one whose removal did.
class UnsyncedChanges {
 public:
  // A name is given to a node or, without one, taken away.
  void set_entry(const NodePointer& directory, const std::string& name, const NodePointer& node);
  // `way_to` are the directories that lead to the new name, the one that holds it last.
  void move(const NodePointer& from_directory, const std::string& from, std::vector<NodePointer> way_to,
            const std::string& to);

  // The names of the directory, as programs see them, are safe from now on.
  void sync(const NodePointer& directory);
  // One name became safe in another way.
  void forget(const Node& directory, const std::string& name);
  void clear() noexcept { operations_.clear(); }
  // The same changes, of the copied nodes.
  [[nodiscard]] UnsyncedChanges copy(NodeCopies& copies) const;

  // Chooses which of the changes survive and adds those to what is safe.
  void survive(SeededRandom& random);

 private:
  struct Change {
    NodePointer directory;
    std::string name;
    NodePointer after;              // or nothing
    NodePointer removed_directory;  // if one stood there; one that moves is not removed
  };
  struct Operation {
    enum class Kind : std::uint8_t { create, remove, rename, move_file, move_directory };  // rename: within a directory
    Kind kind;
    std::vector<Change> changes;        // one, or the new name and then the old one
    NodePointer places{};               // the directory that is made, or moved to another one
    std::vector<NodePointer> way_to{};  // of a move: if one of these is not in its place, the new name may be lost
    bool must_survive = false;

    bool touches(const Node& directory) const;
  };

  void keep_way_to(const Operation& move);
  void mark_needed();

  std::deque<Operation> operations_;
};

// What a crash makes of the contents that were not synced: none, a beginning, a beginning and zeros where the size got
// to the disk before the bytes, or all.
void lose_contents(Node& file, SeededRandom& random);

}  // namespace bitsnap::os::fake
