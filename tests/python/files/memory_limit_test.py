"""A training in a control group with too little memory: its checkpoints never end it, and none is lost."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import bitsnap
from python.processes import MIB, start_script

TRAINING = """
import os, sys, warnings
from pathlib import Path
group, store, job, first, last, options = sys.argv[1:]
(Path(group) / "cgroup.procs").write_text(str(os.getpid()))
import numpy as np
import torch  # which takes more memory than all the rest
import bitsnap
warnings.simplefilter("ignore", bitsnap.BackgroundSaveWarning)
count = 96 << 18
rng = np.random.default_rng(1)
state = {name: rng.standard_normal(count // 4, np.float32) for name in "wmvx"}
def step_of(state, step):
    return {name: value + np.asarray(step, value.dtype) for name, value in state.items()}
memory = bitsnap.MemoryOptions(**eval(options))
agent = bitsnap.AgentOptions(threads=1, linger=60)
with bitsnap.Checkpointer(store, job=bitsnap.JobOptions(name=job), memory=memory, agent=agent, timeout=60,
                          keep_last=2) as checkpointer:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if int(first) > 0:
            restored = checkpointer.restore()
            assert restored.step == int(first) - 1, restored
            for name, value in state.items():
                assert np.array_equal(restored.state[name], value + np.asarray(restored.step, value.dtype))
            print("restored from", restored.source, flush=True)
            del restored
        for step in range(int(first), int(last)):
            save = checkpointer.save(step, step_of(state, step))
            if save.error is not None:
                print("refused", save.error, flush=True)
                break
            save.wait_persisted()
    for warning in caught:
        print(warning.category.__name__, warning.message, flush=True)
    print("saved", flush=True)
    if int(first) == 0:
        os.kill(os.getpid(), 9)
"""


@pytest.fixture
def group() -> Iterator[Callable[[int], Path]]:
    """Makes a control group with a limit in MiB, below the one of this process."""
    made: list[Path] = []

    def make(limit: int) -> Path:
        own = _memory_group()
        path = own / f"bitsnap-test-{secrets.token_hex(4)}"
        try:
            path.mkdir()
            made.append(path)
            names = ("memory.max", "memory.swap.max") if (path / "memory.max").exists() else ("memory.limit_in_bytes",)
            for name in names:
                if name == names[0] or (path / name).exists():
                    (path / name).write_text(str(limit * MIB) if name == names[0] else "0")
        except OSError as error:
            pytest.skip(f"this process may not make control groups with a limit of memory: {error}")
        return path

    yield make
    for path in made:
        with contextlib.suppress(OSError):
            for process in (path / "cgroup.procs").read_text().split():
                os.kill(int(process), signal.SIGKILL)
        for _ in range(100):
            with contextlib.suppress(OSError):
                path.rmdir()
                break
            time.sleep(0.05)


def _memory_group() -> Path:
    """The directory of this process's control group for memory."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return Path("/sys/fs/cgroup/memory") / path.lstrip("/")
    pytest.skip("this process has no control group for memory of version 1")


def _run(group: Path, store: Path, job: str, first: int, last: int, options: str) -> tuple[int, str]:
    with start_script(TRAINING, group, store, job, first, last, options) as process:
        out, error = process.communicate(timeout=120)
    return process.returncode, out + error


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "options", "slots"),
    [
        pytest.param(1000, "{}", 2, id="enough"),
        pytest.param(690, "{}", 1, id="enough-for-one-slot"),
        pytest.param(690, "{'budget': 3 * (96 << 20)}", 1, id="less-than-the-budget"),
        pytest.param(440, "{}", 0, id="too-little"),
    ],
)
def test_checkpoints_never_end_a_training_for_memory(
    tmp_path: Path, group: Callable[[int], Path], limit: int, options: str, slots: int
) -> None:
    job = f"memory-{secrets.token_hex(4)}"
    path = tmp_path / "run"
    folder = group(limit)
    code, text = _run(folder, path, job, 0, 3, options)
    assert "saved" in text, (code, text)
    assert code == -signal.SIGKILL  # by its own hand
    assert ("MemoryWarning the arena has 1 slot: a state of 100.7 MB" in text) == (slots == 1), text
    assert ("refused a state of 100.7 MB needs an arena of" in text) == (slots == 0), text
    if slots == 0:
        assert not path.exists() or bitsnap.Store(path, read_only=True).steps() == []
        return
    assert bitsnap.Store(path, read_only=True).steps()[-2:] == [1, 2], text
    code, text = _run(folder, path, job, 3, 5, options)
    assert code == 0, (code, text)
    assert "restored from" in text
    assert bitsnap.Store(path, read_only=True).steps()[-2:] == [3, 4], text
    assert bitsnap.Store(path, read_only=True).verify().damages == []
