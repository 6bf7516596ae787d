// Engine::Impl, the trainer's side of the engine: the link to the agent, the arena's slots as the trainer sees them,
// and the state of each save.
//
// Sources: trainer.cpp (attaching), trainer_store.cpp, trainer_progress.cpp, trainer_decision.cpp, trainer_memory.cpp,
// trainer_save.cpp, trainer_restore.cpp. Any thread may call the public functions. `mutex_` guards what the receiving
// thread changes. `save_mutex_` is held by the one call that saves, restores or connects, and is taken before `mutex_`.
// The link is called without `mutex_`, because its receiving thread takes it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
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
#include "engine/page_taker.hpp"
#include "engine/slot_layout.hpp"
#include "exec/executor.hpp"
#include "os/file_system.hpp"
#include "os/memory_limit.hpp"
#include "os/shared_memory.hpp"
#include "restore/decoded_state.hpp"

namespace bitsnap {

class Engine::Impl {
 public:
  // `files` must outlive the Impl and everything that it restores.
  [[nodiscard]] static Result<std::unique_ptr<Impl>> attach(const EngineOptions& options,
                                                            os::FileSystem& files = os::real_file_system(),
                                                            os::MemoryProbe memory = os::available_memory);
  ~Impl();

  [[nodiscard]] Result<SaveState> save(std::uint64_t step, const State& state, bool persist);
  [[nodiscard]] Result<void> reserve(const State& state);
  [[nodiscard]] Result<SaveState> look(std::uint64_t ticket) const;
  [[nodiscard]] Result<SaveState> wait(std::uint64_t ticket, SaveStage stage, std::uint64_t timeout_ms, bool is_urgent);
  [[nodiscard]] Result<void> wait_all(std::uint64_t timeout_ms);
  [[nodiscard]] std::vector<SaveState> take_failures();

  [[nodiscard]] Result<std::vector<RestorableStep>> steps(std::optional<std::uint64_t> timeout_ms = {});
  [[nodiscard]] Result<std::optional<std::uint64_t>> newest_common_step();
  [[nodiscard]] bool rotate(std::span<const std::uint64_t> removed, std::optional<std::uint64_t> keep_last);
  [[nodiscard]] Result<void> persist_earlier(std::uint64_t step, const std::string& attempt,
                                             std::optional<std::uint64_t> timeout_ms);
  [[nodiscard]] Result<Restored> restore(std::uint64_t step, const std::string& attempt,
                                         std::optional<std::uint64_t> timeout_ms, bool in_place);

  [[nodiscard]] const EngineOptions& options() const noexcept { return options_; }
  [[nodiscard]] std::int64_t agent_process() const;
  [[nodiscard]] std::uint64_t arena_bytes() const;
  [[nodiscard]] std::string memory_note() const;
  // Whether this process is a forked child: it has no receiving thread, and the locks may be held for ever.
  [[nodiscard]] bool is_forked() const noexcept;

 private:
  using Link = std::shared_ptr<engine::AgentLink>;
  using Clock = std::chrono::steady_clock;

  enum class SlotState : std::uint8_t { free, filling, given };
  struct Slot {
    SlotState state = SlotState::free;
    std::optional<std::uint64_t> ticket = {};  // of a given slot, unless an earlier trainer staged it
    // Set while a restored snapshot reads from the slot.
    std::weak_ptr<restore::DecodedState> chunks = {};
    std::weak_ptr<const engine::FetchedSnapshots> files = {};
  };
  // Shared with the restored snapshots that read from it.
  struct Arena {
    os::SharedMemory memory;
    os::MappedMemory mapping;
    std::uint32_t slots = 0;
    std::uint64_t slot_bytes = 0;
    // What DeviceTensors::pin returned for each slot; guarded by `save_mutex_`. Goes before the mapping does.
    std::vector<std::shared_ptr<void>> pins = std::vector<std::shared_ptr<void>>(slots);

