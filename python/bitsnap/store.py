"""The checkpoints of one run in a directory: saving, loading, pruning, verifying and repairing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn, SupportsIndex, TypeVar

from bitsnap._bitsnap import (
    Checkpoint,
    CommitOptions,
    CommitOutcome,
    Retention,
    RunUsage,
    SaveSummary,
    Settings,
    ShardPlace,
    Snapshot as NativeSnapshot,
    Store as NativeStore,
    StoreOptions,
    WholeState,
)
from bitsnap._branches import StoreBranches
from bitsnap._common import (
    LARGEST,
    LARGEST_COUNT,
    Device,
    Masters,
    Metrics,
    PathLike,
    Progress,
    Role,
    home_of,
    labels_of,
    may_pickle,
    milliseconds_of,
    native_home,
    number_of,
    positive_of,
    settings_of,
    text_of,
    warn_of_idle_rules,
)
from bitsnap._display import progress_line
from bitsnap._explained import explained_damage
from bitsnap._states.adam import Adams, AdamSources, adam_for_many
from bitsnap._states.packing import PackedState, Packer, native_metadata, with_metrics
from bitsnap._store import Files, StoreManagement, StoreTensors, files_of, step_or_newest
from bitsnap.agents import explained_holder
from bitsnap.errors import InvalidArgumentError, NotFoundError
from bitsnap.folder import StoreFolders
from bitsnap.snapshot import Snapshot, whole_state
from bitsnap.state import Keys, load, load_whole

# Attempts to open the newest checkpoint, while it keeps changing.
_OPEN_NEWEST = 16

T = TypeVar("T")


class Store(StoreManagement, StoreBranches, StoreFolders, StoreTensors):
    """The checkpoints of one run in a directory, by step. A checkpoint exists completely or not at all.

    A checkpoint is coded against an earlier one and stores only the changes; the files that it needs stay as long as
    they are needed. One handle writes at a time, across all processes and machines that see the directory; any number
    of handles read. Any number of threads may use a handle. It locks the store until it is closed: use it in a `with`
    statement, or call close().

    Example:
        with bitsnap.Store("run", keep_last=5, keep_every=1000) as store:
            if store.latest() is not None:
                state = store.load()
            ...
            store.save(step, state)

    Args:
        path: the directory, or an address in an object store, such as "s3://bucket/run". The parent of a directory must
            exist. A relative path is made absolute. "run:NAME" is the branch NAME of the run, unless a directory has
            this name.
        settings: how checkpoints are coded, or the name of a policy, such as "bounded". The store remembers all
            settings but `codec`; those that are not given here are taken from the store. The rules of `loss` belong to
            the policy that they were given with.
        adam: Adam's betas, eps and step for first moments, if `settings` rounds them and the states do not have them;
            or a dict or function of the names of tensors that gives them. The store does not remember it.
        keep_last: after each save, keep only the N newest checkpoints, and
        keep_every: those of steps that are multiples of this. If neither is given, all are kept. Checkpoints that are
            coded against a pruned one are coded again, so that the store holds no more than standalone files would.
        keep_labelled: then keep also those with a label.
        prunes: False only codes for what `keep_last` and `keep_every` say, and removes nothing: others do.
        keep_base: from the second save of a run in this process on, or the first one in an object store, keep the
            newest state in memory, about twice its size, so that the next save need not decode it from the files. The
            system may take this memory back at any time. A number limits it to that many bytes, and False keeps
            nothing. The files are the same.
        read_only: only read. This needs no lock and no write permission, and works at any time.
        shared: this process saves checkpoints together with others, with save_shard() and commit().
        create: make the store if it does not exist; False raises NotFoundError.
        timeout: the longest wait for another writer, in seconds, before BusyError; at least 2 if `shared`.
        threads: 0 for all that the process may use. The files are the same for any number.

    Raises:
        NotFoundError: there is no store and `create` is False, or the parent directory does not exist.
        BusyError: another handle writes to the store.
        InvalidArgumentError: the directory is not a store, or an argument has a wrong value.
        TypeError: an argument has the wrong type, here and in all methods.
        UnsupportedError: the store has a newer format.
    """

    def __init__(
        self,
        path: PathLike,
        *,
        settings: Settings | str | None = None,
        adam: Adams | AdamSources | None = None,
        keep_last: int | None = None,
        keep_every: int | None = None,
        keep_labelled: bool = False,
        prunes: bool = True,
        keep_base: int | bool = True,
        read_only: bool = False,
        shared: bool = False,
        create: bool = True,
        timeout: float = 0.0,
        threads: int = 0,
    ) -> None:
        if read_only and shared:
            raise InvalidArgumentError("a store cannot be both read_only and shared")
        if read_only and (keep_last is not None or keep_every is not None):
            raise InvalidArgumentError("keep_last and keep_every need a store that is not read_only")
        wait_ms = milliseconds_of(timeout, "timeout")
        self._access = "read" if read_only else "shared" if shared else "write"
        self._threads = number_of(threads, "threads", LARGEST_COUNT)
        self._settings = settings_of(settings)
        self._adam = adam_for_many(adam)
        self._packer = Packer()
        options = StoreOptions()
        options.access = self._access
        options.create = bool(create)
        options.settings = self._settings
        options.retention = Retention(
            keep_last=positive_of(keep_last, "keep_last"),
            keep_every=positive_of(keep_every, "keep_every"),
            keep_labelled=bool(keep_labelled),
        )
        options.prunes = bool(prunes)
        options.keep_base_bytes = LARGEST if keep_base is True else number_of(keep_base, "keep_base")
        options.timeout_ms = wait_ms
        with explained_holder("Store", path):
            self._native = NativeStore.open(native_home(path, "path"), options)

    @property
    def path(self) -> Path | str:
        """The directory, absolute; or, in an object store, the address as text."""
        return home_of(self._native.path)

    @property
    def run_id(self) -> str:
        """The id of this store, 32 hexadecimal digits."""
        return self._native.run_id

    @property
    def settings(self) -> Settings:
        """How this handle codes: the settings that it was opened with, and those that the store remembers."""
        return self._native.settings

    @property
    def is_durable(self) -> bool:
        """False after a save on a file system that cannot sync directories: a crash of the machine may undo it."""
        return self._native.is_durable

    def close(self) -> None:
        """Releases the lock. Open snapshots stay open; every other call raises an error from now on."""
        self._native.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._native.is_closed else {"read": "read_only"}.get(self._access, self._access)
        return f"Store({str(self.path)!r}, {state})"

    def __copy__(self) -> NoReturn:
        raise TypeError("a store cannot be copied: open it again")

    def __reduce__(self) -> NoReturn:
        raise TypeError("an open store cannot be sent to another process: open it there, with read_only=True to read")

    def steps(self) -> list[int]:
        """The steps of all checkpoints, ascending, with those that a repair keeps as damaged."""
        return self._native.steps()

    def latest(self) -> int | None:
        """The newest step that is not kept as damaged; None if there is none."""
        return self._native.latest()

    def __len__(self) -> int:
        return len(self.steps())

    def __contains__(self, step: object) -> bool:
        return step in self.steps()

    def checkpoints(self) -> list[Checkpoint]:
        """All checkpoints by step, including those whose record is damaged."""
        return self._native.checkpoints()

    def checkpoint(self, step: SupportsIndex) -> Checkpoint:
        """One checkpoint. Raises NotFoundError, which names the nearest steps, if there is none."""
        return self._native.checkpoint(number_of(step, "step"))

    def usage(self) -> RunUsage:
        """What the run holds on disk: its checkpoints, and pruned ones that stay because these need them."""
        return self._native.usage()

    def snapshot(
        self, step: SupportsIndex | None = None, shard: SupportsIndex | None = None, *, partial: bool = False
    ) -> Snapshot:
        """Opens a checkpoint, or one shard of it, for functions that take a snapshot, such as safe_open().

        The snapshot stays readable if the checkpoint is pruned.

        Args:
            step: None for the newest.
            shard: which shard, if several processes saved the checkpoint together.
            partial: open it also if a checkpoint that it needs is damaged; damaged_tensors() tells what cannot be read.

        Raises:
            NotFoundError: there is no such checkpoint or shard.
            InvalidArgumentError: the checkpoint has several shards, and `shard` is None.
        """
        number = step_or_newest(step)
        if shard is None:
            return Snapshot._of(self._only_shard(number, bool(partial)))
        return Snapshot._of(self._native.snapshot(number, number_of(shard, "shard", LARGEST_COUNT), bool(partial)))

    def load(
        self,
        step: SupportsIndex | None = None,
        into: Any = None,
        keys: Keys | None = None,
        *,
        strict: bool = True,
        map_location: Device | None = None,
        allow_pickle: bool = False,
        shard: SupportsIndex | None = None,
        partial: bool = False,
        progress: Progress | None = None,
    ) -> Any:
        """Loads the state of a checkpoint, as save() took it.

        If several processes saved the checkpoint together, their states are put together as one: each tensor is whole,
        with the name that tensors() lists; where the values of the processes differ, those of process N are below the
        keys ``rank-N/KEY``, such as ``state["rank-0/rng"]`` for what it saved as ``state["rng"]``.

        Args:
            step: None for the newest.
            into, keys, strict, map_location, allow_pickle, partial, progress: as in bitsnap.load(). Of a checkpoint of
                several shards, `partial` needs `shard`.
            shard: load what this process alone saved.

        Returns:
            the state, with the tensors of `into` in their places.

        Raises:
            NotFoundError: there is no such checkpoint or shard, or nothing of `keys`.
            InvalidArgumentError: `into` does not fit, a tag is not registered, or a value is pickled and `allow_pickle`
                is False; the message names the place. Or the checkpoint is of add_folder(), and has no state. Or the
                states of several processes cannot be put together, because one of them is no dict.
            CorruptError, TruncatedError: a file is damaged.
        """
        number = step_or_newest(step)
        options: dict[str, Any] = {
            "into": into,
            "keys": keys,
            "strict": strict,
            "map_location": map_location,
            "allow_pickle": allow_pickle,
            "threads": self._threads,
            "progress": progress,
        }
        with explained_damage(lambda: (self._native, number), lambda at: f"load({at})", partial=not partial):
            opened = self._opened(number, partial) if shard is None else self.snapshot(number, shard, partial=partial)
            if isinstance(opened, WholeState):
                return load_whole(opened, **options)
            return load(opened, partial=partial, **options)

    def save(
        self,
        step: SupportsIndex,
        state: Any,
        *,
        roles: Mapping[str, Role] | None = None,
        masters: Masters | None = None,
        metadata: Mapping[str, str] | None = None,
        metrics: Metrics | None = None,
        allow_pickle: bool = False,
        files: Files | None = None,
        labels: str | Iterable[str] = (),
        replace: bool = False,
        progress: Progress | None = None,
    ) -> Checkpoint:
        """Saves a state as the checkpoint of a step, which is complete and synced when this returns.

        Then removes older checkpoints, if the store was opened with `keep_last` or `keep_every`. If the save fails or
        is cancelled, the store is unchanged.

        Args:
            step: above all others, or the newest one with `replace`. To continue from an earlier step, call rollback()
                first.
            state: the state, as in bitsnap.save(). Its tensors must not change before the function returns.
            roles, masters, metadata, progress: as in bitsnap.save_file().
            metrics: numbers of the training, such as {"loss": 2.1}. Checkpoint.metrics has them, `bitsnap log` shows
                them, and best() finds the best.
            allow_pickle: as in bitsnap.save().
            files: small files to keep with the checkpoint, by name, such as {"config.json": b"..."}; files() returns
                them. At most 10,000 of them, and 64 MiB in all. A name has 1 to 255 bytes in UTF-8, without slashes,
                backslashes and control characters.
            labels: labels that the checkpoint gets, as by label(). It exists with all of them, or not at all.
            replace: if the step is the newest checkpoint, replace that: a reader finds the old one or the new one, also
                after a crash. The new one keeps the labels, and is coded against the checkpoint before.

        Returns:
            the checkpoint. If its base turned out to be damaged, it is a keyframe, and `damage` has the error.

        Raises:
            InvalidArgumentError: the step is not above all others, and does not replace the newest; or a value of the
                state cannot be stored, and the message names its place, as in ``state['optimizer']['state'][0]``; or
                first moments are rounded and a value of Adam is missing; or the store is read_only.
            BusyError: the process that this one was forked from holds the store; or, in a shared store, another process
                prunes or rolls back; or a signal handler or a callback of a call that changes the store called this.
            IoError: the files could not be written.
            CancelledError: `progress` returned False.
            BitsnapError: older checkpoints could not be removed. The message says that the new one is saved.
        """
        number = number_of(step, "step")
        packed = self._packed(state, roles, masters, with_metrics(metadata, metrics), allow_pickle)
        warn_of_idle_rules(self._settings, packed.names(), stacklevel=2)
        with packed.adam.explained():
            commit = CommitOptions(labels=labels_of(labels, "labels"), replace=bool(replace), files=files_of(files))
            progress = progress or progress_line(f"saving step {number}")
            return self._native.save(number, packed.native, commit, threads=self._threads, progress=progress)

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
        metrics: Metrics | None = None,
        allow_pickle: bool = False,
        replace: bool = False,
        progress: Progress | None = None,
    ) -> SaveSummary:
        """Saves the part of a checkpoint that this process holds. The checkpoint exists after commit().

        A tensor that another process held in the previous checkpoint is coded against it.

        Args:
            step: above all others, or the newest one with `replace`.
            state: the part of this process, as in save().
            shard: the number of this part, from 0.
            shards: the number of parts.
            attempt: names this try to save the step, the same in all processes and different from any other: shards of
                two attempts are never mixed. 1 to 64 of the characters a-z, 0-9 and "-", such as a random word that one
                process broadcasts.
            metrics: as in save(). Those of the first part that has any count.
            roles, masters, metadata, allow_pickle, progress: as in save(). Masters are tensors of the same part.
            replace: as in save(), and then also in commit(). The attempt must be another one than that of the
                checkpoint, which stays until commit() finds all parts.

        Returns:
            id, raw_bytes, stored_bytes and chunks of the file.

        Raises:
            BitsnapError: as save() does.
        """
        packed = self._packed(state, roles, masters, with_metrics(metadata, metrics), allow_pickle)
        with packed.adam.explained():
            place = ShardPlace(
                shard=number_of(shard, "shard", LARGEST_COUNT),
                shards=number_of(shards, "shards", LARGEST_COUNT),
                attempt=text_of(attempt, "attempt"),
            )
            return self._native.save_shard(
                number_of(step, "step"),
                place,
                packed.native,
                replace=bool(replace),
                threads=self._threads,
                progress=progress,
            )

    def commit(
        self,
        step: SupportsIndex,
        shards: SupportsIndex,
        attempt: str,
        *,
        metadata: Mapping[str, str] | None = None,
        files: Files | None = None,
        labels: str | Iterable[str] = (),
        replace: bool = False,
    ) -> CommitOutcome:
        """Makes a checkpoint of the shards of an attempt, if all of them exist. Does not wait for the others.

        Called after save_shard() by every process, or by one that knows that all others have saved. A second call has
        no effect. Then removes older checkpoints, as save() does.

        Args:
            step, shards, attempt: as in save_shard().
            metadata: strings to keep with the checkpoint, at most 64 MiB, which Checkpoint.metadata returns. The call
                that commits decides: pass them in all calls, or let one process call.
            files: as in save(). The call that commits decides, as with `metadata`.
            labels: as in save(), the same in all processes. If another process has committed the step without some of
                them, the checkpoint gets them now, as by label().
            replace: as in save_shard().

        Returns:
            an outcome that is true and has the checkpoint; or that is false and has the missing shards.

        Raises:
            InvalidArgumentError: another attempt committed the step, and is not replaced; or a later step was committed
                and this one does not exist, perhaps because it was pruned since.
            BusyError, IoError: as save() does.
        """
        return self._native.commit(
            number_of(step, "step"),
            number_of(shards, "shards", LARGEST_COUNT),
            text_of(attempt, "attempt"),
            CommitOptions(
                labels=labels_of(labels, "labels"),
                replace=bool(replace),
                metadata=native_metadata(metadata),
                files=files_of(files),
            ),
        )

    def _packed(
        self,
        state: Any,
        roles: Mapping[str, Role] | None,
        masters: Masters | None,
        metadata: Mapping[str, str] | None,
        allow_pickle: bool,
    ) -> PackedState:
        consent = may_pickle(allow_pickle)
        return self._packer.pack(
            state, self.settings, self._adam, roles=roles, masters=masters, metadata=metadata, may_pickle=consent
        )

    def _only_shard(self, step: int | None, partial: bool) -> NativeSnapshot:
        def open_one(at: int, shards: int) -> NativeSnapshot:
            if shards > 1:
                raise InvalidArgumentError(
                    f"{self.path}: the checkpoint of step {at} has {shards} shards: say which, from shard=0 to "
                    f"shard={shards - 1}"
                )
            return self._native.snapshot(at, 0, partial)

        return self._open(step, open_one)

    def _opened(self, step: int | None, partial: bool) -> Snapshot | WholeState:
        """A checkpoint with all of its shards."""

        def open_all(at: int, shards: int) -> Snapshot | WholeState:
            if shards <= 1:
                return Snapshot._of(self._native.snapshot(at, 0, partial))
            where = f"{self.path}: the checkpoint of step {at} has {shards} shards"
            which = f"load one of them, from shard=0 to shard={shards - 1}"
            if partial:
                raise InvalidArgumentError(f"{where}, which partial=True does not put together: {which}")
            return whole_state(self._native, at, f"{where} that", which)

        return self._open(step, open_all)

    def _open(self, step: int | None, open_step: Callable[[int, int], T]) -> T:
        """What `open_step` makes of a checkpoint and the number of its shards."""
        attempt = 1
        while True:
            at = self.latest() if step is None else step
            if at is None:
                self._native.snapshot(None, 0, False)  # raises the error for an empty store
                raise NotFoundError(f"{self.path}: there is no checkpoint")
            try:
                return open_step(at, self._native.checkpoint(at).shards)
            except NotFoundError:
                # Meanwhile another one may have become the newest, or the same step was saved again.
                if step is not None or attempt == _OPEN_NEWEST:
                    raise
                attempt += 1
