"""Trainings with DeepSpeed on two ranks whose machine is lost, and that go on from a bucket on an empty one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import bitsnap
from python.objects.lost_machines import lose
from python.objects.object_proxy import Proxy
from python.rank_processes import Ranks
from python.runs.training_folders import names

pytest.importorskip("deepspeed")
from python.deepspeed.deepspeed_test import new_engine, train, use


def trained(
    rank: int, folder: Path, mirror: str | None, last: int, through_agent: bool, service: dict[str, str]
) -> list[float]:
    """Trains on from what is there, and saves every second step. The losses."""
    os.environ.update(service)
    engine = new_engine(2)
    use(engine, mirror=mirror, agent=bitsnap.AgentOptions(linger=1.0) if through_agent else None)
    engine.load_checkpoint(str(folder))
    losses = []
    while engine.global_steps < last:
        losses += train(engine, range(engine.global_steps + 1, engine.global_steps + 3))
        engine.save_checkpoint(str(folder))
    engine.checkpoint_engine.cleanup()
    return losses


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    ranks = Ranks(tmp_path_factory.mktemp("meeting") / "ranks", 2)
    yield ranks
    ranks.end()


@pytest.mark.usefixtures("copies")
@pytest.mark.parametrize("through_agent", [False, True])
def test_two_ranks_resume_on_an_empty_machine_to_the_last_digit(
    server: Proxy, pool: Ranks, run: str, tmp_path: Path, through_agent: bool
) -> None:
    service = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    whole = pool.run(trained, tmp_path / "whole", None, 6, False, service)
    folder = tmp_path / "machine"
    pool.run(trained, folder, run, 4, through_agent, service)
    files = names(folder / "global_step4")
    lose(folder / "bitsnap", 4)
    resumed = pool.run(trained, folder, run, 6, through_agent, service)
    assert resumed == [losses[4:] for losses in whole]
    assert names(folder / "global_step4") == files
    assert sorted(path.name for path in folder.glob("global_step*")) == ["global_step4", "global_step6"]
    bitsnap.wait_mirrored(folder / "bitsnap", 6, timeout=120)
    with bitsnap.Store(run, read_only=True) as store:
        assert store.steps() == [2, 4, 6]
        assert not store.verify().damages
