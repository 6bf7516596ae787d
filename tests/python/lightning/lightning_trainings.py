"""Trainings with Lightning for lightning_test.py. Each runs in a fork of one process that has imported Lightning.

The batch of a step follows from its number, so a resumed training sees the same data. What a training finds is a line
of JSON in the file `facts`.
"""

from __future__ import annotations

import argparse
import datetime
import enum
import functools
import inspect
import json
import os
import pickle
import signal
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import lightning as L  # noqa: N812
import torch
from lightning.pytorch.callbacks import (
    EarlyStopping,
    ModelCheckpoint,
    OnExceptionCheckpoint,
    StochasticWeightAveraging,
    Timer,
)
from lightning.pytorch.plugins.io import AsyncCheckpointIO, CheckpointIO
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy
from torch.distributed.fsdp import FSDPModule, fully_shard

import bitsnap
import bitsnap.lightning
from python.same_bits import assert_same

STEPS = 8  # an epoch
# Before Lightning 2.6, this is what fit() does.
WITH_PICKLES = {"weights_only": False} if "weights_only" in inspect.signature(L.Trainer.fit).parameters else {}


class Color(enum.Enum):
    RED = 1


class Numbers(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(index)])


AGENT = bitsnap.AgentOptions(linger=5)


class Model(L.LightningModule):  # type: ignore[misc]  # Lightning's types are not read
    def __init__(self, width: int = 64, options: Any = None, end: tuple[int, int] | None = None) -> None:
        super().__init__()
        self.save_hyperparameters(ignore=["end"])
        self.layers = torch.nn.Sequential(torch.nn.Linear(32, width), torch.nn.ReLU(), torch.nn.Linear(width, 32))
        self.losses: dict[int, float] = {}
        self.end = end  # the signal that this process sends itself in a step

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        step = self.global_step
        if self.end is not None and step == self.end[0]:
            os.kill(os.getpid(), self.end[1])
        x = torch.randn(16, 32, generator=torch.Generator().manual_seed(step))
        loss: torch.Tensor = (self.layers(x) - x.sin()).square().mean()
        self.losses[step] = loss.item()
        self.log("loss", loss)
        self.log("waves", float(step * 7 % 10))
        return loss

    def train_dataloader(self) -> Any:
        return torch.utils.data.DataLoader(Numbers())

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


def trainer_at(path: Path, *callbacks: Any, plugins: Any = None, epochs: int = 3, **arguments: Any) -> L.Trainer:
    return L.Trainer(
        default_root_dir=path,
        accelerator="cpu",
        max_epochs=epochs,
        plugins=plugins,
        callbacks=list(callbacks),
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=bool(callbacks),
        **arguments,
    )


def model(**arguments: Any) -> Model:
    L.seed_everything(1)
    return Model(**arguments)


def rotating(path: Path, **arguments: Any) -> ModelCheckpoint:
    """Every third step, the last and the two best."""
    return ModelCheckpoint(
        dirpath=path, monitor="waves", mode="max", save_top_k=2, save_last=True, every_n_train_steps=3, **arguments
    )


def in_store(folder: Path) -> dict[str, Any]:
    with bitsnap.Store(folder / "bitsnap", read_only=True) as store:
        store.verify()
        return {"steps": store.steps(), "labels": store.labels()}


def metrics_in(folder: Path) -> dict[int, dict[str, float]]:
    with bitsnap.Store(folder / "bitsnap", read_only=True) as store:
        return {checkpoint.step: checkpoint.metrics for checkpoint in store.checkpoints()}


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.ckpt"))


def uninterrupted(path: Path) -> Iterator[tuple[str, Any]]:
    trained = model()
    trainer = trainer_at(path, rotating(path / "whole"), plugins=bitsnap.lightning.CheckpointIO())
    trainer.fit(trained)
    yield "losses", trained.losses
    yield "whole files", files(path / "whole")
    yield "whole store", in_store(path / "whole")
    yield "whole metrics", metrics_in(path / "whole")
    best = trainer.checkpoint_callback.best_model_path
    yield "best", Path(best).name
    yield "best step", bitsnap.lightning.load(best)["global_step"]
    trainer.save_checkpoint(path / "any" / "where.ckpt")
    trainer.save_checkpoint(path / "any" / "where.ckpt")
    yield "anywhere", in_store(path / "any")


