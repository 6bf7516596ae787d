"""Loads on three ranks, of which one reads what the others receive."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from python.dcp import shared_loads
from python.rank_processes import Ranks, ranks


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Ranks, str]]:
    folder = tmp_path_factory.mktemp("shared")
    with ranks(folder / "meeting", 3) as processes:
        processes.run(shared_loads.save, str(folder / "run"))
        yield processes, str(folder / "run")


@pytest.mark.parametrize("kind", ["plain", "staging"])
def test_all_ranks_have_what_was_saved(three: tuple[Ranks, str], kind: str) -> None:
    processes, run = three
    processes.run(shared_loads.load, run, kind)


@pytest.mark.parametrize("kind", ["resolve_tensor", "commit_tensor"])
def test_all_ranks_fail_with_the_error_of_one(three: tuple[Ranks, str], kind: str) -> None:
    processes, run = three
    for outcome in processes.outcomes(shared_loads.load, run, kind):
        assert outcome is not None
        assert not outcome[0]
        assert "not this one" in outcome[1]
    processes.run(shared_loads.load, run, "plain")
