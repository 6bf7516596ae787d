// Engine::Impl, the trainer's side of the engine: it holds the link to the agent, and makes the calls of Engine of its
// parts: the saves and slots (TrainerSaves), the arena (TrainerArena) and the store (TrainerStore).
//
// Sources: trainer.cpp (attaching), trainer_progress.cpp, trainer_save.cpp, trainer_restore.cpp. Any thread may call
// the public functions. `mutex_` guards what the receiving thread changes. `save_mutex_` is held by the one call that
// saves, restores or connects, and is taken before `mutex_`. The link is called without `mutex_`, because its receiving
// thread takes it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <bitsnap/engine.hpp>

#include "base/try.hpp"
#include "engine/agent_link.hpp"
#include "engine/fetched_snapshots.hpp"
#include "engine/messages.hpp"
#include "engine/slot_layout.hpp"
#include "engine/trainer_arena.hpp"
#include "engine/trainer_saves.hpp"
#include "engine/trainer_store.hpp"
#include "exec/executor.hpp"
#include "os/file_system.hpp"
#include "os/memory_limit.hpp"

namespace bitsnap {

class Engine::Impl {
 public:
  // `files` must outlive the Impl and everything that it restores; nullptr: those of the store's home.
  [[nodiscard]] static Result<std::unique_ptr<Impl>> attach(const EngineOptions& options,
                                                            os::FileSystem* files = nullptr,
                                                            os::MemoryProbe memory = os::available_memory);
  ~Impl();

  [[nodiscard]] Result<SaveState> save(std::uint64_t step, const State& state, bool persist);
  [[nodiscard]] Result<void> reserve(const State& state);
  [[nodiscard]] Result<SaveState> look(std::uint64_t ticket);
  [[nodiscard]] Result<SaveState> wait(std::uint64_t ticket, SaveStage stage, std::uint64_t timeout_ms, bool is_urgent);
  [[nodiscard]] Result<void> wait_all(std::uint64_t timeout_ms);
  [[nodiscard]] std::vector<SaveState> take_failures();

  [[nodiscard]] Result<std::vector<RestorableStep>> steps(std::optional<std::uint64_t> timeout_ms = {});
  [[nodiscard]] Result<std::optional<std::uint64_t>> latest();
  [[nodiscard]] bool rotate(std::span<const std::uint64_t> removed, std::optional<std::uint64_t> keep_last);
  [[nodiscard]] Result<void> persist_earlier(std::uint64_t step, const std::string& attempt,
                                             std::optional<std::uint64_t> timeout_ms);
  [[nodiscard]] Result<Restored> restore(std::uint64_t step, const std::string& attempt,
                                         std::optional<std::uint64_t> timeout_ms, bool in_place);

  [[nodiscard]] const EngineOptions& options() const noexcept { return options_; }
  [[nodiscard]] std::int64_t agent_process() const;
  [[nodiscard]] std::uint64_t arena_bytes() const { return is_forked() ? 0 : arena_.size_bytes(); }
  [[nodiscard]] std::string memory_note() const { return is_forked() ? std::string() : arena_.note(); }
  // Whether this process is a forked child: it has no receiving thread, and the locks may be held for ever.
  [[nodiscard]] bool is_forked() const noexcept;

 private:
  using Link = std::shared_ptr<engine::AgentLink>;
  using Clock = std::chrono::steady_clock;

  using Pages = engine::TrainerArena::Pages;

  // The link to the present agent, or to the last one, and what is known of that agent.
  struct Session {
    std::uint64_t number = 0;  // of the link; late reports of an earlier one are ignored
    Link link = {};
    bool is_lost = true;     // there is no usable link
    bool has_arena = false;  // the agent has the present arena
    bool is_silent = false;  // it did not answer when it was asked for a decision, and has not spoken since
    bool is_hurried = false;
    engine::Welcome welcome = {};  // says which messages it knows
  };

  // Outlives the Impl: restored snapshots use it to find the Impl.
  struct Self {
    std::mutex mutex;
    Impl* impl = nullptr;  // nullptr after the Impl is destroyed
  };

  Impl(const EngineOptions& options, os::FileSystem& files, os::MemoryProbe memory);

  // invalid_argument in a forked child.
  [[nodiscard]] Result<void> check_process() const;
  [[nodiscard]] engine::Hello hello() const;
  // Returns the present link, or connects to an agent and hands over all unfinished saves that are still in a slot.
  // Precondition: `save_mutex_` is held, or no other thread knows this object.
  [[nodiscard]] Result<Link> connected(Clock::time_point deadline);
  // Makes a request of the present agent; if the agent dies meanwhile, of the next one.
  template <typename Request>
  [[nodiscard]] auto with_agent(Clock::time_point deadline, const Request& request)
      -> decltype(request(std::declval<const Link&>())) {
    constexpr int kMostAgents = 4;  // that may die of one request before the call fails
    for (int left = kMostAgents;; --left) {
      BITSNAP_ASSIGN(const Link link, connected(deadline));
      auto result = request(link);
      if (result || left == 1 || !link->is_lost()) return result;
    }
  }
  [[nodiscard]] Result<void> greet(const Link& link, Clock::time_point deadline);
  [[nodiscard]] Result<void> hand_over_again(const Link& link, Clock::time_point deadline);
  [[nodiscard]] Result<void> offer_arena(const Link& link, const engine::Arena& arena, Clock::time_point deadline);
  [[nodiscard]] Result<std::unique_lock<std::mutex>> lock_saving(Clock::time_point deadline);
  [[nodiscard]] Link link() const;
  void drop_link();

