"""DeepSpeed: save_checkpoint() and load_checkpoint() of an engine keep all states in one run beside the tags.

Needs the package deepspeed. Example:

    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    bitsnap.deepspeed.use(engine)

Everything else stays as it is: tags, the file `latest`, ZeRO 1 to 3, and loading with another number of processes. The
files of a tag are small: each says which shard of the run holds its state. Checkpoints that DeepSpeed wrote before are
still loaded.
"""

from __future__ import annotations

import argparse
import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from bitsnap._common import PathLike, Role, brief, checkpoint_id_of, is_disabled, local_path, may_pickle, warn
from bitsnap._engine.steps import Beside
from bitsnap._references import FOLDER_REFERENCE, reference_in, write_durably
from bitsnap._runs.framework_objects import Replacing
from bitsnap._runs.mirrored_runs import bring_back
from bitsnap._runs.opened_runs import Options as Options
from bitsnap._runs.path_saves import Pending, RankSaves, RankShard
from bitsnap._states.program_values import register_value
from bitsnap.errors import BackgroundSaveWarning, BitsnapError, ExistsError, NotFoundError

from deepspeed.runtime.checkpoint_engine.checkpoint_engine import (  # isort: skip
    CheckpointCommitInfo,
    CheckpointEngine as DeepSpeedCheckpointEngine,
)
from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler  # isort: skip
from deepspeed.utils import zero_to_fp32 as _zero_to_fp32  # isort: skip
from deepspeed.utils.tensor_fragment import fragment_address  # isort: skip
from functools import wraps
from unittest.mock import patch

from deepspeed.runtime import engine as _engine

from bitsnap._runs import path_checkpoints as paths
from bitsnap.deepspeed._tags import (
    LATEST,
    files_of,
    is_ours,
    latest_of,
    metadata_of,
    state_of,
    write_files,
    write_tag,
)

# The keys in ZeRO's optimizer states under which the flat fp32 masters are.
_MASTERS = ("single_partition_of_fp32_groups", "fp32_flat_groups", "fp32_groups_flat_partition")


_BESIDE = Beside(
    "its tags take the place of those with the same name, and the file `latest` names the new ones",
    "engine.load_checkpoint(DIRECTORY) before the first save",
    "another directory",
)


class _Pending(NamedTuple):
    """The save of a tag that an agent has not committed yet."""

    info: CheckpointCommitInfo
    saved: Pending
    names: list[list[str]]  # of the files of each rank

    def complete(self) -> None:
        write_files(self.saved.new.reference.parent, self.names)

    def name_latest(self) -> None:
        if self.info.save_latest:
            write_durably(Path(self.info.save_dir) / LATEST, str(self.info.tag).encode())


