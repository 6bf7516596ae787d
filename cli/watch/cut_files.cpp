#include "cli/watch/cut_files.hpp"

#include <algorithm>
#include <fstream>
#include <string_view>

#include <fmt/format.h>

#include <bitsnap/error.hpp>
#include <bitsnap/safetensors.hpp>

namespace bitsnap::cli {

namespace {

using std::string_view_literals::operator""sv;

constexpr std::string_view kZipStart = "PK\x03\x04"sv;
constexpr std::string_view kZipEnd = "PK\x05\x06"sv;
constexpr std::size_t kZipEndBytes = 22;  // of an end record without its comment, whose length is in the last two
constexpr std::size_t kMostCommentBytes = 0xffff;

std::string read_piece(std::ifstream& in, std::uint64_t offset, std::uint64_t bytes) {
  std::string piece(bytes, '\0');
  in.seekg(static_cast<std::streamoff>(offset));
  in.read(piece.data(), static_cast<std::streamsize>(bytes));
  piece.resize(static_cast<std::size_t>(std::max<std::streamsize>(in.gcount(), 0)));
  return piece;
}

// Whether an end record with its comment ends where the tail ends.
bool has_zip_end(std::string_view tail) {
  for (std::size_t at = tail.rfind(kZipEnd); at != std::string_view::npos; at = tail.rfind(kZipEnd, at - 1)) {
    const std::size_t bytes = tail.size() - at;
    const auto byte = [&](std::size_t index) { return std::size_t{static_cast<unsigned char>(tail[at + index])}; };
    if (bytes >= kZipEndBytes && byte(20) + (byte(21) << 8) == bytes - kZipEndBytes) return true;
    if (at == 0) break;
  }
  return false;
}

bool is_cut_zip(const std::string& path, std::uint64_t size) {
  std::ifstream in(path, std::ios::binary);
  if (size < kZipStart.size() || read_piece(in, 0, kZipStart.size()) != kZipStart) return false;
  const auto tail_bytes = std::min<std::uint64_t>(size, kZipEndBytes + kMostCommentBytes);
  const std::string tail = read_piece(in, size - tail_bytes, tail_bytes);
  return tail.size() == tail_bytes && !has_zip_end(tail);
}

bool is_cut_safetensors(const std::string& path) {
  const auto state = open_safetensors(path);
  return !state && state.error().kind() == ErrorKind::truncated;
}

}  // namespace

std::string find_cut_file(const std::string& path, const std::vector<RawEntry>& tree) {
  if (tree.front().facts.kind == NodeKind::file && tree.front().facts.size_bytes == 0) return "it is empty";
  for (const RawEntry& entry : tree) {
    if (entry.facts.kind != NodeKind::file) continue;
    const std::string file = raw_path(path, entry);
    // A .distcp file holds many archives; .metadata says that it is complete.
    const bool is_cut = (!file.ends_with(".distcp") && is_cut_zip(file, entry.facts.size_bytes)) ||
                        (file.ends_with(".safetensors") && is_cut_safetensors(file));
    if (is_cut) return fmt::format("{} is cut off", entry.path.empty() ? "it" : entry.path);
  }
  return {};
}

}  // namespace bitsnap::cli