def killed(path: Path, folder: str, agent: bitsnap.AgentOptions | None) -> Iterator[tuple[str, Any]]:
    plugin = bitsnap.lightning.CheckpointIO(agent=agent)
    trained = model(end=(14, signal.SIGKILL))
    trainer_at(path, rotating(path / folder), plugins=plugin).fit(trained)
    yield "was not killed", folder


def mirrored(
    folder: str, mirror: str | None = None, resumes: bool = False, through_agent: bool = False, end: int | None = None
) -> dict[str, float]:
    """Trains with a copy that follows the run; the losses. Killed in step `end`. Through an agent, `last.ckpt` is a
    link."""
    saver = rotating(Path(folder))
    saver.save_last = "link" if through_agent else True
    trainer = trainer_at(Path(folder).parent, saver)
    bitsnap.lightning.use(trainer, mirror=mirror, agent=AGENT if through_agent else None)
    trained = model(end=None if end is None else (end, signal.SIGKILL))
    trainer.fit(trained, ckpt_path="last" if resumes else None)
    return {str(step): loss for step, loss in trained.losses.items()}


def resumed(path: Path, folder: str, agent: bitsnap.AgentOptions | None) -> Iterator[tuple[str, Any]]:
    plugin = bitsnap.lightning.CheckpointIO(agent=agent)
    trained = model()
    trainer_at(path, rotating(path / folder), plugins=plugin).fit(trained, ckpt_path="last")
    yield f"losses {folder}", trained.losses
    yield f"{folder} files", files(path / folder)
    yield f"{folder} store", in_store(path / folder)
    with suppress(bitsnap.NotFoundError):
        bitsnap.agent_status(path / folder / "bitsnap")
        yield "agent left", folder


def terminated(path: Path) -> Iterator[tuple[str, Any]]:
    plugin = bitsnap.lightning.CheckpointIO()
    saver = OnExceptionCheckpoint(path / "term")
    saver.teardown = lambda *_, **__: None
    keeper = ModelCheckpoint(dirpath=path / "keeper", save_on_exception=True, filename="{step}")
    with suppress(SystemExit):
        trainer_at(path, saver, keeper, plugins=plugin).fit(model(end=(5, signal.SIGTERM)))
    yield "terminated", bitsnap.lightning.load(path / "term" / "on_exception.ckpt")["global_step"]
    yield "kept", files(path / "keeper")


def rich(path: Path) -> Iterator[tuple[str, Any]]:
    """Everything that Lightning puts into checkpoints by itself, and the usual hyperparameters."""
    options = argparse.Namespace(
        rate=0.1,
        color=Color.RED,
        folder=Path("/data"),
        since=datetime.datetime(2026, 1, 2),
        nested=L.fabric.utilities.data.AttributeDict(sizes=(1, 2), more=L.fabric.utilities.data.AttributeDict()),
    )
    callbacks = [
        ModelCheckpoint(dirpath=path / "rich", save_last="link", filename="{epoch}"),
        EarlyStopping("loss", patience=100),
        Timer(duration={"hours": 1}),
        StochasticWeightAveraging(swa_lrs=0.01, swa_epoch_start=1),
    ]
    seen: list[Any] = []

    class Seeing(Model):
        def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            seen.append(checkpoint)

    L.seed_everything(1)
    trainer = trainer_at(path, *callbacks, plugins=bitsnap.lightning.CheckpointIO(), epochs=2)
    trainer.fit(Seeing(options=options))
    trainer.save_checkpoint(path / "rich" / "now.ckpt")
    bitsnap.lightning.export(path / "rich" / "now.ckpt", path / "stock.ckpt")
    found = torch.load(path / "stock.ckpt", weights_only=False)
    yield "keys", list(found)
    assert_same(found, seen[-1])
    yield "same", type(found["hyper_parameters"]["options"].nested).__name__
    yield "link", str((path / "rich" / "last.ckpt").readlink())
    yield "linked epoch", bitsnap.lightning.load(path / "rich" / "last.ckpt")["epoch"]
    with suppress(Exception):
        Seeing.load_from_checkpoint(path / "rich" / "now.ckpt", weights_only=False)
        yield "without use", True
    bitsnap.lightning.use(None)
    loaded = Seeing.load_from_checkpoint(path / "rich" / "now.ckpt", width=64)
    assert_same(dict(loaded.state_dict()), dict(found["state_dict"]))
    stock = Seeing.load_from_checkpoint(path / "stock.ckpt", weights_only=False)
    assert_same(dict(stock.state_dict()), dict(found["state_dict"]))
    bitsnap.lightning.undo(None)
    yield "loaded", loaded.hparams["options"].color.name


