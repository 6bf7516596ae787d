"""What a store says of its checkpoints and of what it did with them. Sizes are in bytes, steps ascending."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from bitsnap import _bitsnap
from bitsnap.errors import BitsnapError, class_of_kind

# (step, file, where, kind, message), as the extension gives it.
_NativeDamage: TypeAlias = tuple[int, bytes, str, str, str]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Checkpoint:
    """One committed checkpoint and what it costs. Sizes are in bytes."""

    step: int
    time: datetime  # when it was committed, in UTC
    raw_bytes: int  # of the tensors of all shards, aliases not counted again
    stored_bytes: int  # of all its files
    base: int | None  # the step it is coded against; None: a keyframe, which needs others only for what has not changed
    links: int  # how many checkpoints after its keyframe it stands; 0: it is one
    depth: int  # chunks of others that have to be decoded, one after another, before its deepest one
    shards: int  # processes that saved it together
    # Of what save() returns: why the base could not be used; the checkpoint itself is whole, as a keyframe. Of one in
    # checkpoints(): why its record cannot be read; all but the step is unknown then.
    damage: BitsnapError | None = None

    @property
    def ratio(self) -> float:
        """Raw size over stored size."""
        return self.raw_bytes / self.stored_bytes if self.stored_bytes else 1.0


@dataclass(frozen=True)
class CommitOutcome:
    """What commit() came to: a checkpoint, or what it waits for. It is true where the checkpoint is there."""

    checkpoint: Checkpoint | None  # None: shards are missing
    missing: list[int]  # the shards that nobody has saved yet; empty for a checkpoint

    def __bool__(self) -> bool:
        return self.checkpoint is not None


@dataclass(frozen=True)
class StoreDamage:
    """One thing in a store that is not as it should be."""

    step: int
    file: str  # relative to the store
    where: str  # "tensor 'x', chunk 3"; empty: the file as a whole
    error: BitsnapError

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.where, str(self.error)) if part)


@dataclass(frozen=True)
class PruneReport:
    """What pruning removed, and what it did not."""

    kept: list[int]
    removed: dict[int, int]  # step to the size of its files
    needed: dict[int, int]  # not listed any more, but still on disk for a step that needs it: step to that one
    rewritten: dict[int, tuple[int, int]]  # step to its size before and after; after is 0 in a dry run
    removed_bytes: int
    strays: list[str]  # what belonged to no checkpoint, relative to the store


@dataclass(frozen=True)
class RollbackReport:
    """What going back to an earlier step removed."""

    removed: list[int]  # steps, newest first
    removed_bytes: int


@dataclass(frozen=True)
class DroppedCheckpoint:
    """A checkpoint that cannot be restored whole. Its files were moved, not removed."""

    step: int
    was_pruned: bool  # before, and kept only for what others needed of it
    moved_to: str  # relative to the store
    damages: list[StoreDamage]


@dataclass(frozen=True)
class RepairReport:
    """What a repair did."""

    checkpoints: int  # whole ones, after the repair
    dropped: list[DroppedCheckpoint]
    mended: list[tuple[int | None, str]]  # step (None: the run itself) and what was done
    strays: list[str]  # what belonged to no checkpoint, relative to the store


def checkpoint_of(info: _bitsnap.CheckpointInfo) -> Checkpoint:
    return Checkpoint(
        step=info.step,
        # Not fromtimestamp(): a float of seconds does not hold milliseconds exactly.
        time=_EPOCH + timedelta(milliseconds=info.time_unix_ms),
        raw_bytes=info.raw_bytes,
        stored_bytes=info.stored_bytes,
        base=info.base,
        links=info.links,
        depth=info.depth,
        shards=info.shards,
        damage=class_of_kind(info.damage[0])(info.damage[1]) if info.damage else None,
    )


def damages_of(found: Iterable[_NativeDamage]) -> list[StoreDamage]:
    return [
        StoreDamage(step, os.fsdecode(file), where, class_of_kind(kind)(message))
        for step, file, where, kind, message in found
    ]


def prune_report_of(
    found: tuple[
        list[int],
        list[tuple[int, int]],
        list[tuple[int, int, int]],
        list[tuple[int, int, int]],
        int,
        list[bytes],
    ],
) -> PruneReport:
    kept, removed, needed, rewritten, removed_bytes, strays = found
    return PruneReport(
        kept=kept,
        removed=dict(removed),
        needed={step: by for step, _, by in needed},
        rewritten={step: (before, after) for step, before, after in rewritten},
        removed_bytes=removed_bytes,
        strays=[os.fsdecode(stray) for stray in strays],
    )


def repair_report_of(
    found: tuple[int, list[tuple[int, bool, bytes, list[_NativeDamage]]], list[tuple[int | None, str]], list[bytes]],
) -> RepairReport:
    checkpoints, dropped, mended, strays = found
    return RepairReport(
        checkpoints=checkpoints,
        dropped=[
            DroppedCheckpoint(step, was_pruned, os.fsdecode(moved_to), damages_of(damages))
            for step, was_pruned, moved_to, damages in dropped
        ],
        mended=mended,
        strays=[os.fsdecode(stray) for stray in strays],
    )
