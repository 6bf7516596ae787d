"""The rank of this process, and what the ranks of a training do together through torch.distributed, if it is
initialized. An error of one rank is raised on all of them, and keeps its class.

A collective cannot be given up: what one rank has begun meets the next collective of the others. So the ranks first
count themselves in the key-value store of torch.distributed, and begin a collective only when all are there.
"""

from __future__ import annotations

import builtins
import datetime
import pickle
import secrets
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, SupportsIndex, TypeVar

from bitsnap import errors
from bitsnap._common import LARGEST_COUNT, import_torch, loaded_torch, number_of, positive_of
from bitsnap.errors import BitsnapError, BusyError, InvalidArgumentError

_SHORTEST_POLL = 0.001
_LONGEST_POLL = 0.2
_MOST_NAMED = 8


class Meetings:
    """The meetings of a process group. All ranks count them alike, because only those that took place are counted."""

    _present: Meetings | None = None

    def __init__(self, store: Any) -> None:
        self._store = weakref.ref(store)  # the group owns it
        self._held = 0

    @staticmethod
    def of_group() -> Meetings | None:
        """Those of the present group; None if it has no store."""
        store = _store_of_group()
        if store is None:
            return None
        present = Meetings._present
        if present is None or present._store() is not store:
            present = Meetings._present = Meetings(store)
        return present

    def meet(self, rank: int, ranks: int, action: str, timeout_ms: int) -> None:
        store = self._store()
        if store is None:  # the group has been destroyed
            return
        place = f"bitsnap/{self._held}"
        arrived, complete = f"{place}/arrived", f"{place}/complete"
        deadline = time.monotonic() + timeout_ms / 1000
        store.set(_chair(place, rank), "taken")
        if store.add(arrived, 1) == ranks:
            store.set(complete, "yes")
        pause = _SHORTEST_POLL
        try:
            while not store.check([complete]):
                if time.monotonic() >= deadline:
                    raise BusyError(_who_is_missing(store, place, ranks, action, timeout_ms))
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_POLL, max(deadline - time.monotonic(), _SHORTEST_POLL))
        except BaseException:
            # If the last rank came meanwhile, the others go on and need this one.
            if store.add(arrived, -1) != ranks - 1:
                store.delete_key(_chair(place, rank))
                raise
            store.add(arrived, 1)
        self._held += 1
        store.delete_key(_chair(place, rank))


def _store_of_group() -> Any:
    from torch.distributed import distributed_c10d

    find_store = getattr(distributed_c10d, "_get_default_store", None)
    return None if find_store is None else find_store()


def word_of_start() -> str:
    """A word that differs at each start of the job and is the same on all ranks, without a collective."""
    store = _store_of_group()
    return "" if store is None else bytes(store.compare_set("bitsnap/start", "", secrets.token_hex(8))).decode()


def _chair(place: str, rank: int) -> str:
    return f"{place}/rank/{rank}"


def _who_is_missing(store: Any, place: str, ranks: int, action: str, timeout_ms: int) -> str:
    missing = [rank for rank in range(ranks) if not store.check([_chair(place, rank)])]
    named = ", ".join(map(str, missing[:_MOST_NAMED])) + (", ..." if len(missing) > _MOST_NAMED else "")
    return (
        f"{len(missing)} of {ranks} ranks ({named}) did not {action} within {timeout_ms / 1000:g} s: all ranks of "
        "torch.distributed must do so; if only this rank saves, pass job=JobOptions(rank=0, world_size=1)"
    )


T = TypeVar("T")


class Failure(NamedTuple):
    """Why the ranks could not all do something. All ranks get the same failure."""

    error: BaseException
    is_hopeless: bool
    """Another attempt would not help one of the ranks."""


