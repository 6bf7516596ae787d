"""Checkpoints of Megatron-LM in a store: compressed, each against the one before, and resharded as Megatron does.

    python -m bitsnap.megatron pretrain_gpt.py ...      # instead of: python pretrain_gpt.py ...
    torchrun --nproc-per-node 8 -m bitsnap.megatron pretrain_gpt.py ...

or, in the training script, before it saves or loads:

    import bitsnap.megatron

    bitsnap.megatron.use()

All flags of Megatron keep their meaning; ``--ckpt-format`` stays ``torch_dist``. The folders ``iter_0001000`` hold
references, and the bytes of all of them lie in the run ``bitsnap`` beside them, which is a store. Folders that
torch_dist has saved are loaded as before. Nothing of a checkpoint that was saved here is unpickled.
"""

from __future__ import annotations

import argparse
import runpy
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.api import CheckpointException

from bitsnap._bitsnap import Settings
from bitsnap._common import PathLike, is_disabled, local_path
from bitsnap._engine.steps import Beside
from bitsnap._runs.framework_objects import Replacing
from bitsnap._runs.opened_runs import Options as Options
from bitsnap._runs.path_saves import RankSaves, RankShard
from bitsnap.agents import AgentOptions
from bitsnap.errors import BitsnapError, InvalidArgumentError, NotFoundError, UnsupportedError
from bitsnap.megatron import _versions as versions
from bitsnap.megatron._folders import FolderSave, OpenFolder, bring_back_to, convert_all, is_complete, is_ours
from bitsnap.megatron._local import LocalCheckpointManager as LocalCheckpointManager
from bitsnap.megatron._pairs import note_weights, together

_BESIDE = Beside(
    "its folders iter_N take the place of those with the same N, and loading finds the newest of the new ones",
    "--load DIRECTORY",
    "another directory for --save",
)
_options = Options()
_saves: RankSaves | None = None  # with these options
_replaced = Replacing()
# Common states that Megatron has handed over, by the folder, until the strategy saves them.
_common: dict[str, Any] = {}


def use(*, load: PathLike | None = None, **options: Any) -> None:
    """Makes Megatron-core save checkpoints of the format torch_dist to runs, and load them, in this process.

    Call it on all ranks, before anything is saved or loaded; calling it again changes the arguments. Megatron's own
    classes TorchDistSaveShardedStrategy and TorchDistLoadShardedStrategy get other methods, so it works however
    Megatron makes them, and inside the wrappers for fully parallel saving and loading. A folder that torch_dist has
    saved is still loaded by torch_dist.

    Args:
        load: with `mirror`, the directory of --load and --save, to which the newest iteration is brought back.
        **options: those of Options: settings, agent, ... With an agent, asynchronous saves go through it; otherwise, a
            process that Megatron starts for each save compresses a copy.

    Raises:
        ImportError: megatron-core is not installed.
        UnsupportedError: this version of megatron-core has no torch_dist strategies.
        InvalidArgumentError, TypeError: an option has a wrong value, or there is no such option; or there is
            `mirror` without `load`.
        IoError, ExistsError, ...: with `mirror`, the iteration cannot be brought back.
    """
    global _options, _saves
    chosen = Options(**options)
    folder = None if load is None else Path(local_path(load))
    if chosen.mirror is not None:
        if folder is None:
            raise InvalidArgumentError("mirror: expected load=, the directory of --load, to bring iterations back to")
        bring_back_to(folder, chosen)
    _options = chosen
    _saves = _saves and RankSaves(_options, _saves, _BESIDE)
    if _replaced:
        return
    try:
        _replace_all()
    except BaseException:
        _replaced.undo()
        raise


def _replace_all() -> None:
    core = versions.core()
    managers = versions.local_managers()
    if managers is not None and not is_disabled():
        _replace(managers, "LocalCheckpointManager", lambda _: _local_manager)
    if not is_disabled():
        _replace(core.save_strategy, "save", lambda _: _save)
        _replace(core.save_strategy, "async_save", lambda _: _async_save)
        _replace_common_saving(core)
    for name, method in _LOADING.items():
        _replace(core.load_strategy, name, partial(_by_folder, method))
    _replace_common_loading(core)
    if core.optimizer is not None:
        _replace(core.optimizer, "sharded_param_state_dp_reshardable", _with_weights)
    if core.exchange is not None:
        _replace(core.exchange, "distribute_shards_to_ranks", together)


def undo() -> None:
    """Gives Megatron-core its own methods back."""
    _replaced.undo()
    _common.clear()
    if _saves is not None:
        _saves.leave()


