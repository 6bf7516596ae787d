// Measures engines on a sample. A first pass on one thread finds which chunks each engine takes, how small it makes
// them and about how long it needs; it also warms all memory up. It counts as a measurement only for engines so slow
// that they get no other.
#include "cli/bench_runner.hpp"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "cli/console.hpp"
#include "cli/file_paths.hpp"

namespace bitsnap::cli {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// One chunk that an engine takes.
struct Slot {
  std::size_t chunk = 0;
  std::size_t arena_offset = 0;
  std::size_t arena_size = 0;
  std::size_t encoded_size = 0;
};

struct Times {
  std::vector<double> encode;
  std::vector<double> decode;
};

struct Entry {
  const BenchEngine* engine = nullptr;
  std::vector<Slot> slots;
  std::uint64_t covered_bytes = 0;
  std::uint64_t encoded_bytes = 0;  // of the whole sample, as BenchResult::ratio counts
  double first_encode = 0;          // seconds of the first pass
  double first_decode = 0;
  unsigned rounds = 0;       // that it is going to run
  std::vector<Times> times;  // by index of BenchLimits::threads

  [[nodiscard]] double first_pass() const noexcept { return first_encode + first_decode; }
};

// Slow engines are asked between chunks, not only between rounds.
bool going(const Result<void>& outcome) noexcept { return outcome.has_value() && interrupt_signal() == 0; }

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

class Runner {
 public:
  Runner(const BenchSample& sample, const BenchEngines& engines, const BenchLimits& limits,
         const BenchProgress& progress)
      : sample_(sample),
        limits_(limits),
        progress_(progress),
        decoded_(std::make_unique<std::byte[]>(sample.bytes)),
        smallest_(sample.chunks.size()) {
    std::size_t at = 0;
    for (std::size_t i = 0; i < sample.chunks.size(); ++i) {
      smallest_[i] = sample.chunks[i].data.size();
      decoded_offsets_.push_back(at);
      at += sample.chunks[i].data.size();
    }
    for (const auto& engine : engines) {
      entries_.emplace_back().engine = engine.get();
    }
  }

  Result<BenchOutcome> run(std::size_t codec_engines) {
    if (auto reserved = reserve_arena(); !reserved) {
      return tl::unexpected(std::move(reserved).error());
    }
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (auto done = first_pass(entries_[i], i < codec_engines); !done) {
        return tl::unexpected(std::move(done).error());
      }
    }
    std::erase_if(entries_, [](const Entry& entry) { return entry.slots.empty(); });
    share_out_rounds();
    for (unsigned round = 0; round < limits_.rounds; ++round) {
      for (Entry& entry : entries_) {
        if (round < entry.rounds) {
          if (auto done = measure(entry); !done) {
            return tl::unexpected(std::move(done).error());
          }
        }
      }
    }
    return outcome();
  }

 private:
  // Room for what the engine of the largest bounds makes of all chunks, touched before anything is timed.
  Result<void> reserve_arena() {
    std::size_t largest = 0;
    for (Entry& entry : entries_) {
      std::size_t at = 0;
      for (std::size_t i = 0; i < sample_.chunks.size(); ++i) {
        if (!entry.engine->accepts(sample_.chunks[i])) {
          continue;
        }
        auto bound = entry.engine->max_encoded_size(sample_.chunks[i]);
        if (!bound) {
          return tl::unexpected(std::move(bound).error());
        }
        entry.slots.push_back({i, at, *bound, 0});
        at += *bound;
      }
      largest = std::max(largest, at);
    }
    arena_ = std::make_unique<std::byte[]>(largest);
    return {};
  }

  Result<void> encode(const Entry& entry, Slot& slot, BenchWorker& worker) {
    auto size = worker.encode(sample_.chunks[slot.chunk], arena(slot).first(slot.arena_size));
    if (!size) {
      return tl::unexpected(std::move(size).error().within(entry.engine->name()));
    }
    slot.encoded_size = *size;
    return {};
  }

  Result<void> decode(const Entry& entry, const Slot& slot, BenchWorker& worker) {
    const BenchChunk& chunk = sample_.chunks[slot.chunk];
    auto done = worker.decode(chunk, arena(slot).first(slot.encoded_size), decoded(slot));
    if (!done) {
      return tl::unexpected(std::move(done).error().within(entry.engine->name()));
    }
    return {};
  }

