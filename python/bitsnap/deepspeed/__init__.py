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
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from bitsnap._arguments.durable_files import write_durably
from bitsnap._arguments.naming import checkpoint_id_of
from bitsnap._arguments.options import PathLike, Role, local_path
from bitsnap._arguments.references import FOLDER_REFERENCE, refer, reference_in
from bitsnap._engine.ranks import Ranks
from bitsnap._engine.saves import Save
from bitsnap._runs import path_checkpoints as paths
from bitsnap._runs.options import Options as Options
from bitsnap._runs.path_agents import tidy
from bitsnap._states.pickled_values import may_pickle
from bitsnap._states.registry import register_value
from bitsnap.checkpointer import Checkpointer
from bitsnap.deepspeed._calls import wrap_calls
from bitsnap.deepspeed._files import LATEST, files_of, is_ours, latest_of, state_of, write_files
from bitsnap.errors import BackgroundSaveWarning, BitsnapError, BusyError, ExistsError, NotFoundError
from bitsnap.store import Store

from deepspeed.runtime.checkpoint_engine.checkpoint_engine import (  # isort: skip
    CheckpointCommitInfo,
    CheckpointEngine as DeepSpeedCheckpointEngine,
)
from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler  # isort: skip
from deepspeed.utils import zero_to_fp32 as _zero_to_fp32  # isort: skip
from deepspeed.utils.tensor_fragment import fragment_address  # isort: skip

# After as many saves, the agent of a single rank is stopped, so that steps of deleted tags can be removed.
_MOST_UNNEEDED = 8
# The keys in ZeRO's optimizer states under which the flat fp32 masters are.
_MASTERS = ("single_partition_of_fp32_groups", "fp32_flat_groups", "fp32_groups_flat_partition")


