// Orders chunks by the ranks of their streams, and groups them by a text key.
#include "save/chunk_order.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace bitsnap::save {
namespace {

// Equal for streams whose chunks are similar; empty for the pool.
std::string key_of(const container::Content& content, const StreamInfo& stream, const StreamJob& job) {
  if (!stream.tensor) return {};
  const TensorInfo& tensor = content.tensors[*stream.tensor];
  std::string key = fmt::format("{} {} {}", dtype_name(job.dtype), role_name(tensor.role), job.row_elements);
  for (const plan::Candidate& candidate : job.planner->candidates()) {
    key +=
        fmt::format(" {} {}", static_cast<int>(candidate.encoder->decoder().id()), static_cast<int>(candidate.inputs));
  }
  key += ' ';
  for (const char letter : tensor.name) {
    const bool is_digit = letter >= '0' && letter <= '9';
    if (!is_digit || key.back() != '#') key += is_digit ? '#' : letter;
  }
  return key;
}

}  // namespace

std::vector<std::size_t> order_chunks(const container::Index& index, std::span<const StreamJob> jobs,
                                      const StoredChunks* stored) {
  const auto& first = index.streams.first_chunk;
  std::vector<std::size_t> streams(jobs.size());
  std::iota(streams.begin(), streams.end(), std::size_t{0});
  std::ranges::sort(streams, {}, [&](std::size_t i) { return std::pair(index.encoding.streams[i].rank, i); });
  std::vector<std::vector<std::size_t>> dependents(jobs.size());
  if (stored == nullptr) {
    for (const StreamJob& job : jobs) {
      for (const PeerStream& peer : job.peers()) dependents[peer.stream].push_back(job.stream);
    }
  }
  std::vector<std::size_t> order;
  order.reserve(index.chunks.size());
  std::vector<std::uint64_t> next(first.begin(), first.end());
  const auto is_ready = [&](std::size_t stream) {
    if (next[stream] == first[stream + 1]) return false;
    if (stored != nullptr) return true;
    const std::uint64_t end = std::min((next[stream] - first[stream] + 1) * kChunkElements, jobs[stream].elements);
    return std::ranges::all_of(jobs[stream].peers(), [&](const PeerStream& peer) {
      const std::uint64_t done = (next[peer.stream] - first[peer.stream]) * kChunkElements;
      return peer.element + end <= done || next[peer.stream] == first[peer.stream + 1];
    });
  };
  // Recursion: dependents have dependents, at most as deep as there are ranks.
  const auto put = [&](std::size_t stream, const auto& self) -> void {
    order.push_back(static_cast<std::size_t>(next[stream]++));
    for (const std::size_t dependent : dependents[stream]) {
      while (is_ready(dependent)) self(dependent, self);
    }
  };
  for (const std::size_t stream : streams) {
    while (is_ready(stream)) put(stream, put);
  }
  return order;
}

SimilarChunks group_similar_chunks(const container::Index& index, std::span<const StreamJob> jobs,
                                   const StoredChunks* stored, std::span<const std::size_t> order) {
  SimilarChunks similar;
  std::map<std::string, plan::SharedChoice*> open;
  std::vector<std::string> keys;
  for (const StreamJob& job : jobs) keys.push_back(key_of(index.content, index.streams.streams[job.stream], job));
  similar.places.resize(index.chunks.size());
  for (const std::size_t number : order) {
    const std::size_t stream = index.streams.stream_of_chunk(number);
    if ((stored != nullptr && stored->contains(number)) || keys[stream].empty()) continue;
    plan::SharedChoice*& group = open[keys[stream]];
    if (group == nullptr || group->members() == plan::kLikeChunks) group = &similar.groups.emplace_back();
    similar.places[number] = {group, group->add_member()};
  }
  return similar;
}

}  // namespace bitsnap::save
