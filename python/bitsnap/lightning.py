"""Checkpoints of Lightning in a store: compressed, each against the one before, at the paths that Lightning gives them.

    import bitsnap.lightning

    trainer = bitsnap.lightning.use(L.Trainer(...))     # or L.Trainer(plugins=[bitsnap.lightning.CheckpointIO()], ...)

It works with `lightning` and `pytorch_lightning`. ModelCheckpoint, `ckpt_path` and `trainer.save_checkpoint()` keep
their meaning. Where Lightning expects a checkpoint, there is a small file, the reference; the bytes of all checkpoints
of a directory lie in the run ``bitsnap`` beside them, which is a store. Checkpoints that Lightning has saved itself are
loaded as before. Nothing of a checkpoint that was saved here is unpickled.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load as load_with_dcp
from torch.distributed.checkpoint.state_dict_saver import save as save_with_dcp

from bitsnap._common import Device, PathLike, brief, is_disabled, is_url
from bitsnap._engine.ranks import Ranks
from bitsnap._engine.steps import Beside, warn_of_earlier
from bitsnap._references import absolute, may_be_reference, unlink, writing
from bitsnap._runs import path_checkpoints as paths
from bitsnap._runs.framework_objects import Replacing
from bitsnap._runs.mirrored_runs import bring_back, bring_back_for
from bitsnap._runs.opened_runs import Options as Options
from bitsnap._runs.path_saves import PathSaves, RankSaves, save
from bitsnap._states.program_values import register_value
from bitsnap.dcp import StorageReader, StorageWriter
from bitsnap.dcp._shards import OpenStep
from bitsnap.errors import InvalidArgumentError, UnsupportedError
from bitsnap.state import load as load_state
from bitsnap.store import Store

# Lightning's two packages have the same classes, each its own. The modules of these, and of load_from_checkpoint().
_PACKAGES = {"lightning.fabric": "lightning.pytorch", "lightning_fabric": "pytorch_lightning"}
_BESIDE = Beside(
    "the run holds the steps of both, and a file of the same name takes the place of the earlier one",
    "trainer.fit(model, ckpt_path=PATH)",
    "another dirpath of ModelCheckpoint",
)
_replaced = Replacing()  # load_from_checkpoint()
T = TypeVar("T")


class CheckpointIO:
    """A plugin for the Trainer, or for Fabric, that saves to runs. It is a CheckpointIO of Lightning.

    Args:
        **options: those of Options: settings, agent, ...

    Raises:
        ImportError: Lightning is not installed.
        InvalidArgumentError, TypeError: an argument has a wrong value.
    """

    def __new__(cls, *_: Any, **__: Any) -> CheckpointIO:
        bases = [module.plugins.CheckpointIO for module in _fabrics()]
        if any(issubclass(cls, base) for base in bases):
            return super().__new__(cls)
        # The Trainer accepts instances of its own package's class only.
        made = types.new_class(cls.__name__, (cls, *bases), exec_body=lambda names: names.update(_made_of=cls))
        return super().__new__(made)

    def __init__(self, **options: Any) -> None:
        self._arguments = options
        self._options = Options(**options)
        _register_types()
        self._agents = None if self._options.agent is None else PathSaves(self._options)
        self._strategy: Any = None  # known after use()

    def __reduce__(self) -> Any:
        # For trainers that start their ranks with multiprocessing.
        kind = getattr(self, "_made_of", type(self))
        return functools.partial(kind, **self._arguments), ()

    def save_checkpoint(self, checkpoint: Mapping[str, Any], path: PathLike, storage_options: Any = None) -> None:
        """Saves a checkpoint to a path. With an agent, it is committed later.

        Raises:
            InvalidArgumentError: a value cannot be stored; the message names its place.
            UnsupportedError: the path is a URL, or there are storage_options.
            ExistsError: the path is a directory.
            BitsnapError: what else Store.save() raises. Then the path leads to what it did before.
        """
        if is_disabled():
            _fabrics()[0].plugins.TorchCheckpointIO().save_checkpoint(checkpoint, path, storage_options)
            return
        if storage_options is not None:
            raise UnsupportedError(f"storage_options: bitsnap saves to local files only, got {brief(storage_options)}")
        reference = absolute(path)
        step = checkpoint.get("global_step", 0)
        step = step if isinstance(step, int) and step >= 0 else 0
        warn_of_earlier(paths.run_of(reference), _BESIDE)
        metrics = _scores_of(checkpoint, path) | _metrics_of(self._strategy, is_on_all_ranks=False)
        if self._agents is not None:
            self._agents.save(reference, step, checkpoint, metrics=metrics)
        else:
            save(reference, step, checkpoint, self._options, metrics=metrics)

    def load_checkpoint(
        self, path: PathLike, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """The checkpoint of a path, on the CPU; one that Lightning has saved itself is read by Lightning.

        Waits for a save to this path that an agent has not committed yet. `weights_only=True` refuses pickled values,
        also with `allow_pickle=True`.

        Raises:
            BitsnapError: as load() does.
        """
        reference = absolute(path)
        if not reference.exists():
            bring_back(paths.run_of(reference), self._options, is_first=_is_first(self._strategy))
        if reference.is_file() and not may_be_reference(reference):
            stock = _fabrics()[0].plugins.TorchCheckpointIO()
            located = {} if map_location is None else {"map_location": map_location}
            found: dict[str, Any] = stock.load_checkpoint(path, **located, **_given_only(weights_only))
            return found
        allow_pickle = not weights_only and self._options.allow_pickle
        return load(reference, map_location=map_location, allow_pickle=allow_pickle, threads=self._options.threads)

    def remove_checkpoint(self, path: PathLike) -> None:
        """Removes a checkpoint, and its step from the run. With an agent, the step leaves the run later."""
        reference = absolute(path)
        if reference.is_dir() and not reference.is_symlink():  # of a strategy that saves shards itself
            shutil.rmtree(reference)
        elif self._agents is None or not self._agents.remove(reference):
            paths.remove(reference, timeout=self._options.timeout)

    def teardown(self) -> None:
        """Waits for all saves, and raises the error of the last one that failed. Lightning calls it."""
        if self._agents is not None:
            self._agents.close()


def use(host: T, **options: Any) -> T:
    """Lets a trainer save to runs.

    Each rank of a ModelParallelStrategy with `save_distributed_checkpoint=True` compresses and writes its own shard,
    and any number of ranks loads it, as with bitsnap.dcp. Otherwise rank 0 saves, through a CheckpointIO. Checkpoints
    that Lightning has saved itself are loaded as before.

        trainer = bitsnap.lightning.use(L.Trainer(strategy=ModelParallelStrategy(), ...))

    Args:
        host: a Trainer, or a strategy for one; or None: ``load_from_checkpoint()`` of LightningModule and
            LightningDataModule reads checkpoints of bitsnap in this process, and files of Lightning as before.
        **options: those of Options; none with None. Shards are saved without `agent` and `memory`: a save returns when
            it is committed.

    Returns:
        the host.

    Raises:
        ImportError: Lightning is not installed.
        UnsupportedError: the strategy saves in another way; or an agent is given for shards.
        InvalidArgumentError, TypeError: an option has a wrong value, or there is no such option; or, with `mirror`, the
            callbacks that save checkpoints have no dirpath, or several.
        IoError, ExistsError, ...: with `mirror`, the checkpoints cannot be brought back.
    """
    if host is None:
        if options:
            raise TypeError(f"load_from_checkpoint() takes no options, got {', '.join(options)}")
        _read_checkpoints()
        return host
    strategy: Any = getattr(host, "strategy", host)
    _register_types()
    chosen = Options(**options)
    undo(host)
    names = {each.__name__ for each in type(strategy).__mro__}
    if "ModelParallelStrategy" in names and getattr(strategy, "_save_distributed_checkpoint", False):
        bring_back_for(host, chosen, is_first=_is_first(strategy))
        _use_shards(strategy, chosen)
    elif host is strategy or not hasattr(strategy, "checkpoint_io") or _saves_itself(strategy):
        raise UnsupportedError(
            "expected a Trainer whose strategy saves through a CheckpointIO, or a ModelParallelStrategy with "
            f"save_distributed_checkpoint=True, got {type(host).__name__} with {type(strategy).__name__}"
        )
    else:
        bring_back_for(host, chosen, is_first=_is_first(strategy))
        ours = CheckpointIO(**options)
        ours._strategy = strategy
        strategy._bitsnap_stock = ours, strategy.checkpoint_io
        strategy.checkpoint_io = ours
    return host


def undo(host: Any) -> None:
    """Lets a trainer, a strategy, or with None ``load_from_checkpoint()``, do what it did before use().

    Waits for saves, and raises the error of the last save of an agent that failed.
    """
    if host is None:
        _replaced.undo()
        return
    strategy = getattr(host, "strategy", host)
    stock = vars(strategy).pop("_bitsnap_stock", None)
    if isinstance(stock, Replacing):
        stock.undo()
    elif stock is not None:
        ours, before = stock
        if strategy.checkpoint_io is ours:  # and not what the user has put there since
            strategy.checkpoint_io = before
        ours.teardown()


def _is_first(strategy: Any) -> bool:
    rank = getattr(strategy, "global_rank", None)  # known before the ranks have met
    return (Ranks().rank if rank is None else rank) == 0


def _saves_itself(strategy: Any) -> bool:
    """Whether a strategy writes its checkpoints without a CheckpointIO."""
    names = {each.__name__ for each in type(strategy).__mro__}
    is_sharded = getattr(strategy, "_state_dict_type", None) == "sharded"
    return "DeepSpeedStrategy" in names or ("FSDPStrategy" in names and is_sharded)


def _use_shards(strategy: Any, options: Options) -> None:
    if options.agent is not None or options.memory is not None:
        raise UnsupportedError("agent, memory: shards are saved without an agent; give these to CheckpointIO")
    if not hasattr(strategy, "remove_checkpoint"):
        raise UnsupportedError(f"expected a ModelParallelStrategy of the Trainer, got that of Fabric: {strategy!r}")
    ours, strategy._bitsnap_stock = _ShardedCheckpoints(strategy, absolute, options), Replacing()
    for name in ("save_checkpoint", "load_checkpoint", "remove_checkpoint"):
        strategy._bitsnap_stock.replace(strategy, name, getattr(ours, name))


def load(
    checkpoint: PathLike, *, map_location: Any = None, allow_pickle: bool = False, threads: int = 0
) -> dict[str, Any]:
    """The dict that Lightning has saved to a path, on the CPU.

    Args:
        checkpoint: its path, such as "checkpoints/epoch=3-step=100.ckpt".
        map_location: the device of the tensors; or a function or dict, as in torch.load(), which is asked where tensors
            of the CPU go.
        allow_pickle, threads: as in CheckpointIO.

    Raises:
        NotFoundError: there is no checkpoint, or no run where it says.
        CorruptError, TruncatedError: the checkpoint is damaged, or the file is none of bitsnap.
        UnsupportedError: the path is a URL.
        InvalidArgumentError: a value is pickled and `allow_pickle` is False; or a tag is not registered.
    """
    _register_types()
    reference = absolute(checkpoint)
    if reference.is_file() and not may_be_reference(reference):
        raise InvalidArgumentError(f"{reference} is no checkpoint of bitsnap; torch.load() may read it")
    state: dict[str, Any] = load_state(
        paths.snapshot_of(reference), map_location=_device_of(map_location), allow_pickle=allow_pickle, threads=threads
    )
    return state


def export(checkpoint: PathLike, target: PathLike, *, allow_pickle: bool = False) -> None:
    """Writes the file that Lightning would have saved without bitsnap, which any Lightning loads.

    Args:
        checkpoint: its path.
        target: the file to write; it is replaced if it exists.
        allow_pickle: as in CheckpointIO.

    Raises:
        BitsnapError: as load() does.
    """
    written = absolute(target)
    state = load(checkpoint, allow_pickle=allow_pickle)
    if may_be_reference(written):
        raise InvalidArgumentError(f"{written} is a checkpoint of bitsnap; export it to another path")
    with writing(written) as file:
        torch.save(state, file)


def _read_checkpoints() -> None:
    if _replaced:
        return
    for fabric in _fabrics():
        name = f"{_PACKAGES[fabric.__name__]}.core.saving"
        try:
            module = importlib.import_module(name)
        except ImportError:  # only Fabric is installed
            continue
        _replaced.replace(module, "pl_load", functools.partial(_load_either, module.pl_load))


def _load_either(stock: Any, path: Any, map_location: Any = None, weights_only: bool | None = None) -> Any:
    is_path = isinstance(path, str | os.PathLike) and not is_url(path)
    if is_path and may_be_reference(Path(path)):
        return load(path, map_location=map_location)
    return stock(path, map_location=map_location, **_given_only(weights_only))


def _device_of(map_location: Any) -> Device | None:
    if isinstance(map_location, Mapping):
        device: Device = map_location.get("cpu", "cpu")
        return device
    if callable(map_location) and not isinstance(map_location, torch.device):
        found = map_location(torch.empty(0).untyped_storage(), "cpu")
        return None if found is None else found.device
    return map_location  # type: ignore[no-any-return]


def _fabrics() -> list[Any]:
    """The modules of Fabric that the process uses; otherwise the first that is installed."""
    names = [name for name in _PACKAGES if name in sys.modules]
    if not names:
        names = [name for name in _PACKAGES if importlib.util.find_spec(name.partition(".")[0]) is not None][:1]
    if not names:
        raise ImportError("bitsnap.lightning needs lightning or pytorch_lightning, and neither is installed")
    found = [importlib.import_module(name) for name in names]
    for module in found:
        importlib.import_module(f"{module.__name__}.plugins")
    return found


def _register_types() -> None:
    """What Lightning itself puts into checkpoints, and a state cannot hold otherwise."""
    for fabric in _fabrics():
        kind = importlib.import_module(f"{fabric.__name__}.utilities.data").AttributeDict
        register_value(f"{fabric.__name__}.AttributeDict", kind, dict, kind)


def _numbers_in(values: Mapping[str, Any]) -> dict[str, float]:
    """Tensors of one element, and numbers."""
    found = {}
    for name, value in values.items():
        is_one = isinstance(value, int | float) or (torch.is_tensor(value) and value.numel() == 1)
        if is_one and name and not (torch.is_tensor(value) and value.is_complex()):
            found[str(name)] = float(value)
    return found


def _metrics_of(strategy: Any, *, is_on_all_ranks: bool) -> dict[str, float]:
    """What the modules and callbacks of the trainer have logged last: trainer.callback_metrics.

    With several ranks, that may reduce a metric over all of them. Where rank 0 alone saves, it takes what the trainer
    has computed before: ModelCheckpoint has asked for it on all ranks.
    """
    trainer = getattr(getattr(strategy, "lightning_module", None), "_trainer", None)
    if trainer is None:
        return {}
    if is_on_all_ranks or trainer.world_size == 1:
        return _numbers_in(trainer.callback_metrics)
    return _numbers_in(getattr(getattr(trainer, "_logger_connector", None), "_callback_metrics", {}))


def _scores_of(checkpoint: Mapping[str, Any], path: PathLike) -> dict[str, float]:
    """The values for which ModelCheckpoints save to the path, of the metrics that they monitor."""
    callbacks = checkpoint.get("callbacks")
    states = callbacks.values() if isinstance(callbacks, Mapping) else ()
    scores = {
        str(each.get("monitor")): each["best_k_models"][os.fspath(path)]
        for each in states
        if isinstance(each, Mapping) and os.fspath(path) in (each.get("best_k_models") or {})
    }
    return _numbers_in(scores)


# What is neither the model nor an optimizer, as one value.
_OTHERS = "others"


class _ShardedCheckpoints:
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
        self._saves = RankSaves(options, told=_BESIDE)
        self._stock_save: Any = getattr(strategy, "save_checkpoint", None)
        self._stock_load, self._stock_remove = strategy.load_checkpoint, strategy.remove_checkpoint

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: PathLike, storage_options: Any = None) -> None:
        if is_disabled():
            self._stock_save(checkpoint, filepath, storage_options)
            return
        if storage_options is not None:
            raise UnsupportedError(f"storage_options: bitsnap saves to local files only, got {brief(storage_options)}")
        path = self._local(self._strategy.broadcast(filepath))
        metrics = self._strategy.broadcast(_metrics_of(self._strategy, is_on_all_ranks=True))
        others = dict(checkpoint)
        state = {"state_dict": others.pop("state_dict")}
        optimizers = enumerate(others.pop("optimizer_states", []))
        state |= {f"optimizer_{index}": optimizer for index, optimizer in optimizers}
        if self._strategy.is_global_zero:
            state[_OTHERS] = (others,)  # a tuple is one value of DCP
        new = self._saves.begin(path, int(others.get("global_step", 0)))
        self._writer.metadata, self._writer.metrics = new.metadata, metrics
        save_with_dcp(state, checkpoint_id=_id(new.run, new.saved.step), storage_writer=self._writer)
        self._writer.close()
        self._saves.refer(new)

    def load_checkpoint(self, checkpoint_path: PathLike, weights_only: bool | None = None) -> dict[str, Any]:
        path = self._local(self._strategy.broadcast(checkpoint_path))
        ranks, what = self._saves.ranks, f"{path}: loading failed"
        if not ranks.from_first(path.exists, what):
            bring_back(paths.run_of(path), self._options, is_first=ranks.rank == 0)
        if not ranks.from_first(lambda: may_be_reference(path), what):
            found: dict[str, Any] = self._stock_load(checkpoint_path, **_given_only(weights_only))
            return found
        run, step = ranks.from_first(lambda: paths.step_of(path), what)
        allow_pickle = not weights_only and self._options.allow_pickle
        reader = StorageReader(allow_pickle=allow_pickle, threads=self._options.threads)
        model = self._strategy.model
        state: dict[str, Any] = {"state_dict": get_model_state_dict(model)}
        load_with_dcp(state, checkpoint_id=_id(run, step), storage_reader=reader)
        model.load_state_dict(state["state_dict"], strict=self._strategy.lightning_module.strict_loading)
        for index, optimizer in enumerate(self._strategy.optimizers):
            name = f"optimizer_{index}"
            state = {name: get_optimizer_state_dict(model, optimizer)}
            load_with_dcp(state, checkpoint_id=_id(run, step), storage_reader=reader)
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


def _given_only(weights_only: bool | None) -> dict[str, bool]:
    """The argument for functions of Lightning, which have it since 2.6; before, they read with their own default."""
    return {} if weights_only is None else {"weights_only": weights_only}
