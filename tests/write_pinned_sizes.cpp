// Writes the sizes of the real samples: write_pinned_sizes FOLDER, usually tests/pinned. See pinned/README.md.
#include <cstdio>
#include <fstream>
#include <string>

#include "pinned_sizes.hpp"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_pinned_sizes FOLDER\n");
    return 2;
  }
  const std::string folder = argv[1];
  const auto lines = bitsnap::pinned_size_lines(folder);
  if (!lines) {
    std::fprintf(stderr, "write_pinned_sizes: %s\n", lines.error().message().c_str());
    return 1;
  }
  std::ofstream file(folder + "/sizes.csv", std::ios::binary);
  for (const std::string& line : *lines) file << line << '\n';
  file.close();
  if (!file) {
    std::fprintf(stderr, "write_pinned_sizes: cannot write %s/sizes.csv\n", folder.c_str());
    return 1;
  }
  std::printf("%s/sizes.csv: %zu sizes\n", folder.c_str(), lines->size() - 1);
  return 0;
}