def left(path: Path) -> Iterator[tuple[str, Any]]:
    """A training that goes on with Lightning's own files, and one that came from them."""
    bitsnap.lightning.export(path / "whole" / "last.ckpt", path / "left.ckpt")
    trained = model()
    trainer_at(path, epochs=4).fit(trained, ckpt_path=path / "left.ckpt", **WITH_PICKLES)
    yield "losses left", trained.losses
    trained = model()
    trainer = trainer_at(path, plugins=bitsnap.lightning.CheckpointIO(), epochs=4)
    trainer.fit(trained, ckpt_path=path / "left.ckpt", **WITH_PICKLES)
    yield "losses came", trained.losses
    trained = model()
    trainer = trainer_at(path, plugins=bitsnap.lightning.CheckpointIO(), epochs=4)
    trainer.fit(trained, ckpt_path=path / "whole" / "last.ckpt")
    yield "losses stayed", trained.losses


def sizes(path: Path) -> Iterator[tuple[str, Any]]:
    """Beside a plain state; and with bounded loss, which needs the numbers of Adam."""
    trained = model(width=2000)
    io = bitsnap.lightning.CheckpointIO()
    bounded = bitsnap.lightning.CheckpointIO(settings="bounded")
    # One checkpoint is there when the next one is saved, as if Lightning kept one.
    with bitsnap.Store(path / "plain", keep_last=1, prunes=False) as store:
        for epochs in (1, 2):
            trainer = trainer_at(path, plugins=io, epochs=epochs)
            trainer.fit(trained, ckpt_path=None if epochs == 1 else path / "sizes" / "1.ckpt")
            trainer.save_checkpoint(path / "sizes" / f"{epochs}.ckpt")
            state = bitsnap.lightning.load(path / "sizes" / f"{epochs}.ckpt")
            plain = {"model": state["state_dict"], "optimizer": state["optimizer_states"][0]}
            yield f"plain size {epochs}", store.save(epochs, plain).stored_bytes
            bounded.save_checkpoint(state, path / "bounded" / f"{epochs}.ckpt")
    with bitsnap.Store(path / "sizes" / "bitsnap", read_only=True) as store:
        for number, checkpoint in enumerate(store.checkpoints(), 1):
            yield f"size {number}", checkpoint.stored_bytes
    with bitsnap.Store(path / "bounded" / "bitsnap", read_only=True) as store:
        found = bitsnap.inspect(store.snapshot(16)).tensors
        yield "roles", sorted({tensor.role for tensor in found})
        yield "moments", sorted({codec for tensor in found if tensor.role == "exp_avg" for codec in tensor.codecs})


def two_ranks(path: Path) -> Iterator[tuple[str, Any]]:
    trained = model()
    folder = path / "ranks" / "checkpoints"
    for epochs in (2, 3):
        trainer = trainer_at(
            path / "ranks",
            ModelCheckpoint(dirpath=folder, save_last=True, filename="{epoch}"),
            plugins=bitsnap.lightning.CheckpointIO(agent=AGENT) if epochs == 2 else None,
            epochs=epochs,
            strategy="ddp_fork",
            devices=2,
        )
        if epochs == 3:
            bitsnap.lightning.use(trainer, agent=AGENT)
        trainer.fit(trained, ckpt_path="last" if epochs == 3 else None)
    yield "ranks", in_store(folder)
    yield "ranks metrics", [sorted(metrics) for metrics in metrics_in(folder).values()]
    yield "beside", sorted(each.name for each in (path / "ranks").iterdir())
    last = bitsnap.lightning.load(folder / "last.ckpt")
    assert_same(dict(last["state_dict"]), dict(trained.state_dict()))


class ShardedModel(Model):
    def configure_model(self) -> None:
        if not isinstance(self.layers, FSDPModule):
            fully_shard(self.layers, mesh=self.device_mesh["data_parallel"])


