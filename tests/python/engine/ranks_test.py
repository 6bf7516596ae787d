"""What ranks do together: an error of one is raised on all of them, and keeps its class, in every adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist

import bitsnap
from bitsnap._engine.ranks import Ranks
from bitsnap._runs.opened_runs import Options
from bitsnap.errors import KINDS
from python.rank_processes import Ranks as Processes, ranks as started

COUNT = 3
FAILING = 1


class OwnError(Exception):
    """Of a program, whose classes other ranks may not have."""


ERRORS: dict[str, tuple[Callable[[], Exception], type[Exception]]] = {
    **{name: (partial(kind, "planted"), kind) for name, kind in KINDS.items()},
    "OSError": (lambda: OSError("planted"), OSError),
    "MemoryError": (lambda: MemoryError("planted"), MemoryError),
    "made of more": (lambda: UnicodeDecodeError("utf-8", b"x", 0, 1, "planted"), bitsnap.BitsnapError),
    "of a program": (lambda: OwnError("planted"), bitsnap.BitsnapError),
}


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    with started(tmp_path_factory.mktemp("ranks") / "meeting", COUNT) as made:
        yield made


def fail(rank: int, name: str) -> None:
    if rank == FAILING:
        raise ERRORS[name][0]()


def caught(call: Callable[[], Any]) -> tuple[str, str]:
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error)
    return "", ""


def on_all(rank: int, name: str) -> tuple[str, str]:
    return caught(lambda: Ranks().on_all(lambda: fail(rank, name), "run: the save failed"))


def together(rank: int, name: str) -> tuple[str, str]:
    def raise_failure() -> None:
        failure = Ranks().together(lambda: fail(rank, name))[1]
        assert failure is not None
        raise failure.error

    return caught(raise_failure)


def from_first(rank: int, name: str) -> tuple[str, str]:
    return caught(lambda: Ranks().from_first(lambda: fail(FAILING, name), "run: the save failed"))


@pytest.mark.parametrize("way", [on_all, together, from_first])
@pytest.mark.parametrize("name", ERRORS)
def test_an_error_keeps_its_class_on_all_ranks(processes: Processes, way: Callable[..., Any], name: str) -> None:
    own, of_others = type(ERRORS[name][0]()).__name__, ERRORS[name][1].__name__
    failing = 0 if way is from_first else FAILING
    for rank, (kind, text) in enumerate(processes.run(way, name)):
        assert kind == (own if rank == failing else of_others)
        assert "planted" in text
        assert (f"rank {failing}" in text) == (rank != failing)


def results(rank: int) -> tuple[Any, ...]:
    ranks = Ranks()
    apart = ranks.apart(60_000)
    return (
        ranks.on_all(lambda: 10 * rank, ""),
        ranks.told(lambda: rank, lambda result: result + 1, "")[1],
        ranks.from_first(lambda: f"of {rank}", ""),
        apart.gather(rank),
        apart.gather_words(bytes([rank, 7])),
    )


def test_results_of_all_ranks_and_of_the_first(processes: Processes) -> None:
    assert processes.run(results) == [
        (10 * rank, [1, 2, 3], "of 0", [0, 1, 2], bytes([0, 7, 1, 7, 2, 7])) for rank in range(COUNT)
    ]


def save_with_megatron(folder: Path, rank: int) -> None:
    from bitsnap._runs.path_saves import RankSaves
    from bitsnap.megatron._folders import FolderSave

    options = Options()
    FolderSave(RankSaves(options), folder / "iter_0000001", [], None, options).write()


def save_with_deepspeed(folder: Path, rank: int) -> None:
    from bitsnap.deepspeed import CheckpointEngine

    engine = CheckpointEngine(options=Options(threads=1))
    info = SimpleNamespace(save_dir=folder, tag="global_step1", save_latest=False)
    engine.create(info)
    name = f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
    engine.save({"optimizer_state_dict": {"step": 1}}, folder / info.tag / name)
    engine.commit(info)


def save_with_lightning(folder: Path, rank: int) -> None:
    from bitsnap.lightning import _ShardedCheckpoints

    strategy = SimpleNamespace(
        broadcast=lambda value: value, is_global_zero=rank == 0, load_checkpoint=None, remove_checkpoint=None
    )
    ours = _ShardedCheckpoints(strategy, Path, Options(threads=1))
    ours.save_checkpoint({"state_dict": {}, "global_step": 1}, folder / "a.ckpt")


# Each with the method of a Store in which one rank fails, and that rank.
SAVES: dict[str, tuple[Callable[[Path, int], None], str, int]] = {
    "megatron": (save_with_megatron, "save_shard", FAILING),
    "deepspeed": (save_with_deepspeed, "save_shard", FAILING),
    "lightning": (save_with_lightning, "label", 0),
}


def save(rank: int, adapter: str, folder: Path) -> tuple[str, str]:
    work, method, failing = SAVES[adapter]
    with pytest.MonkeyPatch.context() as patch:
        if rank == failing:
            patch.setattr(bitsnap.Store, method, lambda *_, **__: fail(FAILING, "corrupt"))
        return caught(lambda: work(folder, rank))


@pytest.mark.parametrize("adapter", SAVES)
def test_all_adapters_raise_the_same(processes: Processes, tmp_path: Path, adapter: str) -> None:
    failing = SAVES[adapter][2]
    for rank, (kind, text) in enumerate(processes.run(save, adapter, tmp_path)):
        assert (kind, "planted" in text) == ("CorruptError", True), f"rank {rank}: {kind}: {text}"
        assert (f"the save failed: rank {failing}: planted" in text) == (rank != failing)


class Stopped(BaseException):
    """As torch's CheckpointException, which is no Exception."""


def stop(rank: int, retries: bool) -> tuple[str, str]:
    def work() -> None:
        if rank == FAILING:
            raise Stopped("planted")

    try:
        if not retries:
            Ranks().on_all(work, "run: the save failed")
        elif failure := Ranks().together(work)[1]:
            raise failure.error
    except BaseException as error:
        return type(error).__name__, str(error)
    return "", ""


@pytest.mark.parametrize("retries", [False, True])
def test_an_error_that_is_no_exception_lets_no_rank_wait(processes: Processes, retries: bool) -> None:
    found = processes.run(stop, retries, timeout_s=30)
    assert [kind for kind, _ in found] == ["BitsnapError", "Stopped", "BitsnapError"]
    assert all("planted" in text for _, text in found)


def unsendable(rank: int) -> tuple[str, str]:
    return caught(lambda: Ranks().from_first(lambda: lambda: 1, "run: the save failed"))


def test_a_result_that_cannot_be_sent_lets_no_rank_wait(processes: Processes) -> None:
    for rank, (kind, text) in enumerate(processes.run(unsendable, timeout_s=30)):
        assert kind in {"AttributeError", "PicklingError", "BitsnapError"}, f"rank {rank}: {kind}: {text}"
        assert "pickle" in text


def test_a_process_alone_is_the_only_rank() -> None:
    assert not dist.is_initialized()
    ranks = Ranks()
    assert (ranks.rank, ranks.world_size, ranks.agree) == (0, 1, False)
    assert ranks.apart(1000).gather_words(b"x") == b"x"
    assert ranks.from_first(lambda: 3, "") == 3
    with pytest.raises(OSError, match="planted") as error:
        ranks.on_all(lambda: fail(FAILING, "OSError"), "run: the save failed")
    assert error.value.__notes__ == ["run: the save failed"]
