// The C interface of a stream's replay, for bench/plan_replay.py. As native_abi.cpp: not thread-safe, and pointers that
// Python hands over are numpy's and of the sizes said.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bench/native/stream_replay.hpp"

namespace {

using bitsnap::ConstByteSpan;
using bitsnap::bench::StreamReplay;

std::string& last_text() {
  static std::string text;
  return text;
}

ConstByteSpan bytes(const void* data, std::uint64_t size) noexcept {
  return {static_cast<const std::byte*>(data), data == nullptr ? 0 : static_cast<std::size_t>(size)};
}

bitsnap::Result<bitsnap::plan::Goal> goal_of(const char* objective, std::uint64_t store, const char* codec) {
  return bitsnap::plan::make_goal(bitsnap::objective_from_name(objective).value_or(bitsnap::Objective::ratio), store,
                                  codec);
}

std::int64_t failed(const bitsnap::Error& error) {
  last_text() = error.message();
  return -1;
}

}  // namespace

extern "C" {

// A line each.
const char* bitsnap_replay_ways() {
  last_text().clear();
  for (const auto& way : bitsnap::bench::all_ways()) last_text() += bitsnap::bench::way_name(way) + "\n";
  return last_text().c_str();
}

const char* bitsnap_replay_error() { return last_text().c_str(); }

// Choices that chunks after it go by: of the streams of one state.
void* bitsnap_replay_new_precedents() { return new bitsnap::bench::Precedents; }
void bitsnap_replay_delete_precedents(void* precedents) { delete static_cast<bitsnap::bench::Precedents*>(precedents); }

// `base` and `peer` may be nullptr, and so may what tells the optimizer's step: the first moment of the base, that of
// the state, and its second moment, all F32. Streams of one `like` may go by one choice.
void* bitsnap_replay_open(const char* dtype, const char* role, const void* data, const void* base, const void* peer,
                          std::uint64_t size, std::uint64_t row_elements, const void* base_moment, const void* moment,
                          const void* square, const char* like) {
  using bitsnap::codec::InputKind;
  std::vector<bitsnap::codec::Input> step;
  if (base_moment != nullptr) step.push_back({InputKind::base, bitsnap::DType::f32, bytes(base_moment, size)});
  for (const void* const peer_moment : {moment, square}) {
    if (peer_moment != nullptr) step.push_back({InputKind::peer, bitsnap::DType::f32, bytes(peer_moment, size)});
  }
  const bitsnap::DType own = bitsnap::dtype_from_name(dtype);
  const std::uint64_t peer_bytes = size / bitsnap::element_size(own) * 4;
  return new StreamReplay({.dtype = own,
                           .role = bitsnap::role_from_name(role).value_or(bitsnap::Role::other),
                           .data = bytes(data, size),
                           .base = bytes(base, size),
                           .peer = bytes(peer, peer_bytes),
                           .row_elements = static_cast<std::size_t>(row_elements),
                           .step = std::move(step),
                           .like = like});
}

void bitsnap_replay_close(void* replay) { delete static_cast<StreamReplay*>(replay); }

std::uint64_t bitsnap_replay_chunks(void* replay) { return static_cast<StreamReplay*>(replay)->chunks(); }

// -1 for an error, as all of these.
std::int64_t bitsnap_replay_encode(void* replay, std::int64_t* payloads) {
  const auto done = static_cast<StreamReplay*>(replay)->encode(payloads);
  return done ? 0 : failed(done.error());
}

std::int64_t bitsnap_replay_model(void* replay, const char* objective, std::uint64_t store,
                                  const std::int64_t* payloads, std::int64_t* picoseconds) {
  const auto goal = goal_of(objective, store, "");
  if (!goal) return failed(goal.error());
  static_cast<StreamReplay*>(replay)->model(goal->model, payloads, picoseconds);
  return 0;
}

// `times`: of hashing, of choosing and of encoding, in nanoseconds, are added to.
std::int64_t bitsnap_replay_choose(void* replay, void* precedents, const char* objective, std::uint64_t store,
                                   const char* codec, std::int64_t* chosen, std::int64_t* times) {
  const auto goal = goal_of(objective, store, codec);
  if (!goal) return failed(goal.error());
  const auto done =
      static_cast<StreamReplay*>(replay)->choose(*goal, *static_cast<bitsnap::bench::Precedents*>(precedents), chosen);
  if (!done) return failed(done.error());
  times[0] += done->hash_ns;
  times[1] += done->choose_ns;
  times[2] += done->encode_ns;
  return 0;
}

}  // extern "C"
