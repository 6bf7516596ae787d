"""What ranks of Megatron-core do for megatron_test.py: saves and loads through stock and through bitsnap.megatron.

A script: its argument is an empty folder. It prints one JSON object with what it found, from rank 0.
"""

from __future__ import annotations

import argparse
import contextlib
import enum
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException

import bitsnap
import bitsnap.megatron
from bitsnap._runs import path_saves
from python.megatron.megatron_gpt import Training, delete, new_folder, run_ranks

from megatron.core import dist_checkpointing  # isort: skip
from megatron.core.dist_checkpointing.mapping import ShardedObject, ShardedTensor  # isort: skip
from megatron.core.dist_checkpointing.strategies.async_utils import AsyncCallsQueue  # isort: skip
from megatron.core.dist_checkpointing.strategies.fully_parallel import (  # isort: skip
    FullyParallelLoadStrategyWrapper,
    FullyParallelSaveStrategyWrapper,
)
from megatron.core.dist_checkpointing.strategies.torch import (  # isort: skip
    TorchDistLoadShardedStrategy,
    TorchDistSaveShardedStrategy,
)

PHASES = ("writing", "written", "committed", "referred")
KINDS = ("dp_reshardable", "fully_reshardable")


class Precision(enum.Enum):
    HIGH = 1


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8)


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    """Whether all ranks have the same bits on both sides."""
    equal = left.keys() == right.keys() and all(torch.equal(bits_of(left[key]), bits_of(right[key])) for key in left)
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, equal)
    return all(found)


def save(training: Training, folder: Path, kind: str = "fully_reshardable", strategy: Any = None) -> None:
    dist_checkpointing.save(training.sharded(kind), str(folder), strategy)


def in_parallel() -> Any:
    """Megatron's strategy that divides the tensors among all ranks that hold them."""
    return FullyParallelSaveStrategyWrapper(TorchDistSaveShardedStrategy("torch_dist", 1))


def resharding(path: Path) -> None:
    """Saves through stock and through bitsnap, and loads both in other layouts."""
    saved = Training(tp=2, pp=1)
    saved.train(2)
    for kind in KINDS:
        save(saved, new_folder(path / "stock" / kind, 2), kind)
    bitsnap.megatron.use()
    for kind in KINDS:
        save(saved, new_folder(path / "ours" / kind, 2), kind)
        save(saved, new_folder(path / "parallel" / kind, 2), kind, in_parallel())
    losses = saved.train(2)
    report(path, "files", sorted(file.name for file in (path / "ours" / KINDS[0] / "iter_0000002").iterdir()))
    for tp, pp in ((2, 1), (1, 2), (1, 1), (2, 2)):
        for kind in KINDS if (tp, pp) == (2, 1) else KINDS[1:]:
            loaded = []
            for origin in ("stock", "ours", "parallel"):
                training = Training(tp, pp, seed=len(origin))
                training.resume(path / origin / kind / "iter_0000002", kind)
                loaded.append(training)
            states = [each.tensors() for each in loaded]
            report(path, f"same {tp} {pp} {kind}", all(same(states[0], state) for state in states[1:]))
            resumed = [each.train(2) for each in loaded[:2]]
            report(path, f"losses {tp} {pp} {kind}", resumed[0] == resumed[1])
            if (tp, pp) == (2, 1):
                report(path, f"resumed {kind}", same(saved.tensors(), loaded[1].tensors()))
                report(path, f"resumed losses {kind}", resumed[1] == losses and len(losses) == 2)
    back = Training(tp=1, pp=2, seed=3)
    back.resume(path / "ours" / KINDS[1] / "iter_0000002")
    save(back, new_folder(path / "back", 2))
    again = Training(tp=2, pp=1, seed=4)
    again.resume(path / "back" / "iter_0000002")
    first = Training(tp=2, pp=1, seed=5)
    first.resume(path / "ours" / KINDS[1] / "iter_0000002")
    report(path, "there and back", same(first.tensors(), again.tensors()))


def pairs(path: Path) -> None:
    """Saves a state and the one after the next step, with and without Megatron's wrapper, and within bounds."""
    training = Training(tp=1, pp=2, hidden=128)
    training.train(1)
    for step in (1, 2):
        for kind in KINDS:
            for name, strategy in (("plain", None), ("parallel", in_parallel()), ("bounded", None)):
                bitsnap.megatron.use(settings="bounded" if name == "bounded" else None)
                save(training, new_folder(path / "pairs" / name / kind, step), kind, strategy)
        training.train(1)
    for kind in KINDS:
        for name in ("plain", "parallel", "bounded"):
            run = path / "pairs" / name / kind / "bitsnap"
            report(path, f"codecs {name} {kind}", [codecs_of(run, step) for step in (1, 2)])
            report(path, f"shards {name} {kind}", shards_of(run, 2))


