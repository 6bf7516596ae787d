// A sample is eight runs of eight elements, spread evenly.
#include "save/twin_finder.hpp"

#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <utility>

#include <bitsnap/tensor.hpp>

#include "base/hash.hpp"
#include "restore/read_context.hpp"

namespace bitsnap::save {
namespace {

constexpr std::size_t kRuns = 8;
constexpr std::size_t kRunElements = 8;

bool repeats_one_element(ConstByteSpan sample, std::size_t element_bytes) {
  return std::memcmp(sample.data(), sample.data() + element_bytes, sample.size() - element_bytes) == 0;
}

// A hash of the sample; nullopt if there is none that tells anything.
std::optional<std::uint64_t> sample_of(std::size_t number, const StreamInfo& stream, const StreamSource& source,
                                       ReadContext& context) {
  if (!source.can_be_sampled(number)) return std::nullopt;
  const std::size_t element_bytes = element_size(stream.dtype);
  std::vector<std::byte> sample(kRuns * kRunElements * element_bytes);
  for (std::size_t run = 0; run < kRuns; ++run) {
    const std::uint64_t first = (stream.elements - kRunElements) * run / (kRuns - 1);
    const std::size_t run_bytes = kRunElements * element_bytes;
    context.restart();
    if (!source.read(number, first * element_bytes, std::span(sample).subspan(run * run_bytes, run_bytes), context))
      return std::nullopt;
  }
  if (repeats_one_element(sample, element_bytes)) return std::nullopt;
  return hash64(sample);
}

}  // namespace

std::vector<std::optional<std::size_t>> find_twins(const container::StreamTable& streams, const StreamSource& source) {
  std::map<std::pair<DType, std::uint64_t>, std::vector<std::size_t>> alike;
  for (std::size_t i = 0; i < streams.streams.size(); ++i) {
    const StreamInfo& stream = streams.streams[i];
    if (stream.tensor && stream.elements >= kRuns * kRunElements) alike[{stream.dtype, stream.elements}].push_back(i);
  }
  std::vector<std::optional<std::size_t>> twins(streams.streams.size());
  ReadContext context;
  for (const auto& [kind, members] : alike) {
    if (members.size() < 2) continue;
    std::map<std::uint64_t, std::size_t> first;
    for (const std::size_t member : members) {
      const auto sample = sample_of(member, streams.streams[member], source, context);
      if (!sample) continue;
      const auto [position, is_new] = first.try_emplace(*sample, member);
      if (!is_new) twins[member] = position->second;
    }
  }
  return twins;
}

}  // namespace bitsnap::save
