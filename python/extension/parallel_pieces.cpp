#include "parallel_pieces.hpp"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace bitsnap::python {

Result<void> for_each_piece(std::uint64_t pieces, unsigned threads,
                            const std::function<Result<void>(std::uint64_t piece)>& work) {
  if (threads == 0) threads = std::max(1U, std::thread::hardware_concurrency());
  std::atomic<std::uint64_t> next = 0;
  std::vector<Result<void>> results(pieces);
  const auto run = [&] {
    for (std::uint64_t piece = next++; piece < pieces; piece = next++) {
      results[piece] = work(piece);
      if (!results[piece]) next = pieces;
    }
  };
  {
    std::vector<std::jthread> helpers;
    const std::uint64_t wanted = std::min<std::uint64_t>(threads, pieces);
    try {
      for (std::uint64_t i = 1; i < wanted; ++i) helpers.emplace_back(run);
    } catch (const std::system_error&) {
      // Fewer threads do the same work.
    }
    run();
  }
  for (Result<void>& result : results) {
    if (!result) return std::move(result);
  }
  return {};
}

}  // namespace bitsnap::python