  Result<void> check(const Entry& entry) const {
    for (const Slot& slot : entry.slots) {
      const BenchChunk& chunk = sample_.chunks[slot.chunk];
      if (std::memcmp(chunk.data.data(), decoded_.get() + decoded_offsets_[slot.chunk], chunk.data.size()) != 0) {
        return fail(ErrorKind::internal, fmt::format("{}: decoding chunk {} of the sample gives other bytes",
                                                     entry.engine->name(), slot.chunk));
      }
    }
    return {};
  }

  // What was decoded before must not pass for this decoding's work.
  void spoil(const Entry& entry) {
    for (const Slot& slot : entry.slots) {
      const std::span<std::byte> out = decoded(slot);
      for (std::size_t i = 0; i < out.size(); i += 64) {
        out[i] = ~sample_.chunks[slot.chunk].data[i];
      }
    }
  }

  Result<void> first_pass(Entry& entry, bool is_codec) {
    if (!progress_(entry.engine->name(), 0)) {
      return fail(ErrorKind::cancelled, "bench: cancelled");
    }
    const auto worker = entry.engine->make_worker();
    spoil(entry);
    std::vector<Slot> taken;
    entry.encoded_bytes = sample_.bytes;
    for (Slot& slot : entry.slots) {
      const auto start = Clock::now();
      auto encoded = encode(entry, slot, *worker);
      if (!encoded && encoded.error().kind() == ErrorKind::invalid_argument) {
        continue;  // this codec cannot express this chunk
      }
      if (!encoded) {
        return encoded;
      }
      entry.first_encode += seconds_since(start);
      const std::size_t raw = sample_.chunks[slot.chunk].data.size();
      entry.covered_bytes += raw;
      entry.encoded_bytes -= raw - std::min(raw, slot.encoded_size);
      if (is_codec) {
        smallest_[slot.chunk] = std::min(smallest_[slot.chunk], slot.encoded_size);
      }
      taken.push_back(slot);
      if (!progress_(entry.engine->name(), 0)) {
        return fail(ErrorKind::cancelled, "bench: cancelled");
      }
    }
    entry.slots = std::move(taken);
    const auto start = Clock::now();
    for (const Slot& slot : entry.slots) {
      if (auto done = decode(entry, slot, *worker); !done) {
        return done;
      }
      if (interrupt_signal() != 0) {
        return fail(ErrorKind::cancelled, "bench: cancelled");
      }
    }
    entry.first_decode = seconds_since(start);
    entry.times.resize(limits_.threads.size());
    return check(entry);
  }

  // Each engine gets the same share of the time; those that fit into it less than once are measured by the first pass.
  void share_out_rounds() {
    double per_round = 0;
    for (const unsigned threads : limits_.threads) {
      per_round += 1.0 / threads;
    }
    double left = limits_.seconds;
    std::size_t engines_left = entries_.size();
    std::vector<Entry*> by_cost;
    for (Entry& entry : entries_) {
      by_cost.push_back(&entry);
    }
    std::sort(by_cost.begin(), by_cost.end(),
              [](const Entry* a, const Entry* b) { return a->first_pass() < b->first_pass(); });
    // Cheapest first: what they leave of their share goes to the others.
    for (Entry* entry : by_cost) {
      const double cost = std::max(entry->first_pass() * per_round, 1e-6);
      const double share = std::max(0.0, left) / static_cast<double>(engines_left--);
      entry->rounds = static_cast<unsigned>(std::min<double>(limits_.rounds, share / cost));
      left -= entry->rounds * cost;
      total_cost_ += entry->rounds * cost;
      if (entry->rounds == 0) {
        use_first_pass(*entry);
      }
    }
  }

  // For one thread it is a measurement already; for more there has to be one.
  void use_first_pass(Entry& entry) {
    for (std::size_t i = 0; i < limits_.threads.size(); ++i) {
      if (limits_.threads[i] == 1) {
        entry.times[i] = {{entry.first_encode}, {entry.first_decode}};
      } else {
        entry.rounds = 1;
        total_cost_ += entry.first_pass() / limits_.threads[i];
      }
    }
  }

  Result<void> measure(Entry& entry) {
    for (std::size_t i = 0; i < limits_.threads.size(); ++i) {
      const bool measured = entry.rounds == 1 && !entry.times[i].encode.empty();
      if (measured) {
        continue;
      }
      if (!progress_(entry.engine->name(), total_cost_ > 0 ? std::min(1.0, spent_ / total_cost_) : 1.0)) {
        return fail(ErrorKind::cancelled, "bench: cancelled");
      }
      spoil(entry);
      if (auto done = measure_on(entry, limits_.threads[i], entry.times[i]); !done) {
        return done;
      }
      if (auto checked = check(entry); !checked) {
        return checked;
      }
      spent_ += entry.first_pass() / limits_.threads[i];
    }
    return {};
  }