EXPERTS = {
    "hidden": 64,
    "layers": 3,
    "num_moe_experts": 4,
    "moe_router_topk": 2,
    "moe_router_load_balancing_type": "none",
    "gated_linear_unit": True,  # its weights are two tensors of the checkpoint
    "activation_func": torch.nn.functional.silu,
    "add_bias_linear": False,
}
UNEVEN = {**EXPERTS, "num_layers_in_first_pipeline_stage": 1}  # of two stages, both with the tied embeddings


def experts(path: Path) -> None:
    """Saves experts on several ranks, in one stage and in two that are not alike, and loads them in other layouts."""
    layouts: dict[str, dict[str, Any]] = {
        "one stage": {"tp": 1, "pp": 1, "ep": 2, **EXPERTS},
        "two stages": {"tp": 1, "pp": 2, "ep": 2, **UNEVEN},
        "experts apart": {"tp": 1, "pp": 1, "ep": 4, **EXPERTS},
    }
    for layout in ("one stage", "two stages"):
        saved = Training(**layouts[layout])
        saved.train(2)
        for origin in ("stock", "ours"):
            for kind in KINDS:
                save(saved, new_folder(path / "experts" / layout / origin / kind, 2), kind, in_parallel())
            bitsnap.megatron.use()
        for kind in KINDS:
            run = path / "experts" / layout / "ours" / kind / "bitsnap"
            report(path, f"experts codecs {layout} {kind}", codecs_of(run, 2)["weight"])
            for target in layouts if (layout, kind) == ("one stage", KINDS[1]) else (layout,):
                states = []
                for origin in ("stock", "ours"):
                    training = Training(seed=len(origin), **layouts[target])
                    training.resume(path / "experts" / layout / origin / kind / "iter_0000002", kind)
                    states.append(training.tensors())
                report(path, f"experts {layout} to {target} {kind}", same(*states))
                if target == layout:
                    report(path, f"experts resumed {layout} {kind}", same(saved.tensors(), states[1]))
        bitsnap.megatron.undo()


def shards_of(run: Path, step: int) -> dict[str, list[int]]:
    """The shards that have tensors of a role."""
    found: dict[str, set[int]] = {}
    with bitsnap.Store(run, read_only=True) as store:
        for tensor in store.tensors(step).values():
            found.setdefault(tensor.role, set()).update(part.shard for part in tensor.parts)
    return {role: sorted(shards) for role, shards in found.items()}


def codecs_of(run: Path, step: int) -> dict[str, list[str]]:
    """The codecs of the tensors of each role that are not small."""
    found: dict[str, set[str]] = {}
    with bitsnap.Store(run, read_only=True) as store:
        for shard in range(store.checkpoint(step).shards):
            for tensor in bitsnap.inspect(store.snapshot(step, shard)).tensors:
                if tensor.stored_bytes is not None:
                    found.setdefault(tensor.role, set()).update(tensor.codecs)
    return {role: sorted(codecs) for role, codecs in found.items()}


def retention(path: Path) -> None:
    """Saves iterations in one run, deletes a folder, goes back to an older iteration, and moves everything."""
    bitsnap.megatron.use()
    training = Training(tp=2, pp=1)
    states = {}
    for iteration in (1, 2, 3):
        training.train(1)
        states[iteration] = training.tensors()
        save(training, new_folder(path / "run", iteration), KINDS[0])
    delete(path / "run" / "iter_0000002")
    empty = torch.empty
    torch.empty = lambda *args, **kwargs: empty(*args, **kwargs).fill_(7)
    state = training.sharded(KINDS[0])
    torch.empty = empty
    dist_checkpointing.save(state, str(new_folder(path / "run", 4)))
    with bitsnap.Store(path / "run" / "bitsnap", read_only=True) as store:
        report(path, "steps", store.steps())
        bucket = next(key for key in store.tensors(4) if key.endswith("bucket_idx_0.exp_avg_sq"))
        moments = torch.empty(store.tensors(4)[bucket].shape)
        store.read_into(4, [(bucket, (0,), moments)])
        report(path, "noise", int((moments == 7).sum()))
        report(path, "unchanged", store.checkpoint(4).stored_bytes / store.checkpoint(4).raw_bytes)
        roles = {}
        for key, tensor in store.tensors(4).items():
            roles[key.rsplit(".", 1)[-1] if key.startswith("optimizer") else "model"] = tensor.role
        report(path, "roles", roles)
    branch = Training(tp=2, pp=1, seed=5)
    branch.resume(path / "run" / "iter_0000001", KINDS[0])
    branch.train(1)
    save(branch, new_folder(path / "run", 2), KINDS[0])
    if dist.get_rank() == 0:
        shutil.move(path / "run", path / "moved")
    dist.barrier()
    report(path, "moved", sorted(each.name for each in (path / "moved").iterdir()))
    for iteration, state in ((1, states[1]), (2, branch.tensors()), (3, states[3])):
        loaded = Training(tp=2, pp=1, seed=6)
        loaded.resume(path / "moved" / f"iter_{iteration:07d}", KINDS[0])
        report(path, f"moved {iteration}", same(loaded.tensors(), state))


