// Which codec a chunk gets, and why. Writing side only; the rules are fixed: what serves the goal best, least bytes or
// least modelled time, among the candidates that policy, dtype and base allow.
//
// A StreamPlanner serves one stream. plan() may run on several threads at once for different chunks; note() is called
// in the order of chunks, so that the reason is the same for any number of threads.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/tensor.hpp>
#include <bitsnap/writer.hpp>

#include "base/scratch.hpp"
#include "codec/encoder.hpp"
#include "plan/choice_tally.hpp"
#include "plan/goal.hpp"

namespace bitsnap::plan {

struct Candidate {
  const codec::Encoder* encoder = nullptr;
  std::optional<codec::InputKind> input;
  bool is_general = false;  // knows nothing of floats
  bool takes_step = false;  // its inputs are all those of the step

  friend bool operator==(const Candidate&, const Candidate&) = default;
};

// What may help to code a chunk. A span is empty where there is none.
struct Surroundings {
  ConstByteSpan base;                       // the same elements in an earlier snapshot
  ConstByteSpan peer;                       // the elements beside these in the stream's peer, in its dtype
  std::span<const codec::Input> step = {};  // what tells the optimizer's step, the base first
  codec::RowPlace rows;
  std::optional<codec::Lattice> lattice = {};           // what elements were made multiples of, beside the peer
  std::span<const codec::ClusterExtent> clusters = {};  // what they were quantized by
  std::uint32_t base_depth = 0;                         // chunks of other snapshots that the base's own bytes need
};

// What a chunk takes in a way in which it was coded already.
struct Coded {
  Candidate candidate;
  std::uint64_t payload_bytes = 0;
};

inline constexpr std::uint64_t kNoEstimate = std::numeric_limits<std::uint64_t>::max();

// What one chunk is to be coded with.
struct Choice {
  Candidate candidate;                        // encoder nullptr: raw
  std::vector<std::uint64_t> estimates = {};  // per candidate of the stream, bytes; kNoEstimate where it cannot express
                                              // the chunk, or was not asked
  std::vector<std::uint64_t> times = {};      // the same, modelled picoseconds; empty where the goal counts none
  std::uint64_t raw_ps = 0;                   // of raw
  // All that were found to be better than raw, the best first: `candidate`, and those to try where a sample deceived
  // and it cannot express the whole chunk.
  std::vector<Candidate> ranked = {};
  std::shared_ptr<const codec::Analysis> analysis = nullptr;  // for encoding with `candidate`; nullptr: none
  // What it was made for.
  std::uint64_t raw_bytes = 0;
  std::uint64_t expected_bytes = kNoEstimate;  // of `candidate`
  std::vector<std::size_t> contenders = {};    // of the stream's candidates those that had their inputs
  std::uint32_t base_depth = 0;
  bool only_for_floats = false;  // general codecs were not looked at
  bool is_followed = false;      // another chunk made it
  std::size_t origin = 0;        // the stream of the chunk that made it, as far as whoever shares it knows
};

// Whether there are codecs that take a peer.
[[nodiscard]] bool codes_with_peers(Policy policy, const Goal& goal = {}) noexcept;
// Whether there are codecs that take what tells the optimizer's step.
[[nodiscard]] bool codes_with_steps(Policy policy, const Goal& goal = {}) noexcept;

class StreamPlanner {
 public:
  // `is_pool`: the stream is the pool of small tensors. `peer`: the dtype of the stream's peer, if it has one. `step`:
  // what tells the optimizer's step, without its bytes; empty where nothing does. `quantization`: what
  // became of the stream before; after update_step the peer is what its elements are multiples of, and it is the last
  // input of the step as well.
  StreamPlanner(Policy policy, DType dtype, Role role, bool is_pool, bool has_base, std::optional<DType> peer = {},
                std::span<const codec::Input> step = {}, const Goal& goal = {},
                Quantization quantization = Quantization::exact);

