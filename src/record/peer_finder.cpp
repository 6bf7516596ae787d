// Samples are eight runs of eight elements; masters are rounded to what weights are held against.
#include "record/peer_finder.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <bitsnap/tensor.hpp>

#include "codec/rounded_from/rounded_from.hpp"
#include "restore/read_context.hpp"

namespace bitsnap::record {
namespace {

constexpr std::size_t kRuns = 8;
constexpr std::size_t kRunElements = 8;
constexpr std::size_t kSampleElements = kRuns * kRunElements;

// Of a flat buffer so many elements are looked at for the next weight before it is given up.
constexpr std::uint64_t kMostSearched = std::uint64_t{1} << 22;

using Halves = std::vector<std::uint16_t>;

bool is_weight(DType dtype) noexcept { return dtype == DType::bf16 || dtype == DType::f16; }

// The parts of a name, without those that say what the tensor is to the training.
std::vector<std::string_view> parts_of(std::string_view name) {
  constexpr std::string_view kRoleWords[] = {
      "model", "module", "master",     "masters", "main_params",           "fp32_param",    "main_param", "optimizer",
      "optim", "state",  "state_dict", "param",   "fp32_from_fp16_params", "master_weights"};
  std::vector<std::string_view> parts;
  while (!name.empty()) {
    const std::size_t end = std::min(name.find_first_of("./"), name.size());
    const std::string_view part = name.substr(0, end);
    if (!part.empty() && std::ranges::find(kRoleWords, part) == std::end(kRoleWords)) parts.push_back(part);
    name.remove_prefix(std::min(end + 1, name.size()));
  }
  return parts;
}

struct Likeness {
  std::size_t parts = 0;  // that two names have in common, from the last on
  bool all = false;       // of the shorter one
};

Likeness likeness(std::string_view one, std::string_view other) {
  const auto a = parts_of(one);
  const auto b = parts_of(other);
  const auto end = std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend()).first;
  const auto parts = static_cast<std::size_t>(end - a.rbegin());
  return {parts, parts > 0 && parts == std::min(a.size(), b.size())};
}

class Finder {
 public:
  Finder(const container::Content& content, const container::StreamTable& streams, const StreamSource& source)
      : content_(content), streams_(streams.streams), source_(source), peers_(streams.streams.size()) {}

  std::vector<std::optional<PeerStream>> find() {
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      if (!streams_[i].tensor || streams_[i].elements < kSampleElements) continue;
      if (streams_[i].dtype == DType::f32) masters_by_size_[streams_[i].elements].push_back(i);
      if (is_weight(streams_[i].dtype)) weights_.push_back(i);
    }
    if (masters_by_size_.empty()) return std::move(peers_);
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

