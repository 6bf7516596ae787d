"""bitsnap.Checkpointer among processes: trainers and agents that are killed, forks, signals, several ranks."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

import bitsnap
from python.engine.checkpointer_jobs import Jobs
from python.processes import finish_script, in_fork, run_script, start_script
from python.same_bits import assert_same

# Without torch, which takes longer to import than all else here.
IMPORTS = """
import os, signal, sys, threading, time, warnings
sys.modules["torch"] = None
import numpy as np, bitsnap
path, job = sys.argv[1:3]
def state_of(step, rank=0, size=50_000):
    values = np.random.default_rng(rank).standard_normal(size)
    values[step] = step
    return {"step": step, "rank": rank, "w": values}
def attach(**options):
    agent = bitsnap.AgentOptions(threads=1, linger=20)
    return bitsnap.Checkpointer(path, **{"job": bitsnap.JobOptions(job), "agent": agent, "timeout": 30} | options)
"""


def state_of(step: int, rank: int = 0, size: int = 50_000) -> dict[str, object]:
    values = np.random.default_rng(rank).standard_normal(size)
    values[step] = step
    return {"step": step, "rank": rank, "w": values}


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def killed(process: subprocess.Popen[str]) -> None:
    process.kill()
    with process:
        process.wait(30)


def test_a_killed_trainer_finds_what_it_had_staged(jobs: Jobs) -> None:
    script = (
        IMPORTS
        + """
checkpointer = attach(every=2, every_memory=1)
for step in (1, 2, 3):
    checkpointer.save(step, state_of(step, size=500_000))
print("staged", flush=True)
time.sleep(60)
"""
    )
    trainer = start_script(script, jobs.path, jobs.job)
    assert line_of(trainer) == "staged"
    killed(trainer)
    with jobs() as checkpointer:
        restored = checkpointer.restore()
        assert restored is not None
        assert (restored.step, restored.source) == (3, "memory")
        assert_same(restored.state, state_of(3, size=500_000))
        assert checkpointer.arena_bytes > 0
        save = checkpointer.save(4, state_of(4, size=500_000))
        assert save is not None
        assert save.result().base == 2
    with bitsnap.Store(jobs.path, read_only=True) as store:
        assert store.steps() == [2, 4]
        store.verify()


def test_on_progress_that_never_returns_does_not_keep_a_process_or_make_it_say_anything(jobs: Jobs) -> None:
    script = (
        IMPORTS
        + """
from bitsnap._engine import saves
saves._LONGEST_JOIN = 0.2
entered = threading.Event()
def tell(save):
    entered.set()
    time.sleep(1000)
checkpointer = attach(on_progress=tell)
checkpointer.save(1, state_of(1)).wait_persisted()
assert entered.wait(10)
"""
    )
    trainer = start_script(script, jobs.path, jobs.job)
    with trainer:
        assert trainer.communicate(timeout=30) == ("", "")
    assert trainer.returncode == 0


def test_a_killed_agent_costs_no_save_that_is_still_staged(jobs: Jobs) -> None:
    with jobs() as checkpointer:
        first = checkpointer.save(1, state_of(1))
        assert first is not None
        assert first.wait_persisted()
        agent = jobs.agent()
        second = checkpointer.save(2, state_of(2, size=3_000_000))
        os.kill(agent, signal.SIGKILL)
        third = checkpointer.save(3, state_of(3))
        assert second is not None
        assert third is not None
        assert third.wait_persisted()
        assert second.wait_persisted()
        assert checkpointer.agent_process not in (None, agent)
        assert checkpointer.steps() == [1, 2, 3]
        restored = checkpointer.restore(2)
        assert restored is not None
        assert_same(restored.state, state_of(2, size=3_000_000))


def test_whoever_waits_for_a_killed_agent_starts_the_next_one(jobs: Jobs) -> None:
    with jobs() as checkpointer:
        first = checkpointer.save(1, state_of(1, size=3_000_000))
        assert first is not None
        assert first.wait_persisted()
        agent = jobs.agent()
        os.kill(agent, signal.SIGSTOP)  # so that it cannot store the next state before it is killed
        save = checkpointer.save(2, state_of(2, size=3_000_000))
        os.kill(agent, signal.SIGKILL)
        assert save is not None
        assert save.wait_persisted()
        os.kill(jobs.agent(), signal.SIGKILL)
        restored = checkpointer.restore()
        assert restored is not None
        assert (restored.step, restored.source) == (2, "store")


def test_a_process_that_ends_without_closing_is_not_held_up(jobs: Jobs) -> None:
    script = (
        IMPORTS
        + """
