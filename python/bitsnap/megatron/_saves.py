"""One save of Megatron's strategies on all ranks: where it goes, the shards, and the commit."""

from __future__ import annotations

import dataclasses
import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch.distributed as dist

from bitsnap._arguments.options import PathLike
from bitsnap._arguments.references import StepOfRun
from bitsnap._engine.ranks import Ranks
from bitsnap._runs.options import Options
from bitsnap.errors import BusyError
from bitsnap.megatron._folders import KEY, NewPlace, new_place, refer
from bitsnap.megatron._pairs import Offer, shares_of
from bitsnap.megatron._shards import RankPart, RankShard, adam_numbers, open_store, staged

_T = TypeVar("_T")


class FolderSave:
    """The save of the checkpoint of a folder. All ranks make it, and call the same methods in the same order.

    An error of one rank is raised on all of them.
    """

    def __init__(self, folder: PathLike, items: Iterable[Any], common: Any, options: Options) -> None:
        self._ranks, self._what = Ranks(), f"{folder}: the save failed"
        self.folder = Path(folder)
        self.options = options
        place, attempt = self.from_first(lambda: (new_place(folder), secrets.token_hex(8)))
        self._place: NewPlace = place
        self._attempt = attempt
        part, told = self._ranks.told(
            lambda: RankPart(items), lambda part: (list(part.objects), part.offer), self._what
        )
        self.keys = {key: rank for rank, (keys, _) in enumerate(told) for key in keys}
        self.shard: RankShard = self.on_all(lambda: self._prepared(part, [offer for _, offer in told], common))

    def on_all(self, call: Callable[[], _T]) -> _T:
        """See Ranks.on_all()."""
        return self._ranks.on_all(call, self._what)

    def from_first(self, call: Callable[[], _T]) -> _T:
        """See Ranks.from_first()."""
        return self._ranks.from_first(call, self._what)

    def write(self) -> None:
        """Writes the shard of this rank, and waits for the others."""
        self.on_all(self.shard.write)

    def detach(self) -> RankShard:
        """The shard of this rank with copies of its tensors, for another process to write."""
        shard: RankShard = self.on_all(lambda: dataclasses.replace(self.shard, state=staged(self.shard.state)))
        self.shard.state = {}  # commit() does not need it, and its tensors may be free
        return shard

    def commit(self) -> None:
        """Makes a checkpoint of the shards, and lets the folder refer to it. Waits until all ranks call it."""
        # Megatron's queue of asynchronous saves may only have waited for the process of this rank.
        dist.barrier()
        self.from_first(self._commit)

    def _prepared(self, part: RankPart, offers: list[Offer], common: Any) -> RankShard:
        part.take(shares_of(self._ranks.rank, offers))
        values: dict[str, Any] = {"objects": part.objects}
        if common is not None and self._ranks.rank == 0:
            values["common"] = common
        return RankShard(
            run=self._place.run,
            step=self._place.step,
            shard=self._ranks.rank,
            shards=self._ranks.world_size,
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


def commit(folder: Path, shard: RankShard, keys: Mapping[str, int]) -> None:
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
    refer(folder, StepOfRun(shard.run, shard.step))