class CheckpointEngine(DeepSpeedCheckpointEngine):  # type: ignore[misc]
    """DeepSpeed's interface for writing and reading states, of one process. use() makes it.

    The states of a tag become one checkpoint of the run `bitsnap` beside the tags: a shard for each rank, committed
    when all have written theirs. An error of one rank is raised on all of them, and the tag is then not complete.
    """

    def __init__(self, config_params: Any = None, options: Options | None = None) -> None:
        super().__init__(config_params)
        self.name = "bitsnap"
        self._options = options or Options()
        self._folder: Path | None = None  # of the tag that is saved
        self._held: dict[str, Any] = {}  # states by their file names in it
        self._info: CheckpointCommitInfo | None = None
        self._pending: _Pending | None = None
        self._saves = RankSaves(self._options, told=_BESIDE)

    def create(self, info: CheckpointCommitInfo) -> None:
        """Begins the checkpoint of a tag."""
        self._settle()
        self._info = info
        self._folder = Path(os.path.abspath(local_path(info.save_dir))) / str(info.tag)  # noqa: PTH100
        self._held = {}

    def save(self, state_dict: Any, path: PathLike) -> None:
        """Takes a state of the tag. What lies elsewhere, such as a 16-bit model for others to read, is torch.save's."""
        target = Path(os.path.abspath(local_path(path)))  # noqa: PTH100
        if self._folder is not None and target.is_relative_to(self._folder) and not is_disabled():
            self._held[target.relative_to(self._folder).as_posix()] = state_dict
        else:
            torch.save(state_dict, target)

    def commit(self, info: CheckpointCommitInfo) -> bool:
        """Writes what was taken, on all ranks. With an agent: lets the tag refer to what that has committed."""
        if self._pending is not None:
            self._finish(self._pending)  # DeepSpeed writes `latest` itself then
            return True
        shard, names = self._taken()
        if shard is not None:
            self._saves.write(shard)
            folder = shard.new.reference.parent
            self._saves.commit(shard.new, metadata_of(names), complete=lambda: write_files(folder, names))
        return True

    def load(self, path: PathLike, map_location: Any = None) -> Any:
        """The state of a file: of a run, or one that torch.save wrote.

        Raises:
            NotFoundError: there is no such file, or the run does not lie beside the folder.
            CorruptError, TruncatedError: the file or the run is damaged.
        """
        self._settle()
        file = Path(local_path(path))
        if not is_ours(file):
            return torch.load(path, map_location=map_location, weights_only=False)
        return _mapped(state_of(file, self._options.allow_pickle), map_location)

    def bring_back(self, load_dir: PathLike) -> None:
        """Brings the newest tag back from the copy of the run, if there is no run. All ranks call it."""
        if load_dir is not None:
            run, is_first = Path(local_path(load_dir)).absolute() / paths.RUN, self._saves.ranks.rank == 0
            bring_back(run, self._options, is_first=is_first, write=write_tag)

    def fp32_weights(self, tag: str | None, checkpoint_dir: PathLike, **options: Any) -> Any:
        """The fp32 weights of a tag, of ours or of stock, for load_checkpoint(load_optimizer_states=False)."""
        tags = Path(local_path(checkpoint_dir))
        tag = latest_of(tags) if tag is None else tag
        if reference_in(tags / tag).is_file():
            return get_fp32_state_dict_from_zero_checkpoint(tags, tag, allow_pickle=self._options.allow_pickle)
        return _zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(checkpoint_dir, tag, **options)

    def is_decoupled(self) -> bool:
        """Whether an agent commits, while the training goes on."""
        return self._options.agent is not None

    def get_commit_info(self) -> CheckpointCommitInfo | None:
        """What can be committed now: DeepSpeed asks at each optimizer step, on all ranks."""
        pending = self._pending
        if pending is None:
            return None
        new = pending.saved.new
        error = self._saves.from_first(lambda: _outcome(pending.saved), new.reference)
        if error is None:
            return None
        if error:
            warn(f"{new.run}: tag {pending.info.tag} was not saved: {error}", BackgroundSaveWarning, stacklevel=2)
            self._pending = None
            self._saves.forget(pending.saved)
            return None
        return pending.info

    def stage(self) -> None:
        """Copies what save_checkpoint() has handed over, for the agent. All ranks call it."""
        if self._options.agent is None or self._info is None:
            return
        shard, names = self._taken()
        if shard is not None:
            self._pending = _Pending(self._info, self._saves.stage(shard, metadata_of(names)), names)
            # Again, so that it runs before the Checkpointer ends at the exit, too.
            atexit.unregister(self._finish_at_exit)
            atexit.register(self._finish_at_exit)

    def cleanup(self) -> None:
        """Waits for the agent, and leaves it."""
        try:
            self._settle()
        finally:
            atexit.unregister(self._finish_at_exit)
            self._saves.leave()

    def _taken(self) -> tuple[RankShard | None, list[list[str]]]:
        """What this rank saves of the tag, and the names of the files of each rank; None if no rank has any."""
        held, self._held = self._held, {}
        assert self._folder is not None
        folder, reference = self._folder, self._folder / FOLDER_REFERENCE
        names = self._saves.told(lambda: held, list, reference)[1]
        if not any(names):
            return None, names
        new = self._saves.begin(reference, _step_of(folder, held))
        return self._saves.shard(new, held, roles=dict(_roles_of(held))), names

    def _settle(self) -> None:
        """Waits for a save of the agent, and completes its tag. All ranks call it."""
        pending = self._pending
        if pending is not None:
            self._finish(pending)
            self._saves.from_first(pending.name_latest, pending.saved.new.reference)

    def _finish(self, pending: _Pending) -> None:
        self._pending = None
        self._saves.finish(pending.saved, pending.complete)

    def _finish_at_exit(self) -> None:
        """Completes the last tag if nobody has called cleanup(). The ranks cannot talk to each other any more."""
        pending, self._pending = self._pending, None
        if pending is not None and self._saves.finish_alone(pending.saved, pending.complete):
            pending.name_latest()