def sharded_training(path: Path, ranks: int, rank: int) -> Iterator[tuple[str, Any]]:
    """One rank of trainings with FSDP2; beside them, those with Lightning's own checkpoints."""
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0", "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks), "TORCHELASTIC_RUN_ID": "test", "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": (path / "port").read_text(),
    }  # fmt: skip
    folder = path / "shards"

    def trained(name: str, epochs: int, strategy: Any, ckpt_path: Any = None) -> Any:
        L.seed_everything(1)
        saver = rotating(folder / name)
        trainer = trainer_at(folder, saver, epochs=epochs, strategy=strategy, devices=ranks)
        found = ShardedModel()
        trainer.fit(found, ckpt_path=ckpt_path)
        return found.losses

    ours = bitsnap.lightning.use
    if ranks == 2:
        losses = trained("stock", 3, ModelParallelStrategy())
        trained("shards", 2, ours(ModelParallelStrategy()))
        resumed = trained("shards", 3, ours(ModelParallelStrategy()), ckpt_path="last")
        came = trained("came", 4, ours(ModelParallelStrategy()), ckpt_path=folder / "stock" / "last.ckpt")
        if rank == 0:
            yield "losses of shards", losses
            yield "losses of resumed shards", resumed
            yield "losses of stock shards", came
            yield "files of shards", files(folder / "shards")
            yield "store of shards", in_store(folder / "shards")
            yield "metrics of shards", metrics_in(folder / "shards")
            with bitsnap.Store(folder / "shards" / "bitsnap", create=False) as store:
                yield "shards", [checkpoint.shards for checkpoint in store.checkpoints()]
    else:
        yield "losses of one rank", trained("one", 4, ours(ModelParallelStrategy()), folder / "shards" / "last.ckpt")


def sharded(path: Path) -> Iterator[tuple[str, Any]]:
    for ranks in (2, 1):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            (path / "port").write_text(str(free.getsockname()[1]))
        scenes = [functools.partial(sharded_training, ranks=ranks, rank=rank) for rank in range(ranks)]
        found = [forked(path, scene) for scene in scenes]
        yield f"ends of {ranks}", [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in found]


