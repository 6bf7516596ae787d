// General engines: working memory goes from one call to the next, whichever thread makes it.
#include "cli/analyze_engines.hpp"

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include "cli/bench_general.hpp"

namespace bitsnap::cli {

namespace {

class SizedCoder {
 public:
  explicit SizedCoder(std::shared_ptr<const ByteCoder> coder) : coder_(std::move(coder)) {}

  Result<std::uint64_t> encoded_size(std::span<const std::byte> bytes) {
    Memory memory = take();
    if (const std::size_t needed = coder_->max_encoded_size(bytes.size()); memory.out.size() < needed) {
      memory.out.resize(needed);
    }
    const auto size = memory.state->encode(bytes, memory.out);
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(memory));
    return size;
  }

 private:
  struct Memory {
    std::unique_ptr<ByteCoderState> state;
    std::vector<std::byte> out;
  };

  Memory take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      return {coder_->make_state(), {}};
    }
    Memory memory = std::move(free_.back());
    free_.pop_back();
    return memory;
  }

  std::shared_ptr<const ByteCoder> coder_;
  std::mutex mutex_;
  std::vector<Memory> free_;
};

}  // namespace

std::vector<AnalysisEngine> analysis_engines() {
  std::vector<AnalysisEngine> engines;
  for (const auto& coder : general_coders()) {
    auto sized = std::make_shared<SizedCoder>(coder);
    engines.push_back(
        {coder->name(), [sized](std::span<const std::byte> bytes) { return sized->encoded_size(bytes); }});
  }
  return engines;
}

}  // namespace bitsnap::cli
