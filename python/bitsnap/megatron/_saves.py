"""One save of Megatron's strategies on all ranks: its shards, and the commit."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

import torch.distributed as dist

from bitsnap._arguments import PathLike
from bitsnap._engine.steps import wait_committed
from bitsnap._runs.path_checkpoints import Options
from bitsnap._runs.path_saves import RankSaves, RankShard
from bitsnap.megatron._folders import KEY, destination_of, remove_stock
from bitsnap.megatron._pairs import Offer, shares_of
from bitsnap.megatron._shards import RankPart, adam_values, staged


class FolderSave:
    """The save of the checkpoint of a folder. All ranks make it, and call the same methods in the same order.

    An error of one rank is raised on all of them.
    """

    def __init__(self, saves: RankSaves, folder: PathLike, items: Iterable[Any], common: Any, options: Options) -> None:
        self._saves, self._timeout = saves, options.timeout
        place = destination_of(folder)
        self._reference = place.reference
        new = saves.begin(*place)
        part, told = saves.told(lambda: RankPart(items), lambda part: (list(part.objects), part.offer), self._reference)
        keys = {key: rank for rank, (keys, _) in enumerate(told) for key in keys}
        self._metadata = {KEY: json.dumps({"objects": keys})}

        def shard() -> RankShard:
            offers: list[Offer] = [offer for _, offer in told]
            part.take(shares_of(saves.ranks.rank, offers))
            values: dict[str, Any] = {"objects": part.objects}
            if common is not None and saves.ranks.rank == 0:
                values["common"] = common
            state = {**part.state, KEY: values}
            adam = adam_values([part.values, common])
            return saves.shard(new, state, roles=part.roles, masters=part.masters, adam=adam)

        self._shard: RankShard = saves.on_all(shard, self._reference)

    def write(self) -> None:
        """Writes the shard of this rank, and waits for the others."""
        self._saves.write(self._shard)

    def detach(self) -> RankShard:
        """The shard of this rank with copies of its tensors, for another process to write."""

        def detached() -> RankShard:
            return dataclasses.replace(self._shard, state=staged(self._shard.state))

        shard: RankShard = self._saves.on_all(detached, self._reference)
        self._shard.state = {}  # commit() does not need it, and its tensors may be free
        return shard

    def commit(self) -> None:
        """Makes a checkpoint of the shards, and lets the folder refer to it. Waits until all ranks call it."""
        # Megatron's queue of asynchronous saves may only have waited for the process of this rank.
        dist.barrier()
        self._saves.commit(self._shard.new, self._metadata)
        self._end()

    def request(self, request: Any) -> Any:
        """Copies the state for the agent; the request for Megatron's queue, whose process only waits."""
        new = self._shard.new
        pending = self._saves.stage(self._shard, self._metadata)
        self._shard.state = {}

        def commit() -> None:
            dist.barrier()
            self._saves.finish(pending)
            self._end()

        return request(wait_committed, (new.run, new.saved.step, self._timeout), [commit])

    def _end(self) -> None:
        folder = self._reference.parent
        self._saves.from_first(lambda: remove_stock(folder), self._reference)
