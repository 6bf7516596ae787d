// A program of somebody else: sees the installed headers and library only. Writes a snapshot, reads it back, and prints
// the version that it found.
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <bitsnap/bitsnap.hpp>

namespace {

int complain(const bitsnap::Error& error) {
  std::fprintf(stderr, "%s\n", error.message().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string path = argv[1];
  const std::vector<float> values(1000, 0.5F);

  bitsnap::State state;
  bitsnap::TensorSource& source = state.tensors.emplace_back();
  source.info.name = "layer.weight";
  source.info.dtype = bitsnap::DType::f32;
  source.info.dtype_name = "F32";
  source.info.shape = {10, 100};
  source.info.size_bytes = values.size() * sizeof(float);
  source.data = reinterpret_cast<const std::byte*>(values.data());
  bitsnap::SaveOptions options;
  options.overwrite = true;
  if (const auto saved = bitsnap::save_snapshot(path, state, options); !saved) return complain(saved.error());

  const auto snapshot = bitsnap::Snapshot::open(path);
  if (!snapshot) return complain(snapshot.error());
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  if (const auto read = (*snapshot)->read_bytes(0, 0, bytes); !read) return complain(read.error());
  if (std::memcmp(bytes.data(), values.data(), bytes.size()) != 0) return 1;

  const std::string version(bitsnap::version());
  const std::string level(bitsnap::cpu_level_name(bitsnap::cpu_level()));
  std::printf("bitsnap %s, %s\n", version.c_str(), level.c_str());
  return 0;
}
