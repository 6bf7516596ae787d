#include "interop/pickle/pickle_testing.hpp"

#include <cstdint>
#include <string_view>

namespace bitsnap::interop {
namespace {

// A tensor of one element in storage "0".
constexpr std::string_view kTensor =
    "ctorch._utils\n_rebuild_tensor_v2\n((U\x07storagectorch\nFloatStorage\nU\x01"
    "0U\x03"
    "cpuK\x01tQK\x01K\x01\x85K\x01\x85NNtR";

}  // namespace

std::vector<std::string> hostile_pickles(std::size_t bytes) {
  using std::string_view_literals::operator""sv;
  const auto flood = [bytes](std::string_view begin, std::string_view opcodes, std::string_view end) {
    std::string pickle(begin);
    while (pickle.size() < bytes) pickle += opcodes;
    return pickle.append(end).append(".");
  };
  std::vector<std::string> pickles{
      flood("", ")", ""),
      flood("", "]", ""),
      flood("", "(", "N"),
      flood("", "U\0"sv, ""),
      flood("N", "\x85", ""),
      flood("N", "2\x86", ""),
      flood("N", "\x94", ""),
      flood("N", "p99999999999\n", ""),
      flood("N", "r\xff\xff\xff\xff"sv, ""),
      flood("", "NQ", ""),
      flood("", "c\n\n", ""),
      flood("", "I1\n", ""),
      flood("", "}U\x05layer", "N"),
      flood("I", "1", "\n"),
      flood("]q\x01", "h\x01"sv, "a"),
      flood("](", "K\x01", "e"),
      flood("}(", "K\x01K\x02", "u"),
      flood("", "cm\nC\n)\x81}b", ""),
      flood(std::string("](").append(kTensor), "2", "e"),
      flood("](", kTensor, "e"),
  };
  for (const std::uint32_t stated : {static_cast<std::uint32_t>(bytes), UINT32_MAX}) {
    std::string text = "X";
    for (int i = 0; i < 4; ++i) text.push_back(static_cast<char>(stated >> (8 * i)));
    pickles.push_back(text + std::string(bytes, 'x') + ".");
  }
  return pickles;
}

}  // namespace bitsnap::interop
