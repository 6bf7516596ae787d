// A stream coded in every way that there is, chunk by chunk, and what the planner would have chosen: for hindsight.
//
// Used by one thread. The bytes of the stream, its base and its peer are the caller's and outlive the replay.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/tensor.hpp>

#include "base/bytes.hpp"
#include "base/scratch.hpp"
#include "codec/encoder.hpp"
#include "plan/planner.hpp"

namespace bitsnap::bench {

// A codec with what it is given.
struct Way {
  const codec::Encoder* encoder;
  std::optional<codec::InputKind> input;
  bool takes_step = false;  // all that tells the optimizer's step
};

// All of them, made once; raw is the first. "byte_group", "byte_group+base", "rounded_from+peer",
// "optimizer_step+step".
[[nodiscard]] const std::vector<Way>& all_ways();
[[nodiscard]] std::string way_name(const Way& way);

struct ReplayedStream {
  DType dtype = DType::opaque;
  Role role = Role::other;
  ConstByteSpan data;
  ConstByteSpan base;  // as long, or empty: none
  ConstByteSpan peer;  // F32, as many elements, or empty: none
  std::size_t row_elements = 0;
  std::vector<codec::Input> step = {};  // with the base before it, what tells the optimizer's step; empty: nothing does
  std::string like = {};                // the same for streams whose chunks may go by one choice
};

// Choices that chunks of several streams go by. Counts its chunks as a save does.
struct Precedents {
  struct Group {
    std::size_t members = 0;
    std::optional<plan::Choice> choice;
  };
  std::map<std::string, Group> groups;

  [[nodiscard]] Group& next_of(const std::string& like);
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
  Result<Times> choose(const plan::Goal& goal, Precedents& precedents, std::int64_t* chosen);

 private:
  struct Chunk {
    ConstByteSpan data;
    codec::Input base;
    codec::Input peer;
    std::vector<codec::Input> step;
    codec::RowPlace rows;
  };
  [[nodiscard]] Chunk chunk(std::size_t number) const;
  // Unchanged, constant, and a rounding that leaves nothing. -1: the chunk is none of these.
  Result<std::int64_t> trivial_way(const Chunk& chunk, const plan::StreamPlanner& planner);
  // Encodes in the first of the ways that makes it less than raw; its number, and the payload's size.
  struct Coded {
    std::int64_t way = 0;
    std::size_t bytes = 0;
  };
  Result<Coded> encode_as_chosen(const Chunk& chunk, const plan::Choice& choice);
  Result<std::optional<std::size_t>> try_way(const Chunk& chunk, const Way& way,
                                             const codec::Analysis* analysis = nullptr);

  ReplayedStream stream_;
  Scratch scratch_;
};

}  // namespace bitsnap::bench