checkpointer = attach(on_progress=lambda save: None)
checkpointer.save(1, state_of(1, size=2_000_000))
print(time.time(), flush=True)
"""
    )
    began = float(run_script(script, jobs.path, jobs.job))
    assert time.time() - began < 60
    with jobs() as checkpointer:
        restored = checkpointer.restore()
        assert restored is not None
        assert_same(restored.state, state_of(1, size=2_000_000))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_is_refused_and_disturbs_nobody(jobs: Jobs) -> None:
    with jobs(on_progress=lambda save: None) as checkpointer:
        save = checkpointer.save(1, state_of(1, size=1_000_000))
        assert save is not None

        def child() -> None:
            known = save.stage  # of the moment of the fork: what the parent does since, the child does not see
            for call in (
                lambda: checkpointer.save(2, {}),
                lambda: checkpointer.restore(),
                lambda: checkpointer.wait(),
                lambda: checkpointer.steps(),
            ):
                with pytest.raises(bitsnap.InvalidArgumentError, match="forked from"):
                    call()
            with pytest.raises(bitsnap.InvalidArgumentError, match="forked from"):
                save.wait_persisted()
            checkpointer.close()
            assert save.stage == known in ("staged", "memory", "persisted")
            with bitsnap.Checkpointer(
                jobs.path, job=bitsnap.JobOptions(jobs.new_job()), agent=bitsnap.AgentOptions(linger=0.1)
            ) as own:
                assert own.steps() in ([], [1])

        assert in_fork(child) == 0
        assert save.wait_persisted()
        second = checkpointer.save(2, state_of(2))
        assert second is not None
        assert second.wait_persisted()


def test_a_child_that_forked_and_exits_as_programs_do_disturbs_nobody(jobs: Jobs) -> None:
    script = (
        IMPORTS
        + """
warnings.simplefilter("ignore", DeprecationWarning)
checkpointer = attach(on_progress=lambda save: None, flush_on_sigterm=True)
save = checkpointer.save(1, state_of(1))
child = os.fork()
if child == 0:
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
ready, say = os.pipe()
child = os.fork()
if child == 0:
    os.write(say, b"ready")
    time.sleep(60)
    os._exit(1)
os.read(ready, 5)
os.kill(child, signal.SIGTERM)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
assert save.wait_persisted() and checkpointer.save(2, state_of(2)).wait_persisted()
checkpointer.close()
print("well")
"""
    )
    assert run_script(script, jobs.path, jobs.job) == "well\n"


def test_sigterm_waits_for_memory_and_then_does_what_it_did_before(jobs: Jobs) -> None:
    script = (
        IMPORTS
        + """
if sys.argv[3] == "handler":
    def before(number, frame):
        print(save.stage in ("memory", "persisted"), flush=True)
        sys.exit(3)
    signal.signal(signal.SIGTERM, before)
checkpointer = attach(flush_on_sigterm=True)
save = checkpointer.save(1, state_of(1, size=3_000_000))
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(60)
"""
    )
    process = start_script(script, jobs.path, jobs.job, "handler")
    with process:
        assert process.communicate(timeout=30)[0] == "True\n"
    assert process.returncode == 3
    bare = start_script(script, jobs.path.with_name("other"), jobs.new_job(), "default")
    with bare:
        bare.communicate(timeout=30)
    assert bare.returncode == -signal.SIGTERM


def test_the_handler_of_sigterm_goes_with_the_checkpointer(jobs: Jobs) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with jobs(flush_on_sigterm=True):
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_ctrl_c_ends_what_waits(jobs: Jobs) -> None:
    script = (
        IMPORTS
        + """
# The other rank never saves, so that nothing is committed, and the budget has room for all of it.
memory = bitsnap.MemoryOptions(slots=1, budget=400_000_000)
checkpointer = attach(job=bitsnap.JobOptions(job, world_size=2), memory=memory)
save = checkpointer.save(1, state_of(1))
calls = {"wait": checkpointer.wait, "persisted": save.wait_persisted}
def interrupted(name, call):
    timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    begin = time.monotonic()
    try:
        call()
    except KeyboardInterrupt:
        print(name, time.monotonic() - begin < 25, flush=True)
    timer.join()
for name, call in calls.items():
    interrupted(name, call)