  // Encodes all chunks, then decodes all. Threads take the next chunk each; the clock runs from when all have started
  // until the last is done.
  Result<void> measure_on(Entry& entry, unsigned threads, Times& times) {
    std::atomic<std::size_t> next_encode{0};
    std::atomic<std::size_t> next_decode{0};
    std::vector<Result<void>> outcomes(threads);
    Clock::time_point started;
    Clock::time_point encoded;
    unsigned phase = 0;
    const auto on_phase = [&]() noexcept { (phase++ == 0 ? started : encoded) = Clock::now(); };
    std::barrier barrier(static_cast<std::ptrdiff_t>(threads), on_phase);
    const auto work = [&](unsigned thread) {
      const auto worker = entry.engine->make_worker();
      barrier.arrive_and_wait();
      Result<void>& outcome = outcomes[thread];
      for (std::size_t i = next_encode++; going(outcome) && i < entry.slots.size(); i = next_encode++) {
        outcome = encode(entry, entry.slots[i], *worker);
      }
      barrier.arrive_and_wait();
      for (std::size_t i = next_decode++; going(outcome) && i < entry.slots.size(); i = next_decode++) {
        outcome = decode(entry, entry.slots[i], *worker);
      }
    };
    {
      std::vector<std::jthread> others;
      for (unsigned i = 1; i < threads; ++i) {
        others.emplace_back(work, i);
      }
      work(0);
    }
    const auto done = Clock::now();
    if (interrupt_signal() != 0) {
      return fail(ErrorKind::cancelled, "bench: cancelled");
    }
    for (const Result<void>& outcome : outcomes) {
      if (!outcome) {
        return outcome;
      }
    }
    times.encode.push_back(std::chrono::duration<double>(encoded - started).count());
    times.decode.push_back(std::chrono::duration<double>(done - encoded).count());
    return {};
  }

  BenchOutcome outcome() const {
    BenchOutcome outcome;
    for (const Entry& entry : entries_) {
      for (std::size_t i = 0; i < limits_.threads.size(); ++i) {
        const Times& times = entry.times[i];
        const auto bytes = static_cast<double>(entry.covered_bytes);
        BenchResult result;
        result.name = entry.engine->name();
        result.threads = limits_.threads[i];
        result.ratio =
            static_cast<double>(sample_.bytes) / static_cast<double>(std::max<std::uint64_t>(1, entry.encoded_bytes));
        result.encoded_bytes = entry.encoded_bytes;
        result.covered_bytes = entry.covered_bytes;
        result.encode_gbps = bytes / std::max(median(times.encode), 1e-9) / 1e9;
        result.decode_gbps = bytes / std::max(median(times.decode), 1e-9) / 1e9;
        result.rounds = static_cast<unsigned>(times.encode.size());
        outcome.results.push_back(std::move(result));
      }
    }
    for (const std::size_t size : smallest_) {
      outcome.smallest_encoded_bytes += size;
    }
    return outcome;
  }

  [[nodiscard]] std::span<std::byte> arena(const Slot& slot) const noexcept {
    return {arena_.get() + slot.arena_offset, slot.arena_size};
  }
  [[nodiscard]] std::span<std::byte> decoded(const Slot& slot) const noexcept {
    return {decoded_.get() + decoded_offsets_[slot.chunk], sample_.chunks[slot.chunk].data.size()};
  }

  const BenchSample& sample_;
  const BenchLimits& limits_;
  const BenchProgress& progress_;
  std::unique_ptr<std::byte[]> arena_;
  std::unique_ptr<std::byte[]> decoded_;
  std::vector<std::size_t> decoded_offsets_;  // by chunk
  std::vector<std::size_t> smallest_;         // by chunk
  std::vector<Entry> entries_;
  double total_cost_ = 0;  // seconds, as the first pass lets expect
  double spent_ = 0;
};

}  // namespace

Result<BenchOutcome> run_bench(const BenchSample& sample, const BenchEngines& engines, std::size_t codec_engines,
                               const BenchLimits& limits, const BenchProgress& progress) {
  return Runner(sample, engines, limits, progress).run(codec_engines);
}

}  // namespace bitsnap::cli
