"""Kills trainings of every adapter at random moments, with one checkpoint kept, and resumes them.

    PYTHONPATH=tests .venv/bin/python -m soak.adapter_kills [--kills 60] [--kinds lightning ...] [--seed N]

A training saves after each step, and keeps the newest checkpoint alone. It is killed, or one of its ranks is, or its
agent; the next life resumes from the newest checkpoint, or from the one before if the newest is not complete. A step
whose save has returned may never be lost, except the newest two that a killed agent had not committed, and each loss
must be that of a training that was never interrupted, to the last bit. At the end the run has the steps of the
checkpoints, and at most one more. For Megatron, see soak.megatron_kills.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import bitsnap
import bitsnap.torch
from bitsnap._bitsnap import default_job
from python.forked_calls import on_ranks
from soak.forked import fork, kill, wait
from soak.killed_job import ViolatedGuaranteeError
from soak.leftovers import agents_of

STEPS = 80  # of one training; then another one begins
SAVING_SECONDS = 0.9  # the longest time between a resume and a kill
PATIENCE = 120.0
AGENT = bitsnap.AgentOptions(linger=3.0, threads=1)


class Notes:
    """What lives have done, in a file to which each line is appended whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, kind: str, step: int, text: str = "") -> None:
        with self.path.open("a") as file:
            file.write(f"{kind} {step} {text}\n")

    def read(self) -> list[tuple[str, int, str]]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [(kind, int(step), text) for kind, step, text in (line.split(" ", 2) for line in lines)]


class Life:
    """One process of a training.

    Attributes:
        folder: of the checkpoints; None trains without any.
        skipped: the number of newest checkpoints that could not be resumed.
        agent: options of the adapter.
    """

    def __init__(self, folder: Path | None, note: Notes, skipped: int, agent: bitsnap.AgentOptions | None) -> None:
        self.folder, self.note, self.skipped, self.agent = folder, note, skipped, agent

    def newest(self, pattern: str) -> Path | None:
        """The checkpoint to resume from, by the number at the end of its name."""
        found = [] if self.folder is None else sorted(self.folder.glob(pattern), key=_number_of)
        return found[-1 - self.skipped] if len(found) > self.skipped else None

    def note_loss(self, step: int, loss: Any) -> None:
        self.note("loss", step, float(loss).hex())


def _number_of(path: Path) -> int:
    """Of checkpoint-5, checkpoint_5, step5, step=5.ckpt, and step=5-v1.ckpt."""
    return int(re.findall(r"\d+", path.stem)[0])


def train_transformers(life: Life) -> None:
    from transformers import TrainerCallback

    from python.transformers import transformers_trainings as trainings

    class Noting(trainings.Recorder):
        def training_step(self, *arguments: Any, **options: Any) -> torch.Tensor:
            loss = super().training_step(*arguments, **options)
            life.note_loss(self.state.global_step + 1, loss.item())
            return loss

    class Saved(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            life.note("resumed", state.global_step)

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            life.note("saved", state.global_step)

    trainings.Recorder = Noting  # type: ignore[misc]  # which trainer_of() makes
    folder = str(life.folder or life.note.path.parent / "none")
    options = None if life.folder is None else {"agent": life.agent}
    trainer = trainings.trainer_of(folder, options, last=STEPS, save_total_limit=1)
    trainer.args.save_steps = 1
    if life.folder is None:
        trainer.args.save_strategy = "no"
    trainer.add_callback(Saved())
    newest = life.newest("checkpoint-*")
    trainer.train(resume_from_checkpoint=None if newest is None else str(newest))


def train_lightning(life: Life) -> None:
    from lightning.pytorch.callbacks import Callback, ModelCheckpoint

    import bitsnap.lightning
    from python.lightning import lightning_trainings as trainings

    class Noting(Callback):  # type: ignore[misc]
        def on_train_start(self, trainer: Any, module: Any) -> None:
            life.note("resumed", trainer.global_step)

        def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
            life.note_loss(trainer.global_step, module.losses[trainer.global_step - 1])

    class Plugin(bitsnap.lightning.CheckpointIO):
        def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Any = None) -> None:
            super().save_checkpoint(checkpoint, path, storage_options)
            life.note("saved", checkpoint["global_step"])

    folder = life.folder or life.note.path.parent / "none"
    plugins, callbacks = None, [Noting()]
    if life.folder is not None:
        plugins = Plugin(agent=life.agent)
        callbacks.append(ModelCheckpoint(dirpath=folder, save_top_k=1, every_n_train_steps=1, filename="{step}"))
    # One epoch: Lightning itself goes wrong where it resumes between two.
    vars(trainings)["STEPS"] = STEPS
    trainer = trainings.trainer_at(folder, *callbacks, plugins=plugins, epochs=1)
    newest = life.newest("*.ckpt")
    trainer.fit(trainings.model(), ckpt_path=None if newest is None else str(newest), **trainings.WITH_PICKLES)