save.wait_memory()
agent = checkpointer.agent_process
os.kill(agent, signal.SIGSTOP)
interrupted("restore", checkpointer.restore)
os.kill(agent, signal.SIGCONT)
large = state_of(2, size=4_000_000)
checkpointer.save(2, large).wait_memory()
large["w"] += 1
os.kill(agent, signal.SIGSTOP)
checkpointer.save(3, large)
interrupted("save", lambda: checkpointer.save(4, large))
os.kill(agent, signal.SIGCONT)
assert checkpointer.save(5, large).wait_memory()
"""
    )
    expected = ["wait True", "persisted True", "restore True", "save True"]
    assert run_script(script, jobs.path, jobs.job).splitlines() == expected


def test_ranks_are_committed_together(jobs: Jobs) -> None:
    script = (
        IMPORTS
        + """
rank = int(sys.argv[3])
with attach(job=bitsnap.JobOptions(job, rank, 2)) as checkpointer:
    restored = checkpointer.restore()
    start = 0 if restored is None else restored.step
    if restored is not None:
        assert restored.source == "memory" and restored.state["rank"] == rank
        assert np.array_equal(restored.state["w"], state_of(start, rank)["w"])
    for step in range(start + 1, start + 4):
        checkpointer.save(step, state_of(step, rank))
    checkpointer.wait()
    print(start, checkpointer.steps()[-1], flush=True)
"""
    )
    for expected in ("0 3\n", "3 6\n"):
        ranks = [start_script(script, jobs.path, jobs.job, rank) for rank in (0, 1)]
        assert [finish_script(rank, 60) for rank in ranks] == [expected] * 2
    with bitsnap.Store(jobs.path, read_only=True) as store:
        assert store.steps() == [1, 2, 3, 4, 5, 6]
        for rank in (0, 1):
            assert_same(store.load(6, shard=rank), state_of(6, rank))


def test_a_step_that_one_rank_does_not_save_is_skipped_once_and_is_no_error(jobs: Jobs) -> None:
    script = (
        IMPORTS
        + """
rank = int(sys.argv[3])
warnings.simplefilter("always")
with warnings.catch_warnings(record=True) as told:
    with attach(job=bitsnap.JobOptions(job, rank, 2), every=2 if rank == 1 else 1) as checkpointer:
        saves = [checkpointer.save(step, state_of(step, rank)) for step in (2, 3, 4)]
        checkpointer.wait()
        saves += [checkpointer.save(step, state_of(step, rank)) for step in (5, 6)]
        checkpointer.wait()
        if saves[1] is not None:
            assert saves[1].staged() and saves[1].wait_memory() and saves[1].error is None
            assert not saves[1].wait_persisted()
            try:
                saves[1].result()
            except bitsnap.BusyError as error:
                print(error)
        saves.append(checkpointer.save(7, state_of(7, rank)))
print([save and save.stage for save in saves], [str(each.message) for each in told])
"""
    )
    ranks = [start_script(script, jobs.path, jobs.job, rank) for rank in (0, 1)]
    lines = [finish_script(rank, 60) for rank in ranks]
    skipped = "was skipped: not all ranks saved it"
    stages = ["persisted", "skipped", "persisted", "skipped", "persisted", "skipped"]
    assert lines[0] == f"step 3 {skipped}\n{stages} ['step 3 {skipped}', 'step 5 {skipped}']\n"
    assert lines[1] == f"{[None if stage == 'skipped' else stage for stage in stages]} []\n"
    with bitsnap.Store(jobs.path, read_only=True) as store:
        assert store.steps() == [2, 4, 6]
        store.verify()
        for rank in (0, 1):
            assert_same(store.load(6, shard=rank), state_of(6, rank))


TWO_RANKS = (
    IMPORTS
    + """
ranks = [attach(job=bitsnap.JobOptions(job, rank, 2)) for rank in (0, 1)]
def save(rank, step):
    return ranks[rank].save(step, state_of(step, rank))
def error_of(wait):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bitsnap.BackgroundSaveWarning)
        try:
            return f"no error, but {wait()}"
        except bitsnap.BitsnapError as error:
            return f"{type(error).__name__}: {error}"
def go(what):
    print(what, flush=True)
    sys.stdin.readline()
"""
)


def test_two_jobs_on_one_store_hear_of_each_other(jobs: Jobs) -> None:
    late = (
        TWO_RANKS
        + """
waiting = save(0, 5)
while ranks[0].agent_status()["ranks"][0]["uncommitted"] == 0:
    time.sleep(0.01)
