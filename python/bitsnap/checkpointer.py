"""Checkpoints of a training that does not wait for them: staged in shared memory, compressed and stored by an agent."""

from __future__ import annotations

import os
import time
import warnings
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NoReturn, SupportsIndex, TypeAlias, cast

from bitsnap import _bitsnap
from bitsnap._adam import AdamOfState
from bitsnap._arguments import check_callable, number_of, positive_of, text_of
from bitsnap._command import find_program
from bitsnap._engine_saves import OnProgress, Save, Saves
from bitsnap._flush import Flush
from bitsnap._options import Masters, Objective, PathLike, PolicyName, Role, absolute_path, given_settings, native_path
from bitsnap._ranks import Ranks
from bitsnap._reading import Device
from bitsnap._tree import Entry, flatten
from bitsnap.agents import agent_status, milliseconds_of
from bitsnap.errors import (
    BackgroundSaveWarning,
    BitsnapError,
    CorruptError,
    InvalidArgumentError,
    IoError,
    NotFoundError,
    RestoreWarning,
    TruncatedError,
    UnsupportedError,
)
from bitsnap.files import native_metadata
from bitsnap.policy import Policy, policy_for_many
from bitsnap.state import Keys, load_native
from bitsnap.store import BaseRule

WhenBusy: TypeAlias = Literal["wait", "skip"]

_LARGEST_COUNT = (1 << 32) - 1


@dataclass(frozen=True)
class Restored:
    """A state that was given back, the step that it is of, and from where it came."""

    state: Any
    step: int
    source: Literal["memory", "store"]