class _Pending(NamedTuple):
    """A save that an agent has not committed yet."""

    info: CheckpointCommitInfo
    new: paths.NewSave
    names: list[list[str]]  # of the files of each rank
    save: Save


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
        self._checkpointer: Checkpointer | None = None
        self._saves = 0
        self._rotates = False  # the agent removes what is deleted
        self._ranks = Ranks()

    def create(self, info: CheckpointCommitInfo) -> None:
        """Begins the checkpoint of a tag."""
        self._settle()
        self._info = info
        self._folder = Path(os.path.abspath(local_path(info.save_dir))) / str(info.tag)  # noqa: PTH100
        self._held = {}

    def save(self, state_dict: Any, path: PathLike) -> None:
        """Takes a state of the tag. What lies elsewhere, such as a 16-bit model for others to read, is torch.save's."""
        target = Path(os.path.abspath(local_path(path)))  # noqa: PTH100
        if self._folder is not None and target.is_relative_to(self._folder):
            self._held[target.relative_to(self._folder).as_posix()] = state_dict
        else:
            torch.save(state_dict, target)

    def commit(self, info: CheckpointCommitInfo) -> bool:
        """Writes what was taken, on all ranks. With an agent: lets the tag refer to what that has committed."""
        if self._pending is not None:
            self._finish_pending()
            return True
        self._together(self._write)
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
        error = self._ranks.from_first(lambda: _outcome(pending.save), self._what)
        if error is None:
            return None
        if error:
            warnings.warn(f"{pending.new.run}: tag {pending.info.tag} was not saved: {error}", BackgroundSaveWarning, 2)
            self._pending = None
            return None
        return pending.info

    def stage(self) -> None:
        """Copies what save_checkpoint() has handed over, for the agent. All ranks call it."""
        if self._options.agent is not None and self._info is not None:
            self._together(self._stage)

    def cleanup(self) -> None:
        """Waits for the agent, and leaves it."""
        try:
            self._settle()
        finally:
            if self._checkpointer is not None:
                atexit.unregister(self._finish_at_exit)
                self._checkpointer._leave()
                if self._is_locked():
                    tidy(self._checkpointer.path, self._options.timeout)
                self._checkpointer = None

    def _is_locked(self) -> bool:
        """Whether an agent may hold the run alone, so that only it can write: that of a single rank does."""
        return self._options.agent is not None and self._ranks.world_size == 1

    def _together(self, save: Any) -> None:
        held, self._held = self._held, {}
        names = self._ranks.told(lambda: held, list, self._what)[1]
        if any(names):
            save(held, names)

    @property
    def _what(self) -> str:
        return f"{self._folder}: the save failed"

    def _write(self, held: dict[str, Any], names: list[list[str]]) -> None:
        new = self._ranks.from_first(lambda: self._begun(held), self._what)
        self._ranks.on_all(lambda: self._write_shard(new, held), self._what)
        self._ranks.from_first(lambda: self._commit(new, names), self._what)

    def _begun(self, held: Mapping[str, Any]) -> paths.NewSave:
        assert self._folder is not None
        self._folder.mkdir(parents=True, exist_ok=True)
        reference, step = self._folder / FOLDER_REFERENCE, _step_of(self._folder, held)
        run = paths.run_of(reference)
        if self._is_locked() and not self._rotates and self._saves % _MOST_UNNEEDED == 0:
            tidy(run, self._options.timeout)
        self._saves += 1
        with self._store(run) as store:
            return paths.begin(store, reference, step, forgets=not self._is_locked())

    def _write_shard(self, new: paths.NewSave, held: dict[str, Any]) -> None:
        with self._store(new.run) as store:
            store.save_shard(
                new.saved.step,
                held,
                shard=self._ranks.rank,
                shards=self._ranks.world_size,
                attempt=new.saved.word,
                roles=dict(_roles_of(held)),
                allow_pickle=self._options.allow_pickle,
            )

    def _commit(self, new: paths.NewSave, names: list[list[str]]) -> None:
        with self._store(new.run) as store:
            labels = new.label or ()
            outcome = store.commit(new.saved.step, len(names), new.saved.word, metadata=new.metadata, labels=labels)
            if not outcome:
                raise BusyError(f"{new.run}: step {new.saved.step}: shards {outcome.missing} are missing")
            write_files(new, names)
            paths.finish(store, new)

    def _stage(self, held: dict[str, Any], names: list[list[str]]) -> None:
        new = self._ranks.from_first(lambda: self._begun(held), self._what)
        save = self._ranks.on_all(lambda: self._staged(new, held), self._what)
        assert self._info is not None
        self._pending = _Pending(self._info, new, names, save)

    def _staged(self, new: paths.NewSave, held: dict[str, Any]) -> Save:
        if self._checkpointer is not None and self._checkpointer.path != Path(os.path.realpath(new.run)):
            self._checkpointer._leave()
            self._checkpointer = None
        if self._checkpointer is None:
            self._checkpointer = self._options.checkpointer(new.run)
            # Before the Checkpointer ends at the exit, too.
            atexit.unregister(self._finish_at_exit)
            atexit.register(self._finish_at_exit)
        save = self._checkpointer.save(
            new.saved.step,
            held,
            roles=dict(_roles_of(held)),
            metadata=new.metadata,
            allow_pickle=self._options.allow_pickle,
        )
        assert save is not None  # because every step is due
        if save.error is not None:
            raise save.error
        return save

    def _settle(self) -> None:
        """Waits for a save of the agent, and completes its tag. All ranks call it."""
        if self._pending is not None:
            self._finish_pending(names_latest=self._pending.info.save_latest)

    def _finish_pending(self, *, names_latest: bool = False) -> None:
        pending, self._pending = self._pending, None
        assert pending is not None
        what = f"{pending.new.run}: tag {pending.info.tag} was not saved"
        self._ranks.on_all(lambda: pending.save.result(self._options.timeout), what)
        self._ranks.from_first(lambda: self._finish(pending, names_latest=names_latest), what)

    def _finish(self, pending: _Pending, *, names_latest: bool) -> None:
        """Completes a tag that has been committed."""
        new = pending.new
        with self._store(new.run) as store:
            write_files(new, pending.names)
            if self._is_locked():
                refer(new.reference, new.run, store.run_id, (new.saved,))
                # Which tags are kept is not known: whoever trains deletes their folders.
                if self._checkpointer is not None:
                    self._rotates = self._checkpointer._rotate(paths.forgotten(store), None)
            else:
                if new.label:
                    store.label(new.saved.step, new.label)
                paths.finish(store, new)
        if names_latest:
            write_durably(Path(pending.info.save_dir) / LATEST, str(pending.info.tag).encode())

    def _finish_at_exit(self) -> None:
        """Completes the last tag if nobody has called cleanup(). The ranks cannot talk to each other any more."""
        pending, self._pending = self._pending, None
        if pending is not None and self._ranks.rank == 0:
            pending.save.result(self._options.timeout)
            self._finish(pending, names_latest=pending.info.save_latest)

    def _store(self, run: Path) -> Store:
        return self._options.store(run, shared=True)


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
        raise TypeError(f"engine must be a DeepSpeedEngine, as deepspeed.initialize() returns it, got {engine!r}")
    ours = CheckpointEngine(options=Options(**options))
    engine.checkpoint_engine = ours
    wrap_calls(engine, CheckpointEngine)
    return engine