    [[nodiscard]] ByteSpan slot(std::uint32_t number) const noexcept;
  };
  struct Save {
    SaveState state;
    std::optional<std::uint32_t> slot;  // the slot that still holds the state
    std::uint64_t bytes = 0;            // bytes used in the slot
    std::uint64_t link = 0;             // number of the link that staged it last
    bool is_new = false;                // a checkpoint of this step can only come from this save
    bool was_told = false;              // an agent was told of it and may have accepted it
    int agents_died = 0;                // agents that died while they had it
    std::optional<Error> lost = {};     // set if the agent died and no slot holds the state: persisted or lost
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
  [[nodiscard]] unsigned agent_threads() const;
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
  [[nodiscard]] Result<void> hand_over_again(const Link& link, std::uint64_t number, Clock::time_point deadline);
  [[nodiscard]] Result<void> offer_arena(const Link& link, const std::shared_ptr<Arena>& arena,
                                         Clock::time_point deadline);
  [[nodiscard]] Result<std::unique_lock<std::mutex>> lock_saving(Clock::time_point deadline);
  // `link` is the number of the link that reports: late reports of an earlier link are ignored.
  void on_progress(std::uint64_t link, const engine::ProgressEvent& event);
  void on_lost(std::uint64_t link, const Error& error);
  // Handles the agent's answer to a `staged` message.
  void on_taken(std::uint64_t link, std::uint64_t ticket, const Result<engine::AgentLink::Answer>& answer);
  [[nodiscard]] Result<SaveState> wait_until(std::uint64_t ticket, SaveStage stage, std::uint64_t timeout_ms,
                                             bool is_urgent);
  [[nodiscard]] Result<void> wait_until_all_over(std::uint64_t timeout_ms);
  [[nodiscard]] Result<void> wait_for_change(Clock::time_point deadline);
  // Ends the lost saves: as persisted if the store has them, as failed otherwise.
  void settle_lost();
  // Precondition of the next two functions: `mutex_` is held.
  void end_with(Save& save, Error error);
  void forget_old();
  [[nodiscard]] Link link() const;
  void drop_link();

  // trainer_decision.cpp
  // Whether this step is to be saved, as the agent decides for all its ranks; true where nobody decides.
  [[nodiscard]] Result<bool> is_decided_to_save(std::uint64_t step);

  // trainer_save.cpp
  // `pages`: how much of a new arena is present when the agent gets it.
  enum class Pages : std::uint8_t { of_a_slot, all };
  [[nodiscard]] Result<void> fit_arena(const engine::SlotPlan& plan, Pages pages, Clock::time_point deadline);
  [[nodiscard]] Result<void> fit_arena_of(const Link& link, const engine::SlotPlan& plan, Pages pages,
                                          Clock::time_point deadline);
  [[nodiscard]] Result<void> await_encoded(Clock::time_point deadline);
  [[nodiscard]] static std::unique_ptr<engine::PageTaker> pages_of(const std::shared_ptr<Arena>& arena);
  [[nodiscard]] Result<void> take_pages_of(const Arena& arena, engine::PageTaker& taker, Pages pages);
  // Makes the pages of a slot present.
  [[nodiscard]] Result<void> take_pages(std::uint32_t slot);
  // Prepares a slot, whose pages are present, for the copies of the state's device, unless this was done before.
  void pin_slot(std::uint32_t slot, const State& state);
  // Tells the agent whether this trainer waits for it, if it knows that message. A lost agent forgets it.
  void hurry_agent(bool waits);
  // nullopt: all slots are in use and WhenBusy::skip is set.
  [[nodiscard]] Result<std::optional<std::uint32_t>> take_slot(Clock::time_point deadline);
  [[nodiscard]] Result<std::optional<std::uint32_t>> wait_for_slot(Clock::time_point deadline);
  // Whether the store can have this step only from the save that begins now. Called for each save, in their order.
  [[nodiscard]] bool is_new_step(std::uint64_t step, bool persist);
  [[nodiscard]] Result<void> hand_over(std::uint64_t ticket, const engine::Staged& staged, Clock::time_point deadline);

