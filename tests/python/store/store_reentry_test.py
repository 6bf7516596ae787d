"""Signal handlers and callbacks that call a store, or a checkpointer, while their thread is in a call of it.

What would wait for itself raises BusyError immediately, and the call that was interrupted goes on. Each test runs in a
process of its own, which is killed if it hangs.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from python.engine.checkpointer_jobs import Jobs
from python.processes import STORE_IMPORTS, run_script

# What a handler or callback may do: the changes of the store that it interrupts, and what only reads.
CALLS = (
    STORE_IMPORTS
    + """
state = {"w": np.arange(1 << 18, dtype=np.float32), "b": np.ones(5)}
source = path.parent / "source"
source.mkdir(exist_ok=True)
np.save(source / "a.npy", np.arange(1 << 18, dtype=np.float32))

def filled(**options):
    store = bitsnap.Store(path, **options)
    for step in range(1, 6):
        store.save(step, {"w": state["w"] + step, "b": state["b"]}, labels=[f"label-{step}"], files={"f": b"1"})
    store.add_folder(6, source)
    return store

CHANGES = {
    "save": lambda store: store.save(store.latest() + 99, state),
    "save_shard": lambda store: store.save_shard(99, state, shard=0, shards=1, attempt="a"),
    "commit": lambda store: store.commit(99, 1, "a"),
    "add_folder": lambda store: store.add_folder(store.latest() + 99, source),
    "label": lambda store: store.label(3, "new"),
    "unlabel": lambda store: store.unlabel("label-3"),
    "prune": lambda store: store.prune(keep_last=1),
    "prune, dry run": lambda store: store.prune(keep_last=1, dry_run=True),
    "remove": lambda store: store.remove([3]),
    "rollback": lambda store: store.rollback(store.steps()[0]),
    "another handle": lambda store: bitsnap.Store(path, timeout=float("inf")),
    "another shared handle": lambda store: bitsnap.Store(path, shared=True, timeout=float("inf")).commit(9, 1, "a"),
}
READS = {
    "load": lambda store: assert_same(store.load(3)["w"], state["w"] + 3),
    "steps": lambda store: store.steps() and store.checkpoints() and store.labels() and store.files(3),
    "verify": lambda store: store.verify(decode=True),
    "folder": lambda store: store.open_folder(6)["a.npy"].open().read(),
    "tensors": lambda store: store.tensors(3)["w"],
    "another handle to read": lambda store: bitsnap.Store(path, read_only=True).load(2),
    "another store": lambda store: bitsnap.Store(path.parent / f"other-{time.monotonic_ns()}").save(1, state),
    "a file": lambda store: bitsnap.save(path.parent / "f.bsnap", state, overwrite=True),
}
# The calls that have a callback, and so can be interrupted by one.
INTERRUPTED = {
    "save": lambda store, progress: store.save(7, {"w": state["w"] * 2}, progress=progress),
    "save_shard": lambda store, progress: store.save_shard(
        7, state, shard=0, shards=1, attempt="a", progress=progress),
    "add_folder": lambda store, progress: store.add_folder(7, source, progress=progress),
    "prune": lambda store, progress: store.prune(keep_last=2, reencode="always", progress=progress),
    "remove": lambda store, progress: store.remove([1, 2, 4], reencode="always", progress=progress),
}

def outcome(call, store):
    try:
        call(store)
        return "works"
    except bitsnap.BusyError as error:
        return "busy" if "this very thread is using the store" in str(error) else str(error)
"""
)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("interrupted", ["save", "save_shard", "add_folder", "prune", "remove"])
def test_a_progress_callback_cannot_wait_for_its_own_store(tmp_path: Path, interrupted: str, threads: int) -> None:
    script = (
        CALLS
        + """
def all_calls(done, total):
    if done >= total and not seen:
        seen["begun"] = "works"
        seen.update((name, outcome(call, store)) for name, call in (CHANGES | READS).items())

seen = {}
store = filled(threads=int(sys.argv[3]))
INTERRUPTED[sys.argv[2]](store, all_calls)
assert len(seen) > len(CHANGES), seen
print([name for name in CHANGES if seen[name] != "busy"], [name for name in READS if seen[name] != "works"])
store.verify()
print(store.save(8, state).step, store.latest())
"""
    )
    printed = run_script(script, tmp_path / "run", interrupted, threads, timeout=60)
    assert printed.splitlines() == ["[] []", "8 8"]


def test_a_signal_handler_cannot_wait_for_the_store_that_it_interrupts(tmp_path: Path) -> None:
    script = (
        CALLS
        + """
seen = {}
names = ["save", "add_folder", "label", "prune", "rollback", "another handle", "load", "steps", "another store"]
def handler(*_):
    global is_saving
    # The save may have returned already: then a change that does no harm works.
    if is_saving and names and outcome(lambda store: store.label(3, "probe"), store) == "busy":
        is_saving = False
        seen[names[0]] = outcome((CHANGES | READS)[names[0]], store)
        names.pop(0)

def progress(done, total):
    global is_saving
    if done < total and not is_saving:  # the library will look for signals again
        is_saving = True
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0001)

store, is_saving = filled(threads=1), False  # so that the main thread does all work, and looks for signals at its end
signal.signal(signal.SIGVTALRM, handler)
big = {f"w{i}": np.random.default_rng(i).standard_normal(1 << 21, np.float32) for i in range(8)}
step = 1000
while names and step < 1200:
    step += 1
    store.save(step, big, progress=progress)
    is_saving = False
    store.remove([step])
