// Measures coders on a sample. A first pass on one thread finds which chunks each coder encodes, to which size, and
// about how long it takes; the pass also touches all memory. It counts as a measurement only for coders so slow that
// they get no other one.
#include "cli/analysis/bench_runner.hpp"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "cli/command.hpp"
#include "cli/operating_system.hpp"

namespace bitsnap::cli {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kCeiling = "memcpy";  // expresses every chunk, and no coder is faster

// One chunk that a coder encodes.
struct Slot {
  std::size_t chunk = 0;
  std::size_t arena_offset = 0;
  std::size_t arena_size = 0;
  std::size_t encoded_size = 0;
  bool is_expressed = true;  // false: the coder cannot express the chunk
};

struct Times {
  std::vector<double> encode;
  std::vector<double> decode;
};

struct Entry {
  const Coder* coder = nullptr;
  std::vector<Slot> slots;
  std::uint64_t covered_bytes = 0;
  std::uint64_t encoded_bytes = 0;  // of the whole sample, as BenchResult::ratio counts
  Times first;                      // of the first pass
  unsigned rounds = 0;              // that it is going to run
  std::vector<Times> times;         // by index of BenchLimits::threads

  [[nodiscard]] double first_pass() const noexcept { return first.encode.front() + first.decode.front(); }
};

// Checked between chunks, not only between rounds: one round of a slow coder takes long.
bool going(const Result<void>& outcome) noexcept { return outcome.has_value() && interrupt_signal() == 0; }

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

class Runner {
 public:
  Runner(const BenchSample& sample, const Coders& coders, const BenchLimits& limits, const BenchProgress& progress)
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
    for (const auto& coder : coders) entries_.emplace_back().coder = coder.get();
  }

  Result<BenchOutcome> run(std::size_t codecs) {
    reserve_arena();
    for (std::size_t i = 0; i < entries_.size(); ++i) BITSNAP_TRY(first_pass(entries_[i], i < codecs));
    std::erase_if(entries_, [](const Entry& entry) { return entry.slots.empty(); });
    share_out_rounds();
    for (unsigned round = 0; round < limits_.rounds; ++round) {
      for (Entry& entry : entries_) {
        if (round < entry.rounds) BITSNAP_TRY(measure(entry));
      }
    }
    return outcome();
  }

 private:
  // Room for the payloads of the coder with the largest bounds, touched before anything is timed.
  void reserve_arena() {
    std::size_t largest = 0;
    for (Entry& entry : entries_) {
      std::size_t at = 0;
      for (std::size_t i = 0; i < sample_.chunks.size(); ++i) {
        const CoderChunk& chunk = sample_.chunks[i];
        if (!entry.coder->accepts(chunk.dtype) || (entry.coder->uses_base() && chunk.base.empty())) continue;
        const std::size_t bound =
            entry.coder->max_encoded_size(chunk.dtype, chunk.data.size() / element_size(chunk.dtype));
        entry.slots.push_back({i, at, bound, 0});
        at += bound;
      }
      largest = std::max(largest, at);
    }
    arena_ = std::make_unique<std::byte[]>(largest);
  }

  Result<void> encode(const Entry& entry, Slot& slot, CoderWorker& worker) {
    auto size = worker.encode(sample_.chunks[slot.chunk], arena(slot).first(slot.arena_size));
    if (!size) return tl::unexpected(std::move(size).error().within(entry.coder->name()));
    slot.encoded_size = size->value_or(0);
    slot.is_expressed = size->has_value();
    return {};
  }

  Result<void> decode(const Entry& entry, const Slot& slot, CoderWorker& worker) {
    if (!slot.is_expressed) return {};
    return worker.decode(sample_.chunks[slot.chunk], arena(slot).first(slot.encoded_size), decoded(slot))
        .map_error([&](const Error& error) { return Error(error).within(entry.coder->name()); });
  }

  Result<void> check(const Entry& entry) const {
    for (const Slot& slot : entry.slots) {
      const CoderChunk& chunk = sample_.chunks[slot.chunk];
      if (std::memcmp(chunk.data.data(), decoded_.get() + decoded_offsets_[slot.chunk], chunk.data.size()) != 0) {
        return fail(ErrorKind::internal, fmt::format("{}: decoding chunk {} of the sample gives other bytes",
                                                     entry.coder->name(), slot.chunk));
      }
    }
    return {};
  }

  // Overwrites the output, so that bytes decoded earlier cannot pass for this coder's.
  void spoil(const Entry& entry) {
    for (const Slot& slot : entry.slots) {
      const std::span<std::byte> out = decoded(slot);
      for (std::size_t i = 0; i < out.size(); i += 64) out[i] = ~sample_.chunks[slot.chunk].data[i];
    }
  }

  Result<void> report_progress(const Entry& entry, double done) const {
    if (progress_(entry.coder->name(), done)) return {};
    return fail(ErrorKind::cancelled, "bench: cancelled");
  }

