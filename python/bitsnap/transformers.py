"""Checkpoints of the Trainer of Transformers in a run: compressed, each against the one before.

    import bitsnap.transformers

    trainer = bitsnap.transformers.use(Trainer(...))
    trainer.train(resume_from_checkpoint=True)

or, as a base of a class of your own, before other trainers:

    class MyTrainer(bitsnap.transformers.BitsnapTrainer, SFTTrainer): ...

The folders ``checkpoint-500`` stay where they are, with the files that others read: config.json, the files of the
tokenizer, trainer_state.json, training_args.bin and model.safetensors. Optimizer, scheduler, scaler and random
generators are in the run ``bitsnap`` beside the folders, and so is the model with ``use(trainer, weights=False)``.

Trainings with FSDP, DeepSpeed, SageMaker or XLA save as they do without bitsnap, and a warning says so.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoConfig, Trainer, trainer_utils
from transformers.trainer import SCHEDULER_NAME, TRAINER_STATE_NAME, is_sagemaker_mp_enabled, is_torch_xla_available
from transformers.utils import CONFIG_NAME, SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, WEIGHTS_INDEX_NAME, WEIGHTS_NAME

from bitsnap._common import PathLike, brief, is_disabled, local_path, warn
from bitsnap._engine.steps import Beside, warn_of_earlier
from bitsnap._runs import folder_saves
from bitsnap._runs.folder_saves import load as load
from bitsnap._runs.framework_objects import give_class, give_class_back, named, names_of, numbered, restore_optimizer
from bitsnap._runs.mirrored_runs import bring_back
from bitsnap._runs.opened_runs import Options as Options
from bitsnap.errors import InvalidArgumentError
from bitsnap.store import Store

_BESIDE = Beside(
    "its checkpoint-N take the place of those with the same N, and save_total_limit deletes the oldest of both",
    "train(resume_from_checkpoint=True)",
    "another output_dir",
)
# Of an evaluation, what says nothing of the model.
_COSTS = ("_runtime", "_per_second", "_preparation_time")
_OPTIMIZER_NAME = "optimizer.pt"
_WEIGHTS = (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME, WEIGHTS_NAME, WEIGHTS_INDEX_NAME)
# The names of the small files that the Trainer writes with torch.
_FILES = re.compile(r"scheduler\.pt|scaler\.pt|rng_state(_[0-9]+)?\.pth")
# Of Transformers: in a folder that a save at SIGTERM has not finished.
_SENTINEL = "checkpoint-is-incomplete.txt"


class BitsnapTrainer(Trainer):  # type: ignore[misc]
    """A Trainer that saves to a run, and resumes from it. Also the first base of a class with other trainers.

    All arguments of the Trainer keep their meaning, and so do callbacks, save_total_limit, load_best_model_at_end,
    save_only_model, push_to_hub and enable_jit_checkpoint. Checkpoints that the Trainer saved without bitsnap are
    loaded as before. With resume_from_checkpoint=True, folders without a complete checkpoint are skipped, with a
    RestoreWarning.
    """

    # Of all trainers of a class, or of one.
    checkpoint_options = Options()
    # Whether model.safetensors is written into the folders, as Transformers does, so that from_pretrained() reads them.
    # Without it, the model goes to the run, too, which takes less space; export() writes the file.
    checkpoint_weights = True
    _saves: folder_saves.FolderSaves | None = None
    _is_in_checkpoint = False
    _held: tuple[str, dict[str, Any]] | None = None  # the folder and the state of a save until the folder is complete
    _raised_limit = 0  # by how much save_total_limit is larger until this save ends

    def train(self, resume_from_checkpoint: str | bool | None = None, *arguments: Any, **options: Any) -> Any:
        """As Trainer.train(). Raises UnsupportedError if the output directory is a URL."""
        local_path(self.args.output_dir)
        self._warn_if_stock()
        self._bring_back()
        if resume_from_checkpoint is True:
            resume_from_checkpoint = self._newest_complete() or True
        elif not resume_from_checkpoint and self.args.should_save and not self._saves_as_stock():
            warn_of_earlier(folder_saves.run_in(self.args.output_dir), _BESIDE, is_new=True)
        try:
            result = super().train(resume_from_checkpoint, *arguments, **options)
        except BaseException:
            if self._saves is not None:
                self._saves.leave()
            raise
        self._end_saves()
        return result

    def _is_stock(self) -> bool:
        """Whether Transformers saves in another way, which is left as it is."""
        return bool(
            self.is_deepspeed_enabled
            or self.is_fsdp_enabled
            or self.is_fsdp_xla_enabled
            or getattr(self, "is_distributed_loading_by_transformers", False)
            or is_sagemaker_mp_enabled()
            or is_torch_xla_available()
        )

    def _warn_if_stock(self) -> None:
        if not self._is_stock() or is_disabled() or not self.args.should_save:
            return
        name, instead = "SageMaker or XLA", ""
        if self.is_deepspeed_enabled:
            name, instead = (
                "DeepSpeed",
                "; in a training loop of your own, bitsnap.deepspeed.use(engine) saves to a run",
            )
        elif self.is_fsdp_enabled:
            name = "FSDP"
            instead = "; in a training loop of your own, bitsnap.torch.TrainingCheckpointer saves FSDP2 to a run"
        warn(
            f"bitsnap.transformers saves nothing of this training, which uses {name}: the Trainer writes its own "
            f"checkpoints to {self.args.output_dir}. `bitsnap watch RUN {self.args.output_dir}` stores these in a run"
            f"{instead}",
            stacklevel=3,
        )

    def _saves_as_stock(self) -> bool:
        return self._is_stock() or is_disabled()

    def _is_mirrored(self) -> bool:
        return self.checkpoint_options.mirror is not None and not self._saves_as_stock()

    def _bring_back(self) -> None:
        """Brings checkpoints back from the copy of the run, where there are none."""
        if self.checkpoint_options.mirror is not None and not self._is_stock():
            bring_back(
                folder_saves.run_in(self.args.output_dir),
                self.checkpoint_options,
                is_first=self.args.process_index == 0,
                all_steps=bool(self.args.save_total_limit or self.args.load_best_model_at_end),
                write=self._write_folder,
            )

    def _write_folder(self, store: Store, step: int, folder: Path) -> bool:
        """Writes what the Trainer has written into the folder of a checkpoint, for bring_back()."""
        if not folder_saves.write_folder(store, step, folder):
            return False
        weights = folder_saves.part_of(store.snapshot(step), "model", self.checkpoint_options.allow_pickle)
        if weights is not None and self.checkpoint_weights:
            _write_weights(weights, folder, folder, self.model if hasattr(self.model, "save_pretrained") else None)
        return True

    def _saves_model(self) -> bool:
        """Whether the model goes to the run: not that of PEFT, whose adapters are small files of the folder."""
        return not hasattr(self.model, "peft_config")

    # Saving, in the order of Trainer._save_checkpoint().

    def _save_checkpoint(self, *arguments: Any, **options: Any) -> None:
        with folder_saves.rotating:
            self._is_in_checkpoint = True
            try:
                with self._completing():
                    super()._save_checkpoint(*arguments, **options)
                if self._saves is not None and self.args.save_total_limit is not None:  # it has deleted older folders
                    self._saves.forget_deleted()
            finally:
                self._is_in_checkpoint = False
                self._restore_limit()

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """As Trainer.save_model()."""
        super().save_model(output_dir, _internal_call)
        is_only_model = self._is_in_checkpoint and self.args.save_only_model and self.args.should_save
        if is_only_model and (self._leaves_out_weights() or self._is_mirrored()):
            assert output_dir is not None  # in a checkpoint
            self._save_to_run(output_dir, {"model": self.model.state_dict()} if self._saves_model() else {})

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        if not self._leaves_out_weights():
            super()._save(output_dir, state_dict)
            return
        super()._save(output_dir, {})
        if self.args.should_save:
            assert output_dir is not None
            for name in _WEIGHTS:
                (Path(output_dir) / name).unlink(missing_ok=True)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if self._saves_as_stock():
            super()._save_optimizer_and_scheduler(output_dir)

    def _save_scaler(self, output_dir: str) -> None:
        if self._saves_as_stock():
            super()._save_scaler(output_dir)

    def _save_rng_state(self, output_dir: str) -> None:
        trainer: Any = super()
        if self._saves_as_stock() or not self.args.should_save:
            trainer._save_rng_state(output_dir)
            if self._is_mirrored():
                self.accelerator.wait_for_everyone()  # the first process takes the files of all
            return
        state = {
            "optimizer": named(self.optimizer, names_of([("", self.model)])),
            "files": {
                SCHEDULER_NAME: self.lr_scheduler.state_dict(),
                **folder_saves.staged(trainer._save_scaler),
                **folder_saves.staged(trainer._save_rng_state),
            },
        }
        if self._saves_model() and (self._is_mirrored() or not self.checkpoint_weights):
            state["model"] = self.model.state_dict()
        self._save_to_run(output_dir, state)
        # Without them, a Trainer without bitsnap starts these anew.
        folder_saves.write_stubs(Path(output_dir), (_OPTIMIZER_NAME, SCHEDULER_NAME))
        if self._is_mirrored():
            self.accelerator.wait_for_everyone()

    @contextmanager
    def _completing(self) -> Iterator[None]:
        """If the run has a copy, saves to it only when the Trainer has written the last file of the folder."""
        if not self._is_mirrored():
            yield
            return
        write = self.state.save_to_json

        def complete(path: str) -> None:
            write(path)
            held, self._held = self._held, None
            if held is not None:
                self._save_complete(*held)

        with patch.object(self.state, "save_to_json", complete):
            yield

    def _save_to_run(self, output_dir: str, state: dict[str, Any]) -> None:
        if self._is_mirrored():
            self._held = output_dir, state
        else:
            self._save_complete(output_dir, state)

    def _save_complete(self, output_dir: str, state: dict[str, Any]) -> None:
        if self._saves is None:
            self._saves = folder_saves.FolderSaves(self.checkpoint_options, self._rotate)
        limit = self.args.save_total_limit
        kept = limit if limit and limit > 0 else None
        self._saves.save(output_dir, self.state.global_step, state, kept=kept, metrics=self._metrics())
        if self.args.push_to_hub:
            self._saves.wait()
        elif self.checkpoint_options.agent is not None:
            self._raise_limit()

    def _metrics(self) -> dict[str, float]:
        """What the trainer has logged last of the loss and of each score of an evaluation."""
        logged: dict[str, float] = {}
        for entry in self.state.log_history:
            scores = {name: value for name, value in entry.items() if isinstance(value, int | float)}
            logged |= {name: value for name, value in scores.items() if name == "loss" or name.startswith("eval_")}
        return {name: value for name, value in logged.items() if not name.endswith(_COSTS)}

    def _raise_limit(self) -> None:
        """Lets the newest committed checkpoint stay, until _restore_limit()."""
        if self._saves is None or (self.args.save_total_limit or 0) <= 0:
            return
        self._raised_limit = self._saves.uncommitted()
        if self._raised_limit > 0 and self.args.save_total_limit == 1 and self.state.best_model_checkpoint:
            self._raised_limit += 1  # with a limit of 1, Transformers keeps the best and the newest
        self.args.save_total_limit += self._raised_limit

    def _restore_limit(self) -> None:
        if self._raised_limit:
            self.args.save_total_limit -= self._raised_limit
            self._raised_limit = 0

    def _rotate(self) -> None:
        """Deletes the oldest folders, as Transformers does. The newest committed checkpoint stays."""
        assert self._saves is not None
        self._raise_limit()
        try:
            for run in self._saves.runs:
                self._rotate_in(str(run.parent))
        finally:
            self._restore_limit()

    def _leaves_out_weights(self) -> bool:
        is_asked = self._is_in_checkpoint and not self.checkpoint_weights
        return is_asked and self._saves_model() and not self._saves_as_stock()

    def _end_saves(self) -> None:
        if self._saves is None:
            return
        if self._saves.wait() and self.checkpoint_options.agent is not None:
            with folder_saves.rotating:
                self._rotate()
        self._saves.close()

    def _rotate_in(self, folder: str) -> None:
        best = self.state.best_model_checkpoint
        if best is not None and Path(best).parent.resolve() == Path(folder).resolve():
            # Transformers finds the best one by its text, which may be a relative path.
            self.state.best_model_checkpoint = str(Path(folder) / Path(best).name)
        try:
            if not hasattr(trainer_utils, "rotate_checkpoints"):  # Transformers 4
                trainer: Any = self
                trainer._rotate_checkpoints(use_mtime=True, output_dir=folder)
                return
            trainer_utils.rotate_checkpoints(
                output_dir=folder,
                save_total_limit=self.args.save_total_limit,
                best_model_checkpoint=self.state.best_model_checkpoint,
                use_mtime=True,
            )
        finally:
            self.state.best_model_checkpoint = best

    # Loading.

    def _newest_complete(self) -> str | None:
        # Transformers 4 has a method in place of the function.
        sort: Any = getattr(trainer_utils, "sort_checkpoints", None) or getattr(self, "_sorted_checkpoints", None)
        folders = [Path(each) for each in sort(str(self.args.output_dir))]
        # The method moves the best one.
        folders.sort(key=lambda folder: int(folder.name.rpartition("-")[2]))
        found = folder_saves.newest_complete(folders, _incomplete_because)
        return None if found is None else str(found)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        if not self._load_model(resume_from_checkpoint, self.model if model is None else model):
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_best_model(self) -> None:
        if self._saves is not None:
            self._saves.wait()
        self.accelerator.wait_for_everyone()
        folder = self.state.best_model_checkpoint
        if any((Path(folder) / name).exists() for name in _WEIGHTS) or not self._load_model(folder, self.model):
            super()._load_best_model()

    def _load_model(self, folder: str, model: torch.nn.Module) -> bool:
        """Loads the model if the run has it; whether it has."""
        weights = self._part(folder, "model")
        if weights is None:
            return False
        self._issue_warnings_after_load(model.load_state_dict(weights, strict=False))
        return True

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        optimizer = self._part(checkpoint, "optimizer")
        if optimizer is None:
            super()._load_optimizer_and_scheduler(checkpoint)
            return
        restore_optimizer(self.optimizer, optimizer, names_of([("", self.model)]))
        self.lr_scheduler.load_state_dict(self._part(checkpoint, "files")[SCHEDULER_NAME])

    def _load_scaler(self, checkpoint: str | None) -> None:
        with self._with_files(checkpoint) as folder:
            super()._load_scaler(folder)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with self._with_files(checkpoint) as folder:
            super()._load_rng_state(folder)

    def _part(self, folder: str | None, key: str) -> Any:
        """A part of the checkpoint of a folder; None if the run does not have it."""
        if folder is None or self._is_stock() or not folder_saves.is_ours(folder):
            return None
        options = self.checkpoint_options
        return folder_saves.part_of(folder_saves.snapshot_of(folder), key, options.allow_pickle)

    @contextmanager
    def _with_files(self, folder: str | None) -> Iterator[str | None]:
        """A folder with the small files of a checkpoint, as the Trainer reads them."""
        files = self._part(folder, "files")
        if folder is None or files is None:
            yield folder
            return
        with tempfile.TemporaryDirectory() as made:
            folder_saves.write_files(files, made, _FILES, folder)
            for path in Path(folder).glob("rng_state_*.pth"):  # of other processes
                if path.name not in files:
                    (Path(made) / path.name).symlink_to(path.absolute())
            yield made


def use(trainer: Trainer, *, weights: bool = True, **options: Any) -> Any:
    """Makes a trainer save to a run, and resume from it, as BitsnapTrainer does.

    Args:
        trainer: a Trainer, or an object of a class that is derived from it, such as the trainers of TRL.
        weights: write model.safetensors into the folders, as Transformers does, so that from_pretrained() reads them.
            False: the model goes to the run, too, which takes less space; export() writes the file.
        **options: those of Options: agent, settings, ...

    Returns:
        the same trainer.

    Raises:
        TypeError: `trainer` is no Trainer.
        InvalidArgumentError, TypeError: an option has a wrong value, or there is no such option.
        IoError, ExistsError, ...: with `mirror`, the checkpoints cannot be brought back.
    """
    if not isinstance(trainer, Trainer):
        raise TypeError(f"trainer must be a transformers.Trainer, got {brief(trainer)}")
    chosen = Options(**options)
    give_class(trainer, BitsnapTrainer)
    trainer.checkpoint_options, trainer.checkpoint_weights = chosen, bool(weights)
    trainer._bring_back()
    return trainer


def undo(trainer: Trainer) -> None:
    """Makes a trainer save as it did before use(). Waits until its last checkpoint is committed."""
    if isinstance(trainer, BitsnapTrainer):
        trainer._end_saves()
    give_class_back(trainer, "checkpoint_options", "checkpoint_weights", "_saves")


def export(
    checkpoint: PathLike,
    target: PathLike,
    *,
    model: Any = None,
    allow_pickle: bool = False,
) -> None:
    """Writes a checkpoint as the Trainer does without bitsnap, which resumes from it, and so does from_pretrained().

    Args:
        checkpoint: the folder of a checkpoint, such as "out/checkpoint-500".
        target: the folder to make. Its parent must exist.
        model: a model of the same class, if model.safetensors was left out and config.json does not name a class of
            Transformers. It says how files are named and divided, and stays as it is.
        allow_pickle: as in Options.

    Raises:
        ExistsError: `target` exists.
        NotFoundError: `checkpoint` is no checkpoint of bitsnap, or its run is not there.
        InvalidArgumentError: a model is needed.
        CorruptError, ...: the checkpoint is damaged.
    """
    with folder_saves.exported(checkpoint, target, _FILES, allow_pickle) as (made, part):
        optimizer = part("optimizer")
        if optimizer is not None:
            torch.save(numbered(optimizer), folder_saves.free(made / _OPTIMIZER_NAME))
        if not any((made / name).exists() for name in _WEIGHTS):
            weights = part("model")
            if weights is not None:
                _write_weights(weights, Path(local_path(checkpoint)), made, model)


def _write_weights(weights: dict[str, torch.Tensor], source: Path, made: Path, model: Any) -> None:
    if model is None:
        model = _model_of(source)
    if model is None:  # no model of Transformers: as Trainer._save() does
        save_file(weights, folder_saves.free(made / SAFE_WEIGHTS_NAME), metadata={"format": "pt"})
        return
    with tempfile.TemporaryDirectory(dir=made) as written:
        # Names, dtypes and what is tied are those of the checkpoint, whatever the class and config.json would make.
        model.save_pretrained(written, state_dict=weights)
        for path in Path(written).glob("*.safetensors*"):
            path.rename(made / path.name)


def _model_of(folder: Path) -> Any:
    """A model of the class that config.json names; None if there is no such file."""
    if not (folder / CONFIG_NAME).is_file():
        return None
    config = AutoConfig.from_pretrained(folder)
    names = config.architectures or []
    kind = getattr(transformers, names[0], None) if names else None
    if kind is None:
        raise InvalidArgumentError(
            f"{folder}: {CONFIG_NAME} names the class {', '.join(names) or '(none)'}, which transformers does not "
            "have: pass model=, a model of that class"
        )
    with torch.device("meta"):
        return kind._from_config(config)


def _incomplete_because(folder: Path) -> str:
    if (folder / _SENTINEL).exists():
        return f"it has the file {_SENTINEL}"
    try:
        json.loads((folder / TRAINER_STATE_NAME).read_bytes())
    except (OSError, ValueError) as error:
        return str(error)
    return ""
