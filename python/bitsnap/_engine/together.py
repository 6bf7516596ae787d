"""Calls that all ranks of torch.distributed make together, so that an error of one is raised on all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist

from bitsnap.errors import BitsnapError, IoError

_T = TypeVar("_T")


class Together:
    """All ranks make it, and call the same methods in the same order.

    Args:
        what: what failed, for the errors of other ranks.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()

    def on_all(self, call: Callable[[], _T]) -> _T:
        """The result of the call, if it succeeds on all ranks."""
        return self.told(call, lambda _: None)[0]

    def told(self, call: Callable[[], _T], tell: Callable[[_T], Any]) -> tuple[_T, list[Any]]:
        """The result of the call, and what each rank tells of its own, if the calls succeed on all ranks."""
        result, error = _attempted(call)
        found: list[Any] = [None] * self.ranks
        dist.all_gather_object(found, (_text_of(error), None if error else tell(result)))
        _raise(error, [text for text, _ in found], self._what)
        return result, [told for _, told in found]

    def from_first(self, call: Callable[[], _T]) -> _T:
        """What the call returns on rank 0."""
        result, error = _attempted(call) if self.rank == 0 else (None, None)
        sent = [(result, _text_of(error))]
        dist.broadcast_object_list(sent, src=0)
        _raise(error, [sent[0][1]], self._what)
        return sent[0][0]  # type: ignore[return-value]


def raise_on_all(error: Exception | None, what: str) -> None:
    """Raises an error on all ranks if one of them has one. All ranks must call it."""
    texts: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(texts, _text_of(error))
    _raise(error, texts, what)


def _attempted(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return call(), None
    except Exception as error:
        return None, error


def _text_of(error: Exception | None) -> str:
    return "" if error is None else f"{type(error).__name__}: {error}"


def _raise(own: Exception | None, texts: list[str], what: str) -> None:
    if own is not None:
        raise own if isinstance(own, BitsnapError) else IoError(f"{what}: {_text_of(own)}") from own
    failed = [f"rank {rank}: {text}" for rank, text in enumerate(texts) if text]
    if failed:
        raise IoError(f"{what} on {'; '.join(failed)}")
