// Links only the layers for reading: the build fails if reading needs an encoder, a plan or a writer. Calls every
// public function that reads a snapshot.
#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <bitsnap/snapshot.hpp>

#include "codec/decoder.hpp"

namespace {

// Does not compile if ChunkContext gains a field; fields for encoders belong in EncodeContext.
[[maybe_unused]] void expect_only_what_decoders_use(const bitsnap::codec::ChunkContext& context) {
  [[maybe_unused]] const auto& [dtype, elements, inputs, parameters] = context;
}

// Linking this function is the test. It runs only if a file name is passed by hand.
bitsnap::Result<void> read_all(const bitsnap::Snapshot& snapshot) {
  std::vector<std::vector<std::byte>> memory;
  std::vector<bitsnap::Snapshot::ReadRequest> requests;
  for (std::size_t i = 0; i < snapshot.tensors().size(); ++i) {
    memory.emplace_back(snapshot.tensors()[i].size_bytes);
    requests.push_back({i, memory.back()});
    if (const auto read = snapshot.read_bytes(i, 0, memory.back()); !read) return read;
  }
  if (const auto read = snapshot.read(requests); !read) return read;
  const auto piece = [](std::span<const std::byte>) -> bitsnap::Result<void> { return {}; };
  if (const auto streamed = snapshot.stream_all(piece); !streamed) return streamed;
  if (const auto damage = snapshot.verify(); !damage) return tl::unexpected(damage.error());
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : "missing.bsnap";
  const auto snapshot = bitsnap::Snapshot::open(path);
  if (!snapshot) {
    std::printf("%s\n", snapshot.error().message().c_str());
    return argc == 1 && snapshot.error().kind() == bitsnap::ErrorKind::not_found ? 0 : 1;
  }
  return read_all(**snapshot) ? 0 : 1;
}
