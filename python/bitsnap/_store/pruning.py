"""The methods of a store that remove checkpoints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, SupportsIndex, TypeAlias

from bitsnap import _bitsnap
from bitsnap._arguments.checks import number_of, positive_of, text_of
from bitsnap._arguments.options import Progress
from bitsnap._bitsnap import PruneReport, RollbackReport
from bitsnap.errors import InvalidArgumentError

Reencode: TypeAlias = Literal["auto", "never", "always"]


class StorePruning:
    """Part of Store, which has the attributes."""

    _native: _bitsnap.Store
    _threads: int

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