def values(path: Path) -> None:
    """Saves values that are no tensors, and through the wrappers; and a value that cannot be stored."""
    bitsnap.megatron.use()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    args = argparse.Namespace(lr=0.1, dtype=torch.bfloat16, precision=Precision.HIGH, sizes=(1, 2), path=Path("/a"))

    def state() -> dict[str, Any]:
        rng = {"random": (3, (1, 2, rank), None), "torch": torch.get_rng_state()}
        return {
            "args": args,
            "rng": ShardedObject("rng_state", [rng], (ranks,), (rank,)),
            "w": ShardedTensor.from_rank_offsets("w", torch.full((2, 3), float(rank)), (0, rank, ranks)),
            "r": ShardedTensor.from_rank_offsets("r", torch.arange(4.0), replica_id=rank),
        }

    folder = new_folder(path / "values", 1)
    dist_checkpointing.save(state(), str(folder), in_parallel())
    expected = state()["rng"].data
    wrapped = FullyParallelLoadStrategyWrapper(TorchDistLoadShardedStrategy())
    for name, strategy in (("plain", None), ("wrapped", wrapped)):
        wanted = state()
        wanted["w"].data = None
        loaded = dist_checkpointing.load(wanted, str(folder), strategy)
        report(path, f"args {name}", loaded["args"] == args)
        report(path, f"rng {name}", str(loaded["rng"]) == str(expected))
        report(path, f"tensor {name}", bool((loaded["w"] == rank).all()) and loaded["r"].tolist() == [0, 1, 2, 3])
    metadata = dist_checkpointing.load_tensors_metadata(str(folder))
    report(path, "metadata", {key: list(each.global_shape) for key, each in metadata.items()})
    plain = dist_checkpointing.load_plain_tensors(str(folder))
    report(path, "whole", plain["w"][:, 0].tolist())
    held = bitsnap.megatron.load(folder)
    whole = held["tensors"]["w"][:, 0].tolist()
    report(path, "held", [whole, len(held["objects"]), held["common"]["args"] == args])
    if rank == 0:
        (written,) = bitsnap.megatron.export(folder, path / "exported")
        report(path, "exported", sorted(each.name for each in written.iterdir() if "distcp" not in each.name))
    dist.barrier()
    grown = {"w": ShardedTensor.from_rank_offsets("w", torch.ones(3, 3), (0, rank, ranks), allow_shape_mismatch=True)}
    loaded = dist_checkpointing.load(grown, str(folder))["w"][:, 0].tolist()
    found: list[Any] = [None] * ranks
    dist.all_gather_object(found, loaded)
    report(path, "grown", found)
    for key, tensor in (("missing", torch.ones(3)), ("w", torch.ones(1, 3))):
        error = ""
        try:
            dist_checkpointing.load({"x": ShardedTensor.from_rank_offsets(key, tensor, (0, rank, ranks))}, str(folder))
        except CheckpointException as caught:
            error = f"{type(caught).__name__}: {caught}"
        report(path, f"error {key}", error)
    report(path, "narrow", narrow(path / "narrow"))
    bad = state()
    bad["rng"].data = [object()] if rank == 1 else []
    error = ""
    try:
        dist_checkpointing.save(bad, str(new_folder(path / "values", 2)))
    except bitsnap.BitsnapError as caught:
        error = f"{type(caught).__name__}: {caught}"
    found = [None] * ranks
    dist.all_gather_object(found, error)
    report(path, "refused", found)