def use(engine: Any, **options: Any) -> Any:
    """Lets a DeepSpeedEngine save its checkpoints to a run, and load them.

    Call it on all ranks, after deepspeed.initialize(). The run is the directory `bitsnap` beside the tags, so that each
    tag is coded against the one before. Tags whose folders are deleted leave the run with the next save; the newest one
    stays.

    Args:
        engine: what deepspeed.initialize() returned first.
        **options: those of Options: settings, agent, ... With an agent, DeepSpeed writes `latest` at a later optimizer
            step, when the states are durable. If the agent fails, there is a BackgroundSaveWarning.

    Returns:
        the same engine.

    Raises:
        InvalidArgumentError, TypeError: an option has a wrong value, or there is no such option.
        TypeError: `engine` has no checkpoint engine.
    """
    if not hasattr(engine, "checkpoint_engine"):
        raise TypeError(f"engine must be a DeepSpeedEngine, as deepspeed.initialize() returns it, got {brief(engine)}")
    ours = CheckpointEngine(options=Options(**options))
    undo(engine)
    replaced = Replacing()
    replaced.replace(engine, "checkpoint_engine", ours)
    _wrap_calls(engine, ours, replaced)
    engine._bitsnap = ours, replaced
    return engine


def undo(engine: Any) -> None:
    """Lets a DeepSpeedEngine save as it did before use(). Waits for the agent. Call it on all ranks."""
    ours, replaced = vars(engine).pop("_bitsnap", (None, None))
    if ours is not None:
        try:
            ours.cleanup()
        finally:
            replaced.undo()


def load(checkpoint: PathLike, *, allow_pickle: bool = False) -> dict[str, Any]:
    """What the run holds of the checkpoint of a tag: the states by the names of their files in the folder of the tag.

    Args:
        checkpoint: the folder of a tag, or the directory of the tags, which stands for the one that `latest` names.
        allow_pickle: as in Options.

    Raises:
        NotFoundError: there is no such tag, or the run does not lie beside it.
        CorruptError, TruncatedError: the run is damaged.
    """
    folder = _tag_of(checkpoint)
    ours = [path for path in files_of(folder) if not path.is_symlink() and is_ours(path)]
    return {path.relative_to(folder).as_posix(): state_of(path, allow_pickle) for path in ours}


def _tag_of(checkpoint: PathLike) -> Path:
    """The folder of a tag with a checkpoint of bitsnap."""
    folder = Path(local_path(checkpoint))
    if not reference_in(folder).is_file() and (folder / LATEST).is_file():
        folder = folder / latest_of(folder)
    if not reference_in(folder).is_file():
        raise NotFoundError(f"{folder}: there is no checkpoint of bitsnap")
    return folder


def export(checkpoint: PathLike, target: PathLike, *, allow_pickle: bool = False) -> Path:
    """Writes the checkpoint of a tag as DeepSpeed writes it, with its recovery script and `latest`.

    DeepSpeed without bitsnap loads it with the same bits, and ``python zero_to_fp32.py`` works there.

    Args:
        checkpoint: as in load().
        target: another directory of tags, which is made if it does not exist.
        allow_pickle: as in use().

    Returns:
        the folder of the tag in `target`.

    Raises:
        NotFoundError: there is no such tag, or the run does not lie beside it.
        ExistsError: `target` has the tag already.
        CorruptError, TruncatedError: the run is damaged.
    """
    may_pickle(allow_pickle)  # checks it
    directory = Path(local_path(target))
    source = _tag_of(checkpoint)
    folder = directory / source.name
    if os.path.lexists(folder):
        raise ExistsError(f"{folder} exists already")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".bitsnap-", dir=folder.parent) as temporary:
        for path in files_of(source):
            copy = Path(temporary) / "tag" / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            if path.is_symlink():  # stays a link, whatever it leads to
                copy.symlink_to(path.readlink())
            elif is_ours(path):
                torch.save(state_of(path, allow_pickle), copy)
            else:
                shutil.copy2(path, copy)
        (Path(temporary) / "tag").rename(folder)
    for script in source.parent.glob("zero_to_*.py"):
        shutil.copy2(script, folder.parent)
    write_durably(folder.parent / LATEST, source.name.encode())
    return folder


