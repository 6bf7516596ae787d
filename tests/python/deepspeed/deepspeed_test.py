"""Trainings with DeepSpeed's ZeRO on two gloo ranks: saved through bitsnap, killed, resumed, rotated and exported."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import bitsnap
from python.rank_processes import Ranks
from python.same_bits import assert_same

pytest.importorskip("deepspeed")

RANKS = 2
STAGES = (1, 2, 3)


def batch_of(step: int) -> torch.Tensor:
    return torch.randn(8, 64, generator=torch.Generator().manual_seed(step))


def new_engine(stage: int) -> Any:
    rank = torch.distributed.get_rank()
    os.environ.update(
        DS_ACCELERATOR="cpu", RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(torch.distributed.get_world_size())
    )
    import deepspeed

    # Collectives in shared memory, which would be compiled when they are first used.
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
        lr_scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5),
        config={
            "train_micro_batch_size_per_gpu": 8,
            "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
            "bf16": {"enabled": True},
        },
        dist_init_required=False,
    )
    return engine


def train(engine: Any, steps: range) -> list[float]:
    losses = []
    for step in steps:
        batch = batch_of(step).bfloat16()
        loss = (engine(batch) - batch.roll(1, 1)).float().square().mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses


def use(engine: Any, **options: Any) -> Any:
    import bitsnap.deepspeed

    bitsnap.deepspeed.use(engine, **options)
    return engine.checkpoint_engine


def save_both(rank: int, stage: int, folder: Path) -> list[float]:
    """Saves steps 2 and 4 with stock and with bitsnap; the losses of steps 5 and 6."""
    engine = new_engine(stage)
    stock = engine.checkpoint_engine
    ours = use(engine)
    for begin in (1, 3):
        train(engine, range(begin, begin + 2))
        for name, each in (("plain", stock), ("ours", ours)):
            engine.checkpoint_engine = each
            engine.save_checkpoint(str(folder / name), client_state={"note": Path("data")})
    return train(engine, range(5, 7))


def resume(rank: int, stage: int, folder: Path, with_ours: bool = True) -> tuple[Any, list[float]]:
    """What the client had saved, and the losses of steps 5 and 6."""
    engine = new_engine(stage)
    if with_ours:
        use(engine)
    _, client = engine.load_checkpoint(str(folder))
    return client["note"], train(engine, range(engine.global_steps + 1, 7))


def verbs(rank: int, folder: Path) -> list[Any]:
    """What load() finds of a tag, and what is saved when use() is undone."""
    import bitsnap.deepspeed

    engine = new_engine(1)
    stock = engine.checkpoint_engine
    bitsnap.deepspeed.use(engine)
    engine.save_checkpoint(str(folder))
    tag = folder / (folder / "latest").read_text()
    found = bitsnap.deepspeed.load(tag)
    assert found.keys() == bitsnap.deepspeed.load(folder).keys()
    bitsnap.deepspeed.undo(engine)
    bitsnap.deepspeed.undo(engine)  # once more
    engine.save_checkpoint(str(folder / "stock"))
    state = torch.load(folder / "stock" / tag.name / "mp_rank_00_model_states.pt", weights_only=False)
    assert_same(found["mp_rank_00_model_states.pt"]["module"], state["module"])
    return [engine.checkpoint_engine is stock, sorted(found)]


def in_bits(weights: Any) -> dict[str, bytes]:
    return {name: each.detach().bfloat16().view(torch.int16).numpy().tobytes() for name, each in weights}


def weights_of(rank: int, stage: int, folder: Path, tags: list[str]) -> dict[str, dict[str, bytes]]:
    """The weights after each tag was loaded without optimizer states."""
    import deepspeed

    engine = new_engine(stage)
    use(engine)
    engine.load_checkpoint(str(folder))
    use(engine, threads=1)  # with other options
    found = {}
    for tag in tags:
        engine.load_checkpoint(str(folder), tag=tag, load_optimizer_states=False)
        with deepspeed.zero.GatheredParameters(list(engine.module.parameters())):
            found[tag] = in_bits(engine.module.named_parameters())
    return found


def expected_weights(rank: int, folder: Path, tag: str) -> dict[str, bytes]:
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    return in_bits(get_fp32_state_dict_from_zero_checkpoint(str(folder), tag).items())


def save_and_die(rank: int, stage: int, folder: Path) -> None:
    """Loads, trains, and is killed while it saves: before the shards, before the commit, or before the reference."""
    engine = new_engine(stage)
    ours = use(engine)
    engine.load_checkpoint(str(folder))
    train(engine, range(5, 7))

    def die(*args: Any, **kwargs: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if stage == 3:
        import bitsnap.deepspeed

        vars(bitsnap.deepspeed)["write_files"] = die
    else:
        setattr(ours._saves, "write" if stage == 1 and rank == 1 else "_commit", die)
    engine.save_checkpoint(str(folder))


def fail_on_one_rank(rank: int, folder: Path) -> list[str]:
    engine = new_engine(1)
    use(engine)
    engine.load_checkpoint(str(folder))
    train(engine, range(5, 6))
    errors = []
    bad = {"value": object()} if rank == 0 else {}
    for state in (bad, {}):
        try:
            engine.save_checkpoint(str(folder), client_state=state)
        except bitsnap.BitsnapError as error:
            errors.append(str(error))
    return errors


def save_through_agent(rank: int, folder: Path) -> list[bool]:
    """Whether `latest` was there right after the saves of steps 2 and 4, and after the end."""
    engine = new_engine(2)
    use(engine, agent=bitsnap.AgentOptions(linger=1.0))
    found = []
    for begin in (1, 3):
        train(engine, range(begin, begin + 2))
        engine.save_checkpoint(str(folder), client_state={"note": begin})
        found.append((folder / "latest").exists())
    engine.destroy()
    return [*found, (folder / "latest").read_text() == "global_step4"]


def save_alone(rank: int, folder: Path) -> int:
    """Saves steps 1 to 9, and deletes each tag but the last two; how many steps were in the run before the end."""
    engine = new_engine(1)
    use(engine, agent=bitsnap.AgentOptions(linger=1.0))
    for step in range(1, 10):
        train(engine, range(step, step + 1))
        engine.save_checkpoint(str(folder))
        if step > 3:
            shutil.rmtree(folder / f"global_step{step - 2}")
    with bitsnap.Store(folder / "bitsnap", read_only=True) as store:
        count = len(store.steps())
    engine.destroy()
    return count


def save_and_end(rank: int, folder: Path) -> None:
    """Saves through an agent, and ends as a program does that does not call destroy()."""
    engine = new_engine(2)
    use(engine, agent=bitsnap.AgentOptions(linger=1.0))
    train(engine, range(1, 3))
    engine.save_checkpoint(str(folder))
    torch.distributed.destroy_process_group()
    atexit._run_exitfuncs()
    os._exit(0)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    ranks = Ranks(tmp_path_factory.mktemp("meeting") / "ranks", RANKS)
    yield ranks
    ranks.end()


@pytest.fixture(scope="module", params=STAGES)
def saved(request: pytest.FixtureRequest, pool: Ranks, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp(f"stage{request.param}")
    losses = pool.run(save_both, request.param, folder)
    return request.param, folder, losses


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def export(rank: int, folder: Path) -> None:
    import bitsnap.deepspeed

    if rank == 0:
        bitsnap.deepspeed.main(["export", str(folder / "ours"), str(folder / "exported")])


def compare(rank: int, folder: Path) -> int:
    """Compares what was exported with what stock had saved at the same step; how many files there are."""
    files = sorted((folder / "plain/global_step4").glob("*.pt"))
    for path in files:
        found, expected = (
            torch.load(each, weights_only=False) for each in (folder / "exported/global_step4" / path.name, path)
        )
        for state in (found, expected):
            optimizer = state.get("optimizer_state_dict") or {}
            if "loss_scaler" in optimizer:
                optimizer["loss_scaler"] = type(optimizer["loss_scaler"]), vars(optimizer["loss_scaler"])
        assert_same(found, expected)
    return len(files)


def merge(rank: int, folder: Path) -> None:
    """Compares the fp32 weights that DeepSpeed's script makes of both."""
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    import bitsnap.deepspeed

    expected = get_fp32_state_dict_from_zero_checkpoint(str(folder / "plain"), "global_step4")
    assert_same(bitsnap.deepspeed.get_fp32_state_dict_from_zero_checkpoint(folder / "ours"), dict(expected))


