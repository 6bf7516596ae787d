"""The checkpoints of one run: saved, found, thinned out and checked as one directory."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NoReturn, SupportsIndex, TypeAlias, cast

from bitsnap import _bitsnap
from bitsnap._adam import AdamOfState
from bitsnap._arguments import LARGEST, number_of, positive_of, seconds_of, text_of
from bitsnap._options import (
    Masters,
    Objective,
    PathLike,
    PolicyName,
    Progress,
    Role,
    absolute_path,
    given_settings,
    native_path,
)
from bitsnap._reading import Device
from bitsnap._store_reports import (
    Checkpoint,
    CommitOutcome,
    PruneReport,
    RepairReport,
    RollbackReport,
    StoreDamage,
    checkpoint_of,
    damages_of,
    prune_report_of,
    repair_report_of,
)
from bitsnap._tree import Entry, flatten
from bitsnap.errors import InvalidArgumentError, NotFoundError, class_of_kind
from bitsnap.files import native_metadata
from bitsnap.policy import Policy, policy_for_many, warn_of_idle_rules
from bitsnap.snapshot import Snapshot, describe_damage
from bitsnap.state import Keys, load_native

BaseRule: TypeAlias = Literal["previous", "keyframe"]
Reencode: TypeAlias = Literal["auto", "never", "always"]

_LARGEST_COUNT = (1 << 32) - 1
# Longer waits than this one of decades cannot be told from it.
_LONGEST_WAIT_MS = 1 << 40


class Store:
    """The checkpoints of one run in a directory, by step. Each is committed as a whole or not there at all.

    A checkpoint is coded against an earlier one, so that only what has changed costs anything; what it needs stays as
    long as it is needed. One handle writes at a time, over all processes and machines that see the directory; any
    number read meanwhile. A handle may be used by any number of threads. It holds the store until it is closed: use it
    in a `with` statement, or call close().

    Example:
        with bitsnap.Store("run", keep_last=5, keep_every=1000) as store:
            if store.latest() is not None:
                state = store.load()
            ...
            store.save(step, state)

    Args:
        path: the directory. The one above it has to exist. It may be relative: what it stands for does not change when
            the process changes its working directory.
        policy: which codecs are used and what may be lost, as in save_file(), and
        objective: for what one is chosen, and
        store_speed: how fast a store it counts on, and
        codec: a codec that is forced; this one the store does not remember.
        keep_last: after each save, only the newest so many checkpoints are kept, and
        keep_every: those of steps that are multiples of this. If neither is given, all are kept. The files of one that
            others are coded against stay until they do not need it any more.
        base: what a checkpoint is coded against: "previous", the one before it, which is smallest; or "keyframe", the
            last keyframe, so that reading decodes no more than two.
        max_depth: checkpoints between two keyframes, at most 32; 0 for keyframes only. A keyframe is coded by itself;
            only what has not changed at all is not stored again.
        keep_base: bytes of memory for keeping the newest state, so that the next save need not decode it from disk;
            True for as much as it takes, which is about twice the state. The files are the same.
        read_only: only read. That needs no lock and no right to write, and works at any time.
        shared: one of several processes that save a checkpoint together, with save_shard() and commit().
        create: make the store if there is none; False is NotFoundError then.
        wait: seconds to wait for another process that writes, before BusyError.
        threads: 0 for all that the process may use. The files are the same for any number.

    `policy` with its rules, `objective`, `store_speed`, `base` and `max_depth` are those of the store where they are
    not given; a new store remembers them, and begins with "lossless", "balanced", 0, "previous" and 8. It does not
    remember what bounded() was told of Adam.

    Raises:
        NotFoundError: there is no store and none is to be made, or no directory to make it in.
        BusyError: another process, or another handle of this one, writes to the store.
        InvalidArgumentError: the directory holds something else; or an argument has a wrong value.
        TypeError: an argument is of a wrong type, here as in all methods.
        UnsupportedError: the store is of a newer format.
    """

    def __init__(
        self,
        path: PathLike,
        *,
        policy: PolicyName | Policy | None = None,
        objective: Objective | None = None,
        store_speed: int | None = None,
        codec: str = "",
        keep_last: int | None = None,
        keep_every: int | None = None,
        base: BaseRule | None = None,
        max_depth: int | None = None,
        keep_base: int | bool = 0,
        read_only: bool = False,
        shared: bool = False,
        create: bool = True,
        wait: float = 0.0,
        threads: int = 0,
    ) -> None:
        if read_only and shared:
            raise InvalidArgumentError("a store is opened read_only or shared, not both")
        if read_only and (keep_last is not None or keep_every is not None):
            raise InvalidArgumentError("keep_last and keep_every are for a store that is written to, not read_only")
        seconds = seconds_of(wait, "wait")
        self._access = "read" if read_only else "shared" if shared else "write"
        self._threads = number_of(threads, "threads", _LARGEST_COUNT)
        self._policy = None if policy is None else policy_for_many(policy, "a store")
        self._native = _bitsnap.Store.open(
            native_path(absolute_path(path, "a store")),
            access=self._access,
            create=bool(create),
            settings=given_settings(
                policy=None if self._policy is None else self._policy.name,
                objective=objective,
                store_speed=store_speed,
                base=base,
                max_depth=max_depth,
                # A name says nothing of rules: those of the store hold where it has that policy.
                loss=policy.rules if isinstance(policy, Policy) else None,
                codec=codec,
            ),
            keep_last=positive_of(keep_last, "keep_last"),
            keep_every=positive_of(keep_every, "keep_every"),
            base_memory_bytes=LARGEST if keep_base is True else number_of(keep_base, "keep_base"),
            wait_ms=math.ceil(min(seconds * 1000, _LONGEST_WAIT_MS)),
        )

    @property
    def path(self) -> Path:
        """The directory, absolute."""
        return Path(os.fsdecode(self._native.path))

    @property
    def run_id(self) -> str:
        """32 hexadecimal digits that this store alone has."""
        return self._native.run_id

    @property
    def policy(self) -> str:
        """Which codecs are used."""
        return self._native.policy

    @property
    def rules(self) -> list[str]:
        """What may be lost, before what the policy itself says."""
        return self._native.loss

    @property
    def objective(self) -> str:
        """What a codec is chosen for."""
        return self._native.objective

    @property
    def is_durable(self) -> bool:
        """False once a save showed that the file system cannot promise to keep it when the machine fails."""
        return self._native.is_durable

    def close(self) -> None:
        """Lets others write. Snapshots that were opened stay open; every other call is an error from now on."""
        self._native.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._native.is_closed else {"read": "read_only"}.get(self._access, self._access)
        return f"Store({str(self.path)!r}, {state})"

    def __copy__(self) -> NoReturn:
        raise TypeError("a store is not copied: open it again")

    def __reduce__(self) -> NoReturn:
        raise TypeError("an open store cannot be sent to another process: open it there, with read_only=True to read")

    def steps(self) -> list[int]:
        """The steps of all checkpoints, ascending."""
        return self._native.steps()

    def latest(self) -> int | None:
        """The newest step; None if there is none."""
        steps = self.steps()
        return steps[-1] if steps else None

    def __len__(self) -> int:
        return len(self.steps())

    def __contains__(self, step: object) -> bool:
        return step in self.steps()

    def checkpoints(self) -> list[Checkpoint]:
        """All checkpoints and what they cost, by step. One whose record is damaged is among them, and says so."""
        return [checkpoint_of(info) for info in self._native.checkpoints()]

    def checkpoint(self, step: SupportsIndex) -> Checkpoint:
        """One checkpoint and what it costs. Raises NotFoundError, which names the steps nearby, if there is none."""
        return checkpoint_of(self._native.info(number_of(step, "step")))

    def snapshot(self, step: SupportsIndex | None = None, shard: SupportsIndex | None = None) -> Snapshot:
        """Opens a checkpoint, or one shard of it, for safe_open(), inspect() and all else that takes a snapshot.

        It stays readable whatever is removed from the store afterwards.

        Args:
            step: None for the newest.
            shard: which one, where several processes saved the checkpoint together; None where there is only one.

        Raises:
            NotFoundError: there is no such checkpoint or shard.
            InvalidArgumentError: the checkpoint has several shards, and `shard` does not say which.
        """
        number = None if step is None else number_of(step, "step")
        if shard is None:
            return Snapshot._of(self._only_shard(number))
        return Snapshot._of(self._native.snapshot(number, number_of(shard, "shard", _LARGEST_COUNT)))

    def load(
        self,
        step: SupportsIndex | None = None,
        into: Any = None,
        keys: Keys | None = None,
        *,
        strict: bool = True,
        map_location: Device | None = None,
        shard: SupportsIndex | None = None,
        progress: Progress | None = None,
    ) -> Any:
        """Loads the state of a checkpoint, as save() took it.

        Args:
            step: None for the newest.
            into, keys, strict, map_location, progress: as in bitsnap.load().
            shard: which one, where several processes saved the checkpoint together; None where there is only one.

        Returns:
            the state, with the tensors of `into` in their places.

        Raises:
            NotFoundError: there is no such checkpoint or shard, or none at all, or nothing of `keys`.
            InvalidArgumentError: `into` does not fit. The message names the keys. Or the checkpoint has several
                shards, and `shard` does not say which.
            CorruptError, TruncatedError: a file is damaged.
        """
        return load_native(
            self.snapshot(step, shard)._native,
            into=into,
            keys=keys,
            strict=strict,
            map_location=map_location,
            threads=self._threads,
            progress=progress,
        )

    def save(
        self,
        step: SupportsIndex,
        state: Any,
        *,
        roles: Mapping[str, Role] | None = None,
        masters: Masters | None = None,
        metadata: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> Checkpoint:
        """Saves a state as the checkpoint of a step. When this returns, it is complete and synced.

        If it fails or is cancelled, the store is as it was before. Older checkpoints are then removed, where the store
        was opened with `keep_last` or `keep_every`.

        Args:
            step: must be above all others. After going back to an earlier step, rollback() to it first.
            state: what to save, as in bitsnap.save(). Its tensors must not change before the function returns.
            roles: what tensors are, by name, where the name does not tell, as in save_file().
            masters: which tensors are the roundings of which, by name, as in save_file().
            metadata: strings to keep with the state.
            progress: called now and then with (done bytes, total bytes), on any thread; returning False cancels.

        Returns:
            what was saved and what it costs. Where the checkpoint before turned out to be damaged, the new one is a
            keyframe, and its `damage` says so.

        Raises:
            InvalidArgumentError: the step is not above all others; or something in the state cannot be stored, which
                the message names as in ``state['optimizer']['state'][0]``; or first moments are to be rounded, and
                nobody says Adam's numbers; or the store is read_only.
            BusyError: the store is held by the process that this one was forked from; or, where it is shared, another
                process prunes or rolls back.
            IoError: the files could not be written.
            CancelledError: `progress` returned False.
            Of errors in removing older checkpoints, the message says that the new one is saved.
        """
        number = number_of(step, "step")
        adam, entries, tree, strings = self._packed(state, roles, masters, metadata, True)
        with adam.explained():
            native = self._native.save(number, entries, tree, strings, threads=self._threads, progress=progress)
        return self._saved(native)

    def save_shard(
        self,
        step: SupportsIndex,
        state: Any,
        *,
        shard: int,
        shards: int,
        attempt: str,
        roles: Mapping[str, Role] | None = None,
        masters: Masters | None = None,
        metadata: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> _bitsnap.SaveSummary:
        """Saves the part of a checkpoint that one of several processes holds. It exists once commit() has been called.

        A tensor that another process held in the checkpoint before still costs only what has changed.

        Args:
            step: must be above all others.
            state: the part of this process, as in save().
            shard: which part this is, from 0 on.
            shards: how many there are.
            attempt: names this attempt at saving the step, the same in all processes and different from any other:
                shards of two attempts are never mixed. 1 to 64 of the characters a-z, 0-9 and "-". A random one that
                one process makes and all others get is good.
            roles, masters, metadata, progress: as in save(). Masters are tensors of the same part.

        Returns:
            id, raw_bytes, stored_bytes and chunks of what was written.

        Raises:
            as save() does.
        """
        adam, entries, tree, strings = self._packed(state, roles, masters, metadata, False)
        with adam.explained():
            return self._native.save_shard(
                number_of(step, "step"),
                entries,
                tree,
                strings,
                shard=number_of(shard, "shard", _LARGEST_COUNT),
                shards=number_of(shards, "shards", _LARGEST_COUNT),
                attempt=text_of(attempt, "attempt"),
                threads=self._threads,
                progress=progress,
            )

    def commit(self, step: SupportsIndex, shards: SupportsIndex, attempt: str) -> CommitOutcome:
        """Makes a checkpoint of the shards of an attempt, if all of them are there.

        To be called after save_shard() by every process, or by one that knows that all others are done. Calling it
        again changes nothing. Older checkpoints are then removed, as after save().

        Args:
            step, shards, attempt: as in save_shard().

        Returns:
            what was saved and what it costs, as `checkpoint`; or the shards that are `missing`, and no checkpoint. It
            is true in the first case, so that ``while not store.commit(...)`` waits for the others.

        Raises:
            InvalidArgumentError: another attempt committed the step; or there is a later one, and this one is not
                there: it may have been pruned since.
            BusyError, IoError: as save() does.
        """
        native, missing = self._native.commit(
            number_of(step, "step"), number_of(shards, "shards", _LARGEST_COUNT), text_of(attempt, "attempt")
        )
        if native is None:
            return CommitOutcome(None, missing)
        return CommitOutcome(self._saved(native), [])

    def prune(
        self,
        keep_last: int | None = None,
        keep_every: int | None = None,
        keep: Iterable[SupportsIndex] = (),
        *,
        reencode: Reencode = "auto",
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> PruneReport:
        """Removes checkpoints. One stays if any of the arguments asks for it; the newest always does.

        Args:
            keep_last: keep the newest so many.
            keep_every: keep the steps that are multiples of this.
            keep: keep these steps.
            reencode: what to do about a checkpoint that is not to stay, but that others are coded against: "auto"
                writes the others again without it where that frees more than it costs and breaks up no chain; "never"
                leaves its files until nothing needs them; "always" writes the others again, whole if need be.
            dry_run: say what would be done, and change nothing.
            progress: called now and then with (done bytes, total bytes) of what is written again; returning False
                cancels. What has been done by then stays done.

        Returns:
            what is kept, and what was removed, still needed and written again.

        Raises:
            InvalidArgumentError: nothing says what to keep.
        """
        steps = [number_of(step, "keep") for step in keep]
        if keep_last is None and keep_every is None and not steps:
            raise InvalidArgumentError("say what to keep: keep_last, keep_every or keep")
        found = self._native.prune(
            keep_last=positive_of(keep_last, "keep_last"),
            keep_every=positive_of(keep_every, "keep_every"),
            keep=steps,
            reencode=text_of(reencode, "reencode"),
            dry_run=bool(dry_run),
            threads=self._threads,
            progress=progress,
        )
        return prune_report_of(found)

    def rollback(self, step: SupportsIndex) -> RollbackReport:
        """Removes all checkpoints after `step`, newest first, so that training can go on from there.

        Raises:
            NotFoundError: there is no checkpoint of that step.
        """
        return RollbackReport(*self._native.rollback(number_of(step, "step")))

    def damages(
        self, *, steps: Iterable[SupportsIndex] = (), decode: bool = True, progress: Progress | None = None
    ) -> list[StoreDamage]:
        """Reads every byte and holds it against its hashes, as verify() does; returns what is wrong, by step."""
        numbers = [number_of(step, "steps") for step in steps]
        return damages_of(
            self._native.verify(decode=bool(decode), steps=numbers, threads=self._threads, progress=progress)
        )

    def verify(
        self, *, steps: Iterable[SupportsIndex] = (), decode: bool = True, progress: Progress | None = None
    ) -> None:
        """Reads every byte of the checkpoints and holds it against its hashes. Returns if all is well.

        Args:
            steps: these checkpoints; all of them if there are none.
            decode: decode every chunk too. False finds every damage to what is stored, and is faster.
            progress: called now and then with (done bytes, total bytes); returning False cancels.

        Raises:
            CorruptError, TruncatedError, ...: the class of the first damage found. The message lists all of it.
        """
        found = self.damages(steps=steps, decode=decode, progress=progress)
        if found:
            raise type(found[0].error)(describe_damage(str(self.path), [str(each) for each in found]))

    @staticmethod
    def repair(
        path: PathLike, *, dry_run: bool = False, threads: int = 0, progress: Progress | None = None
    ) -> RepairReport:
        """Makes every checkpoint that is whole restorable again, and moves those that are not aside, into `damaged`.

        Works on a store that cannot be opened, too. Nobody else may be writing to it.

        Args:
            path: the directory.
            dry_run: say what would be done, and change nothing.
            threads: 0 for all that the process may use.
            progress: called now and then with (done bytes, total bytes); returning False cancels.

        Returns:
            what was mended, and what was moved aside and why.

        Raises:
            NotFoundError: there is no store.
            BusyError: somebody writes to it.
        """
        found = _bitsnap.Store.repair(
            native_path(absolute_path(path, "a store")),
            dry_run=bool(dry_run),
            threads=number_of(threads, "threads", _LARGEST_COUNT),
            progress=progress,
        )
        return repair_report_of(found)

    def _packed(
        self,
        state: Any,
        roles: Mapping[str, Role] | None,
        masters: Masters | None,
        metadata: Mapping[str, str] | None,
        whole: bool,
    ) -> tuple[AdamOfState, list[Entry], tuple[Any], list[tuple[str, str]]]:
        entries, tree = flatten(state, roles, masters)
        # What a store remembers has no numbers of Adam: the state says them.
        adam = AdamOfState(self._policy or Policy(cast("PolicyName", self.policy), self.rules))
        adam.tell(entries, state)
        if self._policy is not None and whole:
            warn_of_idle_rules(self._policy, entries)
        return adam, entries.finish(), (tree,), native_metadata(metadata)

    def _only_shard(self, step: int | None) -> _bitsnap.Snapshot:
        while True:
            at = self.latest() if step is None else step
            if at is None:
                return self._native.snapshot(None, 0)  # which says that there is none
            try:
                shards = self._native.info(at).shards
                if shards > 1:
                    raise InvalidArgumentError(
                        f"{self.path}: the checkpoint of step {at} has {shards} shards: say which, from shard=0 to "
                        f"shard={shards - 1}"
                    )
                return self._native.snapshot(at, 0)
            except NotFoundError:
                # What was the newest may be gone by now, for a newer one.
                if step is not None or self.latest() == at:
                    raise

    @staticmethod
    def _saved(native: _bitsnap.CheckpointInfo) -> Checkpoint:
        if native.prune_error is not None:
            kind, message = native.prune_error
            raise class_of_kind(kind)(message)
        return checkpoint_of(native)
