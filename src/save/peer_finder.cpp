// A sample is eight runs of eight elements, spread evenly. Masters are rounded to the dtype of the weights, so that
// samples can be compared as bits.
#include "save/peer_finder.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include <bitsnap/tensor.hpp>

#include "codec/rounded_from/rounded_from.hpp"
#include "restore/read_context.hpp"
#include "tensor/name_parts.hpp"

namespace bitsnap::save {
namespace {

constexpr std::size_t kPeerRuns = 8;
constexpr std::size_t kPeerRunElements = 8;
constexpr std::size_t kPeerSampleElements = kPeerRuns * kPeerRunElements;

// The search in a flat buffer ends after this many elements without a weight. A false start (the first elements match,
// the sample does not) counts as kFalseStartCost elements, so that repeated patterns end the search as well.
constexpr std::uint64_t kLongestSearch = std::uint64_t{1} << 22;
constexpr std::uint64_t kFalseStartCost = std::uint64_t{1} << 12;

// Smaller weights are not searched in flat buffers: reading one decodes a whole chunk of the buffer with its chain.
// Verifying a buffer with slices of 4,096 elements took 50 times as long
// (docs/decisions/0010-weights-beside-masters.md).
constexpr std::uint64_t kSmallestSlice = kChunkElements / 4;

// The most masters with about the same sample whose names are compared with the name of a weight.
constexpr std::size_t kMostSimilar = 1024;

using Halves = std::vector<std::uint16_t>;

bool is_weight(DType dtype) noexcept { return dtype == DType::bf16 || dtype == DType::f16; }

class Finder {
 public:
  Finder(const container::Content& content, const container::StreamTable& streams, const StreamSource& source,
         std::vector<std::optional<PeerStream>> given)
      : content_(content), streams_(streams.streams), source_(source), peers_(std::move(given)) {
    peers_.resize(streams_.size());
  }

  std::vector<std::optional<PeerStream>> find() {
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      if (!streams_[i].tensor || streams_[i].elements < kPeerSampleElements) continue;
      if (streams_[i].dtype == DType::f32) masters_by_size_[streams_[i].elements].push_back(i);
      if (is_weight(streams_[i].dtype) && !peers_[i]) weights_.push_back(i);
    }
    if (masters_by_size_.empty() || weights_.empty()) return std::move(peers_);
    for (const auto& [elements, masters] : masters_by_size_) {
      for (const std::size_t master : masters) {
        if (tensor_of(master).role == Role::master)
          masters_by_name_.try_emplace(tensor::bare_name(tensor_of(master).name), master);
      }
    }
    for (const std::size_t weight : weights_) find_whole(weight);
    find_in_flat_buffers();
    return std::move(peers_);
  }

 private:
  [[nodiscard]] const TensorInfo& tensor_of(std::size_t stream) const {
    return content_.tensors[*streams_[stream].tensor];
  }

  bool read(std::size_t stream, std::uint64_t first, ByteSpan out) {
    context_.restart();
    return source_.read(stream, first * element_size(streams_[stream].dtype), out, context_).has_value();
  }

  static std::uint64_t first_of_run(std::size_t run, std::uint64_t elements) noexcept {
    return (elements - kPeerRunElements) * run / (kPeerRuns - 1);
  }

  // A sample of `elements` elements from `begin`, of a weight or of a master rounded to `dtype`. Empty if the stream
  // cannot be sampled or read.
  Halves sample(std::size_t stream, std::uint64_t begin, std::uint64_t elements, DType dtype) {
    if (!source_.can_be_sampled(stream)) return {};
    Halves halves(kPeerSampleElements);
    for (std::size_t run = 0; run < kPeerRuns; ++run) {
      const std::uint64_t first = begin + first_of_run(run, elements);
      const ByteSpan out = std::as_writable_bytes(std::span(halves).subspan(run * kPeerRunElements, kPeerRunElements));
      if (!read_rounded(stream, first, kPeerRunElements, dtype, out)) return {};
    }
    return halves;
  }

  bool read_rounded(std::size_t stream, std::uint64_t first, std::size_t elements, DType dtype, ByteSpan out) {
    if (streams_[stream].dtype != DType::f32) return read(stream, first, out);
    words_.resize(elements);
    const ByteSpan words = std::as_writable_bytes(std::span(words_));
    if (!read(stream, first, words)) return false;
    const codec::Input input{codec::InputKind::peer, DType::f32, words};
    codec::expect_elements({dtype, elements, {&input, 1}, {}}, {}, out);
    return true;
  }