class Ranks:
    """This rank among all. `agree` is False if there is one rank only, or if ranks cannot communicate."""

    def __init__(self, rank: SupportsIndex | None = None, world_size: SupportsIndex | None = None) -> None:
        group = _distributed()
        own = (0, 1) if group is None else (int(group.get_rank()), int(group.get_world_size()))
        self.world_size = own[1] if world_size is None else number_of(world_size, "world_size", LARGEST_COUNT)
        positive_of(self.world_size, "world_size")
        self.rank = own[0] if rank is None else number_of(rank, "rank", LARGEST_COUNT)
        if self.rank >= self.world_size:
            raise InvalidArgumentError(f"rank must be below world_size, got rank {self.rank} of {self.world_size}")
        self._group = group if self.world_size > 1 and own == (self.rank, self.world_size) else None
        self._members: Any = None  # the process group; None: the default one
        self._meetings = None if self._group is None else Meetings.of_group()

    @property
    def agree(self) -> bool:
        return self._group is not None

    def session(self, timeout_ms: int) -> str:
        """A word that differs at each start of the job and is the same on all ranks; empty if they cannot agree."""
        if self._group is None:
            return ""
        self.meet("create a Checkpointer", timeout_ms)
        words = [secrets.token_hex(8)]
        self._group.broadcast_object_list(words, src=0)
        return words[0]

    def meet(self, action: str, timeout_ms: int) -> None:
        """Waits until all ranks are here: a collective that one of them never joins would not end.

        Raises:
            BusyError: some did not come in time.
        """
        if self._group is not None and self._meetings is not None:
            self._meetings.meet(self.rank, self.world_size, action, timeout_ms)

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, by rank. All ranks must call it."""
        if self._group is None:
            return [value]
        values: list[Any] = [None] * self.world_size
        self._group.all_gather_object(values, value, group=self._members)
        return values

    def gather_words(self, word: bytes) -> bytes:
        """The words of all ranks, which have one length, one after another: in half the time of gather(), which sends
        the lengths first."""
        if self._group is None:
            return word
        torch = import_torch()
        words = torch.empty(self.world_size, len(word), dtype=torch.uint8)
        own = torch.frombuffer(bytearray(word), dtype=torch.uint8)
        self._group.all_gather(list(words), own, group=self._members)
        return bytes(words.numpy().tobytes())

    def apart(self, timeout_ms: int) -> Ranks:
        """These ranks in a process group of their own on the CPU, which others do not use at the same time. All ranks
        must call it."""
        ranks = Ranks(self.rank, self.world_size)
        if ranks._group is not None:
            timeout = datetime.timedelta(milliseconds=timeout_ms)
            ranks._members = ranks._group.new_group(backend="gloo", timeout=timeout)
        return ranks

    def on_all(self, call: Callable[[], T], what: str) -> T:
        """The result of a call that all ranks make, if it succeeds on all of them.

        `what` says what failed: it is in the errors of the other ranks, and a note of the own one.
        """
        return self.told(call, lambda _: None, what)[0]

    def told(self, call: Callable[[], T], tell: Callable[[T], Any], what: str) -> tuple[T, list[Any]]:
        """Likewise, and what each rank tells of its own result."""

        # A value that cannot be pickled is an error of this rank, too, and must not let the others wait.
        def work() -> tuple[T, bytes]:
            result = call()
            return result, pickle.dumps(tell(result))

        done, error = _attempted(work)
        found = self.gather((_told_of(error), b"" if error else done[1]))
        _raise(error, [told for told, _ in found], what)
        return done[0], [pickle.loads(told) for _, told in found]

    def from_first(self, call: Callable[[], T], what: str) -> T:
        """What the call returns on rank 0, for all ranks."""

        def work() -> tuple[T, bytes]:
            result = call()
            return result, b"" if self._group is None else pickle.dumps(result)  # as in told()

        done, error = _attempted(work) if self.rank == 0 else (None, None)
        sent = [(b"" if done is None else done[1], _told_of(error))]
        if self._group is not None:
            self._group.broadcast_object_list(sent, src=0, group=self._members)
        content, told = sent[0]
        _raise(error, [told], what)
        return pickle.loads(content) if done is None else done[0]  # type: ignore[no-any-return]

    def branch(self, find: Callable[[], T], timeout_ms: int) -> T:
        """What `find` returns on rank 0, for all ranks, if they can agree: one of them makes the branch."""
        if self._group is None:
            return find()
        self.meet("create a Checkpointer", timeout_ms)
        return self.from_first(find, "opening the branch")

    def together(
        self, work: Callable[[], T], may_retry: Callable[[BaseException], bool] = lambda _: False
    ) -> tuple[T | None, Failure | None]:
        """Runs `work` on all ranks, which must all call it, and fails on all ranks if it fails on any."""
        done, error = _attempted(work)
        words = self.gather(None if error is None else (not may_retry(error), type(error).__name__, str(error)))
        failures = sorted(
            ((is_hopeless, rank, name, message) for rank, (is_hopeless, name, message) in _given(words)),
            key=lambda failure: (not failure[0], failure[1]),
        )
        if not failures:
            return done, None
        is_hopeless, rank, name, message = failures[0]
        if error is None or (is_hopeless and may_retry(error)):
            error = _error_of(name, f"rank {rank}: {message}")
        return None, Failure(error, is_hopeless)


def _given(words: list[Any]) -> list[tuple[int, Any]]:
    return [(rank, word) for rank, word in enumerate(words) if word is not None]


def _attempted(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return call(), None
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # as torch's CheckpointException is one
        return None, error


def _told_of(error: BaseException | None) -> tuple[str, str] | None:
    return None if error is None else (type(error).__name__, str(error))


def _raise(own: BaseException | None, told: Sequence[tuple[str, str] | None], what: str) -> None:
    """Raises the error of this rank, if it has one, or one of the class that the first rank's has."""
    if own is not None:
        if what not in getattr(own, "__notes__", ()):
            own.add_note(what)
        raise own
    failed = [(rank, *each) for rank, each in enumerate(told) if each is not None]
    if failed:
        raise _error_of(failed[0][1], f"{what}: {'; '.join(f'rank {rank}: {text}' for rank, _, text in failed)}")


def _error_of(name: str, message: str) -> Exception:
    """An error of another rank: of the same class, if that is one of bitsnap or of Python and takes a message."""
    kind = getattr(errors, name, None) or getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, StopIteration):
        try:
            return kind(message)
        except TypeError:  # it is made of more than a message
            pass
    return BitsnapError(f"{message} ({name})")


def _distributed() -> Any:
    torch = loaded_torch()
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    return torch.distributed
