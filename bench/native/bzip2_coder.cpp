// bzip2 -9: slow, with a good ratio on weights, and what LMC's paper compares with. The command does without it,
// because distributions have no static library of it that a shared object could contain.
#include <bzlib.h>

#include <cstddef>

#include "bench/native/native_coders.hpp"
#include "cli/analysis/baseline_coders.hpp"

namespace bitsnap::bench {
namespace {

constexpr int kBzip2Level = 9;

// libbz2 only reads its input, but its interface is older than const.
char* chars(cli::ConstBytes bytes) noexcept { return const_cast<char*>(reinterpret_cast<const char*>(bytes.data())); }
char* chars(cli::Bytes bytes) noexcept { return reinterpret_cast<char*>(bytes.data()); }

std::size_t compress(cli::ConstBytes in, cli::Bytes out) {
  auto size = static_cast<unsigned>(out.size());
  const auto in_size = static_cast<unsigned>(in.size());
  return BZ2_bzBuffToBuffCompress(chars(out), &size, chars(in), in_size, kBzip2Level, 0, 0) == BZ_OK ? size : 0;
}

bool decompress(cli::ConstBytes in, cli::Bytes out) {
  auto size = static_cast<unsigned>(out.size());
  const auto in_size = static_cast<unsigned>(in.size());
  return BZ2_bzBuffToBuffDecompress(chars(out), &size, chars(in), in_size, 0, 0) == BZ_OK && size == out.size();
}

// As the manual of bzip2 states.
std::size_t size_bound(std::size_t bytes) noexcept { return bytes + bytes / 100 + 600; }

}  // namespace

CoderPointer make_bzip2_coder() {
  return std::make_shared<cli::ByteCoder>("bzip2-9", size_bound,
                                          [] { return cli::ByteFunctions{compress, decompress}; });
}

}  // namespace bitsnap::bench
