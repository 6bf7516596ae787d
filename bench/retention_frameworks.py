"""What folders of frameworks hold on disk with their own rotation, in raw checkpoints that are kept.

    python -m bench.retention_frameworks [torch] [transformers] [accelerate] [lightning] [deepspeed] [dcp] [--every N]

Each function trains a small GPT-2 and saves it 16 times; the framework keeps the newest N checkpoints. All that is in
the folder counts, also what the framework writes itself, after each save and, as the peak, at any time. A raw
checkpoint is one of the framework's own. After a save is when the agent has nothing left to do.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

import bitsnap
from bench import framework_integrations
from bench.framework_integrations import deepspeed_engine, deepspeed_step, train_step
from bench.machine_description import describe
from bench.results_tables import align
from bench.retention_disk import bytes_in

SAVES = 16
Note = Callable[[], None]


def await_agents(folder: Path) -> None:
    """Waits until no agent of a run in the folder works, and no more changes in the folder."""
    deadline = time.monotonic() + 60
    with contextlib.suppress(bitsnap.NotFoundError):
        while time.monotonic() < deadline:
            [rank] = bitsnap.agent_status(folder / "bitsnap")["ranks"]
            if not (rank["queued"] or rank["encoding"] or rank["writing"] or rank["uncommitted"]):
                break
            time.sleep(0.01)
    before = -1
    while (now := bytes_in(folder)) != before and time.monotonic() < deadline:
        before = now
        time.sleep(0.3)


class Task(NamedTuple):
    folder: Path
    kept: int
    every: int  # steps between two saves
    options: dict[str, Any] | None  # of bitsnap; None: the framework's own checkpoints
    note: Note  # to be called after each save


def new_model() -> Any:
    """A GPT-2 of 2 million parameters in float32."""
    return framework_integrations.new_model(vocab_size=2000, n_positions=32, n_embd=192, n_layer=4, n_head=6)


def batches(task: Task) -> torch.Tensor:
    return torch.randint(200, (SAVES * task.every, 2, 32), generator=torch.Generator().manual_seed(0))


def torch_loop(task: Task) -> None:
    """torch.save(), Store, or, with an agent, Checkpointer."""
    model = new_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    files: list[Path] = []
    with contextlib.ExitStack() as stack:
        options, run = task.options, task.folder / "bitsnap"
        writer: Any = None
        if options and "agent" in options:
            writer = stack.enter_context(bitsnap.Checkpointer(run, keep_last=task.kept, **options))
        elif options is not None:
            writer = stack.enter_context(bitsnap.Store(run, keep_last=task.kept))
        for step, tokens in enumerate(batches(task), 1):
            train_step(model, optimizer, tokens)
            if step % task.every:
                continue
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            if writer is not None:
                writer.save(step, state)
            else:
                files.append(task.folder / f"{step}.pt")
                torch.save(state, files[-1])
                if len(files) > task.kept:
                    files.pop(0).unlink()
            task.note()


def transformers_trainer(task: Task) -> None:
    from transformers import Trainer, TrainingArguments

    import bitsnap.transformers

    arguments = TrainingArguments(
        str(task.folder),
        max_steps=SAVES * task.every,
        save_steps=task.every,
        save_total_limit=task.kept,
        per_device_train_batch_size=2,
        learning_rate=1e-3,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        seed=0,
    )
    data = [{"input_ids": each, "labels": each} for each in batches(task).flatten(0, 1)]
    trainer = Trainer(model=new_model(), args=arguments, train_dataset=data)
    if task.options is not None:
        bitsnap.transformers.use(trainer, **task.options)
    save = trainer._save_checkpoint

    def noted(*given: Any, **more: Any) -> None:
        save(*given, **more)
        task.note()

    trainer._save_checkpoint = noted
    trainer.train()


def accelerate_loop(task: Task) -> None:
    from accelerate import Accelerator
    from accelerate.utils import ProjectConfiguration

    import bitsnap.accelerate

    project = ProjectConfiguration(
        project_dir=str(task.folder), automatic_checkpoint_naming=True, total_limit=task.kept
    )
    accelerator = Accelerator(cpu=True, project_config=project)
    if task.options is not None:
        bitsnap.accelerate.use(accelerator, **task.options)
    model = new_model()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    for step, tokens in enumerate(batches(task), 1):
        train_step(model, optimizer, tokens)
        if step % task.every == 0:
            accelerator.save_state()
            task.note()
    accelerator.end_training()


def lightning_trainer(task: Task, save_last: bool = False) -> None:
    import lightning
    from lightning.pytorch.callbacks import ModelCheckpoint

    import bitsnap.lightning

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = new_model()

        def training_step(self, batch: list[torch.Tensor]) -> Any:
            tokens = batch[0][0]
            self.log("at", float(self.global_step))
            return self.model(input_ids=tokens, labels=tokens).loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    class Noted(ModelCheckpoint):  # type: ignore[misc]
        def on_train_batch_end(self, *given: Any, **more: Any) -> None:
            before = self._last_global_step_saved
            super().on_train_batch_end(*given, **more)
            if self._last_global_step_saved != before:
                task.note()

    checkpoints = Noted(
        task.folder, monitor="at", mode="max", every_n_train_steps=task.every, save_top_k=task.kept, save_last=save_last
    )
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_steps=SAVES * task.every,
        callbacks=[checkpoints],
        plugins=[] if task.options is None else [bitsnap.lightning.CheckpointIO(**task.options)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(batches(task)), batch_size=1)
    trainer.fit(Module(), data)


def lightning_with_last(task: Task) -> None:
    lightning_trainer(task, save_last=True)


def deepspeed_zero(task: Task) -> None:
    """ZeRO 1 with bfloat16 weights and float32 masters, on one rank; the loop deletes old tags."""
    engine = deepspeed_engine(new_model(), task.folder, task.options)
    tags: list[str] = []
    for step, tokens in enumerate(batches(task), 1):
        deepspeed_step(engine, tokens)
        if step % task.every == 0:
            tags.append(f"step{step}")
            engine.save_checkpoint(str(task.folder), tag=tags[-1])
            if len(tags) > task.kept:
                shutil.rmtree(task.folder / tags.pop(0))
            task.note()
    engine.destroy()


def dcp_two_ranks(task: Task) -> None:
    """dcp.save() of two ranks with FSDP2."""
    with multiprocessing.get_context("spawn").Manager() as manager:
        ended = manager.Queue()
        go_on = manager.Semaphore(0)
        ranks = [
            multiprocessing.get_context("spawn").Process(
                target=_dcp_rank, args=(rank, task._replace(note=_nothing), ended, go_on)
            )
            for rank in range(2)
        ]
        for rank in ranks:
            rank.start()
        for _ in range(SAVES):
            ended.get(timeout=300)
            task.note()
            go_on.release()
        for rank in ranks:
            rank.join()
            assert rank.exitcode == 0


def _nothing() -> None:
    """Of ranks, which do not note."""


def _dcp_rank(rank: int, task: Task, ended: Any, go_on: Any) -> None:
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.checkpoint.state_dict_saver import save
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    from bitsnap.dcp import StorageWriter

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{task.folder}.meeting", rank=rank, world_size=2)
    model = new_model()
    for block in model.transformer.h:
        fully_shard(block, mesh=init_device_mesh("cpu", (2,)))
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    kept: list[Path] = []
    for step, tokens in enumerate(batches(task), 1):
        train_step(model, optimizer, tokens)
        if step % task.every:
            continue
        states = get_state_dict(model, optimizer)
        state = dict(zip(("model", "optimizer"), states, strict=True))
        if task.options is None:
            kept.append(task.folder / f"step-{step}")
            save(state, checkpoint_id=kept[-1])
            if rank == 0 and len(kept) > task.kept:
                shutil.rmtree(kept.pop(0))
        else:
            save(state, storage_writer=StorageWriter(task.folder / "run" / f"step-{step}", keep_last=task.kept))
        torch.distributed.barrier()
        if rank == 0:
            ended.put(step)
            go_on.acquire()
        torch.distributed.barrier()
    torch.distributed.destroy_process_group()


FRAMEWORKS: dict[str, Callable[[Task], None]] = {
    "torch": torch_loop,
    "transformers": transformers_trainer,
    "accelerate": accelerate_loop,
    "lightning": lightning_trainer,
    "lightning, save_last": lightning_with_last,
    "deepspeed": deepspeed_zero,
    "dcp": dcp_two_ranks,
}


@contextlib.contextmanager
def watched(folder: Path) -> Iterator[list[int]]:
    """A list with the most bytes that are in the folder at any time."""
    most, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.005):
            most[0] = max(most[0], bytes_in(folder))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield most
    finally:
        ended.set()
        watching.join()


def disk_of(train: Callable[[Task], None], kept: int, every: int, options: dict[str, Any] | None) -> list[float]:
    """Mean and most bytes after a save from the one after which none is missing, at any time, and at the end."""
    with tempfile.TemporaryDirectory(prefix="retention-") as temporary:
        folder = Path(temporary) / "out"
        folder.mkdir()
        after: list[int] = []
        with watched(folder) as most:

            def note() -> None:
                if options and "agent" in options:
                    await_agents(folder)
                after.append(bytes_in(folder))

            train(Task(folder, kept, every, options, note))
        full = after[kept:]
        return [sum(full) / len(full), max(full), most[0], bytes_in(folder)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("frameworks", nargs="*", help=f"of {', '.join(FRAMEWORKS)}")
    parser.add_argument("--every", type=int, default=5, help="steps between two saves")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    print(", ".join(describe("as detected").values()), end="\n\n")
    ways: dict[str, dict[str, Any]] = {"": {}, ", agent": {"agent": bitsnap.AgentOptions(linger=1.0)}}
    rows = []
    for framework in chosen.frameworks or FRAMEWORKS:
        train = FRAMEWORKS[framework]
        for kept in (1, 2, 3):
            raw = disk_of(train, kept, chosen.every, None)
            one = raw[0]  # of `kept` checkpoints
            numbers = [f"{value / one:.3f}" for value in raw]
            rows.append([framework, str(kept), "its own", *numbers])
            for way, options in ways.items():
                if framework == "dcp" and way:
                    continue
                found = disk_of(train, kept, chosen.every, options)
                rows.append([framework, str(kept), f"bitsnap{way}", *(f"{value / one:.3f}" for value in found)])
                print(rows[-1], file=sys.stderr, flush=True)
    print("\n".join(align(["framework", "kept", "written by", "mean", "most", "peak", "at the end"], rows)))


if __name__ == "__main__":
    main()