def get_fp32_state_dict_from_zero_checkpoint(
    save_dir: PathLike, tag: str | None = None, *, allow_pickle: bool = False
) -> dict[str, torch.Tensor]:
    """The fp32 weights of a tag, put together by DeepSpeed's function of this name; exports it to a temporary folder.

    Args:
        save_dir: the directory of the tags.
        tag: None: the one that `latest` names.
        allow_pickle: as in use().

    Raises what export() raises.
    """
    checkpoint = Path(local_path(save_dir)) / (tag or "")
    with tempfile.TemporaryDirectory(prefix="bitsnap-zero-") as temporary:
        folder = export(checkpoint, temporary, allow_pickle=allow_pickle)
        found = _zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(temporary, folder.name)
        # Its tensors may be views of the files.
        return {name: tensor.clone() for name, tensor in found.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """``python -m bitsnap.deepspeed export CHECKPOINT TARGET``."""
    parser = argparse.ArgumentParser(prog="python -m bitsnap.deepspeed")
    commands = parser.add_subparsers(required=True)
    exporter = commands.add_parser("export", help="write a checkpoint as DeepSpeed writes it")
    exporter.add_argument("checkpoint", metavar="CHECKPOINT", help="the folder of a tag, or the directory of the tags")
    exporter.add_argument("target", metavar="TARGET", help="another directory of tags")
    exporter.add_argument("--allow-pickle", action="store_true", help="see bitsnap.deepspeed.use")
    given = parser.parse_args(arguments)
    try:
        print(export(given.checkpoint, given.target, allow_pickle=given.allow_pickle))
    except BitsnapError as error:
        sys.exit(f"error: {error}")


def _outcome(pending: Pending) -> str | None:
    """None: it is not over; an empty text: it has been committed; otherwise the error."""
    if not pending.save.done():
        return None
    return "" if pending.save.error is None else str(pending.save.error)


def _mapped(state: Any, map_location: Any) -> Any:
    """The state with its tensors where torch.load would put them. They are on the CPU."""
    if map_location is None or not isinstance(map_location, str | torch.device):
        return state
    device = torch.device(map_location)
    return state if device.type == "cpu" else pytree.tree_map_only(torch.Tensor, lambda each: each.to(device), state)


def _step_of(folder: Path, held: Mapping[str, Any]) -> int:
    """The step that the tag names, or else the engine's."""
    named = checkpoint_id_of(folder).step
    if named is not None:
        return named
    found = (state.get("global_steps") for state in held.values() if isinstance(state, Mapping))
    return max((step for step in found if isinstance(step, int)), default=0)


def _roles_of(held: Mapping[str, Any]) -> Iterator[tuple[str, Role]]:
    """The roles of tensors whose names do not tell them: the flat masters of ZeRO."""
    for file, state in held.items():
        states = state.get("optimizer_state_dict") if isinstance(state, Mapping) else None
        for key in _MASTERS:
            groups = states.get(key) if isinstance(states, Mapping) else None
            for index, tensor in enumerate(groups if isinstance(groups, list | tuple) else ()):
                if isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float32:
                    yield f"{file}.optimizer_state_dict.{key}.{index}", "master"


def _with_fields(kind: Any, fields: dict[str, Any]) -> Any:
    value = object.__new__(kind)
    value.__dict__.update(fields)
    return value


for _kind in (LossScaler, DynamicLossScaler):
    register_value(
        f"deepspeed.{_kind.__name__}",
        _kind,
        lambda value: dict(vars(value)),
        partial(_with_fields, _kind),
    )
register_value(
    "deepspeed.fragment_address",
    fragment_address,
    lambda value: (value.numel, value.start),
    lambda content: fragment_address(*content),
)


def _wrap_calls(engine: Any, ours: Any, replaced: Replacing) -> None:
    """Wraps both. While another checkpoint engine than `ours` is used, they do what they did before."""
    save, load = engine.save_checkpoint, engine.load_checkpoint

    @wraps(save)
    def save_checkpoint(*args: Any, **kwargs: Any) -> Any:
        result = save(*args, **kwargs)
        if engine.checkpoint_engine is ours:
            ours.stage()
        return result

    @wraps(load)
    def load_checkpoint(load_dir: Any, tag: Any = None, *args: Any, **kwargs: Any) -> Any:
        if engine.checkpoint_engine is not ours:
            return load(load_dir, tag, *args, **kwargs)
        ours.bring_back(load_dir)
        # With ZeRO 3 and load_optimizer_states=False, the engine calls this without the tag.
        with patch.object(_engine, "get_fp32_state_dict_from_zero_checkpoint", partial(ours.fp32_weights, tag)):
            return load(load_dir, tag, *args, **kwargs)

    replaced.replace(engine, "save_checkpoint", save_checkpoint)
    replaced.replace(engine, "load_checkpoint", load_checkpoint)