def train_accelerate(life: Life) -> None:
    from accelerate import Accelerator
    from accelerate.utils import ProjectConfiguration, set_seed

    import bitsnap.accelerate
    from python.accelerate.accelerate_trainings import Counter as Progress

    set_seed(0)
    taken = [] if life.folder is None else [_number_of(each) for each in life.folder.glob("checkpoints/checkpoint_*")]
    project = ProjectConfiguration(
        str(life.folder or life.note.path.parent / "none"),
        automatic_checkpoint_naming=True,
        total_limit=1,
        iteration=max(taken, default=-1) + 1,
    )
    accelerator = Accelerator(cpu=True, project_config=project)
    if life.folder is not None:
        bitsnap.accelerate.use(accelerator, agent=life.agent)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Dropout(0.2), torch.nn.Linear(128, 64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer = accelerator.prepare(model, optimizer)
    progress = Progress()
    accelerator.register_for_checkpointing(progress)
    if taken:
        with contextlib.suppress(bitsnap.NotFoundError, FileNotFoundError):  # the first save was interrupted
            accelerator.load_state()
    life.note("resumed", progress.step)
    while progress.step < STEPS:
        x = torch.randn(8, 64)  # of the random generator that a checkpoint has
        loss = (model(x) - x).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        progress.step += 1
        life.note_loss(progress.step, loss.item())
        if life.folder is not None:
            accelerator.save_state()
            life.note("saved", progress.step)
    accelerator.end_training()


def train_torch(life: Life) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Dropout(0.2), torch.nn.Linear(128, 64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    if life.folder is None:
        life.note("resumed", 0)
        for step in range(1, STEPS + 1):
            life.note_loss(step, _torch_step(model, optimizer))
        return
    path = life.folder / "bitsnap"
    with bitsnap.torch.TrainingCheckpointer(
        path, model=model, optimizer=optimizer, keep_last=1, agent=AGENT
    ) as checkpointer:
        start = checkpointer.restore() or 0
        life.note("resumed", start)
        for step in range(start + 1, STEPS + 1):
            life.note_loss(step, _torch_step(model, optimizer))
            saved = checkpointer.save(step)
            assert saved is not None
            if step % 3 == 0:  # the others are in the memory of the agent, which may be killed
                with contextlib.suppress(bitsnap.BitsnapError):
                    if saved.wait_persisted():
                        life.note("saved", step)


def _torch_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> float:
    x = torch.randn(8, 64)
    loss = (model(x) - x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return float(loss.item())


def train_deepspeed(life: Life, stage: int) -> None:
    """On two ranks, which are forked here."""
    statuses = on_ranks(f"{life.note.path}-{os.getpid()}", lambda: _train_deepspeed_rank(life, stage))
    assert statuses == [0, 0]


def _train_deepspeed_rank(life: Life, stage: int) -> None:
    import bitsnap.deepspeed
    from python.deepspeed.deepspeed_test import new_engine, train

    rank = torch.distributed.get_rank()
    engine = new_engine(stage)
    if life.folder is not None:
        bitsnap.deepspeed.use(engine, agent=life.agent)
        newest = life.newest("step*")
        if newest is not None:
            found, client = engine.load_checkpoint(str(life.folder), tag=newest.name)
            assert found is not None
            assert client["step"] == engine.global_steps
    if rank == 0:
        life.note("resumed", engine.global_steps)
    while engine.global_steps < STEPS:
        step = engine.global_steps + 1
        loss = train(engine, range(step, step + 1))[0]
        if rank == 0:
            life.note_loss(step, loss)
        if life.folder is None:
            continue
        engine.save_checkpoint(str(life.folder), tag=f"step{step}", client_state={"step": step})
        torch.distributed.barrier()
        if rank == 0:
            life.note("saved", step)
            latest = life.folder / "latest"  # which an agent writes later
            newest_tag = latest.read_text() if latest.exists() else "step0"
            for old in life.folder.glob("step*"):
                if _number_of(old) < _number_of(Path(newest_tag)):
                    shutil.rmtree(old)
        torch.distributed.barrier()


# What trains, and whether its saves go through an agent.
KINDS: dict[str, tuple[Callable[[Life], None], bool]] = {
    "torch": (train_torch, True),
    "transformers": (train_transformers, False),
    "transformers agent": (train_transformers, True),
    "lightning": (train_lightning, False),
    "lightning agent": (train_lightning, True),
    "accelerate": (train_accelerate, False),
    "accelerate agent": (train_accelerate, True),
    "deepspeed 1": (functools.partial(train_deepspeed, stage=1), False),
    "deepspeed 3": (functools.partial(train_deepspeed, stage=3), False),
    "deepspeed 2 agent": (functools.partial(train_deepspeed, stage=2), True),
}
MODULES = {
    "transformers": "transformers.transformers_trainings",
    "lightning": "lightning.lightning_trainings",
    "accelerate": "accelerate.accelerate_trainings",
}


class Lives:
    """Trainings of one kind, one after the other. `tally` counts what happened to them."""

    def __init__(self, root: Path, kind: str, seed: int) -> None:
        self.root, self.kind = root, kind
        self.train, self.has_agent = KINDS[kind]
        self.tally: Counter[str] = Counter()
        self._random = random.Random(f"{kind} {seed}")
        self._trainings = 0
        reference = Notes(root / "reference")
        wait(self._begin(Life(None, reference, 0, None)), self._end_of_patience())
        self.losses = {step: loss for event, step, loss in reference.read() if event == "loss"}
        if len(self.losses) != STEPS:
            raise ViolatedGuaranteeError(f"the training without bitsnap has {len(self.losses)} losses, not {STEPS}")
        self._new_training()

    def run(self, kills: int) -> None:
        while self.tally.total() - self.tally["trainings"] - self.tally["fallbacks"] < kills:
            self._live(self._random.choice(("all", "all", "agent") if self.has_agent else ("all",)))
        while not self._has_ended:
            self._live("")

    def _new_training(self) -> None:
        self._trainings += 1
        self.folder = self.root / f"training-{self._trainings}"
        self.folder.mkdir()
        self.notes = Notes(self.root / f"notes-{self._trainings}")
        self._has_ended, self._skipped = False, 0
        self._lost_agent = False  # with the save that it had not committed

    def _begin(self, life: Life) -> int:
        def train() -> None:
            warnings.simplefilter("ignore")
            self.train(life)

        return fork(train, self.root / "log")

    def _live(self, victims: str) -> None:
        if self._has_ended:
            self._new_training()
        before = len(self.notes.read())
        self._had_lost_agent, self._lost_agent = self._lost_agent, False
        process = self._begin(Life(self.folder, self.notes, self._skipped, AGENT if self.has_agent else None))
        deadline = self._end_of_patience()
        status = None
        while status is None and not any(event == "resumed" for event, _, _ in self.notes.read()[before:]):
            status = wait(process, time.monotonic() + 0.01)
            if time.monotonic() > deadline:
                kill(process)
                raise ViolatedGuaranteeError(f"a life did not resume within {PATIENCE:.0f} s")
        if status is None and victims:
            status = wait(process, time.monotonic() + self._random.uniform(0.0, SAVING_SECONDS))
        if status is None and victims == "all":
            kill(process)
            self.tally["killed"] += 1
        elif status is None:
            if victims == "agent":
                self.tally["agents killed"] += self._kill_agents()
                self._lost_agent = True
                status = wait(process, time.monotonic() + 0.3)
                if status is None:
                    kill(process)
            else:
                status = wait(process, deadline)
        self._check(before, status)

    def _check(self, before: int, status: int | None) -> None:
        """`status`: of a life that was not killed."""
        notes = self.notes.read()
        saved = max((step for event, step, _ in notes[:before] if event == "saved"), default=0)
        resumed = [step for event, step, _ in notes[before:] if event == "resumed"]
        if not resumed:
            self.tally["fallbacks"] += 1
            self._skipped += 1
            self._lost_agent = self._had_lost_agent
            if self._skipped > (3 if self.has_agent else 1):  # one is incomplete, and two slots of an agent are lost
                raise ViolatedGuaranteeError(f"step {saved} was saved, and no checkpoint can be resumed")
            return
        self._skipped = 0
        # An agent that is killed loses what it had not committed: two slots; train_torch() waits for the commit.
        may_lose = 2 if self._had_lost_agent and self.kind != "torch" else 0
        if self.kind == "deepspeed 2 agent":  # refers to a checkpoint when the next step is trained
            may_lose += 1
        if resumed[0] < saved - may_lose:
            raise ViolatedGuaranteeError(f"step {saved} was saved, and step {resumed[0]} is resumed")
        for event, step, loss in notes[before:]:
            # Transformers trains one step more if it resumes at the end.
            if event == "loss" and self.losses.get(step, loss) != loss:
                raise ViolatedGuaranteeError(
                    f"resumed at {resumed[0]}, step {step} has the loss {loss} instead of {self.losses[step]}"
                )
        if status == 0:
            self._has_ended = True
            self.tally["trainings"] += 1
            self._check_end()
        elif status is not None:
            raise ViolatedGuaranteeError(f"a life that was not killed has ended with status {status}")

    def _check_end(self) -> None:
        deadline = self._end_of_patience()
        while agents_of(self._job()) and time.monotonic() < deadline:
            time.sleep(0.1)
        run = self.folder / "bitsnap"
        with bitsnap.Store(run, read_only=True) as store:
            store.verify()
            # Lightning forgets checkpoints before which it was killed. The step of the one that was deleted last goes
            # with the next save if the process was killed in between; those of an agent go later.
            kept = [
                *run.parent.glob("*.ckpt"),
                *run.parent.glob("*/bitsnap-reference.json"),
                *run.parent.glob("*/*/bitsnap-reference.json"),
            ]
            if len(store.steps()) > len(kept) + (8 if self.has_agent else 1):
                raise ViolatedGuaranteeError(f"steps in {run}: {store.steps()}, kept: {sorted(map(str, kept))}")
        shutil.rmtree(self.folder)

    def _job(self) -> str:
        return default_job(os.fsencode(self.folder / "bitsnap"))

    def _kill_agents(self) -> int:
        agents = agents_of(self._job())
        for each in agents:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        return len(agents)

    def _end_of_patience(self) -> float:
        return time.monotonic() + PATIENCE


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=60, help="of each kind")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=[*KINDS])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch._dynamo  # noqa: F401  which the first optimizer of a process imports, in seconds

    for kind in options.kinds:
        framework = kind.split()[0]
        with contextlib.suppress(KeyError):
            __import__(f"python.{MODULES[framework]}")
        if framework == "deepspeed":
            __import__("bitsnap.deepspeed")
        gc.freeze()  # a collection in a fork would copy all of this process
        root = Path(tempfile.mkdtemp(prefix=f"adapter-kills-{kind.replace(' ', '-')}-"))
        began = time.monotonic()
        try:
            lives = Lives(root, kind, options.seed)
            lives.run(options.kills)
        except ViolatedGuaranteeError as error:
            sys.exit(f"{kind}: {error}\nkept: {root}")
        shutil.rmtree(root)
        print(f"{kind}: {dict(lives.tally)}, {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
