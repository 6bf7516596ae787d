"""Meetings of all ranks with a time limit, in the key-value store of torch.distributed.

A collective cannot be given up: what one rank has begun meets the next collective of the others. So the ranks first
count themselves in the store, and begin a collective only when all are there.
"""

from __future__ import annotations

import secrets
import time
import weakref
from typing import Any

from bitsnap.errors import BusyError

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