def load(checkpoint: PathLike, *, allow_pickle: bool = False, threads: int = 0) -> dict[str, Any]:
    """What the run holds of the checkpoint of a folder, whatever the layout of the ranks that saved it.

    Args:
        checkpoint: the folder, such as ``iter_0001000``.
        allow_pickle: as in Options.
        threads: for decoding; 0 for all that the process may use.

    Returns:
        a dict with "tensors", whole and on the CPU, by Megatron's keys; "objects", the values of ShardedObjects by
        their unique keys; and "common", what Megatron calls the common state, or None.

    Raises:
        NotFoundError: there is no checkpoint of bitsnap, or no run where it says.
        CorruptError, ...: the checkpoint is damaged.
    """
    with OpenFolder(local_path(checkpoint), Options(allow_pickle=allow_pickle, threads=threads)) as opened:
        tensors = {}
        for key, tensor in opened.tensors.items():
            opened.check_is_whole(key, tensor)
            tensors[key] = torch.empty(tensor.shape, dtype=opened.dtype_of(key))
        opened.fill((key, (0,) * tensor.ndim, tensor) for key, tensor in tensors.items())
        return {"tensors": tensors, "objects": opened.objects(opened.object_keys()), "common": opened.common()}


def export(checkpoint: PathLike, target: PathLike, *, allow_pickle: bool = False, threads: int = 0) -> list[Path]:
    """Writes checkpoints of bitsnap as torch_dist does: convert() in this direction only.

    Raises:
        InvalidArgumentError: `checkpoint` is the folder of a checkpoint that torch_dist has saved.
        BitsnapError: what convert() raises.
    """
    source = Path(local_path(checkpoint))
    if is_complete(source) and not is_ours(source):
        raise InvalidArgumentError(f"{source} is a checkpoint of torch_dist already; convert() writes it to a run")
    return convert(source, target, allow_pickle=allow_pickle, threads=threads)


def convert(
    source: PathLike,
    target: PathLike,
    *,
    settings: Settings | str | None = None,
    allow_pickle: bool = False,
    threads: int = 0,
) -> list[Path]:
    """Writes checkpoints that torch_dist has saved as such of bitsnap, or the other way, without loss.

    Needs one process and Megatron-core, and neither a process group nor a GPU; nothing is installed. Tensors keep their
    bits and their parts, and pass through memory part by part. The common state and ShardedObjects keep their types.

    Args:
        source: the folder of a checkpoint, such as ``iter_0001000``, or a directory of such folders, which are
            converted in the order of their iterations, each coded against the one before. What is there tells the
            direction.
        target: the folder of the checkpoint, or the directory, that is written. The run lies beside the folder of a
            checkpoint, as after a save. In a directory, complete checkpoints of the same names stay as they are.
        settings, threads: as in use().
        allow_pickle: unpickles the values that torch_dist has pickled without limits, and pickles those that
            cannot be stored otherwise: for checkpoints that you trust. Otherwise only objects of the classes that
            Megatron-core has registered with torch are made.

    Returns:
        The folders that were written.

    Raises:
        ImportError: megatron-core is not installed.
        NotFoundError: there is no complete checkpoint, or a file of it is missing.
        ExistsError: `target` holds a checkpoint already.
        InvalidArgumentError: an argument has a wrong value, or a value cannot be stored.
        UnsupportedError: the checkpoint has another format, or holds values that only pickle reads.
        CorruptError, TruncatedError: the checkpoint is damaged. `target` is then not complete.
    """
    options = Options(settings, allow_pickle, threads=threads)
    return convert_all(Path(local_path(source)), Path(local_path(target)), options)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a training script after use(), or converts checkpoints.

    ``python -m bitsnap.megatron [OPTIONS] SCRIPT ...`` or ``python -m bitsnap.megatron convert [OPTIONS] FROM TO``.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["convert"]:
        _convert_folders(given[1:])
    else:
        _run_script(given)


def _convert_folders(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bitsnap.megatron convert",
        description="Writes checkpoints that torch_dist has saved as such of bitsnap, or the other way.",
    )
    _add_options(parser)
    parser.add_argument("source", metavar="FROM", help="the folder of a checkpoint, or a directory of such folders")
    parser.add_argument("target", metavar="TO", help="the folder or directory to write")
    given = parser.parse_args(arguments)
    try:
        written = convert(given.source, given.target, settings=given.settings, allow_pickle=given.allow_pickle)
    except BitsnapError as error:
        sys.exit(f"error: {error}")
    for folder in written:
        print(folder)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--settings", help="the name of a policy, such as bounded")
    parser.add_argument("--allow-pickle", action="store_true", help="see bitsnap.megatron.use")