go("step 5 waits for its other shard")
print(error_of(waiting.wait_persisted))
print(error_of(ranks[0].wait))
too_late = save(1, 5)
print(error_of(too_late.result))
print(error_of(ranks[1].close))
"""
    )
    first = TWO_RANKS + "for save in [save(rank, 6) for rank in (0, 1)]: print(save.wait_persisted(), flush=True)"
    with start_script(late, jobs.path, jobs.job, stdin=subprocess.PIPE) as process:
        assert line_of(process) == "step 5 waits for its other shard"
        assert run_script(first, jobs.path, jobs.new_job()).splitlines() == ["True", "True"]
        assert process.stdin is not None
        print(file=process.stdin, flush=True)
        errors = finish_script(process, 60).splitlines()
    with bitsnap.Store(jobs.path, read_only=True) as store:
        assert store.steps() == [6]
        store.verify()
    begun = rf"InvalidArgumentError: committing step 5: {re.escape(str(jobs.path))}: another job, or an earlier start"
    assert all(
        re.match(rf"{begun} of this one, has committed step 6 \(attempt '.*give each its", each) for each in errors[:2]
    )
    late = "step must be greater than 6, .* another job committed step 6 .* give each job a store of its own"
    assert all(re.match(rf"InvalidArgumentError: step 5: .*{late}", each) for each in errors[2:])
    assert len(errors) == 4


@pytest.mark.slow  # An agent waits 10 seconds for the lock of a store.
def test_two_jobs_of_one_rank_on_one_store_hear_of_each_other(jobs: Jobs) -> None:
    with jobs() as first, jobs(job=bitsnap.JobOptions(jobs.new_job())) as second:
        save = first.save(6, state_of(6))
        assert save is not None
        assert save.wait_persisted()
        late = second.save(7, state_of(7))
        assert late is not None
        holder = f"process {first.agent_process} holds it.* give each job a store of its own, or stop it"
        for wait in (late.wait_persisted, second.wait):
            with pytest.raises(bitsnap.BusyError, match=rf"step 7: .*{holder}"):
                wait()


@pytest.mark.slow
def test_ranks_agree_by_torch_distributed(jobs: Jobs, tmp_path: Path) -> None:
    script = """
import sys, warnings
import numpy as np, torch, bitsnap
path, job, rank, meeting, life = *sys.argv[1:3], int(sys.argv[3]), *sys.argv[4:6]
torch.distributed.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=2)
checkpointer = bitsnap.Checkpointer(
    path,
    job=bitsnap.JobOptions(job),
    memory=bitsnap.MemoryOptions(snapshots=4),
    agent=bitsnap.AgentOptions(threads=1, linger=20),
    timeout=30,
)
assert (checkpointer.rank, checkpointer.world_size) == (rank, 2)
restored = checkpointer.restore()
if life == "1":
    assert restored is None
    for step in (1, 2):
        checkpointer.save(step, {"rank": rank, "w": np.full(1000, step)}).wait_persisted()
    if rank == 0:
        # The other rank does not come as far: this step is nobody's.
        checkpointer.save(3, {"rank": rank, "w": np.full(1000, 3)}).wait_memory()
    torch.distributed.barrier()
    checkpointer._end()
elif life == "2":
    assert (restored.step, restored.state["rank"]) == (2, rank), restored
    # One rank cannot read its own of the newest: both take the one before.
    from bitsnap import checkpointer as module
    load = module.load
    def damaged(native, **options):
        state = load(native, **options)
        if rank == 1 and state["w"][0] == 2:
            raise bitsnap.CorruptError("a bit has flipped")
        return state
    module.load = damaged
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        restored = checkpointer.restore()
    assert restored.step == 1, restored
    assert any("a bit has flipped" in str(each.message) for each in caught)
    def wrong(native, **options):
        if rank == 0:
            raise bitsnap.InvalidArgumentError("not what I want")
        return load(native, **options)
    module.load = wrong
    try:
        checkpointer.restore()
    except bitsnap.InvalidArgumentError as error:
        print(error, flush=True)
    checkpointer.close()
torch.distributed.destroy_process_group()
"""
    for life, expected in (
        ("1", ["", ""]),
        ("2", ["not what I want\n", "rank 0: not what I want\n"]),
    ):
        meeting = tmp_path / f"meeting{life}"
        ranks = [start_script(script, jobs.path, jobs.job, rank, meeting, life) for rank in (0, 1)]
        assert [finish_script(rank, 60) for rank in ranks] == expected