  // trainer_memory.cpp
  // Whether the present arena serves for this state.
  [[nodiscard]] bool is_arena_fit(const engine::SlotPlan& plan);
  // Sets `wanted_slots_`: one, if there is not enough memory for more. resource_exhausted if there is not enough for
  // one.
  [[nodiscard]] Result<void> choose_slots(const engine::SlotPlan& plan);
  static constexpr std::uint64_t kNoStep = UINT64_MAX;
  // Lets the agent give back what it keeps of states that are in the store, and gives back the pages of free slots.
  // Fails only if the caller was interrupted.
  [[nodiscard]] Result<void> give_back_agents_memory(const Link& link, const engine::FetchRequest& request,
                                                     Clock::time_point deadline);
  // Only this trainer writes to free slots, and nobody reads them, except restored snapshots, whose slots stay.
  void give_free_slots_back();
  // Lets go of an arena that the present agent does not have, unless a save is still in it.
  void drop_unused_arena();
  // `more_bytes` beside what is available now. `note`: why it is fewer than the options say.
  [[nodiscard]] Result<std::uint32_t> affordable_slots(const engine::SlotPlan& plan, std::uint64_t more_bytes,
                                                       std::string& note) const;
  [[nodiscard]] static Result<std::shared_ptr<Arena>> make_arena(const engine::SlotPlan& plan, std::uint32_t slots);

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
  // Called before a slot is written: makes the snapshots that read from the slot independent of it.
  void send_readers_away(const Slot& slot);

  // trainer_store.cpp
  // Opens the store as the agent will, and creates it if it does not exist. Fails if the agent could save nothing there
  // until the caller mends something; a full disk and a read-only mount are no such failures.
  [[nodiscard]] Result<void> check_store() const;
  [[nodiscard]] Result<std::unique_ptr<Store>> read_store() const;
  // The attempt by which the step is in the store; nullopt if the step is not there.
  [[nodiscard]] Result<std::optional<std::string>> committed_attempt(std::uint64_t step) const;
  [[nodiscard]] Result<std::shared_ptr<const Snapshot>> load(std::uint64_t step) const;

  const EngineOptions options_;
  os::FileSystem& files_;
  const os::MemoryProbe memory_;
  const std::shared_ptr<Self> self_ = std::make_shared<Self>();
  const std::int64_t process_;
  const std::unique_ptr<exec::Executor> executor_;

  std::mutex save_mutex_;
  engine::SlotPlanner planner_;  // guarded by `save_mutex_`
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  Link link_;
  std::shared_ptr<Arena> arena_;
  std::unique_ptr<engine::PageTaker> pages_;  // of `arena_`; guarded by `save_mutex_`
  // Guarded by `save_mutex_`.
  std::uint32_t wanted_slots_;       // of the arena
  bool is_arena_checked_ = false;    // the system has memory for all pages of the present arena
  bool must_replace_arena_ = false;  // there is memory for another arena only without the present one

  std::string memory_note_;  // Engine::memory_note()
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> early_frees_;  // slots freed right after `welcome`, before `slots_` was set
  std::uint64_t last_ticket_ = 0;
  // Steps below this one may be in the store by something else than the save that begins next: those that the store had
  // before the first save, those that persist_earlier() asked for, and those of earlier saves. Guarded by
  // `save_mutex_`.
  std::uint64_t least_new_step_ = 0;
  bool knows_store_ = false;  // `least_new_step_` counts what the store had before the first save
  std::map<std::uint64_t, Save> saves_;
  std::vector<SaveState> failures_;
  bool is_lost_ = true;  // there is no usable link
  std::uint64_t link_number_ = 0;
  std::uint64_t arena_link_ = 0;  // number of the link that sent the arena
  // The agent of the present link decides which steps its ranks save, and did not fail to answer since it spoke last.
  bool is_deciding_ = false;
  bool is_silent_ = false;
  bool is_hurrying_ = false;        // the agent of the present link knows `hurry`
  bool is_rotating_ = false;        // and `rotate`
  std::uint64_t hurried_link_ = 0;  // number of the link whose agent was told to hurry
};

}  // namespace bitsnap
