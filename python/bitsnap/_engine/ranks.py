"""The rank of this process, and agreement between the ranks of a training through torch.distributed, if it is
initialized."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, NamedTuple, SupportsIndex, TypeVar

from bitsnap import errors
from bitsnap._arguments.checks import LARGEST_COUNT, number_of, positive_of
from bitsnap._engine.meetings import Meetings
from bitsnap._tensors import dtypes
from bitsnap.errors import BitsnapError, InvalidArgumentError

T = TypeVar("T")


class Failure(NamedTuple):
    """Why the ranks could not all do something. All ranks get the same failure."""

    error: Exception
    is_hopeless: bool
    """Another attempt would not help one of the ranks."""


class Ranks:
    """This rank among all. `agree` is False if there is one rank only, or if ranks cannot communicate."""

    def __init__(self, rank: SupportsIndex | None, world_size: SupportsIndex | None) -> None:
        group = _distributed()
        own = (0, 1) if group is None else (int(group.get_rank()), int(group.get_world_size()))
        self.world_size = own[1] if world_size is None else number_of(world_size, "world_size", LARGEST_COUNT)
        positive_of(self.world_size, "world_size")
        self.rank = own[0] if rank is None else number_of(rank, "rank", LARGEST_COUNT)
        if self.rank >= self.world_size:
            raise InvalidArgumentError(f"rank must be below world_size, got rank {self.rank} of {self.world_size}")
        self._group = group if self.world_size > 1 and own == (self.rank, self.world_size) else None
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
        self._group.all_gather_object(values, value)
        return values

    def together(
        self, work: Callable[[], T], may_retry: Callable[[BaseException], bool] = lambda _: False
    ) -> tuple[T | None, Failure | None]:
        """Runs `work` on all ranks, which must all call it, and fails on all ranks if it fails on any."""
        done: T | None = None
        error: Exception | None = None
        try:
            done = work()
        except Exception as failed:
            error = failed
        words = self.gather(None if error is None else (not may_retry(error), type(error).__name__, str(error)))
        failures = sorted(
            ((is_hopeless, rank, name, message) for rank, (is_hopeless, name, message) in _given(words)),
            key=lambda failure: (not failure[0], failure[1]),
        )
        if not failures:
            return done, None
        is_hopeless, rank, name, message = failures[0]
        if error is None or (is_hopeless and may_retry(error)):
            kind = getattr(errors, name, BitsnapError)
            if not (isinstance(kind, type) and issubclass(kind, BitsnapError)):
                kind = BitsnapError
            error = kind(f"rank {rank}: {message}")
        return None, Failure(error, is_hopeless)


def _given(words: list[Any]) -> list[tuple[int, Any]]:
    return [(rank, word) for rank, word in enumerate(words) if word is not None]


def _distributed() -> Any:
    torch = dtypes.loaded_torch()
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    return torch.distributed