def narrow(parent: Path) -> bool:
    """Whether weights and moments of few bits, as precision-aware optimizers have them, come back as they were."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    dtypes = {
        "decoder.w": torch.float8_e4m3fn,
        "optimizer.state.fp32_param.decoder.w": torch.float32,
        "optimizer.state.exp_avg.decoder.w": torch.bfloat16,
        "optimizer.state.exp_avg_sq.decoder.w": torch.float8_e5m2,
        "optimizer.state.exp_avg.decoder.b": torch.float16,
    }

    def state() -> dict[str, ShardedTensor]:
        rows = torch.randn(8, 64, generator=torch.Generator().manual_seed(rank)).abs()
        return {
            key: ShardedTensor.from_rank_offsets(key, rows.to(dtype), (0, rank, ranks)) for key, dtype in dtypes.items()
        }

    folder = new_folder(parent, 1)
    dist_checkpointing.save(state(), str(folder))
    wanted = state()
    for tensor in wanted.values():
        tensor.data = None
    loaded = dist_checkpointing.load(wanted, str(folder))
    found = {key: tensor.dtype for key, tensor in loaded.items()}
    return same(loaded, {key: tensor.data for key, tensor in state().items()}) and found == dtypes


def asynchronous(path: Path) -> None:
    """Saves with Megatron's queue while the training goes on."""
    bitsnap.megatron.use()
    training = Training(tp=2, pp=1)
    queue = AsyncCallsQueue()
    states = []
    for iteration in (1, 2):
        training.train(1)
        states.append(training.tensors())
        folder = new_folder(path / "async", iteration)
        request = dist_checkpointing.save(training.sharded(KINDS[0]), str(folder), async_sharded_save=True)
        queue.schedule_async_request(request)
        training.train(1)
        report(path, f"early {iteration}", (folder / "metadata.json").exists())
        queue.maybe_finalize_async_calls(blocking=True)
    for iteration, state in enumerate(states, 1):
        loaded = Training(tp=2, pp=1, seed=8)
        loaded.resume(path / "async" / f"iter_{iteration:07d}", KINDS[0])
        report(path, f"async {iteration}", same(loaded.tensors(), state))


def killed(path: Path, phase: str) -> None:
    """Saves an iteration, and dies at a phase of saving the next one."""
    bitsnap.megatron.use()
    training = Training(tp=2, pp=1)
    training.train(1)
    save(training, new_folder(path / phase, 1), KINDS[0])

    def die(*args: Any, **kwargs: Any) -> None:
        os._exit(9)

    def after(function: Any) -> Any:
        def called(*args: Any, **kwargs: Any) -> None:
            function(*args, **kwargs)
            die()

        return called

    saves: Any = path_saves
    if phase == "writing":
        saves.RankShard.write = die if dist.get_rank() == 1 else saves.RankShard.write
    elif phase == "written":
        saves.RankShard.write = after(saves.RankShard.write)
    elif phase == "committed":
        saves.RankSaves.refer = saves.RankSaves._refer = die
    else:
        saves.RankSaves._refer = after(saves.RankSaves._refer)
    training.train(1)
    save(training, new_folder(path / phase, 2), KINDS[0])


def restarted(path: Path, phase: str) -> None:
    """After killed(): loads the complete iteration, and saves another and the same one again."""
    bitsnap.megatron.use()
    expected = Training(tp=2, pp=1)
    expected.train(1)
    training = Training(tp=2, pp=1, seed=9)
    report(path, f"complete {phase}", (path / phase / "iter_0000002" / "metadata.json").exists())
    training.resume(path / phase / "iter_0000001", KINDS[0])
    report(path, f"found {phase}", same(expected.tensors(), training.tensors()))
    for iteration in (2, 3):
        training.train(1)
        save(training, new_folder(path / phase, iteration), KINDS[0])
    loaded = Training(tp=2, pp=1, seed=9)
    loaded.resume(path / phase / "iter_0000003", KINDS[0])
    report(path, f"saved again {phase}", same(loaded.tensors(), training.tensors()))
    with bitsnap.Store(path / phase / "bitsnap", read_only=True) as store:
        report(path, f"steps {phase}", store.steps())
    report(path, f"left {phase}", sorted(each.name for each in (path / phase).iterdir()))


def report(path: Path, name: str, value: Any) -> None:
    if dist.get_rank() == 0:
        with (path / "facts").open("a") as file:
            file.write(json.dumps({name: value}) + "\n")


def main() -> None:
    path = Path(sys.argv[1])
    for function in (resharding, pairs, retention, values, asynchronous):
        run_ranks(4, function, path)
    for phase in PHASES:
        with contextlib.suppress(SystemExit):
            run_ranks(4, killed, path, phase)
        run_ranks(4, restarted, path, phase)


def main_experts() -> None:
    run_ranks(4, experts, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
