// RankTotals: what became of a rank's saves, for status output and monitoring. Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <bitsnap/error.hpp>

#include "engine/messages.hpp"
#include "json/json_fields.hpp"

namespace bitsnap::engine {

// A save to the store that has ended. `kind`, `code` and `message` are those of its error; empty if it was persisted.
struct EndedSave {
  std::uint64_t step = 0;
  std::string stage;  // "persisted", "failed" or "skipped"
  std::string kind = {};
  std::string code = {};
  std::string message = {};
};

constexpr auto json_fields(std::type_identity<EndedSave>) {
  return std::array{json_field<&EndedSave::step>("step"), json_field<&EndedSave::stage>("stage"),
                    json_field<&EndedSave::kind>("kind"), json_field<&EndedSave::code>("code"),
                    json_field<&EndedSave::message>("message")};
}

struct SaveTotals {
  std::uint64_t saves = 0;  // saves that reached memory
  std::uint64_t persisted = 0;
  std::uint64_t failed = 0;
  std::uint64_t skipped = 0;    // saves that were not committed, because not all ranks saved the step
  std::uint64_t raw_bytes = 0;  // of all encoded states, even if they did not fit in memory
  std::uint64_t stored_bytes = 0;
  std::uint64_t encode_us = 0;
  std::uint64_t write_us = 0;
  std::optional<std::uint64_t> last_persisted_step;
  std::string last_error;
  std::vector<EndedSave> ended;  // since the present trainer said hello, oldest first; only the newest ones
};

class RankTotals {
 public:
  static constexpr std::size_t kMaxEnded = 64;

  // A new trainer has said hello.
  void begin_trainer();
  // The step is saved again: how its last save ended counts no more.
  void begin_save(std::uint64_t step);
  void add_encoded(const ProgressEvent& event, bool is_in_memory);
  void add_persisted(std::uint64_t step, const ProgressEvent& event);
  // `event`: that of the failure, with its error.
  void add_failed(std::uint64_t step, const ProgressEvent& event, bool is_for_store);
  void set_last_error(const Error& error);
  [[nodiscard]] SaveTotals get() const;

 private:
  void add_ended(EndedSave ended);

  mutable std::mutex mutex_;
  SaveTotals totals_;
};

}  // namespace bitsnap::engine
