"""Checkpoints of Accelerate in a run: compressed, each against the one before.

    import bitsnap.accelerate

    accelerator = bitsnap.accelerate.use(Accelerator(...))
    ...
    accelerator.save_state("checkpoints/step-500")
    accelerator.load_state("checkpoints/step-500")

Models, optimizers, schedulers, samplers and data loaders, the scaler, random generators and registered objects are in
the run ``bitsnap`` beside the folders; with automatic_checkpoint_naming, beside the folder ``checkpoints``. Each folder
has a reference to its checkpoint, and the random generators of the processes after the first.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from accelerate import Accelerator, DistributedType, accelerator as _module
from accelerate.checkpointing import load_accelerator_state, save_accelerator_state
from accelerate.utils import clean_state_dict_for_safetensors
from accelerate.utils.constants import OPTIMIZER_NAME, RNG_STATE_NAME, SAFE_MODEL_NAME
from safetensors.torch import save_file

from bitsnap._common import PathLike, brief, is_disabled, local_path
from bitsnap._engine.ranks import Ranks
from bitsnap._engine.steps import Beside, warn_of_earlier
from bitsnap._runs import folder_saves
from bitsnap._runs.folder_saves import load as load
from bitsnap._runs.framework_objects import give_class, give_class_back, named, names_of, numbered, restore_optimizer
from bitsnap._runs.mirrored_runs import bring_back
from bitsnap._runs.opened_runs import Options as Options
from bitsnap.errors import BitsnapError, InvalidArgumentError, UnsupportedError

__all__ = ["BitsnapAccelerator", "Options", "export", "load", "undo", "use"]

# The names of the small files that Accelerate writes with torch.
_FILES = re.compile(
    r"(scheduler|sampler)(_[0-9]+)?\.bin|dl_state_dict(_[0-9]+)?\.bin|scaler\.pt|random_states_[0-9]+\.pkl"
)
_NUMBER = re.compile(r"([0-9]+)[^0-9]*$")
_UNSUPPORTED = {
    DistributedType.FSDP: "save with bitsnap.torch.TrainingCheckpointer or bitsnap.dcp",
    DistributedType.DEEPSPEED: "save without bitsnap, and store the folders with `bitsnap watch`",
    DistributedType.MEGATRON_LM: "save with bitsnap.megatron",
    DistributedType.XLA: "save without bitsnap, and store the folders with `bitsnap watch`",
}


_BESIDE = Beside(
    "a folder of the same name takes the place of the earlier one, and total_limit deletes the oldest of both",
    "load_state() before the first save_state()",
    "another directory",
)


class BitsnapAccelerator(Accelerator):  # type: ignore[misc]
    """An Accelerator whose save_state() and load_state() use a run.

    All arguments keep their meaning, and so do ProjectConfiguration, hooks and register_for_checkpointing().
    `safe_serialization` has none: nothing is pickled. Folders that were saved without bitsnap are loaded as before.
    """

    checkpoint_options = Options()
    _custom_objects: list[Any]
    _saves: folder_saves.FolderSaves | None = None
    _saved_folders: tuple[Path, ...] = ()  # by this process, the newest last
    _kept: int | None = None  # folders, by total_limit
    _has_loaded = False

    def save_state(self, output_dir: str | None = None, safe_serialization: bool = True, **options: Any) -> Any:
        """As Accelerator.save_state().

        Raises:
            InvalidArgumentError: a value cannot be stored; the message names its place.
            UnsupportedError: Accelerate uses FSDP, DeepSpeed, Megatron-LM or XLA; or the folder is a URL.
            And what bitsnap.Store.save() raises.
        """
        if is_disabled():
            return super().save_state(output_dir, safe_serialization, **options)
        _check(self)
        project = self.project_configuration
        local_path(output_dir or self.project_dir or "")  # checks it before Accelerate makes a folder
        if self._saves is not None:
            self._saves.wait()
        limit = project.total_limit if project.automatic_checkpoint_naming else None
        self._kept = None if limit is None else max(limit, 1)
        with folder_saves.rotating:
            with ExitStack() as patches:
                # Accelerate deletes older folders before it saves, so that a killed save may leave none.
                patches.enter_context(patch.object(project, "total_limit", None))
                patches.enter_context(patch.object(_module, "save_accelerator_state", self._save))
                patches.enter_context(patch.object(_module, "save_custom_state", lambda *_, **__: None))
                saved = super().save_state(output_dir, safe_serialization, **options)
            if self._saves is not None:  # this process has saved
                self._rotate()
                if limit is not None:
                    self._saves.forget_deleted()
        return saved

    def load_state(self, input_dir: str | None = None, load_kwargs: Any = None, **options: Any) -> None:
        """As Accelerator.load_state(). Without `input_dir`, folders without a complete checkpoint are skipped, with a
        RestoreWarning.

        Raises:
            InvalidArgumentError: other models, optimizers or registered objects are in the checkpoint.
            NotFoundError: the run of the checkpoint is not there.
            CorruptError, ...: the checkpoint is damaged.
        """
        _check(self)
        local_path(input_dir or "")  # checks it
        self._bring_back(input_dir)
        if input_dir is None and self.project_configuration.automatic_checkpoint_naming:
            input_dir = _newest_complete(Path(self.project_dir) / "checkpoints")
        objects = self._custom_objects
        try:
            with patch.object(_module, "load_accelerator_state", self._load):
                super().load_state(input_dir, load_kwargs, **options)
        finally:
            self._custom_objects = objects
        self._has_loaded = True

    def _run_of(self, folder: PathLike) -> Path:
        if self.project_configuration.automatic_checkpoint_naming:
            # Accelerate counts and deletes what is in the folder `checkpoints`.
            return folder_saves.run_in(self.project_dir)
        return folder_saves.run_in(Path(folder).absolute().parent)

    def _bring_back(self, folder: PathLike | None = None) -> None:
        """Brings checkpoints back from the copy of the run, where there are none. `folder`: of one of them."""
        project = self.project_configuration
        if project.automatic_checkpoint_naming or folder is not None:
            all_steps = project.automatic_checkpoint_naming and project.total_limit is not None
            run, options = self._run_of(folder or ""), self.checkpoint_options
            is_back = options.mirror is not None and Ranks().from_first(
                lambda: bring_back(run, options, is_first=True, all_steps=all_steps, write=folder_saves.write_folder),
                f"{run}: bringing it back",
            )
            if is_back and project.automatic_checkpoint_naming and project.iteration == 0:
                # The caller has seen no folders to count on from.
                found = _NUMBER.search(_numbered_folders(run.parent / "checkpoints")[-1].name)
                project.iteration = 0 if found is None else int(found[1]) + 1

    def end_training(self) -> None:
        """As Accelerator.end_training(). Waits until the last checkpoint is committed."""
        self._end_saves()
        super().end_training()

    def _end_saves(self) -> None:
        if self._saves is not None:
            if self._saves.wait():
                with folder_saves.rotating:
                    self._rotate()
            self._saves.close()

    def _rotate(self) -> None:
        """Deletes the oldest folders, as Accelerate does. The newest committed checkpoint stays."""
        project = self.project_configuration
        if project.total_limit is not None and project.automatic_checkpoint_naming and self._saves is not None:
            kept = max(project.total_limit, 1) + self._saves.uncommitted()
            # A training that was resumed may count from the beginning again.
            found = _numbered_folders(Path(self.project_dir).absolute() / "checkpoints")
            earlier = [folder for folder in found if folder not in self._saved_folders]
            own = [folder for folder in self._saved_folders if folder in found]
            for folder in [*earlier, *own][:-kept]:
                shutil.rmtree(folder)

    def _save(
        self,
        output_dir: PathLike,
        model_states: list[Any],
        optimizers: list[Any],
        schedulers: list[Any],
        dataloaders: list[Any],
        process_index: int,
        step: int,
        scaler: Any = None,
        save_on_each_node: bool = False,
        safe_serialization: bool = True,
    ) -> Path:
        """What Accelerate calls instead of its save_accelerator_state()."""
        each_node = {"save_on_each_node": save_on_each_node}
        if not (self.is_local_main_process if save_on_each_node else self.is_main_process):
            save_accelerator_state(output_dir, [], [], [], [], process_index, step, None, **each_node)
            if self.checkpoint_options.mirror is not None:
                self.wait_for_everyone()  # the first process takes the files of all
            return Path(output_dir)
        names = self._names()
        state: dict[str, Any] = {
            "files": folder_saves.staged(
                lambda folder: save_accelerator_state(
                    folder, [], [], schedulers, dataloaders, process_index, step, scaler, **each_node
                )
            ),
            "objects": [each.state_dict() for each in self._custom_objects],
        }
        for number, each in enumerate(model_states):
            state[_numbered("model", number)] = each
        for number, each in enumerate(optimizers):
            state[_numbered("optimizer", number)] = named(each, names)
        run = self._run_of(output_dir)
        if self._saves is None:
            self._saves = folder_saves.FolderSaves(self.checkpoint_options, self._rotate)
            if not self._has_loaded:
                warn_of_earlier(run, _BESIDE, is_new=True)
        if self.checkpoint_options.mirror is not None:
            self.wait_for_everyone()
        self._saves.save(output_dir, self.save_iteration, state, run, kept=self._kept)
        folder = Path(output_dir).absolute()
        self._saved_folders = (*(each for each in self._saved_folders if each != folder), folder)
        return Path(output_dir)

    def _names(self) -> dict[int, str]:
        """The names of all parameters."""
        return names_of((f"{number}." if number else "", model) for number, model in enumerate(self._models))

    def _load(
        self,
        input_dir: PathLike,
        models: list[Any],
        optimizers: list[Any],
        schedulers: list[Any],
        dataloaders: list[Any],
        process_index: int,
        scaler: Any = None,
        map_location: Any = None,
        load_kwargs: Any = None,
        **options: Any,
    ) -> Any:
        """What Accelerate calls instead of its load_accelerator_state()."""
        others = schedulers, dataloaders, process_index, scaler, map_location, load_kwargs
        if not folder_saves.is_ours(input_dir):
            return load_accelerator_state(input_dir, models, optimizers, *others, **options)
        chosen = self.checkpoint_options
        snapshot = folder_saves.snapshot_of(input_dir)

        def part(key: str) -> Any:
            found = folder_saves.part_of(snapshot, key, chosen.allow_pickle)
            if found is None:
                raise InvalidArgumentError(f"{input_dir}: the checkpoint has no {key!r}")
            return found

        objects = part("objects")
        if len(objects) != len(self._custom_objects):
            raise InvalidArgumentError(
                f"{input_dir}: {len(self._custom_objects)} objects are registered, the checkpoint has {len(objects)}"
            )
        for number, model in enumerate(models):
            model.load_state_dict(part(_numbered("model", number)), **options)
        for number, optimizer in enumerate(optimizers):
            restore_optimizer(optimizer, part(_numbered("optimizer", number)), self._names())
        for each, saved in zip(self._custom_objects, objects, strict=True):
            each.load_state_dict(saved)
        self._custom_objects = []  # Accelerate has none left to load
        with tempfile.TemporaryDirectory() as folder:
            files = part("files")
            folder_saves.write_files(files, folder, _FILES, input_dir)
            for path in Path(input_dir).glob(f"{RNG_STATE_NAME}_*.pkl"):  # of other processes
                if path.name not in files:
                    (Path(folder) / path.name).symlink_to(path.absolute())
            return load_accelerator_state(folder, [], [], *others)


def use(accelerator: Accelerator, **options: Any) -> Any:
    """Makes save_state() and load_state() of an accelerator use a run, as those of BitsnapAccelerator do.

    Args:
        accelerator: an Accelerator, or an object of a class that is derived from it.
        **options: those of Options: settings, agent, ...

    Returns:
        the same accelerator.

    Raises:
        UnsupportedError: it uses FSDP, DeepSpeed, Megatron-LM or XLA.
        TypeError: `accelerator` is no Accelerator.
        InvalidArgumentError, TypeError: an option has a wrong value, or there is no such option.
        IoError, ExistsError, ...: with `mirror`, the checkpoints cannot be brought back.
    """
    if not isinstance(accelerator, Accelerator):
        raise TypeError(f"accelerator must be an accelerate.Accelerator, got {brief(accelerator)}")
    chosen = Options(**options)
    _check(accelerator)
    give_class(accelerator, BitsnapAccelerator)
    accelerator.checkpoint_options = chosen
    accelerator._bring_back()
    return accelerator


def undo(accelerator: Accelerator) -> None:
    """Makes an accelerator save as it did before use(). Waits until its last checkpoint is committed."""
    if isinstance(accelerator, BitsnapAccelerator):
        accelerator._end_saves()
    give_class_back(accelerator, "checkpoint_options", "_saves", "_saved_folders", "_kept", "_has_loaded")


def export(checkpoint: PathLike, target: PathLike, *, allow_pickle: bool = False) -> None:
    """Writes a checkpoint as Accelerate does without bitsnap, whose load_state() loads it.

    Args:
        checkpoint: the folder that was given to save_state().
        target: the folder to make. Its parent must exist.
        allow_pickle: as in Options.

    Raises:
        ExistsError: `target` exists.
        NotFoundError: `checkpoint` is no checkpoint of bitsnap, or its run is not there.
        CorruptError, ...: the checkpoint is damaged.
    """
    with folder_saves.exported(checkpoint, target, _FILES, allow_pickle) as (made, part):
        number = 0
        while (model := part(_numbered("model", number))) is not None:
            weights = clean_state_dict_for_safetensors(model)
            path = folder_saves.free(made / f"{_numbered(SAFE_MODEL_NAME, number)}.safetensors")
            save_file(weights, path, metadata={"format": "pt"})
            number += 1
        number = 0
        while (optimizer := part(_numbered("optimizer", number))) is not None:
            torch.save(numbered(optimizer), folder_saves.free(made / f"{_numbered(OPTIMIZER_NAME, number)}.bin"))
            number += 1
        for index, state in enumerate(part("objects")):
            torch.save(state, folder_saves.free(made / f"custom_checkpoint_{index}.pkl"))


def _newest_complete(parent: Path) -> str | None:
    found = folder_saves.newest_complete(_numbered_folders(parent), _incomplete_because)
    return None if found is None else str(found)


def _numbered_folders(parent: Path) -> list[Path]:
    numbers = [(int(match[1]), path) for path in parent.iterdir() if (match := _NUMBER.search(path.name))]
    return [path for _, path in sorted(numbers) if path.is_dir()]


def _incomplete_because(folder: Path) -> str:
    # Accelerate writes them last; of the first process, ours are in the run.
    try:
        is_complete = folder_saves.is_ours(folder)
    except BitsnapError as error:
        return str(error)
    is_complete = is_complete or (folder / f"{RNG_STATE_NAME}_0.pkl").exists()
    return "" if is_complete else "its save did not end"


def _numbered(name: str, number: int) -> str:
    return f"{name}_{number}" if number else name


def _check(accelerator: Accelerator) -> None:
    advice = _UNSUPPORTED.get(accelerator.distributed_type)
    if advice is not None:
        raise UnsupportedError(
            f"Accelerate uses {accelerator.distributed_type}, whose parts bitsnap does not save: {advice}"
        )