  [[nodiscard]] std::span<const Candidate> candidates() const noexcept { return candidates_; }
  // Whether anything could make use of the base's bytes.
  [[nodiscard]] bool wants_base() const noexcept { return detects_trivial_ || codes_with_base(); }
  // Whether there is a candidate that codes against the base.
  [[nodiscard]] bool codes_with_base() const noexcept { return codes_with(codec::InputKind::base); }
  [[nodiscard]] bool codes_with_peer() const noexcept { return codes_with(codec::InputKind::peer); }
  // Whether there is one that codes against what tells the optimizer's step.
  [[nodiscard]] bool codes_with_step() const noexcept;
  // Whether chunks that are constant, or unchanged since the base, may be stored as just that.
  [[nodiscard]] bool detects_trivial() const noexcept { return detects_trivial_; }

  // Deterministic: samples depend on element indexes and where the chunk stands in its rows. `known`: what needs no
  // estimate.
  [[nodiscard]] Result<Choice> choose(ConstByteSpan data, const Surroundings& around, Scratch& scratch,
                                      const std::optional<Coded>& known = {}) const;

  // Whether chunks like this one may go by its choice.
  [[nodiscard]] static bool is_precedent(const Choice& choice) noexcept {
    return choice.expected_bytes != kNoEstimate && !choice.is_followed;
  }
  // What a chunk like this one chose, for this one: by a stream with the same candidates. nullopt where another could
  // serve this one better, by a glance at it.
  [[nodiscard]] std::optional<Choice> follow(const Choice& precedent, ConstByteSpan data,
                                             const Surroundings& around) const;
  // Whether a chunk that followed takes about what was to be expected of it: what takes more or less is not alike.
  [[nodiscard]] static bool is_as_expected(const Choice& followed, std::uint64_t payload_bytes) noexcept;

  // Takes down what became of a chunk: the choice and the codec that was used in the end ("same", "raw", ...). `like`:
  // the other tensor whose chunk it followed.
  void note(const Choice& choice, std::string_view codec, std::uint64_t raw_bytes, std::string_view like = {}) {
    tally_.note(choice, codec, raw_bytes, like);
  }

  // One line for people: "float_split 41/43, constant 2/43; balanced: float_split 1.9 MB in 1.2 ms, raw 2.8 MB in 1.6
  // ms".
  [[nodiscard]] std::string reason() const;

 private:
  void add_candidate(const codec::Encoder* encoder, std::optional<codec::InputKind> input, bool is_general);
  [[nodiscard]] bool is_only_for_floats(ConstByteSpan data, ConstByteSpan base) const noexcept;
  // What came of asking a candidate.
  struct Rank {
    std::uint64_t score = 0;
    std::uint64_t bytes = 0;
    std::size_t candidate = 0;
    std::shared_ptr<const codec::Analysis> analysis;
  };
  void put_best_first(std::vector<Rank>& ranks) const;
  [[nodiscard]] std::vector<std::size_t> contenders(const Surroundings& around) const;
  // For the inputs of a step: more than the base alone.
  void add_step_candidate(const codec::Encoder* encoder, std::span<const codec::Input> step);
  [[nodiscard]] bool codes_with(codec::InputKind kind) const noexcept;
  // What the goal goes by, the less the better: bytes or picoseconds.
  [[nodiscard]] std::uint64_t score(const Candidate& candidate, std::uint64_t raw_bytes, std::uint64_t payload_bytes,
                                    const Surroundings& around) const noexcept;
  [[nodiscard]] bool is_worth_trying_unseen(const Candidate& candidate, std::uint64_t raw_bytes,
                                            std::uint64_t raw_score) const noexcept;

  DType dtype_;
  Quantization quantization_;
  std::optional<DType> peer_;
  Goal goal_;
  bool detects_trivial_ = false;
  std::vector<Candidate> candidates_;
  ChoiceTally tally_;
};

}  // namespace bitsnap::plan
