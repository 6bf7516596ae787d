"""Sharded checkpoints of Lightning's ModelParallelStrategy, which writes and reads them without a CheckpointIO."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from bitsnap._arguments import PathLike
from bitsnap._references import may_be_reference, unlink
from bitsnap._runs import path_checkpoints as paths
from bitsnap._runs.path_checkpoints import Options
from bitsnap._runs.path_saves import RankSaves
from bitsnap.dcp import StorageReader, StorageWriter
from bitsnap.dcp._shards import OpenStep
from bitsnap.errors import UnsupportedError
from bitsnap.store import Store

# What is neither the model nor an optimizer, as one value.
_OTHERS = "others"


class ShardedCheckpoints:
    """Stands for the methods of a strategy that save, load and remove checkpoints. All ranks call them together."""

    def __init__(self, strategy: Any, local: Callable[[PathLike], Path], options: Options) -> None:
        self._strategy, self._local, self._options = strategy, local, options
        self._writer = StorageWriter(
            settings=options.settings,
            allow_pickle=options.allow_pickle,
            timeout=options.timeout,
            threads=options.threads,
            overwrite=False,
        )
        self._saves = RankSaves(options)
        self._stock_load, self._stock_remove = strategy.load_checkpoint, strategy.remove_checkpoint

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: PathLike, storage_options: Any = None) -> None:
        if storage_options is not None:
            raise UnsupportedError(f"storage_options: bitsnap saves to local files only, got {storage_options!r}")
        path = self._local(self._strategy.broadcast(filepath))
        others = dict(checkpoint)
        state = {"state_dict": others.pop("state_dict")}
        optimizers = enumerate(others.pop("optimizer_states", []))
        state |= {f"optimizer_{index}": optimizer for index, optimizer in optimizers}
        if self._strategy.is_global_zero:
            state[_OTHERS] = (others,)  # a tuple is one value of DCP
        new = self._saves.begin(path, int(others.get("global_step", 0)))
        self._writer.metadata = new.metadata
        save(state, checkpoint_id=_id(new.run, new.saved.step), storage_writer=self._writer)
        self._writer.close()
        self._saves.refer(new)

    def load_checkpoint(self, checkpoint_path: PathLike, weights_only: bool | None = None) -> dict[str, Any]:
        path = self._local(self._strategy.broadcast(checkpoint_path))
        ranks, what = self._saves.ranks, f"{path}: loading failed"
        if not ranks.from_first(lambda: may_be_reference(path), what):
            found: dict[str, Any] = self._stock_load(checkpoint_path, **given_only(weights_only))
            return found
        run, step = ranks.from_first(lambda: paths.step_of(path), what)
        allow_pickle = not weights_only and self._options.allow_pickle
        reader = StorageReader(allow_pickle=allow_pickle, threads=self._options.threads)
        model = self._strategy.model
        state: dict[str, Any] = {"state_dict": get_model_state_dict(model)}
        load(state, checkpoint_id=_id(run, step), storage_reader=reader)
        model.load_state_dict(state["state_dict"], strict=self._strategy.lightning_module.strict_loading)
        for index, optimizer in enumerate(self._strategy.optimizers):
            name = f"optimizer_{index}"
            state = {name: get_optimizer_state_dict(model, optimizer)}
            load(state, checkpoint_id=_id(run, step), storage_reader=reader)
            options = StateDictOptions(cpu_offload=True)
            set_optimizer_state_dict(model, optimizer, optim_state_dict=state[name], options=options)
        others: dict[str, Any] = OpenStep(_id(run, step), allow_pickle, self._options.threads).value(_OTHERS)[0]
        return others

    def remove_checkpoint(self, filepath: PathLike) -> None:
        path = self._local(filepath)
        if path.is_dir() and not path.is_symlink():
            self._stock_remove(filepath)
        elif self._strategy.is_global_zero:
            unlink(path)
            run = paths.run_of(path)
            if run.is_dir():
                # Other ranks may have it open.
                with Store(run, shared=True, create=False, timeout=self._options.timeout) as store:
                    paths.forget(store)


def _id(run: Path, step: int) -> str:
    return str(run / f"step-{step}")


def given_only(weights_only: bool | None) -> dict[str, bool]:
    """The argument for functions of Lightning, which have it since 2.6; before, they read with their own default."""
    return {} if weights_only is None else {"weights_only": weights_only}