@pytest.mark.slow
def test_a_killed_training_goes_on_with_equal_losses(saved: Any, pool: Ranks, tmp_path: Path) -> None:
    stage, folder, losses = saved
    expected = [(Path("data"), each) for each in losses]
    shutil.copytree(folder / "ours", tmp_path / "ours")
    killed = Ranks(tmp_path / "ranks", RANKS)
    try:
        assert None in killed.outcomes(save_and_die, stage, tmp_path / "ours")
    finally:
        killed.end()
    assert (tmp_path / "ours/latest").read_text() == "global_step4"
    assert pool.run(resume, stage, tmp_path / "ours") == expected


def test_weights_are_loaded_without_optimizer_states_of_any_tag(saved: Any, pool: Ranks, tmp_path: Path) -> None:
    stage, folder, _ = saved
    shutil.copytree(folder / "ours", tmp_path / "ours")
    shutil.copytree(folder / "plain" / "global_step2", tmp_path / "ours" / "stock")
    tags = {"stock": "global_step2", "global_step4": "global_step4", "global_step2": "global_step2"}
    expected = {tag: pool.run(expected_weights, folder / "plain", same)[0] for tag, same in tags.items()}
    for found in pool.run(weights_of, stage, tmp_path / "ours", [*tags]):
        assert found == expected


