// How a format of files inherits the tests of container_conformance_test.cpp: the tests of its parser register, once,
// examples of its files.
//
//   const ContainerRegistration kNpyFiles({.format = "npy", .sound = sound_npy_files, .hostile = hostile_npy_files});
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/error.hpp>

namespace bitsnap::interop {

// A file of a folder, and those beside it that its parser reads.
struct ContainerExample {
  std::string bytes;
  std::string path = "file";
  std::map<std::string, std::string> beside = {};  // by path
  bool may_end_early = false;                      // some of its beginnings are sound files
};

struct ContainerExamples {
  std::string_view format;  // the name of its row in the table of formats
  // Files that are read: at most a few KiB each, because they are cut and damaged at every byte.
  std::vector<ContainerExample> (*sound)();
  // Files of about this size that cost much if their parser believes what they say: values, names, entries, nesting.
  std::vector<ContainerExample> (*hostile)(std::size_t bytes);
  // The error of a sound file that is cut, wherever that is; nullopt: it depends on the place.
  std::optional<ErrorKind> cut = {};
  // How often the parser reads each byte of a file at most.
  std::uint64_t reads_per_byte = 4;
};

// At namespace scope of a test.
class ContainerRegistration {
 public:
  explicit ContainerRegistration(const ContainerExamples& examples);
};

// Null: nothing is registered for the format.
[[nodiscard]] const ContainerExamples* find_container_examples(std::string_view format);
[[nodiscard]] const std::vector<ContainerExamples>& all_container_examples();

// For hostile files.
[[nodiscard]] std::string repeat(std::string_view text, std::size_t times);

}  // namespace bitsnap::interop
