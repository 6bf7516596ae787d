"""The programs that measure on a GPU, with small states on the CPU: what they report, and what they check."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from bench import gpu_stall, gpu_throughput
from bench.gpu_report import PinnedCopy, Report
from bench.gpu_stall import Measured, run_rounds
from bench.gpu_training import GpuTraining, fingerprints, layers_for
from bench.save_ways import Way, available_bytes, nothing, shared_bytes, ways_that_fit

CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """The tensors are so small that threads would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def training() -> GpuTraining:
    made = GpuTraining(CPU, 1, 64, batch=1, block=16)
    made.run(1)
    return made


def test_a_state_has_fourteen_bytes_per_parameter(training: GpuTraining) -> None:
    assert training.raw_bytes == 14 * training.parameters
    made = layers_for(10, 2048)
    assert 9.5e9 < 14 * (12 * made * 2048**2 + 2048 * 2048) < 10.5e9
    assert layers_for(1e-6, 2048) == 1


def test_fingerprints_see_one_bit_and_the_order_of_elements(training: GpuTraining) -> None:
    state = training.state()
    before = fingerprints(state)
    assert fingerprints(training.state()) == before
    master = next(iter(state["master"].values()))
    bits = master.view(torch.int32).view(-1)
    bits[7] ^= 1
    changed = fingerprints(state)
    assert sum(one != other for one, other in zip(before, changed, strict=True)) == 1
    bits[7] ^= 1
    assert fingerprints(state) == before
    kept = bits[:2].clone()
    bits[:2] = kept.flip(0)
    assert fingerprints(state) != before
    bits[:2] = kept


def test_a_step_changes_every_role(training: GpuTraining) -> None:
    before = fingerprints(training.state())
    training.run(1)
    changed = [one != other for one, other in zip(before, fingerprints(training.state()), strict=True)]
    assert sum(changed) > 0.9 * len(changed)
    state = training.state()
    assert all(torch.equal(state["model"][name], state["master"][name].bfloat16()) for name in state["model"])


def test_a_copy_moves_all_bytes_through_a_smaller_buffer() -> None:
    copy = PinnedCopy(CPU, 1000, 300)
    assert copy.host.numel() == 300
    assert copy.to_host() > 0
    assert copy.host.all()
    assert copy.to_device() > 0


def test_ways_are_chosen_as_far_as_the_memory_suffices() -> None:
    def way(name: str, kept: float, passing: float, shared: float = 0.0) -> Way:
        return Way(name, nothing, kept=kept, passing=passing, shared=shared)

    ways = [way("a", 1, 0), way("b", 0, 1), way("c", 1, 0), way("d", 0, 0)]
    names = [[each.name for each in part] for part in ways_that_fit(ways, 100, 250, 0)]
    assert names == [["a", "b", "d"], ["c"]]
    assert ways_that_fit(ways, 100, 300, 0)[1] == []
    shared = [way("e", 1, 0, shared=1)]
    assert ways_that_fit(shared, 100, 300, 99) == ([], shared)
    assert ways_that_fit(shared, 100, 300, 100) == (shared, [])
    assert available_bytes() > 1 << 20
    assert shared_bytes() > 0


def test_a_way_that_fails_is_left_out_and_a_failure_of_bitsnap_ends_the_run(training: GpuTraining) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no pinned memory")

    copy = PinnedCopy(CPU, 1000, 1000)
    ways = [Way("ours", nothing, is_ours=True), Way("theirs", fail)]
    found, failures = run_rounds(ways, training, copy, rounds=2, steps=1, seconds=100)
    assert failures == {"theirs": "RuntimeError: no pinned memory"}
    assert len(found["ours"].stalls) == 3
    late, _ = run_rounds([ways[0], Way("slow", nothing)], training, copy, rounds=3, steps=1, seconds=0)
    assert [len(late[name].stalls) for name in ("ours", "slow")] == [4, 2]
    with pytest.raises(RuntimeError, match="no pinned memory"):
        run_rounds([Way("ours", fail, is_ours=True)], training, copy, rounds=1, steps=1, seconds=100)


def test_ratios_are_of_the_same_round_without_the_first() -> None:
    measured = Measured()
    measured.copied, measured.stalls = [1.0, 1.0, 4.0, 2.0], [9.0, 2.0, 8.0, 6.0]
    assert measured.ratio() == 2.0


@pytest.mark.parametrize("stop", ["raise", "SIGTERM"])
def test_what_was_measured_before_a_failure_is_written(tmp_path: Path, stop: str) -> None:
    def measure() -> None:
        with Report("program", CPU, tmp_path) as report:
            report.say("measured so far")
            report.add(seconds=[1.5])
            if stop == "raise":
                raise RuntimeError("other bits")
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises((RuntimeError, SystemExit)):
        measure()
    record = json.loads((tmp_path / "results.jsonl").read_text())
    assert record["seconds"] == [1.5]
    assert record["error"] in {"other bits", "stopped by SIGTERM"}
    assert "measured so far" in (tmp_path / "results.md").read_text()


SMALL = "--device cpu --gigabytes 0.002 --width 64 --batch 1 --block 16 --first 2"


@pytest.mark.filterwarnings("ignore:.*torch:UserWarning", "ignore::FutureWarning")
def test_the_stall_of_all_ways_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = [*SMALL.split(), "--steps", "1", "--rounds", "1", "--buffer-gib", "1", "--results", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["gpu_stall", *arguments])
    assert gpu_stall.main() == 0
    record = json.loads((tmp_path / "results.jsonl").read_text())
    assert record["failures"] == {}
    assert len(record["rounds"]) == 6
    assert set(record["restores"]) == {"memory", "store"}
    assert "CPU, which says nothing about a GPU" in record["machine"]["device"]
    assert "Objective: bitsnap stalls at most 1.10 times the copy." in (tmp_path / "results.md").read_text()


def test_the_throughput_beside_the_agent_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = [*SMALL.split(), "--steps", "2", "--every", "1", "--rounds", "1", "--threads", "1"]
    monkeypatch.setattr("sys.argv", ["gpu_throughput", *arguments, "--results", str(tmp_path)])
    assert gpu_throughput.main() == 0
    record = json.loads((tmp_path / "results.jsonl").read_text())
    assert set(record["lost"]) == {"1", "1, blocking=False"}