class Checkpointer:
    """Saves the states of a training without holding it up, and gives the newest one back after a restart.

    save() copies the state into memory that is shared with an *agent*, a process of its own on this machine, and
    returns. The agent compresses the state, keeps the newest ones in memory and commits them to the store, which
    bitsnap.Store and the command read. It is started when there is none, outlives this process, and ends by itself.

    What fails in the background is told by the handle that save() returned, and by a BackgroundSaveWarning of the next
    save(); wait() and close() raise the last one. A training is not ended by it.

    Example:
        with bitsnap.Checkpointer("run", every=100, keep_last=5) as checkpointer:
            restored = checkpointer.restore()
            if restored is not None:
                model.load_state_dict(restored.state["model"])
                ...
            for step in range(start, steps):
                train()
                checkpointer.save(step, lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()})

    Args:
        path: the directory of the store, in UTF-8. It is made if it is not there; the one above it has to exist.
        job: names the training on this machine: 1 to 64 of the characters A-Z a-z 0-9 . _ -. None for one of its own
            for each path.
        rank: of this process, and
        world_size: how many ranks there are. None for those of torch.distributed where it is initialized, otherwise
            0 and 1.
        policy, objective, store_speed, codec, base, max_depth: as in Store. All ranks give the same, here and for
            the next two.
        keep_last: after each checkpoint, only the newest so many are kept in the store, and
        keep_every: those of steps that are multiples of this. If neither is given, all are kept.
        budget: the most bytes of memory for this rank: what is shared, and compressed snapshots. None for `slots`
            states and what one more would take, for compressed ones.
        slots: 2, or 1 for half of the shared memory; a save then waits until the one before is encoded.
        memory_snapshots: how many of the newest are kept in the agent's memory.
        every: only steps that are multiples of this are stored.
        every_memory: only these are kept in memory, beside those that are stored. None for no others.
        when_busy: what save() does while all slots are in use: "wait", or "skip" this step.
        wait: the most seconds that any call waits where it is not told otherwise.
        linger: seconds that an agent without trainers and work stays, with its memory; that of the first rank holds.
        session: a word that all ranks of this life of the training have, and no other life of it: 1 to 48 of the
            characters a-z, 0-9 and "-". Needed where ranks are on several machines. None: the ranks agree on one where
            torch.distributed is initialized for all of them; otherwise all have to be on this machine.
        threads: for copying; 0 for all that this process may use.
        agent_threads: for compressing; 0 for half of them.
        agent_command: the program bitsnap, which is the agent. None for the one that came with this package.
        agent_log: a file to which the agent appends what it has to say.
        on_progress: called with the Save, on a thread of its own, when one has come to memory, is persisted or failed;
            several of these at once where they follow quickly. bitsnap.callbacks has some. What it raises is warned of.
        flush_on_sigterm: on SIGTERM, wait up to 10 seconds until what is staged has come to the agent's memory, then do
            what was to be done before. What is staged survives this process in any case: this is for those who look
            right after its end, and saves nothing where the agent is killed with it. For the main thread only.

    Raises:
        BusyError: this rank has a living trainer already.
        InvalidArgumentError: an argument has a wrong value, or the job is another one under this name.
        NotFoundError: there is no program to start as the agent.
        TypeError: an argument is of a wrong type, here as in all methods.
    """

    def __init__(
        self,
        path: PathLike,
        *,
        job: str | None = None,
        rank: SupportsIndex | None = None,
        world_size: SupportsIndex | None = None,
        policy: PolicyName | Policy | None = None,
        objective: Objective | None = None,
        store_speed: int | None = None,
        codec: str = "",
        base: BaseRule | None = None,
        max_depth: int | None = None,
        keep_last: int | None = None,
        keep_every: int | None = None,
        budget: SupportsIndex | None = None,
        slots: SupportsIndex = 2,
        memory_snapshots: SupportsIndex = 2,
        every: SupportsIndex = 1,
        every_memory: SupportsIndex | None = None,
        when_busy: WhenBusy = "wait",
        wait: float = 600.0,
        linger: float = 60.0,
        session: str | None = None,
        threads: SupportsIndex = 0,
        agent_threads: SupportsIndex = 0,
        agent_command: PathLike | None = None,
        agent_log: PathLike | None = None,
        on_progress: OnProgress | None = None,
        flush_on_sigterm: bool = False,
    ) -> None:
        check_callable(on_progress, "on_progress")
        store = native_path(absolute_path(path, "a store"))
        self._every = cast("int", positive_of(every, "every"))
        self._every_memory = positive_of(every_memory, "every_memory")
        self._policy = None if policy is None else policy_for_many(policy, "a checkpointer")
        self._threads = number_of(threads, "threads", _LARGEST_COUNT)
        wait_ms = milliseconds_of(wait, "wait")
        options: dict[str, Any] = {
            "job": "" if job is None else text_of(job, "job"),
            "settings": given_settings(
                policy=None if self._policy is None else self._policy.name,
                objective=objective,
                store_speed=store_speed,
                base=base,
                max_depth=max_depth,
                loss=None if self._policy is None else self._policy.rules,
                codec=codec,
            ),
            "keep_last": positive_of(keep_last, "keep_last"),
            "keep_every": positive_of(keep_every, "keep_every"),
            "budget_bytes": positive_of(budget, "budget") or 0,
            "slots": number_of(slots, "slots", _LARGEST_COUNT),
            "memory_snapshots": number_of(memory_snapshots, "memory_snapshots", _LARGEST_COUNT),
            "when_busy": text_of(when_busy, "when_busy"),
            "wait_ms": wait_ms,
            "linger_ms": milliseconds_of(linger, "linger"),
            "threads": self._threads,
            "agent_threads": number_of(agent_threads, "agent_threads", _LARGEST_COUNT),
            "agent_program": native_path(_program_of(agent_command)),
            "agent_log": b"" if agent_log is None else native_path(absolute_path(agent_log, "agent_log")),
        }
        given = None if session is None else text_of(session, "session")
        self._ranks = Ranks(rank, world_size)
        native = _bitsnap.Engine.attach(
            store,
            rank=self._ranks.rank,
            world_size=self._ranks.world_size,
            session=self._ranks.session() if given is None else given,
            **options,
        )
        self._saves = Saves(native, wait_ms, on_progress)
        # At exit, too: what waits in the library must not outlive the interpreter.
        self._end = weakref.finalize(self, _let_go, self._saves)
        self._flush = Flush(self._saves) if flush_on_sigterm else None

    @property
    def path(self) -> Path:
        """The directory of the store, absolute and without symbolic links."""
        return Path(os.fsdecode(self._saves.native.path))

    @property
    def job(self) -> str:
        """The name under which the agent is found."""
        return self._saves.native.job

    @property
    def rank(self) -> int:
        return self._ranks.rank

    @property
    def world_size(self) -> int:
        return self._ranks.world_size

    @property
    def agent_process(self) -> int | None:
        """The number of the agent's process; None while there is none."""
        return self._saves.native.agent_process or None

    @property
    def arena_bytes(self) -> int:
        """The memory that is shared with the agent; 0 before the first save."""
        return self._saves.native.arena_bytes

    def agent_status(self) -> dict[str, Any]:
        """What the agent serves and has done, as ``bitsnap agent status --json`` prints it."""
        return agent_status(job=self.job)

    def __repr__(self) -> str:
        state = "closed" if self._saves.native.is_closed else f"rank {self.rank} of {self.world_size}"
        return f"Checkpointer({str(self.path)!r}, {state})"

    def __copy__(self) -> NoReturn:
        raise TypeError("a checkpointer is not copied")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a checkpointer cannot be sent to another process: each rank makes its own")

    def save(
        self,
        step: SupportsIndex,
        state: Any,
        *,
        roles: Mapping[str, Role] | None = None,
        masters: Masters | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Save | None:
        """Copies the state of a step and returns: from then on its tensors may change.

        Args:
            step: above all others. After going back to an earlier step, roll the store back to it first.
            state: what to save, as in bitsnap.save(); or a function that returns it, which is only called for steps
                that are saved.
            roles: what tensors are, by name, where the name does not tell, as in save_file().
            masters: which tensors are the roundings of which, by name, as in save_file().
            metadata: strings to keep with the state.

        Returns:
            a handle that says what becomes of it; None for a step that is neither a multiple of `every` nor of
            `every_memory`. Where there was no agent, no memory or no time, its `error` says so, and a
            BackgroundSaveWarning does.

        Raises:
            InvalidArgumentError: something in the state cannot be stored, which the message names as in
                ``state['optimizer']['state'][0]``; or the checkpointer has been closed, or belongs to the process that
                this one was forked from.
            TypeError: an argument is of a wrong type.
            Whatever `state` raises. Nothing else is raised: a training goes on without a checkpoint.
        """
        number = number_of(step, "step")
        self._check_usable()
        persist = number % self._every == 0
        if not persist and (self._every_memory is None or number % self._every_memory != 0):
            return None
        self._warn(self._saves.take_warnings())
        begin = time.perf_counter()
        adam, entries, tree, strings = self._packed(_made(state), roles, masters, metadata)
        try:
            staged = self._saves.native.save(number, entries, tree, strings, persist)
        except InvalidArgumentError:
            raise
        except BitsnapError as error:
            failed = self._saves.add_failed(number, persist, error, time.perf_counter() - begin)
            self._warn(self._saves.take_warnings())
            return failed
        return self._saves.add(staged, adam, time.perf_counter() - begin)

    def reserve(self, state: Any) -> None:
        """Takes the memory for states of this size now, so that the first save is as fast as all others.

        Args:
            state: one of the size that is going to be saved, or a function that returns it. Its values do not matter.

        Raises:
            ResourceExhaustedError: the budget or the machine has too little memory.
            BusyError, IoError: there is no agent, and none could be started.
        """
        self._check_usable()
        _, entries, tree, strings = self._packed(_made(state), None, None, None)
        self._saves.native.reserve(entries, tree, strings)

    def steps(self) -> list[int]:
        """The steps that every rank can have, as far as is known here, ascending; waits for what is being encoded.

        In memory, where all ranks are on this machine, or in the store.
        """
        self._check_usable()
        return [step for step, _, everywhere, in_store, _ in self._saves.native.steps() if everywhere or in_store]

    def latest(self) -> int | None:
        """The newest of steps(); None if there is none."""
        steps = self.steps()
        return steps[-1] if steps else None

    def restore(
        self,
        step: SupportsIndex | None = None,
        *,
        into: Any = None,
        keys: Keys | None = None,
        strict: bool = True,
        map_location: Device | None = None,
        fallback: bool = True,
    ) -> Restored | None:
        """Gives back the state of this rank: from the agent's memory if it is there, otherwise from the store.

        Where torch.distributed is initialized for all ranks they agree on the step, and every one of them has to call
        this. A state in memory that turns out to be damaged is read from the store; with `step` None, a step of which
        both are damaged is passed over for the one before. A RestoreWarning says so.

        Args:
            step: None for the newest that every rank has.
            into, keys, strict, map_location: as in bitsnap.load(). Where the first attempt at a state failed, `into` is
                filled again.
            fallback: False raises the first error.

        Returns:
            the state, its step and its source; None if nothing has been saved yet.

        Raises:
            NotFoundError: there is no such step, or nothing of `keys`.
            InvalidArgumentError: `into` does not fit. The message names the keys.
            CorruptError, TruncatedError, ...: all that there is is damaged; the error is that of the newest.
        """
        self._check_usable()
        load = _Load(into, keys, strict, map_location, self._threads, bool(fallback))
        if step is not None:
            wanted = number_of(step, "step")
            agreed = self._agreed(load.fallback) if self._ranks.agree else {}
            return self._load(wanted, agreed.get(wanted, ""), load)
        # Without a word from each other, ranks must not choose different steps.
        may_pass_over = load.fallback and (self.world_size == 1 or self._ranks.agree)
        first: BaseException | None = None
        for candidate, attempt in sorted(self._agreed(load.fallback).items(), reverse=True):
            restored, failure = self._ranks.together(partial(self._load, candidate, attempt, load), _is_damage)
            if failure is None:
                return restored
            if failure.is_hopeless:
                raise failure.error
            first = first or failure.error
            if not may_pass_over:
                break
            self._tell_restore(f"step {candidate} cannot be restored, the one before is tried: {failure.error}")
        if first is not None:
            raise first
        return None

    def wait(self, timeout: float | None = None) -> None:
        """Waits until nothing more is going to happen to any save of this process.

        Args:
            timeout: seconds; None for the `wait` of this checkpointer.

        Raises:
            BusyError: the time was over first.
            BitsnapError: saves failed since this was called last. It is the error of the last one.
        """
        self._check_usable()
        self._saves.native.wait_all(self._saves.wait_ms if timeout is None else milliseconds_of(timeout, "timeout"))
        error = self._saves.take_error()
        if error is not None:
            raise error

    def close(self, timeout: float | None = None) -> None:
        """Waits as wait() does, and leaves the agent, which ends by itself. Closing again does nothing.

        Raises:
            as wait() does. It is closed all the same, and what was staged goes on.
        """
        if self._saves.is_forked or self._saves.is_let_go:
            return
        try:
            self.wait(timeout)
        finally:
            self._leave()

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # An error is not to be held up, or hidden: the agent goes on with what is staged.
        if error is None:
            self.close()
        else:
            self._leave()

    def _leave(self) -> None:
        if self._flush is not None:
            self._flush.uninstall()
        self._end()

    def _check_usable(self) -> None:
        if self._saves.is_forked:
            raise InvalidArgumentError(
                f"{self.path}: this process was forked from the one whose checkpointer this is: make one of its own"
            )
        if self._saves.native.is_closed:
            raise InvalidArgumentError(f"{self.path}: the checkpointer has been closed")

    def _packed(
        self,
        state: Any,
        roles: Mapping[str, Role] | None,
        masters: Masters | None,
        metadata: Mapping[str, str] | None,
    ) -> tuple[AdamOfState, list[Entry], tuple[Any], list[tuple[str, str]]]:
        entries, tree = flatten(state, roles, masters)
        if self._policy is None:
            self._policy = self._policy_of_store()
        # Until there is a store, its policy is the one that new ones have.
        adam = AdamOfState(self._policy or Policy("lossless"))
        adam.tell(entries, state)
        return adam, entries.finish(), (tree,), native_metadata(metadata)

    def _policy_of_store(self) -> Policy | None:
        try:
            store = self._open_store()
        except BitsnapError:
            return None
        return Policy(cast("PolicyName", store.policy), store.loss)

    def _open_store(self) -> _bitsnap.Store:
        return _bitsnap.Store.open(
            self._saves.native.path,
            access="read",
            create=False,
            settings={},
            keep_last=None,
            keep_every=None,
            base_memory_bytes=0,
            wait_ms=0,
        )

    @staticmethod
    def _warn(texts: Iterable[str]) -> None:
        for text in texts:
            warnings.warn(text, BackgroundSaveWarning, stacklevel=3)

    @staticmethod
    def _tell_restore(text: str) -> None:
        warnings.warn(text, RestoreWarning, stacklevel=2)

    def _agreed(self, fallback: bool) -> dict[int, str]:
        """The steps that may be restored, and of which attempt where they are not in the store."""
        found, failure = self._ranks.together(lambda: self._known_steps(fallback))
        if failure is not None:
            raise failure.error
        assert found is not None
        # The store's word comes last, and counts.
        return dict(sorted(self._ranks.common(found), key=lambda each: each[1], reverse=True))

    def _known_steps(self, fallback: bool) -> list[tuple[int, str]]:
        """Each with the attempt that it is of, in memory; without one, in the store."""
        try:
            found = self._saves.native.steps()
        except BitsnapError as error:
            if not fallback or isinstance(error, InvalidArgumentError):
                raise
            self._tell_restore(f"the agent's memory cannot be looked at, only the store is: {error}")
            return [(step, "") for step in self._steps_of_store()]
        if not any(in_store for _, _, _, in_store, _ in found):
            # The engine leaves out a store that cannot be read. A run that is taken for a fresh one would be lost.
            try:
                self._steps_of_store()
            except BitsnapError as error:
                if not found:
                    raise
                self._tell_restore(f"the store cannot be read: {error}")
        has_all = self.world_size == 1 or self._ranks.agree
        stored = [(step, "") for step, _, _, in_store, _ in found if in_store]
        # Without a word from the others only what all of them have for certain.
        return stored + [
            (step, attempt) for step, kept, all_have, _, attempt in found if kept and (has_all or all_have)
        ]

    def _steps_of_store(self) -> list[int]:
        try:
            return self._open_store().steps()
        except NotFoundError:
            if self.path.is_file():
                raise
            return []

    def _load(self, step: int, attempt: str, load: _Load) -> Restored:
        native, from_memory, memory_error = self._saves.native.restore(step, attempt)
        if memory_error is not None:
            self._tell_restore(f"step {step} is read from the store, not from memory: {memory_error[1]}")
        if not from_memory:
            return Restored(load.of(native), step, "store")
        try:
            return Restored(load.of(native), step, "memory")
        except BitsnapError as error:
            if not load.fallback or not _is_damage(error):
                raise
            try:
                stored = self._from_store(step)
            except BitsnapError:
                raise error from None
            self._tell_restore(f"step {step} is read from the store, what is in memory is damaged: {error}")
            return Restored(load.of(stored), step, "store")

    def _from_store(self, step: int) -> _bitsnap.Snapshot:
        store = self._open_store()
        return store.snapshot(step, 0 if store.info(step).shards == 1 else self.rank)


class _Load:
    """How a state is to be loaded."""

    def __init__(
        self, into: Any, keys: Keys | None, strict: bool, map_location: Device | None, threads: int, fallback: bool
    ) -> None:
        self._into, self._strict, self._map_location, self._threads = into, strict, map_location, threads
        # They may be asked for twice.
        self.keys = keys if keys is None or isinstance(keys, str) or callable(keys) else list(keys)
        self.fallback = fallback

    def of(self, native: _bitsnap.Snapshot) -> Any:
        return load_native(
            native,
            into=self._into,
            keys=self.keys,
            strict=self._strict,
            map_location=self._map_location,
            threads=self._threads,
            progress=None,
        )


def _is_damage(error: BaseException) -> bool:
    """Whether the same state from elsewhere, or an earlier one, may do: not where the caller asked for what is not."""
    if isinstance(error, NotFoundError):
        return not str(error).startswith("keys:")
    return isinstance(error, CorruptError | TruncatedError | IoError | UnsupportedError)


def _let_go(saves: Saves) -> None:
    saves.let_go()


def _made(state: Any) -> Any:
    # Modules can be called, too, and mean something else by it.
    return state() if callable(state) and not hasattr(state, "state_dict") else state


def _program_of(command: PathLike | None) -> PathLike:
    if command is None:
        return find_program()
    program = absolute_path(command, "agent_command")
    if not os.access(program, os.X_OK) or not program.is_file():
        raise NotFoundError(f"agent_command: {str(program)!r} is no program that can be run")
    return program