  // `elements` elements of a weight from each run's first on, or of a master rounded to the weight's dtype. Empty
  // where they cannot be read.
  Halves sample(std::size_t stream, std::uint64_t begin, std::uint64_t elements, DType dtype) {
    if (!source_.can_be_sampled(stream)) return {};
    Halves halves(kSampleElements);
    for (std::size_t run = 0; run < kRuns; ++run) {
      const std::uint64_t first = begin + (elements - kRunElements) * run / (kRuns - 1);
      const ByteSpan out = std::as_writable_bytes(std::span(halves).subspan(run * kRunElements, kRunElements));
      if (!read_rounded(stream, first, kRunElements, dtype, out)) return {};
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

  const Halves& master_sample(std::size_t stream, DType dtype) {
    const auto [position, is_new] = master_samples_.try_emplace({stream, dtype});
    if (is_new) position->second = sample(stream, 0, streams_[stream].elements, dtype);
    return position->second;
  }

  // A master of the same size: of those whose samples say so the one whose name is most alike.
  void find_whole(std::size_t weight) {
    const StreamInfo& info = streams_[weight];
    const auto sized = masters_by_size_.find(info.elements);
    if (sized == masters_by_size_.end()) return;
    const Halves own = sample(weight, 0, info.elements, info.dtype);
    std::optional<std::pair<std::size_t, bool>> best_rank;
    for (const std::size_t master : sized->second) {
      const Likeness alike = likeness(tensor_of(weight).name, tensor_of(master).name);
      const bool is_called_master = tensor_of(master).role == Role::master;
      if (source_.can_be_sampled(weight) && source_.can_be_sampled(master)) {
        const Halves& other = master_sample(master, info.dtype);
        if (own.empty() || other.empty()) continue;
        if (other != own && (alike.parts == 0 || !nearly_the_same(own, other))) continue;
      } else if (!alike.all || !is_called_master) {
        continue;
      }
      const std::pair rank(alike.parts, is_called_master);
      if (best_rank && rank <= *best_rank) continue;
      best_rank = rank;
      peers_[weight] = PeerStream{master, 0};
    }
  }

  // As where rounding goes up or down at random.
  static bool nearly_the_same(const Halves& own, const Halves& other) {
    std::size_t near = 0;
    for (std::size_t i = 0; i < own.size(); ++i) {
      const auto apart = static_cast<std::uint16_t>(own[i] - other[i] + 1);
      near += apart <= 2 ? 1U : 0U;
    }
    return near == own.size();
  }

  // Slices of larger masters of one dimension. A weight is known by its first elements; those of weights that begin
  // with the same number again and again say nothing.
  void find_in_flat_buffers() {
    std::unordered_map<std::uint64_t, std::vector<std::size_t>> by_first;
    std::array<bool, 2> wanted{};  // BF16, F16
    for (const std::size_t weight : weights_) {
      if (peers_[weight] || !source_.can_be_sampled(weight)) continue;
      Halves first(kRunElements);
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

  static std::uint64_t key_of(const std::uint16_t* halves) noexcept {
    std::uint64_t key;
    std::memcpy(&key, halves, sizeof key);
    return key;
  }

  void search_flat(std::size_t master, DType dtype,
                   const std::unordered_map<std::uint64_t, std::vector<std::size_t>>& by_first) {
    constexpr std::size_t kKeyElements = sizeof(std::uint64_t) / sizeof(std::uint16_t);
    constexpr std::size_t kPart = 4096;
    const std::uint64_t elements = streams_[master].elements;
    // Most places are nobody's beginning, which the lower bits of their keys say.
    std::vector<bool> maybe(std::size_t{1} << 16);
    for (const auto& [key, weights] : by_first) maybe[slot_of(key)] = true;
    Halves part(kPart + kKeyElements);
    std::uint64_t last_end = 0;
    for (std::uint64_t at = 0; at + kSampleElements <= elements && at - last_end < kMostSearched;) {
      const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(part.size(), elements - at));
      if (!read_rounded(master, at, count, dtype, std::as_writable_bytes(std::span(part).first(count)))) return;
      std::uint64_t next = at + count - kKeyElements + 1;
      for (std::size_t i = 0; i + kKeyElements <= count; ++i) {
        const std::uint64_t key = key_of(part.data() + i);
        if (!maybe[slot_of(key)]) continue;
        const auto known = by_first.find(key);
        if (known == by_first.end()) continue;
        const std::uint64_t taken = take_slice(master, at + i, dtype, known->second);
        if (taken == 0) continue;
        next = last_end = at + i + taken;
        break;
      }
      at = next;
    }
  }

  static std::size_t slot_of(std::uint64_t key) noexcept {
    return static_cast<std::size_t>(key * 0x9E3779B97F4A7C15U >> 48);
  }

  // How many elements the weight has that begins at this element of a master, if there is one.
  std::uint64_t take_slice(std::size_t master, std::uint64_t first, DType dtype,
                           const std::vector<std::size_t>& candidates) {
    for (const std::size_t weight : candidates) {
      const StreamInfo& info = streams_[weight];
      if (peers_[weight] || info.dtype != dtype || first + info.elements > streams_[master].elements) continue;
      const Halves own = sample(weight, 0, info.elements, dtype);
      if (own.empty() || own != sample(master, first, info.elements, dtype)) continue;
      peers_[weight] = PeerStream{master, first};
      return info.elements;
    }
    return 0;
  }

  const container::Content& content_;
  const std::vector<StreamInfo>& streams_;
  const StreamSource& source_;
  ReadContext context_;
  std::vector<std::optional<PeerStream>> peers_;
  std::vector<std::size_t> weights_;
  std::map<std::uint64_t, std::vector<std::size_t>> masters_by_size_;
  std::map<std::pair<std::size_t, DType>, Halves> master_samples_;
  std::vector<std::uint32_t> words_;
};

}  // namespace

std::vector<std::optional<PeerStream>> find_peers(const container::Content& content,
                                                  const container::StreamTable& streams, const StreamSource& source) {
  return Finder(content, streams, source).find();
}

}  // namespace bitsnap::record
