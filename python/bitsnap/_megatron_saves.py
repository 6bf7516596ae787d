"""One save of Megatron's strategies on all ranks: where it goes, the shards, and the commit."""

from __future__ import annotations

import dataclasses
import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch.distributed as dist

from bitsnap._megatron_folders import KEY, NewPlace, new_place, refer
from bitsnap._megatron_pairs import Offer, shares_of
from bitsnap._megatron_shards import Options, RankPart, Shard, adam_numbers, open_store, staged
from bitsnap._options import PathLike
from bitsnap._references import Place
from bitsnap.errors import BitsnapError, BusyError, IoError

_T = TypeVar("_T")


class FolderSave:
    """The save of the checkpoint of a folder. All ranks make it, and call the same methods in the same order.

    An error of one rank is raised on all of them.
    """

    def __init__(self, folder: PathLike, items: Iterable[Any], common: Any, options: Options) -> None:
        self.folder = Path(folder)
        self.options = options
        self._rank, self._ranks = dist.get_rank(), dist.get_world_size()
        place, attempt = self.from_first(lambda: (new_place(folder), secrets.token_hex(8)))
        self._place: NewPlace = place
        self._attempt = attempt
        part, told = self._told(lambda: RankPart(items), lambda part: (list(part.objects), part.offer))
        self.keys = {key: rank for rank, (keys, _) in enumerate(told) for key in keys}
        self.shard: Shard = self.on_all(lambda: self._prepared(part, [offer for _, offer in told], common))

    def write(self) -> None:
        """Writes the shard of this rank, and waits for the others."""
        self.on_all(self.shard.write)

    def detach(self) -> Shard:
        """The shard of this rank with copies of its tensors, for another process to write."""
        shard: Shard = self.on_all(lambda: dataclasses.replace(self.shard, state=staged(self.shard.state)))
        self.shard.state = {}  # commit() does not need it, and its tensors may be free
        return shard

    def commit(self) -> None:
        """Makes a checkpoint of the shards, and lets the folder refer to it. Waits until all ranks call it."""
        # Megatron's queue of asynchronous saves may only have waited for the process of this rank.
        dist.barrier()
        self.from_first(self._commit)

    def _prepared(self, part: RankPart, offers: list[Offer], common: Any) -> Shard:
        part.take(shares_of(self._rank, offers))
        values: dict[str, Any] = {"objects": part.objects}
        if common is not None and self._rank == 0:
            values["common"] = common
        return Shard(
            run=self._place.run,
            step=self._place.step,
            shard=self._rank,
            shards=self._ranks,
            attempt=self._attempt,
            replace=bool(self._place.replaced),
            options=self.options,
            state={**part.state, KEY: values},
            roles=part.roles,
            masters=part.masters,
            numbers=adam_numbers([part.values, common]),
        )

    def _commit(self) -> None:
        commit(self.folder, self.shard, self.keys)

    def on_all(self, call: Callable[[], Any]) -> Any:
        """The result of the call, if it succeeds on all ranks."""
        return self._told(call, lambda _: None)[0]

    def _told(self, call: Callable[[], _T], tell: Callable[[_T], Any]) -> tuple[_T, list[Any]]:
        """The result of the call, and what each rank tells of its own, if the calls succeed on all ranks."""
        result, error = _attempted(call)
        found: list[Any] = [None] * self._ranks
        dist.all_gather_object(found, (_text_of(error), None if error else tell(result)))
        _raise(error, [text for text, _ in found], f"{self.folder}: the save failed")
        return result, [told for _, told in found]

    def from_first(self, call: Callable[[], Any]) -> Any:
        """What the call returns on rank 0."""
        result, error = _attempted(call) if self._rank == 0 else (None, None)
        sent = [(result, _text_of(error))]
        dist.broadcast_object_list(sent, src=0)
        _raise(error, [sent[0][1]], f"{self.folder}: the save failed")
        return sent[0][0]


def commit(folder: Path, shard: Shard, keys: Mapping[str, int]) -> None:
    """Makes a checkpoint of the shards, of which one is given, and lets the folder refer to it.

    `keys` has the shards of all objects by their unique keys.
    """
    with open_store(shard.run, shard.options) as store:
        outcome = store.commit(
            shard.step,
            shard.shards,
            shard.attempt,
            metadata={KEY: json.dumps({"objects": keys})},
            replace=shard.replace,
        )
    if not outcome:
        raise BusyError(f"{shard.run}: step {shard.step} cannot be committed: shards {outcome.missing} are missing")
    refer(folder, Place(shard.run, shard.step))


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
