// The status of an agent, and stopping it. Each call opens its own connection; any thread may call.
#include <fmt/format.h>

#include <bitsnap/engine.hpp>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "engine/agent_link.hpp"
#include "engine/shared_text.hpp"

namespace bitsnap {
namespace {

using engine::AgentLink;
using engine::MessageKind;

Result<std::unique_ptr<AgentLink>> open_link(const std::string& job, std::uint64_t timeout_ms) {
  BITSNAP_TRY(engine::check_job_name(job));
  BITSNAP_ASSIGN(os::LocalConnection connection, engine::connect_to_agent(job, engine::wait_of(timeout_ms)));
  return AgentLink::open(std::move(connection), [](const engine::ProgressEvent&) {}, [](const Error&) {});
}

}  // namespace

Result<std::string> agent_status(const std::string& job, std::uint64_t timeout_ms) {
  return no_throw("status", [&]() -> Result<std::string> {
    BITSNAP_ASSIGN(const std::unique_ptr<AgentLink> link, open_link(job, timeout_ms));
    BITSNAP_ASSIGN(AgentLink::Answer answer,
                   link->call(MessageKind::status, "{}", MessageKind::report, engine::wait_of(timeout_ms)));
    return engine::read_shared_text(answer.packet.body, std::move(answer.descriptors));
  });
}

Result<void> stop_agent(const std::string& job, bool abandon, std::uint64_t timeout_ms) {
  return no_throw("stop", [&]() -> Result<void> {
    const auto deadline = engine::deadline_in(timeout_ms);
    BITSNAP_ASSIGN(const std::unique_ptr<AgentLink> link, open_link(job, timeout_ms));
    BITSNAP_ASSIGN(const os::ProcessWatch watch, os::ProcessWatch::open(link->agent_process()));
    auto stopped = link->call(MessageKind::stop, serialize_body(engine::StopRequest{abandon}), MessageKind::ok,
                              engine::milliseconds_until(deadline));
    // A lost connection is no error: the agent may end before it has answered.
    if (!stopped && !link->is_lost()) return tl::unexpected(std::move(stopped).error());
    BITSNAP_ASSIGN(const bool has_ended, watch.wait(engine::milliseconds_until(deadline)));
    if (has_ended) return {};
    return fail(ErrorKind::busy, fmt::format("the agent of job '{}', process {}, did not exit within {} ms", job,
                                             watch.process(), timeout_ms));
  });
}

}  // namespace bitsnap
