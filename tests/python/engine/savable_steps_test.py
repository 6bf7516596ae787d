"""Saves of steps that a run has passed: a training must not go on for hours without a checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import bitsnap
import bitsnap.torch
from python.engine.checkpointer_jobs import Jobs, saved
from python.run_states import state_of

WAYS_OUT = (
    r"has the checkpoint of step 7.*call restore\(\).*bitsnap agent stop --job \S+ and .*bitsnap rollback .* --to"
    r".*another dir"
)

FORGOTTEN = r"has checkpoints up to step 7, .*without having called restore\(\).*call restore\(\) before.*another dir"


def stored(jobs: Jobs, steps: tuple[int, ...] = (6, 7)) -> None:
    with bitsnap.Store(jobs.path) as store:
        for step in steps:
            store.save(step, state_of(step))


def training(jobs: Jobs) -> bitsnap.torch.TrainingCheckpointer:
    return bitsnap.torch.TrainingCheckpointer(
        jobs.path,
        model=torch.nn.Linear(2, 2),
        job=bitsnap.JobOptions(name=jobs.job),
        agent=bitsnap.AgentOptions(threads=1, linger=20.0),
    )


@pytest.mark.parametrize("step", [0, 6, 7])
def test_a_forgotten_restore_ends_the_first_save(jobs: Jobs, step: int) -> None:
    stored(jobs)
    with jobs() as checkpointer:
        with pytest.raises(bitsnap.InvalidArgumentError, match=WAYS_OUT) as caught:
            checkpointer.save(step, lambda: pytest.fail("the state is not needed"))
        assert caught.value.field == "step"
        restored = checkpointer.restore()
        assert restored is not None
        assert saved(checkpointer, restored.step + 1, state_of(8)).wait_persisted()


def test_a_forgotten_restore_ends_the_first_save_of_a_torch_training(jobs: Jobs) -> None:
    with training(jobs) as checkpointer:
        checkpointer.save(7)
    with training(jobs) as checkpointer:
        for blocking in (True, False):
            with pytest.raises(bitsnap.InvalidArgumentError, match=WAYS_OUT):
                checkpointer.save(1, blocking=blocking)
        checkpointer.save(8)
        checkpointer.wait()
        assert checkpointer.latest() == 8


def test_a_torch_training_that_ignores_the_restored_step_ends_at_the_first_save(jobs: Jobs) -> None:
    with training(jobs) as checkpointer:
        checkpointer.save(7)
        checkpointer.wait()
        assert checkpointer.restore() == 7
        with pytest.raises(bitsnap.InvalidArgumentError, match=WAYS_OUT):
            checkpointer.save(6)


def test_steps_that_are_not_due_and_those_of_a_fresh_run_are_no_error(jobs: Jobs) -> None:
    stored(jobs)
    with jobs(every=10) as checkpointer:
        with pytest.warns(bitsnap.RestoreWarning, match=FORGOTTEN):
            assert checkpointer.save(3, state_of(3)) is None
        assert saved(checkpointer, 10, state_of(10)).wait_persisted()


def test_a_forgotten_restore_is_a_warning_if_the_first_step_can_be_saved(
    jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    stored(jobs)
    with jobs() as checkpointer:
        with pytest.warns(bitsnap.RestoreWarning, match=FORGOTTEN):
            assert saved(checkpointer, 100, state_of(100)).wait_persisted()
        assert saved(checkpointer, 101, state_of(101)).wait_persisted()  # which warns no more
    assert [record.levelname for record in caplog.records if "has checkpoints up to step 7" in record.message] == [
        "WARNING"
    ]


@pytest.mark.parametrize("step", [None, 7])
def test_a_training_that_asked_to_restore_is_not_warned(jobs: Jobs, step: int | None) -> None:
    stored(jobs)
    with jobs() as checkpointer:
        assert checkpointer.restore(step) is not None
        assert saved(checkpointer, 100, state_of(100)).wait_persisted()


def test_a_forgotten_restore_of_a_torch_training_is_a_warning(jobs: Jobs) -> None:
    stored(jobs)
    with training(jobs) as checkpointer, pytest.warns(bitsnap.RestoreWarning, match=FORGOTTEN):
        checkpointer.save(8)
    with training(jobs) as checkpointer:
        checkpointer.save(9)  # this process itself has saved the newest step


def test_a_training_that_cannot_save_its_next_step_ends_before_it_is_due(jobs: Jobs) -> None:
    stored(jobs, (10, 20))
    with jobs(every=10) as checkpointer:
        assert checkpointer.restore(10) is not None
        with pytest.raises(bitsnap.InvalidArgumentError, match="20 cannot be saved"):
            checkpointer.save(11, lambda: pytest.fail("the state is not needed"))
        with pytest.raises(bitsnap.InvalidArgumentError, match="30 cannot be saved"):
            checkpointer.save(21, lambda: pytest.fail("the state is not needed"))


def test_the_agent_is_named_by_the_store_if_the_job_has_no_name(tmp_path: Path) -> None:
    with bitsnap.Store(tmp_path / "a run") as store:
        store.save(7, state_of(7))
    with (
        bitsnap.Checkpointer(tmp_path / "a run") as checkpointer,
        pytest.raises(bitsnap.InvalidArgumentError, match=r"`bitsnap agent stop '\S*/a run'`"),
    ):
        checkpointer.save(1, state_of(1))


@pytest.mark.parametrize("options", [{}, {"every": 10}, {"every": 1000}, {"every": 1000, "every_memory": 1}])
def test_a_training_from_an_earlier_step_ends_also_if_no_step_of_the_run_is_in_its_way(
    jobs: Jobs, options: dict[str, int]
) -> None:
    stored(jobs, (10, 20, 25))
    with jobs(**options) as checkpointer:
        assert checkpointer.restore() is not None
        assert checkpointer.restore(20) is not None  # after a spike of the loss
        with pytest.raises(bitsnap.InvalidArgumentError, match=r"checkpoint of step 25, .*rollback"):
            checkpointer.save(21, lambda: pytest.fail("the state is not needed"))
        assert checkpointer.restore() is not None
        checkpointer.save(26, state_of(26))


@pytest.mark.parametrize("chosen", [None, 7])
def test_a_finished_training_that_is_started_again_ends_as_before(jobs: Jobs, chosen: int | None) -> None:
    stored(jobs)
    with jobs() as checkpointer:
        restored = checkpointer.restore(chosen)
        assert restored is not None
        assert restored.step == 7
        with pytest.warns(bitsnap.BackgroundSaveWarning, match="step 7 was restored .* not saved there a second time"):
            assert checkpointer.save(7, lambda: pytest.fail("the state is not needed")) is None
        checkpointer.wait()
        assert saved(checkpointer, 8, state_of(8)).wait_persisted()


def test_after_an_earlier_step_was_chosen_the_store_must_be_rolled_back(jobs: Jobs) -> None:
    stored(jobs)
    with jobs() as checkpointer:
        assert checkpointer.restore(6) is not None
        with pytest.raises(bitsnap.InvalidArgumentError, match=WAYS_OUT):
            checkpointer.save(7, state_of(17))
        bitsnap.stop_agent(job=jobs.job, timeout=20)
        with bitsnap.Store(jobs.path) as store:
            store.rollback(6)
        assert saved(checkpointer, 7, state_of(17)).wait_persisted()


def test_a_training_goes_on_after_restore_had_to_skip_a_damaged_step(jobs: Jobs) -> None:
    stored(jobs)
    with bitsnap.Store(jobs.path, read_only=True) as store:
        damaged = store.snapshot(7).path
    damaged.write_bytes(damaged.read_bytes()[:-100] + bytes(100))
    with jobs() as checkpointer:
        with pytest.warns(bitsnap.RestoreWarning, match="step 7 cannot be restored"):
            restored = checkpointer.restore()
        assert restored is not None
        assert restored.step == 6
        failed = saved(checkpointer, 7, state_of(17))
        with pytest.raises(bitsnap.InvalidArgumentError):
            failed.result()
        with pytest.warns(bitsnap.BackgroundSaveWarning, match="step 7 was not saved"):
            assert saved(checkpointer, 8, state_of(18)).wait_persisted()
        with pytest.raises(bitsnap.InvalidArgumentError):
            checkpointer.wait()


def test_steps_that_begin_anew_end_the_first_save_below_a_checkpoint(jobs: Jobs) -> None:
    with jobs() as checkpointer:
        for step in (6, 7):
            assert saved(checkpointer, step, state_of(step)).wait_persisted()
        with pytest.raises(bitsnap.InvalidArgumentError, match=WAYS_OUT):
            checkpointer.save(1, state_of(1))


def test_steps_that_another_process_has_passed_meanwhile_end_the_second_save(jobs: Jobs) -> None:
    with jobs() as checkpointer:
        stored(jobs)
        late = saved(checkpointer, 1, state_of(1))
        with pytest.raises(bitsnap.InvalidArgumentError, match="greater than 7"):
            late.result()
        with (
            pytest.warns(bitsnap.BackgroundSaveWarning, match="step 1 was not saved"),
            pytest.raises(bitsnap.InvalidArgumentError, match=WAYS_OUT),
        ):
            checkpointer.save(2, state_of(2))
        with pytest.raises(bitsnap.InvalidArgumentError):
            checkpointer.wait()
