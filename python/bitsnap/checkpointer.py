"""Checkpoints that a training does not wait for: copied to shared memory, compressed and stored by an agent."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, NoReturn, SupportsIndex

from bitsnap._bitsnap import Engine as NativeEngine, EngineOptions, Retention, SaveState, Settings
from bitsnap._branches import branch_of_job
from bitsnap._common import (
    LARGEST_COUNT,
    Device,
    Home,
    Masters,
    Metrics,
    PathLike,
    Role,
    absolute_home,
    check_callable,
    given_or_new,
    home_of,
    may_lose,
    may_pickle,
    milliseconds_of,
    native_run,
    number_of,
    positive_of,
    settings_of,
    text_of,
    warn,
)
from bitsnap._engine.ranks import Ranks
from bitsnap._engine.restoring import Restored as Restored, Restoring
from bitsnap._engine.saves import Flush, OnProgress, Save as Save, Saves
from bitsnap._engine.steps import SavableSteps, Schedule
from bitsnap._run_copies import Mirroring
from bitsnap._states.adam import Adams, StateWithAdam, adam_for_many
from bitsnap._states.packing import PackedState, Packer, made_state, with_metrics
from bitsnap._tensors.device_copies import note_computed
from bitsnap.agents import AgentOptions, JobOptions, MemoryOptions, agent_status, explained_holder
from bitsnap.errors import BackgroundSaveWarning, BitsnapError, BusyError, InvalidArgumentError
from bitsnap.state import Keys, load


class Checkpointer:
    """Saves the states of a training without stopping it, and restores the newest one after a restart.

    save() copies the state into memory that is shared with an *agent*, a separate process on this machine, and returns.
    The agent compresses the state, keeps the newest ones in memory, and commits them to the store, which bitsnap.Store
    and the command read. The first trainer of a job starts the agent, which outlives the trainers and exits by itself.

    A failure in the background never ends the training. The handle that save() returned has its error, the next save()
    gives a BackgroundSaveWarning, and wait() and close() raise the last one.

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
        path: the directory of the store, in UTF-8. It is made if it does not exist; its parent must exist. "run:NAME"
            is the branch NAME of the run. Or the address of a run in an object store, such as "s3://bucket/run", which
            has no branches.
        branch: save to this branch of the run instead, and restore from it. It must exist, or else
        branch_from: make it, beginning with the checkpoint of this step. A job that is started again continues it; a
            branch of this name with another origin is an error.
        settings: how states are coded, or the name of a policy, as in Store. All ranks must give the same settings,
            `keep_last` and `keep_every`.
        adam: Adam's betas, eps and step for first moments, as in Store.
        every: only steps that are multiples of this are stored.
        every_minutes: only such steps, and no sooner than so many minutes after the last stored one. The clock of
            rank 0 decides for all ranks, which takes a broadcast at each multiple of `every`.
        every_memory: steps that are multiples of this are kept in the agent's memory, besides those that are stored.
            None: no others.
        keep_last: after each checkpoint, keep only the N newest in the store, and
        keep_every: those of steps that are multiples of this. If both are None, all are kept.
        job: the name of the job, and the rank of this process. See JobOptions.
        memory: how much memory may be used. See MemoryOptions.
        agent: the process that compresses and writes. See AgentOptions.
        threads: for copying; 0 for all that this process may use.
        timeout: the longest wait of any call, in seconds, unless the call has its own.
        on_progress: called with the Save, on a separate thread, when a save has reached memory, was persisted or
            failed, or was skipped because not all ranks saved it; once for several of these that follow quickly.
            bitsnap.callbacks has such functions. Its exceptions become warnings.
        flush_on_sigterm: on SIGTERM, wait up to 10 seconds until staged states are in the agent's memory, then do what
            the process would have done. For the main thread only.
        mirror: the address of a copy in an object store, or the path of one, which follows the run in a process of its
            own, as `bitsnap mirror` does. If there is no run yet, the newest checkpoint of the copy is brought back.

    The store is made, or opened for a moment as Store does, with the same errors: a wrong path or a missing right ends
    the constructor, not every save. No error are a disk that is full or mounted read-only, and another writer: these
    may pass, and until then states stay in the agent's memory and saves report the error.

    Raises:
        BusyError: this rank has a living trainer; the agent is frozen (after 30 seconds, or `timeout` if that is less);
            or another rank of torch.distributed did not create its Checkpointer within `timeout`.
        InvalidArgumentError: an argument has a wrong value, the directory is not a store, or another training has this
            job name.
        NotFoundError: the parent directory, or the program to start as the agent, does not exist.
        IoError, CorruptError, UnsupportedError: the store cannot be written or read.
        TypeError: an argument has the wrong type, here and in all methods.
    """

    def __init__(
        self,
        path: PathLike,
        *,
        branch: str | None = None,
        branch_from: SupportsIndex | None = None,
        settings: Settings | str | None = None,
        adam: Adams | None = None,
        every: SupportsIndex = 1,
        every_minutes: float | None = None,
        every_memory: SupportsIndex | None = None,
        keep_last: SupportsIndex | None = None,
        keep_every: SupportsIndex | None = None,
        job: JobOptions | None = None,
        memory: MemoryOptions | None = None,
        agent: AgentOptions | None = None,
        threads: SupportsIndex = 0,
        timeout: float = 600.0,
        on_progress: OnProgress | None = None,
        flush_on_sigterm: bool = False,
        mirror: PathLike | None = None,
    ) -> None:
        check_callable(on_progress, "on_progress")
        store = absolute_home(path, "path")
        self._schedule = Schedule(every, every_minutes, every_memory)
        self._settings = settings_of(settings)
        self._stored_settings: Settings | None = None
        self._adam = adam_for_many(adam)
        self._packer = Packer()
        self._threads = number_of(threads, "threads", LARGEST_COUNT)
        job = given_or_new(job, JobOptions, "job")
        timeout_ms = milliseconds_of(timeout, "timeout")
        options = EngineOptions()
        options.job.name = "" if job.name is None else text_of(job.name, "job.name")
        options.settings = self._settings
        options.retention = Retention(
            keep_last=positive_of(keep_last, "keep_last"), keep_every=positive_of(keep_every, "keep_every")
        )
        given_or_new(memory, MemoryOptions, "memory")._fill(options.memory)
        given_or_new(agent, AgentOptions, "agent")._fill(options.agent, is_remote=isinstance(store, str))
        options.timeout_ms = timeout_ms
        options.threads = self._threads
        session = None if job.session is None else text_of(job.session, "session")
        self._ranks = Ranks(job.rank, job.world_size)
        options.job.rank, options.job.world_size = self._ranks.rank, self._ranks.world_size
        options.job.session = self._ranks.session(timeout_ms) if session is None else session
        begin = partial(self._ranks.branch, timeout_ms=timeout_ms)
        self._mirroring = None if mirror is None else Mirroring(store, mirror, branch is not None)
        if self._mirroring is not None:
            begin(self._mirroring.bring_back)
        options.path = native_run(branch_of_job(store, branch, branch_from, begin))
        with explained_holder("Checkpointer"):
            native = NativeEngine.attach(options)
        self._saves = Saves(native, SavableSteps(home_of(native.path), native.job), timeout_ms, on_progress)
        has_one_agent = not session or self._ranks.world_size == 1
        self._restoring = Restoring(native, self.path, self._ranks, timeout_ms, has_one_agent)
        # Also at exit: calls that wait in the library must not outlive the interpreter.
        self._end = weakref.finalize(self, self._saves.let_go)
        self._flush = Flush(self._saves) if flush_on_sigterm else None
        if self.rank != 0:
            self._mirroring = None

    @property
    def path(self) -> Home:
        """The directory of the store, absolute and without symbolic links, or the address of the run."""
        return home_of(self._saves.native.path)

    @property
    def job(self) -> str:
        """The name of the job, under which the agent is found."""
        return self._saves.native.job

    @property
    def rank(self) -> int:
        return self._ranks.rank

    @property
    def world_size(self) -> int:
        return self._ranks.world_size

    @property
    def agent_process(self) -> int | None:
        """The process id of the agent; None if there is no agent."""
        return self._saves.native.agent_process or None

    @property
    def arena_bytes(self) -> int:
        """The memory that is shared with the agent; 0 before the first save."""
        return self._saves.native.arena_bytes

    def agent_status(self) -> dict[str, Any]:
        """What the agent serves and has done, as ``bitsnap agent status --json`` prints it. Waits up to 10 seconds."""
        return agent_status(job=self.job)

    def __repr__(self) -> str:
        state = "closed" if self._saves.native.is_closed else f"rank {self.rank} of {self.world_size}"
        return f"Checkpointer({str(self.path)!r}, {state})"

    def __copy__(self) -> NoReturn:
        raise TypeError("a checkpointer cannot be copied")

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
        metrics: Metrics | None = None,
        allow_pickle: bool = False,
        blocking: bool = True,
    ) -> Save | None:
        """Copies the state of a step and returns; then its tensors may change.

        Waits only for a free slot, up to the `timeout` of the Checkpointer.

        With ``blocking=False`` it returns before, and a thread copies the tensors beside the next forward and backward
        pass. Until ``wait_staged()`` of the handle returns, the tensors must not change. The next ``step()`` of any
        optimizer of torch waits for that by itself. Call ``wait_staged()`` before anything else that changes the state:
        a forward pass that updates buffers, as batch normalization does, an average of weights, a compiled step, or the
        replay of a CUDA graph that has an optimizer's step.

        Args:
            step: above all others. To continue from an earlier step, roll the store back to it first.
            state: the state, as in bitsnap.save(); or a function that returns it, which is called only for steps that
                are saved.
            roles, masters, metadata: as in bitsnap.save_file().
            metrics: numbers of the training, as in Store.save(); those of rank 0 count.
            allow_pickle: as in bitsnap.save().
            blocking: whether to wait until the tensors are copied.

        Returns:
            a handle that says what becomes of the save; None immediately if this step is not due. If there was no
            agent, no memory or no free slot, the handle has the error, and there is a BackgroundSaveWarning, without
            `blocking` in the next save. If there is memory for one slot only, a MemoryWarning says so once.

        Raises:
            InvalidArgumentError: a value of the state cannot be stored; the message names its place, as in
                ``state['optimizer']['state'][0]``. Or the store has the step or a later one, for example because
                restore() was forgotten. Or the checkpointer was closed, or belongs to the process that this one was
                forked from.
            TypeError: an argument has the wrong type.
            And what `state` raises. Nothing else: a training continues without a checkpoint.
        """
        number, consent = number_of(step, "step"), may_pickle(allow_pickle)
        self._check_usable()
        due, steps = self._schedule.next_due(number), self._saves.steps
        steps.check(due)  # so that the training does not find out only then
        persist = number == due and self._schedule.is_time(self._ranks)
        if not persist and not self._schedule.is_for_memory(number):
            return None
        begin = time.perf_counter()
        self._saves.copies.wait()
        self._warn_of_failures()
        if persist and steps.is_saved_again(number):
            text = f"step {number} was restored from {self.path}, and is not saved there a second time"
            warn(text, BackgroundSaveWarning, stacklevel=2)
            return None
        steps.check(due)  # now with what the warnings told
        # Ranks with equal states store one file, so that only one rank may have metrics in it.
        texts = with_metrics(metadata, metrics if self.rank == 0 else None)
        packed = self._packed(state, roles, masters, texts, consent)
        save = Save(self._saves, number, persist, packed.adam)
        save.began -= time.perf_counter() - begin
        copy = partial(self._saves.native.save, number, packed.native, persist)
        if blocking:
            state = copy()
            save._add_stall(time.perf_counter() - begin)
            self._saves.add(save, state)
            self._schedule.note(persist and state.error is None and state.stage != "skipped")
            if state.error is not None:
                self._warn_of_failures()
        else:
            note_computed(zip((entry.name for entry in packed.entries), packed.native.data, strict=True))
            # This is not collected before the copy has ended: it would wait for that, maybe on the thread that copies.
            self._saves.copy_beside(save, partial(_keeping, (self, packed), copy))
            self._schedule.note(persist)
            save._add_stall(time.perf_counter() - begin)
        self._saves.warn_of_memory()
        return save

    def reserve(self, state: Any, *, allow_pickle: bool = False) -> None:
        """Allocates the memory for states of this size, so that the first save is as fast as all others.

        Waits up to the `timeout` of the Checkpointer if no agent runs yet.

        Args:
            state: a state of the size that will be saved, or a function that returns it. Its values do not matter.
            allow_pickle: as in save().

        Raises:
            ResourceExhaustedError: the budget or the machine has too little memory.
            BusyError, IoError: there is no agent, and none could be started.
        """
        consent = may_pickle(allow_pickle)
        self._check_usable()
        self._saves.wait_for_copies()
        packed = self._packed(state, may_pickle=consent)
        self._saves.native.reserve(packed.native)
        self._saves.warn_of_memory()

    def steps(self) -> list[int]:
        """The steps that every rank can restore, as far as this rank knows, ascending.

        They are in the store, or in memory if all ranks are on this machine. Waits for states that are being encoded,
        up to the `timeout` of the Checkpointer.
        """
        self._check_usable()
        self._saves.wait_for_copies()
        return [
            each.step for each in self._saves.native.steps(self._saves.timeout_ms) if each.everywhere or each.in_store
        ]

    def latest(self) -> int | None:
        """The newest of steps(), with the same wait; None if there is none."""
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
        allow_pickle: bool = False,
        fallback: bool = True,
    ) -> Restored | None:
        """Restores the state of this rank: from the agent's memory if it is there, otherwise from the store.

        With torch.distributed, the ranks agree on the step, and all of them must call this. A state that is damaged in
        memory is read from the store; if it is damaged there too and `step` is None, the step before is used. A
        RestoreWarning says so. Waits for states that are being encoded and for other ranks, in all up to the `timeout`
        of the Checkpointer; if the agent has not answered by then, the store is used.

        Args:
            step: None for the newest that every rank has.
            into, keys, strict, map_location, allow_pickle: as in bitsnap.load(). A second attempt fills `into` again.
            fallback: False raises the first error.

        Returns:
            the state, its step and its source; None if nothing was saved yet.

        Raises:
            NotFoundError: there is no such step, or nothing of `keys`.
            InvalidArgumentError: `into` does not fit, a tag is not registered, or a value is pickled and `allow_pickle`
                is False. The message names the place. No earlier step is tried.
            BusyError: another rank of torch.distributed did not call this within `timeout`.
            CorruptError, TruncatedError, ...: all states are damaged; the error is that of the newest.
            IoError: the store cannot be read, for example because too many files are open. No earlier step is tried.
        """
        may_pickle(allow_pickle)  # checks it
        self._check_usable()
        self._saves.steps.note_asked()
        self._saves.wait_for_copies()
        if keys is not None and not isinstance(keys, str) and not callable(keys):
            keys = list(keys)  # which several attempts may go through
        use = partial(
            load,
            into=into,
            keys=keys,
            strict=strict,
            map_location=map_location,
            allow_pickle=allow_pickle,
            threads=self._threads,
        )
        # On a device, tensors take no memory of this machine.
        in_place = into is not None or str(map_location or "cpu").partition(":")[0] != "cpu"
        restored = (
            self._restoring.newest(use, in_place, bool(fallback))
            if step is None
            else self._restoring.step(number_of(step, "step"), use, in_place, bool(fallback))
        )
        if restored is not None:
            self._saves.steps.note_restored(restored.step, by_caller=step is not None)
        return restored

    def wait(self, timeout: float | None = None) -> None:
        """Waits until no save of this process makes further progress.

        Args:
            timeout: the longest wait in seconds; None for the `timeout` of the Checkpointer.

        Raises:
            BusyError: the time was over first.
            BitsnapError: a save failed since the last call; the error of the last such save.
        """
        self._check_usable()
        timeout_ms = self._saves.milliseconds(timeout)
        begin = time.monotonic()
        if not self._saves.copies.wait(begin + timeout_ms / 1000):
            raise BusyError(f"{self.path}: a state is still being copied after {timeout_ms} ms")
        self._saves.native.wait_all(max(0, timeout_ms - int(1000 * (time.monotonic() - begin))))
        error = self._saves.take_error()
        if error is not None:
            raise error

    def close(self, timeout: float | None = None) -> None:
        """Waits as wait() does, and leaves the agent, which exits by itself. A second call does nothing.

        Raises:
            BitsnapError: as wait() does. The checkpointer is closed nevertheless, and the agent continues with staged
                states.
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
        # An exception must not be delayed or hidden; the agent continues with staged states.
        if error is None:
            self.close()
        else:
            self._leave()

    def _rotate(self, removed: list[int], keep_last: int | None) -> bool:
        """Tells the agent what the caller keeps and removes itself: Engine::rotate(). False if no agent was told."""
        return self._saves.native.rotate(removed, keep_last)

    def _leave(self) -> None:
        if self._flush is not None:
            self._flush.uninstall()
        self._end()

    def _check_usable(self) -> None:
        if self._saves.is_forked:
            raise InvalidArgumentError(
                f"{self.path}: the checkpointer belongs to the process that this one was forked from; make another one"
            )
        if self._saves.native.is_closed:
            raise InvalidArgumentError(f"{self.path}: the checkpointer has been closed")
        if self._mirroring is not None:
            self._mirroring.follow()

    def _packed(
        self,
        state: Any,
        roles: Mapping[str, Role] | None = None,
        masters: Masters | None = None,
        metadata: Mapping[str, str] | None = None,
        may_pickle: bool = False,
    ) -> PackedState:
        made, adam, settings = made_state(state), self._adam, self._settings
        if isinstance(made, StateWithAdam):
            made, adam = made
        if not may_lose(settings):
            self._stored_settings = self._stored_settings or self._settings_of_store()
            settings = self._stored_settings or settings
        return self._packer.pack(
            made, settings, adam, roles=roles, masters=masters, metadata=metadata, may_pickle=may_pickle
        )

    def _settings_of_store(self) -> Settings | None:
        try:
            return self._restoring.store().settings
        except BitsnapError:
            return None

    def _warn_of_failures(self) -> None:
        for text in self._saves.take_warnings():
            warn(text, BackgroundSaveWarning, stacklevel=3)


def _keeping(owners: object, copy: Callable[[], SaveState]) -> SaveState:
    """Calls the function; the owners of what it copies live until then."""
    return copy()