  // trainer_progress.cpp
  // Makes the change under `mutex_`, and tells the calls that wait.
  template <typename Change>
  void change(const Change& change) {
    {
      const std::lock_guard lock(mutex_);
      change();
    }
    changed_.notify_all();
  }
  // `link` is the number of the link that reports.
  void on_progress(std::uint64_t link, const engine::ProgressEvent& event);
  void on_lost(std::uint64_t link, const Error& error);
  [[nodiscard]] Result<SaveState> wait_until(std::uint64_t ticket, SaveStage stage, std::uint64_t timeout_ms,
                                             bool is_urgent);
  [[nodiscard]] Result<void> wait_until_all_over(std::uint64_t timeout_ms);
  [[nodiscard]] Result<void> wait_for_change(Clock::time_point deadline);
  // Ends the lost saves: as persisted if the store has them, as failed otherwise.
  void settle_lost();
  // The link to an agent that knows a message; nullptr if there is none.
  [[nodiscard]] Link link_that_knows(bool engine::Welcome::* message) const;
  // Tells the agent whether this trainer waits for it, if it knows that message. A lost agent forgets it.
  void hurry_agent(bool waits);

  // trainer_save.cpp
  // Whether this step is to be saved, as the agent decides for all its ranks; true where nobody decides.
  [[nodiscard]] Result<bool> is_decided_to_save(std::uint64_t step);
  [[nodiscard]] Result<void> fit_arena(const engine::SlotPlan& plan, Pages pages, Clock::time_point deadline);
  [[nodiscard]] Result<void> fit_arena_of(const Link& link, const engine::SlotPlan& plan, Pages pages,
                                          Clock::time_point deadline);
  [[nodiscard]] Result<void> await_encoded(Clock::time_point deadline);
  // nullopt: all slots are in use and WhenBusy::skip is set.
  [[nodiscard]] Result<std::optional<std::uint32_t>> take_slot(Clock::time_point deadline);
  [[nodiscard]] Result<std::optional<std::uint32_t>> wait_for_slot(Clock::time_point deadline);
  [[nodiscard]] Result<void> hand_over(const engine::Staged& staged, Clock::time_point deadline);
  // Handles the agent's answer to a `staged` message.
  void on_taken(std::uint64_t link, std::uint64_t ticket, const Result<engine::AgentLink::Answer>& answer);
  // Lets the agent give back what it keeps of states that are in the store, and gives back the pages of free slots.
  // Fails only if the caller was interrupted.
  [[nodiscard]] Result<void> give_back_agents_memory(const Link& link, const engine::FetchRequest& request,
                                                     Clock::time_point deadline);
  void give_free_slots_back();

  // trainer_restore.cpp
  // Asks the agent; if the agent dies before it answers, asks the next one.
  [[nodiscard]] Result<engine::AgentLink::Answer> ask(engine::MessageKind kind, const std::string& body,
                                                      engine::MessageKind expected, Clock::time_point deadline);
  [[nodiscard]] Result<std::shared_ptr<const Snapshot>> fetch(std::uint64_t step, const std::string& attempt,
                                                              bool in_place, Clock::time_point deadline);
  // Asks the agent for the files. If there is too little memory, the agent gives some back, and this asks again.
  [[nodiscard]] Result<engine::AgentLink::Answer> fetch_files(engine::FetchRequest request, Clock::time_point deadline);
  // load(), if there is enough memory for the state; resource_exhausted otherwise.
  [[nodiscard]] Result<std::shared_ptr<const Snapshot>> load_in_memory_left(std::uint64_t step, bool in_place,
                                                                            Clock::time_point deadline);
  // Gives back all memory that is unneeded if the step is read from the store: the agent's, and this trainer's arena.
  [[nodiscard]] Result<void> give_back_for(std::uint64_t step, Clock::time_point deadline);
  [[nodiscard]] Result<std::shared_ptr<const engine::FetchedSnapshots>> accept_files(engine::AgentLink::Answer answer,
                                                                                     std::uint64_t step);
  // Chooses the attempt to restore, because ranks may have states of different attempts in memory. `agreed`: the
  // attempt that the caller asks for, or empty. The result is empty for one rank.
  [[nodiscard]] Result<std::string> wanted_attempt(std::uint64_t step, const std::string& agreed,
                                                   Clock::time_point deadline);
  [[nodiscard]] Result<engine::StepList> list(Clock::time_point deadline);
  // An error if memory had the step, and was dropped because the job has another world size now.
  Result<void> check_not_dropped(std::uint64_t step, Clock::time_point deadline);

  const EngineOptions options_;
  const os::MemoryProbe memory_;
  const std::shared_ptr<Self> self_ = std::make_shared<Self>();
  const std::int64_t process_;
  const std::unique_ptr<exec::Executor> executor_;
  engine::TrainerStore store_;

  std::mutex save_mutex_;
  engine::SlotPlanner planner_;  // guarded by `save_mutex_`
  engine::TrainerArena arena_;   // guarded by `save_mutex_`
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  engine::TrainerSaves saves_;
  Session session_;
};

}  // namespace bitsnap