def test_files_of_a_tag_are_small_and_the_run_is_smaller_than_stock(saved: Any) -> None:
    _, folder, _ = saved
    names = {path.name for path in (folder / "plain/global_step4").iterdir()}
    assert {path.name for path in (folder / "ours/global_step4").iterdir()} == names | {"bitsnap-reference.json"}
    assert size_of(folder / "ours/global_step4") < 1500
    assert size_of(folder / "ours") < 0.8 * size_of(folder / "plain")
    with bitsnap.Store(folder / "ours/bitsnap", read_only=True) as store:
        assert store.labels() == {"global_step2": 2, "global_step4": 4}


def test_exported_tags_are_those_of_stock(saved: Any, pool: Ranks) -> None:
    stage, folder, losses = saved
    pool.run(export, folder)
    assert pool.run(compare, folder)[0] >= RANKS
    pool.run(merge, folder)
    assert pool.run(resume, stage, folder / "exported", False) == [(Path("data"), each) for each in losses]


def test_if_one_rank_fails_all_raise_and_deleted_tags_leave_the_run(saved: Any, pool: Ranks, tmp_path: Path) -> None:
    stage, folder, _ = saved
    if stage != 1:
        pytest.skip("does not depend on the stage")
    shutil.copytree(folder / "ours", tmp_path / "ours")
    shutil.rmtree(tmp_path / "ours/global_step2")
    for errors in pool.run(fail_on_one_rank, tmp_path / "ours"):
        assert len(errors) == 1
        assert "is of type object" in errors[0]
    with bitsnap.Store(tmp_path / "ours/bitsnap", read_only=True) as store:
        assert store.labels() == {"global_step4": 4, "global_step5": 5}
    assert (tmp_path / "ours/latest").read_text() == "global_step5"


def test_saves_through_an_agent_are_named_when_they_are_durable(pool: Ranks, tmp_path: Path) -> None:
    assert pool.run(save_through_agent, tmp_path / "run") == [[False, True, True]] * RANKS
    with bitsnap.Store(tmp_path / "run/bitsnap", read_only=True) as store:
        assert store.labels() == {"global_step2": 2, "global_step4": 4}
    resumed = pool.run(resume, 2, tmp_path / "run")
    assert [note for note, _ in resumed] == [3] * RANKS


def test_the_agent_of_one_rank_lets_deleted_tags_leave_the_run(tmp_path: Path) -> None:
    alone = Ranks(tmp_path / "ranks", 1)
    try:
        assert alone.run(save_alone, tmp_path / "run")[0] < 7
        alone.outcomes(save_and_end, tmp_path / "ended")
    finally:
        alone.end()
    assert (tmp_path / "ended/latest").read_text() == "global_step2"
    assert (tmp_path / "ended/global_step2/bitsnap-reference.json").exists()
    with bitsnap.Store(tmp_path / "run/bitsnap", read_only=True) as store:
        assert store.labels() == {f"global_step{step}": step for step in (1, 8, 9)}


def test_what_an_engine_does_with_a_run_is_loaded_and_undone(pool: Ranks, tmp_path: Path) -> None:
    optimizers = [f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in range(RANKS)]
    assert pool.run(verbs, tmp_path) == [[True, [*optimizers, "mp_rank_00_model_states.pt"]]] * RANKS