  struct Sampled {
    std::size_t stream = 0;
    Halves halves;
  };
  // By the first rounded element, so that a weight is compared with few of the masters of its size.
  using SampledMasters = std::unordered_map<std::uint16_t, std::vector<Sampled>>;

  const SampledMasters& sampled_masters(std::uint64_t elements, const std::vector<std::size_t>& masters, DType dtype) {
    const auto [position, is_new] = sampled_masters_.try_emplace({elements, dtype});
    if (!is_new) return position->second;
    for (const std::size_t master : masters) {
      Halves halves = sample(master, 0, elements, dtype);
      if (!halves.empty()) position->second[halves[0]].push_back({master, std::move(halves)});
    }
    return position->second;
  }

  // Searches a master of the same size. Among masters with equal samples, the most similar name wins. A nearly equal
  // sample is accepted only with a similar name.
  void find_whole(std::size_t weight) {
    const StreamInfo& info = streams_[weight];
    const auto sized = masters_by_size_.find(info.elements);
    if (sized == masters_by_size_.end()) return;
    const Halves own = sample(weight, 0, info.elements, info.dtype);
    if (own.empty()) {
      find_by_name(weight);
      return;
    }
    const SampledMasters& masters = sampled_masters(info.elements, sized->second, info.dtype);
    std::optional<std::pair<std::size_t, bool>> best_rank;
    std::size_t compared = 0;
    for (const int distance : {0, -1, 1}) {
      const auto known = masters.find(static_cast<std::uint16_t>(own[0] + distance));
      if (known == masters.end()) continue;
      for (const auto& [master, other] : known->second) {
        if (other != own && !is_nearly_equal(own, other)) continue;
        if (compared++ == kMostSimilar) return;
        const std::size_t alike = tensor::likeness(tensor_of(weight).name, tensor_of(master).name);
        if (other != own && alike == 0) continue;
        const std::pair rank(alike, tensor_of(master).role == Role::master);
        if (best_rank && (rank < *best_rank || (rank == *best_rank && master > peers_[weight]->stream))) continue;
        best_rank = rank;
        peers_[weight] = PeerStream{master, 0};
      }
    }
  }

  // For weights that cannot be sampled: the tensor with the role of a master and the same bare name.
  void find_by_name(std::size_t weight) {
    if (source_.can_be_sampled(weight)) return;
    const auto known = masters_by_name_.find(tensor::bare_name(tensor_of(weight).name));
    if (known == masters_by_name_.end() || streams_[known->second].elements != streams_[weight].elements) return;
    peers_[weight] = PeerStream{known->second, 0};
  }

  // Whether all elements differ by one at most, as after stochastic rounding.
  static bool is_nearly_equal(const Halves& own, const Halves& other) {
    return std::ranges::equal(own, other, [](std::uint16_t one, std::uint16_t two) {
      return static_cast<std::uint16_t>(one - two + 1) <= 2;
    });
  }

  // Searches slices of larger one-dimensional masters by the first run of each weight. Weights whose first run is one
  // repeated number are skipped, because it would match too often.
  void find_in_flat_buffers() {
    std::unordered_map<std::uint64_t, std::vector<std::size_t>> by_first;
    std::array<bool, 2> wanted{};  // BF16, F16
    for (const std::size_t weight : weights_) {
      if (peers_[weight] || streams_[weight].elements < kSmallestSlice || !source_.can_be_sampled(weight)) continue;
      Halves first(kPeerRunElements);
      if (!read(weight, 0, std::as_writable_bytes(std::span(first)))) continue;
      if (std::ranges::all_of(first, [&](std::uint16_t half) { return half == first[0]; })) continue;
      by_first[key_of(first.data())].push_back(weight);
      wanted[streams_[weight].dtype == DType::f16 ? 1 : 0] = true;
    }
    for (std::size_t i = 0; i < wanted.size() && !by_first.empty(); ++i) {
      if (!wanted[i]) continue;
      for (const auto& [elements, masters] : masters_by_size_) {
        for (const std::size_t master : masters) {
          if (tensor_of(master).shape.size() != 1 || !source_.can_be_sampled(master)) continue;
          search_flat(master, i == 0 ? DType::bf16 : DType::f16, by_first);
        }
      }
    }
  }