print(names, {name: found for name, found in seen.items() if found != ("busy" if name in CHANGES else "works")})
store.verify()
"""
    )
    assert run_script(script, tmp_path / "run", timeout=110).splitlines() == ["[] {}"]


@pytest.mark.slow
def test_ctrl_c_ends_a_wait_for_another_thread(tmp_path: Path) -> None:
    script = (
        STORE_IMPORTS
        + """
store, go_on, begun = bitsnap.Store(path), threading.Event(), threading.Event()
def progress(done, total):
    begun.set()
    go_on.wait()
other = threading.Thread(target=lambda: store.save(1, {"a": np.arange(9)}, progress=progress))
other.start()
begun.wait()
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    store.save(2, {"a": np.arange(9)})
except KeyboardInterrupt:
    print("interrupted")
go_on.set()
other.join()
print(store.steps(), store.save(2, {"a": np.arange(9)}).step)
"""
    )
    assert run_script(script, tmp_path / "run", timeout=60).splitlines() == ["interrupted", "[1] 2"]


def test_ctrl_c_ends_a_wait_of_a_shared_store(tmp_path: Path) -> None:
    script = (
        STORE_IMPORTS
        + """
bitsnap.Store(path).close()
shared = bitsnap.Store(path, shared=True, timeout=float("inf"))
holder = bitsnap.Store(path)
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    shared.save_shard(1, {"a": 1}, shard=0, shards=1, attempt="a")
except KeyboardInterrupt:
    print("interrupted")
holder.close()
shared.save_shard(1, {"a": 1}, shard=0, shards=1, attempt="a")
print(shared.commit(1, 1, "a").checkpoint.step)
"""
    )
    assert run_script(script, tmp_path / "run", timeout=60).splitlines() == ["interrupted", "1"]


@pytest.mark.slow
def test_a_signal_handler_may_save_at_any_point_of_the_python_code_of_a_save(tmp_path: Path) -> None:
    script = (
        STORE_IMPORTS
        + """
from bitsnap._states import program_values, tree
for lock in (tree._lock, program_values._lock):
    with lock:
        bitsnap.save(path, {"a": np.arange(4)}, overwrite=True)
        bitsnap.register_value("test.Point", type("Point", (), {}), lambda value: 1, lambda content: content)
print("saved")
"""
    )
    try:
        assert run_script(script, tmp_path / "f.bsnap", timeout=60) == "saved\n"
    except subprocess.TimeoutExpired:
        pytest.fail("the process waits for itself")


def test_a_handler_that_saves_during_a_save_of_a_checkpointer_is_told_so(jobs: Jobs) -> None:
    script = (
        STORE_IMPORTS
        + """
import warnings
warnings.simplefilter("ignore", bitsnap.BackgroundSaveWarning)
checkpointer = bitsnap.Checkpointer(path, job=bitsnap.JobOptions(name=sys.argv[2]), timeout=60,
                                    memory=bitsnap.MemoryOptions(slots=1),
                                    agent=bitsnap.AgentOptions(threads=1, linger=20.0))
told = []
def handler(*_):
    if not told:
        told.append(str(checkpointer.save(10_000_000, {"a": 1}).error))
        os.kill(checkpointer.agent_process, signal.SIGCONT)
signal.signal(signal.SIGUSR1, handler)
checkpointer.save(1, {"a": np.zeros(1000)}).wait_persisted()
os.kill(checkpointer.agent_process, signal.SIGSTOP)  # so that no slot becomes free
checkpointer.save(2, {"a": np.ones(1000)})
main = threading.main_thread().ident
def interrupt():
    while sys._current_frames()[main].f_code.co_name != "save":  # where it waits
        time.sleep(0.01)
    time.sleep(0.2)
    signal.pthread_kill(main, signal.SIGUSR1)
thread = threading.Thread(target=interrupt)
thread.start()
save = checkpointer.save(3, {"a": np.ones(1000)})  # waits for a slot
thread.join()
assert save.error is None, save.error
print("another call of the checkpointer" in told[0])
try:
    checkpointer.wait()
except bitsnap.BusyError:
    print("and wait() raises it")
checkpointer.close()
"""
    )
    printed = run_script(script, jobs.path, jobs.job, timeout=110)
    assert printed.splitlines() == ["True", "and wait() raises it"]


@pytest.mark.slow
def test_on_progress_may_wait_save_and_close(jobs: Jobs) -> None:
    script = (
        STORE_IMPORTS
        + """
done = threading.Event()
def on_progress(save):
    if save.stage == "persisted" and save.step == 1:
        checkpointer.wait()
        save.result()
        print(checkpointer.save(2, {"a": 2}).wait_persisted(), checkpointer.restore().step)
        checkpointer.close()
        done.set()
checkpointer = bitsnap.Checkpointer(path, job=bitsnap.JobOptions(name=sys.argv[2]), on_progress=on_progress,
                                    agent=bitsnap.AgentOptions(threads=1, linger=20.0), timeout=60)
checkpointer.save(1, {"a": 1})
print(done.wait(60))
"""
    )
    assert run_script(script, jobs.path, jobs.job, timeout=110).splitlines() == ["True 2", "True"]