def export(save_dir: PathLike, target: PathLike, tag: str | None = None, *, allow_pickle: bool = False) -> Path:
    """Writes the checkpoint of a tag as DeepSpeed writes it, with its recovery script and `latest`.

    DeepSpeed without bitsnap loads it with the same bits, and ``python zero_to_fp32.py`` works there.

    Args:
        save_dir: the directory of the tags.
        target: another directory of tags, which is made if it does not exist.
        tag: None: the one that `latest` names.
        allow_pickle: as in use().

    Returns:
        the folder of the tag in `target`.

    Raises:
        NotFoundError: there is no such tag, or the run does not lie beside it.
        ExistsError: `target` has the tag already.
        CorruptError, TruncatedError: the run is damaged.
    """
    may_pickle(allow_pickle)  # checks it
    tags, made = Path(local_path(save_dir)), Path(local_path(target))
    tag = tag or latest_of(tags)
    source, folder = tags / tag, made / tag
    if not reference_in(source).is_file():
        raise NotFoundError(f"{source}: there is no checkpoint of bitsnap")
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
    for script in tags.glob("zero_to_*.py"):
        shutil.copy2(script, folder.parent)
    write_durably(folder.parent / LATEST, tag.encode())
    return folder


def get_fp32_state_dict_from_zero_checkpoint(
    save_dir: PathLike, tag: str | None = None, *, allow_pickle: bool = False
) -> dict[str, torch.Tensor]:
    """The fp32 weights of a tag, put together by DeepSpeed's function of this name; exports it to a temporary folder.

    Args and errors are those of export().
    """
    with tempfile.TemporaryDirectory(prefix="bitsnap-zero-") as temporary:
        folder = export(save_dir, temporary, tag, allow_pickle=allow_pickle)
        found = _zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(temporary, folder.name)
        # Its tensors may be views of the files.
        return {name: tensor.clone() for name, tensor in found.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """``python -m bitsnap.deepspeed export SAVE_DIR TARGET [--tag TAG]``."""
    parser = argparse.ArgumentParser(prog="python -m bitsnap.deepspeed")
    commands = parser.add_subparsers(required=True)
    exporter = commands.add_parser("export", help="write a checkpoint as DeepSpeed writes it")
    exporter.add_argument("save_dir", metavar="SAVE_DIR", help="the directory of the tags")
    exporter.add_argument("target", metavar="TARGET", help="another directory of tags")
    exporter.add_argument("--tag", help="the tag; otherwise the one that the file latest names")
    exporter.add_argument("--allow-pickle", action="store_true", help="see bitsnap.deepspeed.use")
    given = parser.parse_args(arguments)
    try:
        print(export(given.save_dir, given.target, given.tag, allow_pickle=given.allow_pickle))
    except BitsnapError as error:
        sys.exit(f"error: {error}")


def _outcome(save: Save) -> str | None:
    """None: it is not over; an empty text: it has been committed; otherwise the error."""
    if not save.done():
        return None
    return "" if save.error is None else str(save.error)


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
