"""Keeps each of the last 50 steps of a training in the agent's memory, and restores some of them.

    PYTHONPATH=. python -m bench.step_journal [--steps 60] [--snapshots 50]

The training is `autocast` of bench.gradient_trainings: a state of 63.6 MB, fp32 parameters under autocast to bf16.
Prints what the agent holds, how long a save stalls the training, and how long restoring a step takes by the length of
its chain, beside a copy of the state. Each restored state is compared with the one that was saved, bit for bit.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

import bitsnap
from bench.gradient_trainings import KINDS, Training
from bench.measuring import parser_of, print_machine, print_table


def digest_of(state: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(state):
        digest.update(name.encode())
        digest.update(state[name].contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def copy_s(state: Mapping[str, Tensor]) -> float:
    times = []
    copies = {name: tensor.clone() for name, tensor in state.items()}
    for _ in range(5):
        began = time.perf_counter()
        for name, tensor in state.items():
            copies[name].copy_(tensor)
        times.append(time.perf_counter() - began)
    return median(times)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--snapshots", type=int, default=50)
    options = parser.parse_args()
    print_machine()
    training = Training(KINDS["autocast"])
    digests: dict[int, str] = {}
    stalls, steps = [], []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        checkpointer = bitsnap.Checkpointer(
            Path(folder) / "run",
            every=10**6,
            every_memory=1,
            memory=bitsnap.MemoryOptions(budget=2 * 10**9, snapshots=options.snapshots),
        )
        with checkpointer:
            checkpointer.restore()
            for step in range(1, options.steps + 1):
                began = time.perf_counter()
                training.step()
                steps.append(time.perf_counter() - began)
                state = training.tensors()
                began = time.perf_counter()
                checkpointer.save(step, state)
                stalls.append(time.perf_counter() - began)
                digests[step] = digest_of(state)
            checkpointer.wait()
            raw = sum(tensor.nbytes for tensor in state.values())
            [rank] = bitsnap.agent_status(Path(folder) / "run")["ranks"]
            held, count = rank["memory_bytes"], rank["memory_steps"]
            count = len(count) if isinstance(count, list) else count
            print(
                f"\n{count} steps in {held / 1e6:.1f} MB, {held / raw:.2f} states; a step {median(steps):.2f} s, ",
                end="",
            )
            print(f"its save {1000 * median(stalls):.1f} ms; a copy of the state {1000 * copy_s(state):.1f} ms\n")
            rows = []
            for back in (1, 2, 4, 8, 16, 24, 32, 40, 48):
                step = options.steps - back
                began = time.perf_counter()
                restored = checkpointer.restore(step)
                seconds = time.perf_counter() - began
                assert restored is not None
                assert restored.step == step
                assert digest_of(restored.state) == digests[step]
                rows.append([str(step), restored.source, f"{1000 * seconds:.0f}"])
            print_table(["step", "source", "ms"], rows)


if __name__ == "__main__":
    main()