def other_package(path: Path) -> Iterator[tuple[str, Any]]:
    import pytorch_lightning
    from pytorch_lightning.demos.boring_classes import BoringModel

    plugin: Any = bitsnap.lightning.CheckpointIO()
    trainer = pytorch_lightning.Trainer(
        default_root_dir=path,
        accelerator="cpu",
        max_steps=2,
        limit_val_batches=0,
        plugins=plugin,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(BoringModel())
    trainer.save_checkpoint(path / "other" / "a.ckpt")
    yield "other", bitsnap.lightning.load(path / "other" / "a.ckpt")["global_step"]


def elsewhere(path: Path) -> Iterator[tuple[str, Any]]:
    """With Fabric, in a thread of Lightning, and in a pickle."""
    fabric = L.Fabric(accelerator="cpu", devices=1, plugins=bitsnap.lightning.CheckpointIO())
    layer = torch.nn.Linear(2, 2)
    weight = layer.weight.detach().clone()
    fabric.save(path / "fabric" / "a.ckpt", {"layer": layer, "iteration": 3})
    torch.nn.init.zeros_(layer.weight)
    rest = fabric.load(path / "fabric" / "a.ckpt", {"layer": layer})
    yield "fabric", (rest["iteration"], torch.equal(layer.weight, weight))
    io: Any = AsyncCheckpointIO(bitsnap.lightning.CheckpointIO())
    saver = ModelCheckpoint(dirpath=path / "thread", save_top_k=-1, filename="{step}")
    trainer_at(path, saver, plugins=io).fit(model())
    yield "thread", in_store(path / "thread")
    copy = pickle.loads(pickle.dumps(bitsnap.lightning.CheckpointIO(settings="bounded")))
    yield "pickle", isinstance(copy, bitsnap.lightning.CheckpointIO) and isinstance(copy, CheckpointIO)


def verbs(path: Path) -> Iterator[tuple[str, Any]]:
    """A trainer that saves to a run, and as before when that is undone."""
    for agent in (None, AGENT):
        trainer = bitsnap.lightning.use(trainer_at(path, epochs=1), agent=agent)
        trained = model()
        trainer.fit(trained)
        ours = path / "verbs" / f"{'agent' if agent else 'none'}.ckpt"
        trainer.save_checkpoint(ours)
        bitsnap.lightning.undo(trainer)
        bitsnap.lightning.undo(trainer)  # once more
        trainer.save_checkpoint(path / "verbs" / "stock.ckpt")
        stock = torch.load(path / "verbs" / "stock.ckpt", weights_only=False)
        assert_same(bitsnap.lightning.load(ours)["state_dict"], stock["state_dict"])
        yield (
            f"metrics with {agent and 'agent'}",
            [list(metrics_in(ours.parent).values())[-1], trained.losses[STEPS - 1]],
        )
        yield "undone", type(trainer.strategy.checkpoint_io).__name__


def errors(path: Path) -> Iterator[tuple[str, Any]]:
    io = bitsnap.lightning.CheckpointIO()
    state = {"global_step": 1, "hyper_parameters": {"criterion": torch.nn.MSELoss()}}

    def error_of(call: Callable[[], Any]) -> str:
        try:
            call()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "none"

    yield "not storable", error_of(lambda: io.save_checkpoint(state, path / "errors" / "a.ckpt"))
    yield "url", error_of(lambda: io.save_checkpoint({}, "s3://bucket/a.ckpt"))
    yield "url load", error_of(lambda: io.load_checkpoint("memory://a.ckpt"))
    yield "options", error_of(lambda: io.save_checkpoint({}, path / "a.ckpt", storage_options={"a": 1}))
    yield "missing", error_of(lambda: io.load_checkpoint(path / "errors" / "a.ckpt"))
    yield "strategy", error_of(lambda: bitsnap.lightning.use(FSDPStrategy()))
    pickling = bitsnap.lightning.CheckpointIO(allow_pickle=True)
    pickling.save_checkpoint(state, path / "errors" / "a.ckpt")
    yield "pickled", str(pickling.load_checkpoint(path / "errors" / "a.ckpt")["hyper_parameters"]["criterion"])
    yield "weights only", error_of(lambda: pickling.load_checkpoint(path / "errors" / "a.ckpt", weights_only=True))
    torch.save({"a": torch.ones(1)}, path / "errors" / "stock.ckpt")
    yield "stock", error_of(lambda: bitsnap.lightning.load(path / "errors" / "stock.ckpt"))
    yield "stock value", io.load_checkpoint(path / "errors" / "stock.ckpt")["a"].item()
    tensors = {"a": torch.ones(1)}
    io.save_checkpoint(tensors, path / "errors" / "b.ckpt")
    for where in ("meta", {"cpu": "meta"}, lambda *_: torch.empty(0, device="meta").untyped_storage()):
        found = io.load_checkpoint(path / "errors" / "b.ckpt", map_location=where)
        yield f"device {type(where).__name__}", found["a"].device.type
    for name in ("a.ckpt", "b.ckpt", "stock.ckpt", "b.ckpt"):
        io.remove_checkpoint(path / "errors" / name)
    yield "removed", sorted(each.name for each in (path / "errors").iterdir())


SCENES: dict[str, Callable[[Path], Iterator[tuple[str, Any]]]] = {
    "verbs": verbs,
    "uninterrupted": uninterrupted,
    "killed": lambda path: killed(path, "killed", None),
    "resumed": lambda path: resumed(path, "killed", None),
    "killed agent": lambda path: killed(path, "agent", AGENT),
    "resumed agent": lambda path: resumed(path, "agent", AGENT),
    "terminated": terminated,
    "rich": rich,
    "left": left,
    "sizes": sizes,
    "two ranks": two_ranks,
    "sharded": sharded,
    "other package": other_package,
    "elsewhere": elsewhere,
    "errors": errors,
}


def forked(path: Path, scene: Callable[[Path], Iterator[tuple[str, Any]]]) -> int:
    """Runs a scene in a fork, which writes what it finds."""
    child = os.fork()
    if child == 0:
        try:
            torch.set_num_threads(1)
            for name, value in scene(path):
                note(path, name, value)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child


def note(path: Path, name: str, value: Any) -> None:
    with (path / "facts").open("a") as facts:
        facts.write(json.dumps({name: value}) + "\n")


def main() -> None:
    warnings.simplefilter("ignore")
    for scene in sys.argv[2:] or SCENES:
        path, begin = Path(sys.argv[1]), time.monotonic()
        status = os.waitstatus_to_exitcode(os.waitpid(forked(path, SCENES[scene]), 0)[1])
        note(path, f"end of {scene}", status)
        print(scene, round(time.monotonic() - begin, 1), "s", file=sys.stderr)


if __name__ == "__main__":
    main()
