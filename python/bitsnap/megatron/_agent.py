"""Asynchronous saves of Megatron through an agent: one copy to shared memory; the agent compresses and commits it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch.distributed as dist

from bitsnap._arguments.references import StepOfRun
from bitsnap._engine.committed import wait_committed
from bitsnap._engine.saves import Save
from bitsnap._runs.options import Options
from bitsnap._states.adam import sources_of
from bitsnap._states.packing import StateWithAdam
from bitsnap.checkpointer import Checkpointer
from bitsnap.megatron._folders import KEY, pending, refer
from bitsnap.megatron._saves import FolderSave
from bitsnap.megatron._shards import RankShard, adam_of

# Of the runs to which this process saves through agents.
_checkpointers: dict[Path, Checkpointer] = {}


class AgentSave:
    """A save whose state has been copied for the agent. All ranks make it, and call its methods in the same order."""

    def __init__(self, save: FolderSave) -> None:
        self._save = save
        self._place = StepOfRun(save.shard.run, save.shard.step)
        self._timeout = save.options.timeout
        self._staged: Save = save.on_all(lambda: _staged(save.shard, save.keys, save.options))
        pending.add(self._place)

    def request(self, request: Any) -> Any:
        """The request for Megatron's queue. The process that Megatron starts for it only waits."""
        return request(wait_committed, (self._place.run, self._place.step, self._timeout), [self.commit])

    def commit(self) -> None:
        """Lets the folder refer to the checkpoint. Waits until the agent has committed it, and for all ranks."""
        # Megatron's queue may only have waited for the process of this rank.
        dist.barrier()
        try:
            self._save.on_all(self._wait)
            self._save.from_first(lambda: refer(self._save.folder, self._place))
        finally:
            pending.discard(self._place)

    def _wait(self) -> None:
        self._staged.result(self._timeout)


def _staged(shard: RankShard, keys: dict[str, int], options: Options) -> Save:
    checkpointer = _checkpointers.get(shard.run)
    if checkpointer is None:
        close_all()  # another run begins when the training goes back to an older iteration
        shard.run.parent.mkdir(parents=True, exist_ok=True)
        checkpointer = options.checkpointer(shard.run)
        _checkpointers[shard.run] = checkpointer
    saved = checkpointer.save(
        shard.step,
        StateWithAdam(shard.state, sources_of(adam_of(shard.numbers))),
        roles=shard.roles,
        masters=shard.masters,
        metadata={KEY: json.dumps({"objects": keys})},
        allow_pickle=options.allow_pickle,
    )
    assert saved is not None  # because every step is due
    if saved.error is not None:
        raise saved.error
    return saved


def close_all() -> None:
    """Leaves the agents, which go on with what they have."""
    for checkpointer in _checkpointers.values():
        checkpointer._leave()
    _checkpointers.clear()
