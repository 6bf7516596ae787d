"""The folders that Megatron-LM names, each with a reference to a step of the run that lies beside them.

The reference is written when the step has been committed, and before Megatron writes metadata.json, so a folder with
both of them is a complete checkpoint.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from bitsnap._arguments import PathLike, checkpoint_id_of
from bitsnap._references import FOLDER_REFERENCE, StepOfRun, absolute, reference_in
from bitsnap._runs import path_checkpoints as paths

# The key of a commit's metadata, and of the state of each shard, that has what is no tensor.
KEY = "megatron.dist_checkpointing"

CONFIG = "metadata.json"  # Megatron's, the last file of a checkpoint
# Of torch_dist.
STOCK_INDEX = ".metadata"
STOCK_COMMON = "common.pt"


class Destination(NamedTuple):
    """Where the checkpoint of a folder goes: see path_checkpoints.begin()."""

    reference: Path
    step: int
    run: Path


def destination_of(folder: PathLike) -> Destination:
    """The step is the iteration in the folder's name. A folder with another name has a run of its own inside."""
    reference = absolute(folder) / FOLDER_REFERENCE
    step = checkpoint_id_of(folder).step
    parent = reference.parent if step is None else reference.parent.parent
    return Destination(reference, step or 0, parent / paths.RUN)


def is_ours(folder: PathLike) -> bool:
    """Whether the folder refers to a run, and torch_dist has not saved another checkpoint over it since.

    Raises:
        NotFoundError: the folder is complete, but its reference is gone.
    """
    reference = reference_in(absolute(folder))
    if (reference.parent / STOCK_INDEX).is_file():
        return False
    if not reference.is_file():
        if (reference.parent / CONFIG).is_file():
            paths.check_is_not_lost(reference)
        return False
    return True


def step_of(folder: PathLike) -> StepOfRun:
    """What the reference of a folder leads to. Raises as path_checkpoints.step_of() does."""
    return paths.step_of(reference_in(absolute(folder)))


def remove_stock(folder: Path) -> None:
    """Removes what torch_dist had saved in a folder that has a reference now: its index first, which counts."""
    for stale in (folder / STOCK_INDEX, folder / STOCK_COMMON, *folder.glob("*.distcp")):
        stale.unlink(missing_ok=True)
