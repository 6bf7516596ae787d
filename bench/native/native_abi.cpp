// The C interface that bench/native_library.py loads: coders by name, sessions, and the last error as text.
//
// Not thread-safe; a session uses threads of its own. Pointers come from numpy arrays of the given sizes.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include <bitsnap/cpu.hpp>

#include "bench/native/native_session.hpp"

namespace {

using bitsnap::ByteSpan;
using bitsnap::ConstByteSpan;
using bitsnap::bench::Session;

std::string& last_text() {
  static std::string text;
  return text;
}

ConstByteSpan bytes(const void* data, std::uint64_t size) noexcept {
  return {static_cast<const std::byte*>(data), data == nullptr ? 0 : static_cast<std::size_t>(size)};
}

ByteSpan writable(void* data, std::uint64_t size) noexcept {
  return {static_cast<std::byte*>(data), static_cast<std::size_t>(size)};
}

const bitsnap::Coder* coder_named(const std::string& name) {
  const auto coders = bitsnap::bench::all_coders();
  const auto found = std::ranges::find_if(coders, [&](const auto& coder) { return coder->name() == name; });
  return found == coders.end() ? nullptr : found->get();
}

}  // namespace

extern "C" {

// A line each: name, a tab, "base" or nothing.
const char* bitsnap_bench_coders() {
  last_text().clear();
  for (const auto& coder : bitsnap::bench::all_coders()) {
    last_text() += coder->name() + "\t" + (coder->uses_base() ? "base" : "") + "\n";
  }
  return last_text().c_str();
}

const char* bitsnap_bench_cpu_level() { return bitsnap::cpu_level_name(bitsnap::cpu_level()).data(); }

const char* bitsnap_bench_error() { return last_text().c_str(); }

int bitsnap_bench_accepts(const char* coder, const char* dtype) {
  const auto* found = coder_named(coder);
  return found != nullptr && found->accepts(bitsnap::dtype_from_name(dtype)) ? 1 : 0;
}

// nullptr for an unknown name.
void* bitsnap_bench_open(const char* coder, const char* dtype, const char* role, unsigned threads) {
  const auto* found = coder_named(coder);
  if (found == nullptr) return nullptr;
  return new Session(*found, bitsnap::dtype_from_name(dtype),
                     bitsnap::role_from_name(role).value_or(bitsnap::Role::other), threads);
}

void bitsnap_bench_close(void* session) { delete static_cast<Session*>(session); }

std::uint64_t bitsnap_bench_room(void* session, std::uint64_t size) {
  return static_cast<Session*>(session)->room(static_cast<std::size_t>(size));
}

// -1 for an error.
std::int64_t bitsnap_bench_encode(void* session, const void* data, const void* base, std::uint64_t size, void* arena,
                                  std::uint64_t arena_size) {
  const auto encoded =
      static_cast<Session*>(session)->encode(bytes(data, size), bytes(base, size), writable(arena, arena_size));
  if (encoded) return static_cast<std::int64_t>(*encoded);
  last_text() = encoded.error().message();
  return -1;
}

int bitsnap_bench_decode(void* session, const void* base, void* out, std::uint64_t size, const void* arena,
                         std::uint64_t arena_size) {
  const auto decoded =
      static_cast<Session*>(session)->decode(bytes(base, size), bytes(arena, arena_size), writable(out, size));
  if (decoded) return 0;
  last_text() = decoded.error().message();
  return -1;
}

}  // extern "C"
