#include "interop/folder/container_conformance_testing.hpp"

#include <algorithm>

namespace bitsnap::interop {
namespace {

// Registrations run before main(), in any order.
std::vector<ContainerExamples>& registered() {
  static std::vector<ContainerExamples> examples;
  return examples;
}

}  // namespace

ContainerRegistration::ContainerRegistration(const ContainerExamples& examples) { registered().push_back(examples); }

const ContainerExamples* find_container_examples(std::string_view format) {
  const auto found = std::ranges::find(registered(), format, &ContainerExamples::format);
  return found == registered().end() ? nullptr : &*found;
}

const std::vector<ContainerExamples>& all_container_examples() { return registered(); }

std::string repeat(std::string_view text, std::size_t times) {
  std::string all;
  all.reserve(text.size() * times);
  for (std::size_t i = 0; i < times; ++i) all += text;
  return all;
}

}  // namespace bitsnap::interop
