"""Checkpoints of a training in PyTorch that take two lines: saved without stopping it, and resumed in place.

    import bitsnap.torch

    checkpointer = bitsnap.torch.TrainingCheckpointer("run", model=model, optimizer=optimizer, every=100, keep_last=5)
    start = checkpointer.restore() or 0
    for step in range(start + 1, steps + 1):
        train()
        checkpointer.save(step)

On one device, with DistributedDataParallel, and with DTensors: FSDP2, tensor parallel and meshes of several dimensions.
A checkpoint of some number of processes is restored by any other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence, Set
from functools import partial
from types import TracebackType
from typing import Any, SupportsIndex, TypeVar, cast

import torch

from bitsnap import checkpointer as _engine
from bitsnap._common import Home, KeyPath, Metrics, PathLike, brief, may_pickle, number_of, warn
from bitsnap._engine.ranks import Failure
from bitsnap._engine.restoring import is_damage
from bitsnap._explained import check_options, saved_by
from bitsnap._states.tensors import Part
from bitsnap.checkpointer import Save
from bitsnap.errors import InvalidArgumentError, NotFoundError, RestoreWarning
from bitsnap.snapshot import Snapshot
from bitsnap.state import load
from bitsnap.store import Store
from bitsnap.torch._training import Training, nested
from bitsnap.torch._training_tensors import (
    EXTRA,
    AllShards,
    SavedShard,
    alone,
    check_names,
    checksums_of,
    digest_of,
    name_of,
    parameter_of,
    send_to_replicas,
)

T = TypeVar("T")


class TrainingCheckpointer:
    """Saves and restores the model, the optimizers and what else belongs to a training.

    Stands on bitsnap.Checkpointer, which copies the state to memory shared with an agent, and returns; the agent
    compresses and stores it. Tensors are restored in place, bit for bit: parameters, buffers and optimizer states keep
    their memory and their dtypes.

    Each process saves what it holds. Replicas are saved once: of DTensors, and of the parameters that
    DistributedDataParallel keeps equal with their optimizer states, if they are equal; at a restore, the first replica
    sends them to the others. Other tensors of a process are its own.

    The state in the store is a dict of "model" and "optimizer", with the names and the structure of
    torch.distributed.checkpoint.state_dict, "training" with the schedulers and `extra`, and "rank" with what is of this
    process alone. bitsnap finds masters and Adam's numbers in it.

    Args:
        path: the directory of the store. Its parent must exist.
        model: the module, also one that is wrapped by DistributedDataParallel, fully_shard() or torch.compile(); or
            several in a dict by their names, with which the names of their tensors then begin: "generator.0.weight".
        optimizer: the optimizer, or several in a list. All of their parameters must be parameters of the model.
        scheduler: the learning rate scheduler, or several in a list.
        dataloader: an object with state_dict() and load_state_dict(), such as torchdata's StatefulDataLoader; each
            process saves its own.
        rng: save the states of the random generators of Python, NumPy and PyTorch, of each process.
        extra: a dict of names to other values. A restore calls load_state_dict() of those that have it, and replaces
            the others in the dict. DTensors in them, such as an average of weights under FSDP2, are filled in place.
        allow_pickle: pickle values that cannot be stored otherwise, and unpickle them; see bitsnap.save().
        **options: all other arguments of bitsnap.Checkpointer: every, keep_last, settings, ...

    Raises:
        UnsupportedError: the model holds a FullyShardedDataParallel.
        InvalidArgumentError, TypeError: an argument has a wrong value or type.
        BitsnapError: what bitsnap.Checkpointer() raises.
    """

    def __init__(
        self,
        path: PathLike,
        *,
        model: torch.nn.Module | Mapping[str, torch.nn.Module],
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
        scheduler: Any = None,
        dataloader: Any = None,
        rng: bool = True,
        extra: MutableMapping[str, Any] | None = None,
        allow_pickle: bool = False,
        **options: Any,
    ) -> None:
        may_pickle(allow_pickle)  # checks it
        self._allow_pickle = allow_pickle
        self._training = Training(model, optimizer, scheduler, dataloader, rng, extra)
        check_options(options, "TrainingCheckpointer", _engine.Checkpointer, TrainingCheckpointer)
        self._engine = _engine.Checkpointer(path, **options)
        self._ranks = self._engine._ranks
        self._optional: frozenset[str] = frozenset()
        self._verify = True
        self._notes: list[str] = []  # of the last comparison with a checkpoint
        # The replicas that are saved once; None if each process saves for itself.
        self._agreed: set[KeyPath] | None = set() if self._ranks.agree else None
        self._has_replicas = self._ranks.agree and any(self._ranks.gather(self._training.has_replicas))

    @property
    def engine(self) -> _engine.Checkpointer:
        """What copies and stores the states, with its own methods: wait(), agent_status(), ..."""
        return self._engine

    @property
    def path(self) -> Home:
        """The directory of the store, absolute and without symbolic links, or the address of the run."""
        return self._engine.path

    def __repr__(self) -> str:
        return f"bitsnap.torch.{self._engine!r}"

    def save(
        self,
        step: SupportsIndex,
        *,
        metadata: Mapping[str, str] | None = None,
        metrics: Metrics | None = None,
        blocking: bool = True,
    ) -> Save | None:
        """Copies the state of the training after `step` and returns; then the training may go on.

        All processes call it with the same steps. With DistributedDataParallel they wait for each other, to compare
        checksums of their replicas; otherwise nothing is sent between them.

        Args:
            step: above all others.
            metadata: strings that belong to the checkpoint.
            metrics: numbers of the training, such as {"loss": loss.item()}, as in Store.save(); those of rank 0 count.
            blocking: False returns before the tensors are copied: as in bitsnap.Checkpointer.save(), which says what
                may not happen then before ``wait_staged()`` of the handle returns.

        Returns:
            a handle that says what becomes of the save; None immediately if this step is not due.

        Raises:
            InvalidArgumentError: a value cannot be stored; the message names its place.
            BusyError: with DistributedDataParallel, another process did not call this within the `timeout`.
            BitsnapError: what bitsnap.Checkpointer.save() raises. With DistributedDataParallel, all processes raise
                what one of them raised while it collected its state; otherwise the others do not hear of it, and their
                saves of this step end as skipped.
        """
        return self._engine.save(
            step,
            self._state,
            metadata=metadata,
            metrics=metrics,
            allow_pickle=self._allow_pickle,
            blocking=blocking,
        )

    def reserve(self) -> None:
        """Allocates the memory for the saves, so that the first one is as fast as all others.

        Optimizers that have taken no step have no state yet: call it after the first step.
        """
        self._engine.reserve(self._state, allow_pickle=self._allow_pickle)

    def steps(self) -> list[int]:
        """The steps that can be restored, ascending."""
        return self._engine.steps()

    def latest(self) -> int | None:
        """The newest step that can be restored; None if there is none."""
        return self._engine.latest()

    def restore(
        self, step: SupportsIndex | None = None, *, optional: Collection[str] = (), verify: bool = True
    ) -> int | None:
        """Restores the training in place: from the agent's memory if the step is there, otherwise from the store.

        All processes must call it. If another number of processes saved the step, or tensors were divided otherwise,
        each process reads its parts from the store, whatever shards hold them; then dataloaders keep their states, and
        processes that had no random state keep theirs, with a RestoreWarning.

        Args:
            step: None for the newest that every process has.
            optional: those of the arguments "optimizer", "scheduler", "dataloader", "rng" and "extra" that the training
                may have although the checkpoint has nothing of them, and the reverse. They stay as they are.
            verify: False only warns, with a RestoreWarning, if hooks or methods of the model or of an optimizer make
                other tensors of what load_state_dict() gets from the checkpoint.

        Returns:
            the step; None if nothing was saved yet.

        Raises:
            InvalidArgumentError: the model, an optimizer or something else does not fit the checkpoint, or was given to
                only one of them, or does not take back what its state_dict() gave. The message names it.
            UnsupportedError: with DTensors or DistributedDataParallel, an optimizer makes no state before its first
                step.
            NotFoundError: there is no such step.
            BusyError: another process did not call this within the `timeout` of the Checkpointer.
            BitsnapError: what bitsnap.Checkpointer.restore() raises. Tensors may have been filled.
        """
        self._optional = _arguments_of(optional)
        self._verify = bool(verify)
        restoring, ranks = self._engine._restoring, self._ranks
        self._engine._saves.steps.note_asked()
        restoring.begin()
        wanted = self._together(lambda: None if step is None else number_of(step, "step"))
        asked = set(ranks.gather(wanted))
        if len(asked) > 1:
            raise InvalidArgumentError(f"restore() was called for different steps: {', '.join(map(str, asked))}")
        agreed = restoring.agreed(True, wanted)
        candidates = sorted(agreed, reverse=True) if wanted is None else [wanted]
        if not candidates:
            return None
        parts = self._together(self._parts)
        may_fall_back = wanted is None and (ranks.world_size == 1 or ranks.agree)
        first: BaseException | None = None
        for candidate in candidates:
            failure = self._restore_step(candidate, agreed.get(candidate, ""), parts)
            if failure is None:
                for note in self._notes:
                    _warn(f"step {candidate}: {note}", 3)
                self._engine._saves.steps.note_restored(candidate, by_caller=wanted is not None)
                return candidate
            first = first or failure.error
            if failure.is_hopeless or not may_fall_back:
                with restoring.explained(candidate):
                    raise failure.error
            _warn(f"step {candidate} cannot be restored, trying the step before: {failure.error}", 3)
        assert first is not None
        with restoring.explained(None):
            raise first

    def wait(self, timeout: float | None = None) -> None:
        """As bitsnap.Checkpointer.wait()."""
        self._engine.wait(timeout)

    def close(self, timeout: float | None = None) -> None:
        """As bitsnap.Checkpointer.close()."""
        self._engine.close(timeout)

    def __enter__(self) -> TrainingCheckpointer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._engine.__exit__(kind, error, traceback)

    def _state(self) -> dict[str, Any]:
        if not self._has_replicas:
            return self._training.state(self._agreed)
        self._agree_on_replicas()
        return self._together(lambda: self._training.state(self._agreed))

    def _agree_on_replicas(self) -> None:
        """Compares the replicas of all processes: only those that are equal are saved once."""
        ranks = self._ranks
        ranks.meet("save a step", self._engine._saves.timeout_ms)
        sums = self._together(lambda: checksums_of(self._training.parts()))
        all_equal = len(set(ranks.gather(digest_of(sums)))) == 1
        others = [sums] if all_equal else ranks.gather(sums)
        self._agreed = {place for place, each in sums.items() if all(other.get(place) == each for other in others)}

    def _parts(self) -> dict[KeyPath, Part]:
        self._training.make_optimizer_state()
        return self._held(self._training.parts())

    def _with_slots(self, shard: SavedShard | AllShards, step: int) -> dict[KeyPath, Part]:
        """The parts, with those of optimizer states that only the checkpoint has."""

        def compared() -> dict[KeyPath, Part]:
            values = shard.values
            if not {"optimizer", "training", "rank"} <= values.keys():
                raise InvalidArgumentError(
                    f"step {step} of {self.path} was saved by {saved_by(values)}; expected 'model', 'optimizer', "
                    f"'training' and 'rank' in it, found {', '.join(sorted(map(repr, values))) or 'no names'}"
                )
            self._notes = self._training.check_presence(values, shard.names_of_extra, self._optional)
            return self._held(self._training.with_slots(shard.slots))

        return self._together(compared)

    def _held(self, parts: dict[KeyPath, Part]) -> dict[KeyPath, Part]:
        return parts if self._ranks.agree else {place: alone(part) for place, part in parts.items()}

    def _restore_step(self, step: int, attempt: str, places: Mapping[KeyPath, Part]) -> Failure | None:
        """Restores a step, of which memory alone has an attempt. Nothing is filled if it does not fit."""
        restoring, ranks = self._engine._restoring, self._ranks
        parts = {name_of(place): part for place, part in places.items()}
        is_of_others, failure = ranks.together(lambda: self._others_saved(step, attempt), is_damage)
        if failure is not None:
            return failure
        shard: SavedShard | None = None
        dtensors = {name_of(place) for place in places if place[: len(EXTRA)] == EXTRA}
        if not any(ranks.gather(is_of_others)):
            use = partial(SavedShard, allow_pickle=self._allow_pickle, dtensors=dtensors)
            shard, failure = ranks.together(lambda: restoring.read(step, attempt, use, True, True)[0], is_damage)
            if failure is not None:
                return failure
            assert shard is not None
            places = self._with_slots(shard, step)
            places = {**places, **self._training.whole_parts(shard.names_of_extra)}
            parts = {name_of(place): part for place, part in places.items()}
            held = {name for name, part in parts.items() if not part.is_saved and shard.holds(name)}
            # Of replicas that were not equal, each process saved its own.
            apart = set().union(*ranks.gather(held))
            needed = {name: part for name, part in parts.items() if part.is_saved or name in apart}
            fits = all(shard.has(name, part) for name, part in needed.items())
            if not all(ranks.gather(fits)):
                # A step that memory alone has becomes a checkpoint first.
                _, failure = ranks.together(lambda: restoring.persist(step, attempt), lambda _: True)
                if failure is not None:
                    return failure
                shard = None
        if shard is None:
            return self._restore_from_all(step, dtensors)
        return self._restore_alike(step, attempt, places, needed, apart, shard)

    def _restore_alike(
        self,
        step: int,
        attempt: str,
        places: Mapping[KeyPath, Part],
        needed: Mapping[str, Part],
        apart: set[str],
        shard: SavedShard,
    ) -> Failure | None:
        """Restores what this process saved, and the replicas that others saved for it."""
        stateless = self._together(lambda: self._check(shard.values, set(needed), places, shard.names))
        forgotten = set().union(*self._ranks.gather(stateless))
        to_fill = {
            place: part
            for place, part in places.items()
            if name_of(place) in needed and parameter_of(name_of(place)) not in forgotten
        }
        names = {name_of(place) for place in to_fill}

        def fill(snapshot: Snapshot) -> None:
            if names:
                # A list is read whole, also what is not to be filled in it.
                keys = names.__contains__
                load(snapshot, into=nested(to_fill), keys=keys, strict=False, threads=self._engine._threads)

        restoring = self._engine._restoring
        _, failure = self._ranks.together(lambda: restoring.read(step, attempt, fill, True, True), is_damage)
        if failure is not None:
            return failure
        sent = [part for place, part in places.items() if part.is_shared and name_of(place) not in apart]
        send_to_replicas(sent)
        self._together(lambda: self._take(shard.values, forgotten, shard.values["rank"], places))
        return None

    def _restore_from_all(self, step: int, dtensors: Set[str]) -> Failure | None:
        """Reads the parts of this process from all shards, and replicas from the first of them."""
        ranks = self._ranks
        shards, failure = ranks.together(
            lambda: AllShards(self._store(), step, ranks.rank, self._allow_pickle, dtensors), is_damage
        )
        if failure is not None:
            return failure
        assert shards is not None
        values = shards.values
        places = self._with_slots(shards, step)
        places = {**places, **self._training.whole_parts(shards.names_of_extra)}
        parts = {name_of(place): part for place, part in places.items()}
        # Processes may hold different tensors, as in a pipeline.
        nowhere = set.intersection(*ranks.gather(shards.names - parts.keys()))
        found = (shards.names & parts.keys()) | nowhere
        stateless = self._together(lambda: self._check(values, set(parts), places, found))
        forgotten = set().union(*ranks.gather(stateless))
        # Of replicas that were not equal, each process has its own.
        apart = set().union(*ranks.gather({name for name in parts if not shards.is_common(name)}))
        wanted = {name: part for name, part in parts.items() if parameter_of(name) not in forgotten}
        sent = {name: part for name, part in wanted.items() if part.is_shared and name not in apart}
        own_parts = {name: part for name, part in wanted.items() if part.is_saved or name not in sent}
        _, failure = ranks.together(lambda: shards.fill(own_parts), is_damage)
        if failure is not None:
            return failure
        send_to_replicas(list(sent.values()))
        own = values["rank"] if ranks.rank < shards.shards else None
        if own is not None and shards.shards != ranks.world_size:
            own = {**own, "dataloader": None}
        self._together(lambda: self._take(values, forgotten, own, places))
        kept = self._training.kept_by(ranks.rank, shards.shards, ranks.world_size)
        if shards.shards != ranks.world_size and shards.differs_between_shards:
            kept.append(f"tensors that each process has of its own are those of process {shards.shard}")
        if kept:
            _warn(
                f"step {step} was saved by {shards.shards} processes and is restored by {ranks.world_size}: "
                f"{'; '.join(kept)}",
                5,
            )
        return None

    def _check(
        self, values: Mapping[str, Any], needed: set[str], places: Collection[KeyPath], found: set[str]
    ) -> set[str]:
        frozen = self._training.frozen()
        new, left = self._training.check_values(values, places)
        known = {name_of(place) for place in places}
        found = {name for name in found if not self._training.is_left(name)}
        stateless, aside = check_names(needed, known, found, frozen)
        self._notes += [
            f"{what}: {_shown(names)}"
            for what, names in (
                ("frozen parameters, whose optimizer states are in the checkpoint and not restored", aside | left),
                ("parameters that the optimizers of the checkpoint did not have, and that begin without state", new),
            )
            if names
        ]
        return stateless

    def _take(
        self, values: Mapping[str, Any], forgotten: set[str], own: Mapping[str, Any] | None, places: Collection[KeyPath]
    ) -> None:
        self._training.forget_state(forgotten)
        self._notes += self._training.take_values(values, self._verify)
        self._training.take_states(values["training"], own, places)

    def _others_saved(self, step: int, attempt: str) -> bool:
        """Whether another number of processes saved a checkpoint of the store."""
        if attempt:
            return False
        try:
            return self._store().checkpoint(step).shards != self._ranks.world_size
        except NotFoundError:
            return False  # reading it says so

    def _store(self) -> Store:
        return Store(self.path, read_only=True, create=False)

    def _together(self, work: Callable[[], T]) -> T:
        """Does something on all processes, and fails on all if it fails on any."""
        done, failure = self._ranks.together(work)
        if failure is not None:
            raise failure.error
        return cast("T", done)


def _arguments_of(optional: Collection[str]) -> frozenset[str]:
    known = ("optimizer", "scheduler", "dataloader", "rng", "extra")
    for name in [optional] if isinstance(optional, str) else optional:
        if isinstance(optional, str) or name not in known:
            raise InvalidArgumentError(f"optional must have names of {', '.join(known)}, got {brief(optional)}")
    return frozenset(optional)


def _shown(names: Set[str]) -> str:
    return f"{', '.join(sorted(names)[:4])}{f' and {len(names) - 4} more' if len(names) > 4 else ''}"


def _warn(text: str, depth: int) -> None:
    """`depth`: how many calls above this one the user's is."""
    warn(text, RestoreWarning, stacklevel=depth)
