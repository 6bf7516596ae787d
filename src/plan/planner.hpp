// Chooses the codec of each chunk of a stream, and explains the choice. Used only for writing.
//
// candidates.hpp says which codecs compete. Each of them estimates its payload from a sample of the chunk, and the
// planner takes the one that serves the objective best: the fewest bytes, or the least modelled time (cost_model.hpp).
// The same chunk and inputs give the same choice on every machine.
//
// A StreamPlanner serves one stream. choose() and follow() may run on several threads at once for different chunks.
// note() is called by one thread in the order of the chunks, so that reason() is the same for any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/error.hpp>

#include "base/scratch.hpp"
#include "plan/candidates.hpp"
#include "plan/choice_tally.hpp"
#include "plan/planner_settings.hpp"

namespace bitsnap::plan {

inline constexpr std::uint64_t kNoEstimate = std::numeric_limits<std::uint64_t>::max();

// A candidate that the chunk was already encoded with, which therefore needs no estimate.
struct KnownSize {
  Candidate candidate;
  std::uint64_t payload_bytes = 0;
};

// What to encode one chunk with.
struct Choice {
  Candidate candidate;  // encoder nullptr: store the chunk raw
  // All candidates that were estimated and beat raw, the best first; `candidate` is the first. The next ones are tried
  // if the first cannot express the chunk or does not shrink it, because a sample was misleading. A choice without
  // estimates has one entry.
  std::vector<Candidate> ranked = {};
  std::shared_ptr<const codec::Analysis> analysis = nullptr;  // of `candidate`; may be nullptr
  std::uint64_t expected_bytes = kNoEstimate;                 // the estimate of `candidate`

  // For reason(), indexed as candidates(). `estimates`: payload bytes. `times`: modelled picoseconds; empty if the
  // objective is ratio. kNoEstimate: the candidate was skipped or cannot express the chunk.
  std::vector<std::uint64_t> estimates = {};
  std::vector<std::uint64_t> times = {};
  std::uint64_t raw_ps = 0;  // modelled time of the raw chunk

  // For follow(): what the choice was based on.
  std::uint64_t raw_bytes = 0;
  std::vector<std::size_t> contenders = {};  // the candidates of the stream whose inputs existed
  std::uint32_t base_depth = 0;
  // The mantissas look random, or elements were rounded: general codecs were estimated only if nothing else beat raw.
  bool skips_general_codecs = false;
  // Of the elements that a quick look examines, the bytes that are the same as in the base; nullopt unless only bytes
  // count and the chunk was sampled.
  std::optional<std::uint32_t> same_bytes = {};
  bool is_followed = false;  // copied from another chunk's choice
  std::size_t origin = 0;    // the stream of that other chunk; set by the caller
};

class StreamPlanner {
 public:
  StreamPlanner(const PlannerSettings& settings, const StreamTraits& stream);

  [[nodiscard]] std::span<const Candidate> candidates() const noexcept { return candidates_; }
  // Whether the base's bytes could be of any use.
  [[nodiscard]] bool wants_base() const noexcept { return detects_trivial_ || codes_with_base(); }
  // Whether a candidate codes against the base, the peer, or the inputs of an optimizer step.
  [[nodiscard]] bool codes_with_base() const noexcept;
  [[nodiscard]] bool codes_with_peer() const noexcept;
  [[nodiscard]] bool codes_with_step() const noexcept;
  // Whether chunks that are constant, or equal to the base, are stored as such without choose().
  [[nodiscard]] bool detects_trivial() const noexcept { return detects_trivial_; }

  [[nodiscard]] Result<Choice> choose(ConstByteSpan data, const Surroundings& around, Scratch& scratch,
                                      const std::optional<KnownSize>& known = {}) const;

  // Whether similar chunks may copy this choice.
  [[nodiscard]] static bool is_precedent(const Choice& choice) noexcept {
    return choice.expected_bytes != kNoEstimate && !choice.is_followed;
  }
  // Copies the choice of a similar chunk, made by a planner with the same candidates. Precondition: is_precedent().
  // Returns nullopt if a quick look shows that this chunk differs, so that it needs a choice of its own.
  [[nodiscard]] std::optional<Choice> follow(const Choice& precedent, ConstByteSpan data,
                                             const Surroundings& around) const;
  // Whether a followed choice gave a payload that is tiny, or within 1/16 of the expected size plus 1/1024 of the
  // chunk. If not, the chunks are not similar.
  [[nodiscard]] static bool is_as_expected(const Choice& followed, std::uint64_t payload_bytes) noexcept;

  // Whether a chunk's own choice gave a payload so much larger than expected that another candidate may be smaller, if
  // only bytes count. choose() with the known size decides anew.
  [[nodiscard]] bool is_misjudged(const Choice& choice, std::uint64_t payload_bytes) const noexcept;

  // Adds a chunk to the reason: its choice, and the codec that it was stored with ("same", "raw", ...). `like` names
  // the tensor whose choice it followed.
  void note(const Choice& choice, std::string_view codec, std::uint64_t raw_bytes, std::string_view like = {}) {
    tally_.note(choice, codec, raw_bytes, like);
  }

  // One line for people, such as
  // "float_split 41/43, constant 2/43; balanced: float_split 1.9 MB in 1.2 ms, raw 2.8 MB in 1.6 ms".
  [[nodiscard]] std::string reason() const;

 private:
  struct Ranked {
    std::uint64_t score = 0;
    std::uint64_t payload_bytes = 0;
    std::size_t candidate = 0;
    std::shared_ptr<const codec::Analysis> analysis;
  };

  [[nodiscard]] std::vector<std::size_t> contenders_of(const Surroundings& around) const;
  [[nodiscard]] bool general_codecs_are_pointless(ConstByteSpan data, ConstByteSpan base) const noexcept;
  // Of a candidate for a chunk that skips general codecs.
  [[nodiscard]] bool is_pointless_for_floats(const Candidate& candidate) const noexcept;
  [[nodiscard]] bool needs_no_estimate(const Choice& choice) const noexcept;
  [[nodiscard]] Result<std::vector<Ranked>> estimate_candidate_sizes(ConstByteSpan data, const Surroundings& around,
                                                                     const std::optional<KnownSize>& known,
                                                                     Scratch& scratch, Choice& choice) const;
  [[nodiscard]] Result<std::optional<codec::Estimate>> estimate(const Candidate& candidate, ConstByteSpan data,
                                                                const Surroundings& around, std::size_t elements,
                                                                Scratch& scratch) const;
  [[nodiscard]] Result<void> measure_close_contenders(ConstByteSpan data, const Surroundings& around,
                                                      const std::optional<KnownSize>& known, Scratch& scratch,
                                                      std::vector<Ranked>& ranking, Choice& choice) const;
  [[nodiscard]] codec::EncodeContext context_of(const Candidate& candidate, ConstByteSpan data,
                                                const Surroundings& around) const noexcept;
  void put_best_first(std::vector<Ranked>& ranking) const;
  // Bytes or picoseconds, depending on the objective. The least is the best.
  [[nodiscard]] std::uint64_t score(const Candidate& candidate, std::uint64_t raw_bytes, std::uint64_t payload_bytes,
                                    std::uint32_t base_depth) const noexcept;

  PlannerSettings settings_;
  DType dtype_;
  Quantization quantization_;
  bool detects_trivial_;
  std::vector<Candidate> candidates_;
  ChoiceTally tally_;
};

}  // namespace bitsnap::plan
