// A stream coded in every way that there is, chunk by chunk, and what the planner would have chosen: for hindsight.
//
// Used by one thread. The bytes of the stream, its base and its peer are the caller's and outlive the replay.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/tensor.hpp>

#include "base/bytes.hpp"
#include "base/scratch.hpp"
#include "codec/encoder.hpp"
#include "plan/goal.hpp"

namespace bitsnap::bench {

// A codec with what it is given.
struct Way {
  const codec::Encoder* encoder;
  std::optional<codec::InputKind> input;
};

// All of them, made once; raw is the first. "byte_group", "byte_group+base", "rounded_from+peer".
[[nodiscard]] const std::vector<Way>& all_ways();
[[nodiscard]] std::string way_name(const Way& way);

struct ReplayedStream {
  DType dtype = DType::opaque;
  Role role = Role::other;
  ConstByteSpan data;
  ConstByteSpan base;  // as long, or empty: none
  ConstByteSpan peer;  // F32, as many elements, or empty: none
  std::size_t row_elements = 0;
};

class StreamReplay {
 public:
  explicit StreamReplay(const ReplayedStream& stream) : stream_(stream) {}

  [[nodiscard]] std::size_t chunks() const noexcept;
  // Payload bytes of each chunk in each way, way by way; -1 where it cannot express the chunk or is larger than raw.
  Result<void> encode(std::int64_t* payloads);
  // Modelled picoseconds of the same; -1 for those.
  void model(const plan::CostModel& model, const std::int64_t* payloads, std::int64_t* picoseconds) const;

  struct Times {
    std::int64_t hash_ns = 0;
    std::int64_t choose_ns = 0;
    std::int64_t encode_ns = 0;
  };
  // The way of each chunk that saving would take: unchanged and constant chunks as such, unless a codec is forced, and
  // the next in rank where a chunk cannot be expressed.
  Result<Times> choose(const plan::Goal& goal, std::int64_t* chosen);

 private:
  struct Chunk {
    ConstByteSpan data;
    codec::Input base;
    codec::Input peer;
    codec::RowPlace rows;
  };
  [[nodiscard]] Chunk chunk(std::size_t number) const noexcept;
  Result<std::optional<std::size_t>> try_way(const Chunk& chunk, const Way& way,
                                             const codec::Analysis* analysis = nullptr);

  ReplayedStream stream_;
  Scratch scratch_;
};

}  // namespace bitsnap::bench