  // A hash of one run.
  static std::uint64_t key_of(const std::uint16_t* halves) noexcept {
    std::array<std::uint64_t, 2> words;
    static_assert(sizeof words == kPeerRunElements * sizeof(std::uint16_t));
    std::memcpy(words.data(), halves, sizeof words);
    return words[0] * 0x9E3779B97F4A7C15U ^ words[1];
  }

  void search_flat(std::size_t master, DType dtype,
                   const std::unordered_map<std::uint64_t, std::vector<std::size_t>>& by_first) {
    const std::uint64_t elements = streams_[master].elements;
    // A filter for most places, where no weight begins.
    std::vector<bool> maybe(std::size_t{1} << 16);
    for (const auto& [key, weights] : by_first) maybe[filter_bit(key)] = true;
    Halves part;
    std::uint64_t searched = 0;  // since the last weight
    for (std::uint64_t at = 0; at + kSmallestSlice <= elements && searched < kLongestSearch;) {
      // Up to the end of the chunk, and the part of its last run that is behind the end.
      const std::uint64_t end = std::min((at / kChunkElements + 1) * kChunkElements + kPeerRunElements - 1, elements);
      part.resize(static_cast<std::size_t>(end - at));
      if (!read_rounded(master, at, part.size(), dtype, std::as_writable_bytes(std::span(part)))) return;
      std::size_t i = 0;
      while (i + kPeerRunElements <= part.size() && searched < kLongestSearch) {
        const std::uint64_t key = key_of(part.data() + i);
        const auto known = maybe[filter_bit(key)] ? by_first.find(key) : by_first.end();
        const std::uint64_t taken =
            known == by_first.end() ? 0 : take_slice(master, at + i, dtype, known->second, searched);
        searched = taken > 0 ? 0 : searched + 1;
        i += taken > 0 ? static_cast<std::size_t>(taken) : 1;
      }
      at += i;
    }
  }

  static std::size_t filter_bit(std::uint64_t key) noexcept {
    return static_cast<std::size_t>(key * 0x9E3779B97F4A7C15U >> 48);
  }

  // The number of elements of the weight that begins at this element of the master; 0 if none does.
  std::uint64_t take_slice(std::size_t master, std::uint64_t first, DType dtype,
                           const std::vector<std::size_t>& candidates, std::uint64_t& searched) {
    for (const std::size_t weight : candidates) {
      const StreamInfo& info = streams_[weight];
      if (peers_[weight] || info.dtype != dtype || info.elements > streams_[master].elements - first) continue;
      if (searched >= kLongestSearch) return 0;
      if (!is_slice(weight, master, first)) {
        searched += kFalseStartCost;
        continue;
      }
      peers_[weight] = PeerStream{master, first};
      return info.elements;
    }
    return 0;
  }

  // Compares run by run, because the first run usually differs already.
  bool is_slice(std::size_t weight, std::size_t master, std::uint64_t first) {
    const StreamInfo& info = streams_[weight];
    const auto [own, is_new] = weight_samples_.try_emplace(weight);
    if (is_new) own->second = sample(weight, 0, info.elements, info.dtype);
    if (own->second.empty()) return false;
    std::array<std::uint16_t, kPeerRunElements> run;
    for (std::size_t i = 0; i < kPeerRuns; ++i) {
      const std::uint64_t at = first + first_of_run(i, info.elements);
      if (!read_rounded(master, at, run.size(), info.dtype, std::as_writable_bytes(std::span(run)))) return false;
      if (!std::ranges::equal(run, std::span(own->second).subspan(i * kPeerRunElements, kPeerRunElements)))
        return false;
    }
    return true;
  }

  const container::Content& content_;
  const std::vector<StreamInfo>& streams_;
  const StreamSource& source_;
  ReadContext context_;
  std::vector<std::optional<PeerStream>> peers_;
  std::vector<std::size_t> weights_;
  std::map<std::uint64_t, std::vector<std::size_t>> masters_by_size_;
  std::unordered_map<std::string, std::size_t> masters_by_name_;
  std::map<std::pair<std::uint64_t, DType>, SampledMasters> sampled_masters_;
  std::unordered_map<std::size_t, Halves> weight_samples_;
  std::vector<std::uint32_t> words_;
};

}  // namespace

std::vector<std::optional<PeerStream>> find_peers(const container::Content& content,
                                                  const container::StreamTable& streams, const StreamSource& source,
                                                  std::vector<std::optional<PeerStream>> given) {
  return Finder(content, streams, source, std::move(given)).find();
}

}  // namespace bitsnap::save
