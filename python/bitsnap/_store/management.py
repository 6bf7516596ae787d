"""The methods of a store that manage checkpoints: labels, small files, pruning, verification and repair."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Literal, SupportsIndex, TypeAlias

from bitsnap import _bitsnap
from bitsnap._bitsnap import PruneReport, RepairReport, RollbackReport, StoreDamage, StoreVerification
from bitsnap._common import (
    LARGEST_COUNT,
    PathLike,
    Progress,
    absolute_path,
    label_of,
    labels_of,
    native_path,
    number_of,
    positive_of,
    text_of,
)
from bitsnap.errors import InvalidArgumentError
from bitsnap.snapshot import describe_damage

_LONGEST_LABEL = 255  # bytes


def is_label(text: str) -> bool:
    """Whether a checkpoint may have this label; see Store.label()."""
    has_others = any(ord(each) < 0x20 or 0x7F <= ord(each) < 0xA0 or 0xD800 <= ord(each) <= 0xDFFF for each in text)
    return bool(text) and not has_others and len(text.encode()) <= _LONGEST_LABEL


Files: TypeAlias = Mapping[str, bytes | bytearray | memoryview]


def files_of(files: Any) -> list[tuple[str, bytes]]:
    """Checked, as the extension takes it."""
    if files is None:
        return []
    if not isinstance(files, Mapping):
        raise TypeError(f"files must be a dict of str to bytes, got {files!r}")
    checked = []
    for name, content in files.items():
        if not isinstance(content, bytes | bytearray | memoryview):
            raise TypeError(f"files[{name!r}] must be bytes, got {content!r}")
        checked.append((label_of(name, "the name of a file"), bytes(content)))
    return checked


Reencode: TypeAlias = Literal["auto", "never", "always"]


class StoreManagement:
    """Part of Store, which has the attributes."""

    _native: _bitsnap.Store
    _threads: int

    def label(self, step: SupportsIndex, label: str | Iterable[str]) -> None:
        """Gives a checkpoint a label, such as "best" or "epoch=3-val=0.12", or several.

        A label names at most one checkpoint of the store. If it names another one, it moves to this step, in one
        moment: every reader sees the one or the other. A checkpoint may have many labels. They disappear when it is
        pruned or rolled back.

        Args:
            step: of the checkpoint.
            label: 1 to 255 bytes in UTF-8, without control characters, and not digits alone.

        Raises:
            NotFoundError: there is no checkpoint of that step; the message names the nearest steps.
            InvalidArgumentError: a label has another length or other characters, or the store is read_only.
            BusyError, IoError: as save() does.
        """
        self._native.label(number_of(step, "step"), labels_of(label, "label"))

    def unlabel(self, label: str) -> None:
        """Removes a label. Its checkpoint stays.

        Raises:
            NotFoundError: no checkpoint has the label; the message names similar ones.
            BusyError, IoError: as save() does.
        """
        self._native.unlabel(label_of(label, "label"))

    def find(self, label: str) -> int:
        """The step of the checkpoint with this label: ``store.load(store.find("best"))``.

        Raises:
            NotFoundError: no checkpoint has the label; the message names similar ones. If there may be none, ask
                labels(): ``store.labels().get("last")``.
            CorruptError: the record of the labels is damaged; repair() removes it.
        """
        return self._native.find(label_of(label, "label"))

    def labels(self) -> dict[str, int]:
        """All labels with their steps, in order of their bytes in UTF-8."""
        return dict(self._native.labels())

    def files(self, step: SupportsIndex) -> dict[str, bytes]:
        """The small files that save() or commit() was given with the checkpoint, by name; empty if there are none.

        Example:
            config = json.loads(store.files(1000)["config.json"])

        Raises:
            NotFoundError: there is no checkpoint of that step; the message names the nearest steps.
            CorruptError, TruncatedError: the files are damaged. The state can be loaded nevertheless.
        """
        return self._native.files(number_of(step, "step"))

    def prune(
        self,
        keep_last: int | None = None,
        keep_every: int | None = None,
        keep: Iterable[SupportsIndex] = (),
        *,
        keep_labelled: bool = False,
        reencode: Reencode = "auto",
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> PruneReport:
        """Removes checkpoints. A checkpoint stays if any argument keeps it; the newest one always stays.

        Args:
            keep_last: keep the N newest.
            keep_every: keep the steps that are multiples of this.
            keep: keep these steps.
            keep_labelled: keep those with a label.
            reencode: for pruned checkpoints that others are coded against: "auto" rewrites the others without them, if
                that frees more bytes than it writes and breaks up no chain; "never" leaves their files until nothing
                needs them; "always" rewrites the others, as keyframes if necessary.
            dry_run: report what would be done, and change nothing.
            progress: called with (done bytes, total bytes) of what is rewritten; returning False cancels, but undoes
                nothing.

        Raises:
            InvalidArgumentError: no argument says what to keep.
        """
        steps = [number_of(step, "keep") for step in keep]
        if keep_last is None and keep_every is None and not steps and not keep_labelled:
            raise InvalidArgumentError("say what to keep: keep_last, keep_every, keep or keep_labelled")
        return self._native.prune(
            keep_last=positive_of(keep_last, "keep_last"),
            keep_every=positive_of(keep_every, "keep_every"),
            keep=steps,
            keep_labelled=bool(keep_labelled),
            reencode=text_of(reencode, "reencode"),
            dry_run=bool(dry_run),
            threads=self._threads,
            progress=progress,
        )

    def remove(
        self,
        steps: SupportsIndex | Iterable[SupportsIndex],
        *,
        reencode: Reencode = "auto",
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> PruneReport:
        """Removes these checkpoints, also those with a label, and keeps all others.

        The files of a removed checkpoint stay as long as others are coded against it, as in prune(). If the newest one
        is removed, the one before it becomes the newest, as after rollback().

        Args:
            steps: of the checkpoints; one, or several.
            reencode, dry_run, progress: as in prune().

        Raises:
            NotFoundError: there is no checkpoint of one of the steps; the message names the nearest ones. Nothing is
                removed.
            InvalidArgumentError: no undamaged checkpoint would stay.
        """
        numbers = [number_of(step, "steps") for step in (steps if isinstance(steps, Iterable) else (steps,))]
        return self._native.remove(
            numbers,
            reencode=text_of(reencode, "reencode"),
            dry_run=bool(dry_run),
            threads=self._threads,
            progress=progress,
        )

    def rollback(self, step: SupportsIndex) -> RollbackReport:
        """Removes all checkpoints after `step`, newest first, so that the training can continue from there.

        Raises:
            NotFoundError: there is no checkpoint of that step.
            InvalidArgumentError: what can be read of a checkpoint that a repair keeps as damaged needs a later step.
        """
        return self._native.rollback(number_of(step, "step"))

    def damages(
        self, *, steps: Iterable[SupportsIndex] = (), decode: bool = True, progress: Progress | None = None
    ) -> list[StoreDamage]:
        """Reads every byte as verify() does, and returns all damage by step."""
        return self._verified(steps, decode, progress).damages

    def verify(
        self, *, steps: Iterable[SupportsIndex] = (), decode: bool = True, progress: Progress | None = None
    ) -> StoreVerification:
        """Reads every byte of the checkpoints and checks it against its hashes.

        Args:
            steps: these checkpoints; all of them if empty.
            decode: decode every chunk, too. False finds all damage to the stored bytes, and is faster.
            progress: called with (done bytes, total bytes); returning False cancels.

        Raises:
            CorruptError, TruncatedError, ...: the class of the first damage. The message lists all damage.
        """
        found = self._verified(steps, decode, progress)
        if found.damages:
            path = os.fsdecode(self._native.path)
            raise type(found.damages[0].error)(describe_damage(path, [str(each) for each in found.damages]))
        return found

    def _verified(self, steps: Iterable[SupportsIndex], decode: bool, progress: Progress | None) -> StoreVerification:
        numbers = [number_of(step, "steps") for step in steps]
        return self._native.verify(decode=bool(decode), steps=numbers, threads=self._threads, progress=progress)

    @staticmethod
    def repair(
        path: PathLike, *, dry_run: bool = False, threads: int = 0, progress: Progress | None = None
    ) -> RepairReport:
        """Makes complete checkpoints readable again, and keeps those as damaged of which a tensor can be read.

        Moves all others to the directory `damaged`. Works also on a store that cannot be opened.

        Args:
            path: the directory.
            dry_run: report what would be done, and change nothing.
            threads: 0 for all that the process may use.
            progress: called with (done bytes, total bytes); returning False cancels.

        Raises:
            NotFoundError: there is no store.
            BusyError: another handle writes to it.
        """
        return _bitsnap.Store.repair(
            native_path(absolute_path(path, "path")),
            dry_run=bool(dry_run),
            threads=number_of(threads, "threads", LARGEST_COUNT),
            progress=progress,
        )