def _run_script(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bitsnap.megatron", description="Runs a Megatron-LM script that saves its checkpoints to a run."
    )
    _add_options(parser)
    parser.add_argument("--agent", action="store_true", help="let an agent do what --async-save begins")
    parser.add_argument("--mirror", metavar="COPY", help="keep a copy of the run, such as s3://bucket/run")
    parser.add_argument("script", help="the script to run, and its arguments")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    sys.argv = [given.script, *given.arguments]
    sys.path.insert(0, str(Path(given.script).resolve().parent))
    use(
        load=_load_of(given.arguments),
        settings=given.settings,
        allow_pickle=given.allow_pickle,
        agent=AgentOptions() if given.agent else None,
        mirror=given.mirror,
    )
    runpy.run_path(given.script, run_name="__main__")


def _load_of(arguments: list[str]) -> str | None:
    """The directory of --load among the arguments of a script."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--load")
    load: str | None = parser.parse_known_args(arguments)[0].load
    return load


def _local_manager(*args: Any, **kwargs: Any) -> LocalCheckpointManager:
    names = ("allow_pickle", "timeout", "agent", "memory")
    return LocalCheckpointManager(*args, **{**{name: getattr(_options, name) for name in names}, **kwargs})


def _save(self: Any, sharded_state_dict: Any, checkpoint_dir: PathLike) -> None:
    save = _begun(sharded_state_dict, checkpoint_dir)
    save.write()
    save.commit()


def _async_save(self: Any, sharded_state_dict: Any, checkpoint_dir: PathLike, async_strategy: str = "mcore") -> Any:
    save = _begun(sharded_state_dict, checkpoint_dir)
    request = versions.core().async_request(async_strategy)
    if _options.agent is not None:
        return save.request(request)
    return request(write_shard, (save.detach(),), [save.commit])


def write_shard(shard: RankShard) -> None:
    """Writes the shard of a rank. For the process that Megatron starts for an asynchronous save."""
    shard.write()


def _rank_saves() -> RankSaves:
    global _saves
    if _saves is None:
        _saves = RankSaves(_options, told=_BESIDE)
    return _saves


def _begun(sharded_state_dict: Any, checkpoint_dir: PathLike) -> FolderSave:
    items = versions.core().nested_values(sharded_state_dict)
    return FolderSave(_rank_saves(), checkpoint_dir, items, _common.pop(str(checkpoint_dir), None), _options)


def _load(self: Any, sharded_state_dict: Any, checkpoint_dir: PathLike, async_strategy: str = "mcore") -> Any:
    core = versions.core()
    items = list(core.nested_values(sharded_state_dict))
    tensors = [item for item in items if isinstance(item, core.sharded_tensor)]
    keys = [item.unique_key for item in items if isinstance(item, core.sharded_object)]
    with OpenFolder(checkpoint_dir, _options) as checkpoint:
        try:
            checkpoint.read(tensors)
            objects = checkpoint.objects(keys)
        except (NotFoundError, InvalidArgumentError) as error:  # the model is another one than that of the checkpoint
            # The exception of torch_dist.
            failure = error, traceback.extract_tb(error.__traceback__)
            raise CheckpointException(str(error), {torch.distributed.get_rank(): failure}) from error
    return core.map_values(
        lambda item: item.data if isinstance(item, core.sharded_tensor) else objects[item.unique_key],
        sharded_state_dict,
    )


def _load_tensors_metadata(self: Any, checkpoint_dir: PathLike, metadata: Any = None) -> dict[str, Any]:
    core = versions.core()
    with OpenFolder(checkpoint_dir, _options) as checkpoint:
        return {
            key: core.sharded_tensor.from_rank_offsets(
                key, torch.empty(tensor.shape, dtype=checkpoint.dtype_of(key), device="meta")
            ).without_data()
            for key, tensor in checkpoint.tensors.items()
        }


def _load_sharded_metadata(self: Any, checkpoint_dir: PathLike) -> dict[str, Any]:
    core = versions.core()
    with OpenFolder(checkpoint_dir, _options) as checkpoint:
        keys = checkpoint.object_keys()
    found = {key: core.sharded_object.empty_from_unique_key(key) for key in keys}
    return {**found, **_load_tensors_metadata(self, checkpoint_dir)}


def _remove_sharded_tensors(self: Any, checkpoint_dir: PathLike, key_prefix: str) -> None:
    raise UnsupportedError(
        f"{checkpoint_dir}: tensors cannot be removed from a checkpoint of bitsnap (those with the prefix "
        f"{key_prefix!r}); save the state without them"
    )


_LOADING: dict[str, Callable[..., Any]] = {
    "load": _load,
    "load_tensors_metadata": _load_tensors_metadata,
    "load_sharded_metadata": _load_sharded_metadata,
    "remove_sharded_tensors": _remove_sharded_tensors,
}
_FOLDER_AT = {"load": 1}  # the position of the folder among the arguments; otherwise 0


def _by_folder(ours: Callable[..., Any], stock: Callable[..., Any]) -> Callable[..., Any]:
    """A method that reads our folders itself, and leaves those of torch_dist to Megatron."""
    at = _FOLDER_AT.get(stock.__name__, 0)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        folder = kwargs["checkpoint_dir"] if "checkpoint_dir" in kwargs else args[at]
        return (ours if is_ours(folder) else stock)(self, *args, **kwargs)

    return method


def _replace_common_saving(core: versions.Core) -> None:
    """Saves the common state with the rest, typed, instead of in common.pt."""
    if core.common_classes is not None:
        save_class, _ = core.common_classes
        stock_save = partial(save_class.save_common, None)
        _replace(save_class, "save_common", lambda _: _keep_common_method)
        _replace(core.serialization, "save_config", partial(_checking, stock_save))
    elif core.common_functions:
        stock_save = core.serialization.save_common
        for module in core.common_functions:
            _replace(module, "save_common", lambda _: _keep_common)
        _replace(core.serialization, "save_config", partial(_checking, stock_save))


def _replace_common_loading(core: versions.Core) -> None:
    if core.common_classes is not None:
        _replace(core.common_classes[1], "load_common", _loading_common_method)
    elif core.common_functions:
        for module in core.common_functions:
            _replace(module, "load_common", _loading_common)
    else:
        for module in core.common_loaders:
            _replace(module, "load_common_state_dict", _loading_common)


def _keep_common(state: Any, folder: PathLike) -> None:
    """Keeps the common state until the strategy saves it."""
    _common[str(folder)] = state


def _keep_common_method(self: Any, state: Any, folder: PathLike) -> None:
    _keep_common(state, folder)


def _loading_common(stock: Callable[..., Any]) -> Callable[[PathLike], Any]:
    """A function that reads the common state of our folders itself, and leaves the others to Megatron."""

    def load_common(folder: PathLike) -> Any:
        return _common_of(folder) if is_ours(folder) else stock(folder)

    return load_common


def _loading_common_method(stock: Callable[..., Any]) -> Callable[[Any, PathLike], Any]:
    def load_common(self: Any, folder: PathLike) -> Any:
        return _loading_common(partial(stock, self))(folder)

    return load_common


def _checking(save_common: Callable[..., None], stock: Callable[..., None]) -> Callable[..., None]:
    """Megatron's save_config(), which first saves a common state that no strategy of ours has taken."""

    def save_config(config: Any, folder: PathLike) -> None:
        if str(folder) in _common:
            save_common(_common.pop(str(folder)), folder)
        stock(config, folder)

    return save_config


def _common_of(folder: PathLike) -> Any:
    with OpenFolder(folder, _options) as checkpoint:
        if versions.COMMON_OBJECT in checkpoint.object_keys():
            return checkpoint.objects([versions.COMMON_OBJECT])[versions.COMMON_OBJECT]
        return checkpoint.common()


def _with_weights(stock: Callable[..., Any]) -> Callable[..., Any]:
    """The optimizer's pieces of buffers, each with the weights that its masters belong to, and zeros as padding.

    Megatron leaves memory as it was in the padding.
    """

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        state = stock(self, *args, **kwargs)
        core = versions.core()
        for index, ranges in enumerate(self.gbuf_ranges):
            for dtype, buckets in ranges.items():
                for pieces, bucket in zip(state[index][dtype], buckets, strict=True):
                    places = iter(bucket["param_map"].items())
                    for piece in pieces:
                        if not piece["padding"].unwrap():
                            weight, place = next(places)
                            note_weights(piece["param"], weight, place["param"].start, place["param"].end)
                            continue
                        for value in piece.values():
                            if isinstance(value, core.sharded_tensor):
                                value.data.zero_()
        return state

    return method


def _replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    _replaced.replace(owner, name, make(getattr(owner, name)))
