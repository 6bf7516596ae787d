// The training job that the agent serves: what its ranks share. The agent owns one Job for each world size. Each member
// says which threads may use it.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "engine/attempt_codings.hpp"
#include "engine/attempts.hpp"
#include "engine/publish_turns.hpp"
#include "os/file_system.hpp"

namespace bitsnap::engine {

struct Job {
  Job(os::FileSystem& file_system, std::string store, std::uint32_t ranks, std::string session,
      std::string attempt_prefix, unsigned encoder_threads)
      : files(file_system),
        store_path(std::move(store)),
        world_size(ranks),
        threads(encoder_threads),
        attempts(std::move(session), std::move(attempt_prefix)) {}

  os::FileSystem& files;
  const std::string store_path;
  const std::uint32_t world_size;
  const unsigned threads;
  Attempts attempts;           // any thread
  PublishTurns publish_turns;  // any thread
  std::mutex encode_gate;      // held while encoding: one rank at a time, with all threads
  AttemptCodings codings;      // used while `encode_gate` is held
};

}  // namespace bitsnap::engine