  Result<void> first_pass(Entry& entry, bool is_codec) {
    BITSNAP_TRY(report_progress(entry, 0));
    spoil(entry);
    BITSNAP_TRY(measure_on(entry, 1, entry.first));
    // What the coder cannot express takes time, too, which does not belong to its speed.
    if (std::erase_if(entry.slots, [](const Slot& slot) { return !slot.is_expressed; }) > 0) {
      entry.first = {};
      BITSNAP_TRY(measure_on(entry, 1, entry.first));
    }
    entry.encoded_bytes = sample_.bytes;
    for (const Slot& slot : entry.slots) {
      const std::size_t raw = sample_.chunks[slot.chunk].data.size();
      entry.covered_bytes += raw;
      entry.encoded_bytes -= raw - std::min(raw, slot.encoded_size);
      if (is_codec) smallest_[slot.chunk] = std::min(smallest_[slot.chunk], slot.encoded_size);
    }
    entry.times.resize(limits_.threads.size());
    return check(entry);
  }

  // Each coder gets the same share of the time. If one round takes longer than that, the first pass is its measurement.
  void share_out_rounds() {
    double per_round = 0;
    for (const unsigned threads : limits_.threads) per_round += 1.0 / threads;
    double left = limits_.seconds;
    std::size_t coders_left = entries_.size();
    std::vector<Entry*> by_cost;
    for (Entry& entry : entries_) by_cost.push_back(&entry);
    std::sort(by_cost.begin(), by_cost.end(),
              [](const Entry* a, const Entry* b) { return a->first_pass() < b->first_pass(); });
    // Cheapest first: the time that they leave unused goes to the others.
    for (Entry* entry : by_cost) {
      const double cost = std::max(entry->first_pass() * per_round, 1e-6);
      const double share = std::max(0.0, left) / static_cast<double>(coders_left--);
      entry->rounds = static_cast<unsigned>(std::min<double>(limits_.rounds, share / cost));
      left -= entry->rounds * cost;
      total_cost_ += entry->rounds * cost;
      if (entry->rounds == 0) use_first_pass(*entry);
    }
  }

  // The first pass ran on one thread; other numbers of threads get one round.
  void use_first_pass(Entry& entry) {
    for (std::size_t i = 0; i < limits_.threads.size(); ++i) {
      if (limits_.threads[i] == 1) {
        entry.times[i] = entry.first;
      } else {
        entry.rounds = 1;
        total_cost_ += entry.first_pass() / limits_.threads[i];
      }
    }
  }

  Result<void> measure(Entry& entry) {
    for (std::size_t i = 0; i < limits_.threads.size(); ++i) {
      const bool measured = entry.rounds == 1 && !entry.times[i].encode.empty();
      if (measured) continue;
      BITSNAP_TRY(report_progress(entry, total_cost_ > 0 ? std::min(1.0, spent_ / total_cost_) : 1.0));
      spoil(entry);
      BITSNAP_TRY(measure_on(entry, limits_.threads[i], entry.times[i]));
      BITSNAP_TRY(check(entry));
      spent_ += entry.first_pass() / limits_.threads[i];
    }
    return {};
  }

  // Encodes all chunks, then decodes all. Each thread takes the next chunk that is left; the clock runs from the moment
  // when all threads have started until the last one is done.
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
      const auto worker = entry.coder->make_worker();
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
      for (unsigned i = 1; i < threads; ++i) others.emplace_back(work, i);
      work(0);
    }
    const auto done = Clock::now();
    if (interrupt_signal() != 0) return fail(ErrorKind::cancelled, "bench: cancelled");
    for (const Result<void>& outcome : outcomes) BITSNAP_TRY(outcome);
    times.encode.push_back(std::chrono::duration<double>(encoded - started).count());
    times.decode.push_back(std::chrono::duration<double>(done - encoded).count());
    return {};
  }

  BenchOutcome outcome() const {
    BenchOutcome outcome;
    for (const Entry& entry : entries_) {
      for (std::size_t i = 0; i < limits_.threads.size(); ++i) {
        const auto gbps = [&](const Entry& of, std::vector<double> Times::* times) {
          return static_cast<double>(of.covered_bytes) / std::max(median(of.times[i].*times), 1e-9) / 1e9;
        };
        const auto share = [&](std::vector<double> Times::* times) {
          const auto ceiling =
              std::ranges::find(entries_, kCeiling, [](const Entry& one) { return one.coder->name(); });
          return ceiling == entries_.end() ? 0 : gbps(entry, times) / gbps(*ceiling, times);
        };
        const std::uint64_t encoded = std::max<std::uint64_t>(1, entry.encoded_bytes);
        outcome.results.push_back({.name = entry.coder->name(),
                                   .threads = limits_.threads[i],
                                   .ratio = static_cast<double>(sample_.bytes) / static_cast<double>(encoded),
                                   .encoded_bytes = entry.encoded_bytes,
                                   .covered_bytes = entry.covered_bytes,
                                   .encode_gbps = gbps(entry, &Times::encode),
                                   .decode_gbps = gbps(entry, &Times::decode),
                                   .encode_of_memcpy = share(&Times::encode),
                                   .decode_of_memcpy = share(&Times::decode),
                                   .rounds = static_cast<unsigned>(entry.times[i].encode.size())});
      }
    }
    for (const std::size_t size : smallest_) outcome.smallest_encoded_bytes += size;
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
  double total_cost_ = 0;  // seconds, estimated from the first pass
  double spent_ = 0;
};

}  // namespace

Result<BenchOutcome> run_bench(const BenchSample& sample, const Coders& coders, std::size_t codecs,
                               const BenchLimits& limits, const BenchProgress& progress) {
  return Runner(sample, coders, limits, progress).run(codecs);
}

}  // namespace bitsnap::cli
