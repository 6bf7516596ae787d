"""A small GPT of Megatron-core that trains on CPUs over gloo, and processes that run functions on all ranks.

For scripts of their own processes: importing this module replaces what Megatron-core insists on from torch.cuda.
The stand-ins: tensors for a device "cuda" are made on the CPU, the type of a tensor names such a device, the current
device is the CPU, synchronize() and similar calls do nothing, the random generator of the device is that of the CPU,
and streams do nothing. Besides, steps of torch's AdamW are loaded right, which Megatron-core 0.16 does not do, and its
router works without Transformer Engine. run_ranks() replaces a queue. Nothing else of Megatron or torch is changed.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.overrides import TorchFunctionMode


class _OnCpu(TorchFunctionMode):
    """Makes on the CPU what is asked for on a device "cuda"."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        result = func(*args, **kwargs)
        if func is torch.Tensor.type and isinstance(result, str):
            return result.replace("torch.", "torch.cuda.")
        return result


class _NoStream:
    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


def _stand_in_for_cuda() -> None:
    cuda: Any = torch.cuda
    cuda.current_device = lambda: torch.device("cpu")
    cuda.set_device = lambda device: None
    cuda.synchronize = lambda *args: None
    cuda.empty_cache = lambda: None
    cuda.get_rng_state = cuda.random.get_rng_state = lambda *args, **kwargs: torch.get_rng_state()
    cuda.set_rng_state = lambda state, *args, **kwargs: torch.set_rng_state(state)
    cuda.Stream = cuda.current_stream = lambda *args, **kwargs: _NoStream()
    cuda.stream = lambda stream: contextlib.nullcontext()
    cuda.get_device_capability = lambda *args: (0, 0)
    cuda.FloatTensor = torch.FloatTensor
    torch.Tensor.cuda = lambda self, *args, **kwargs: self  # type: ignore[method-assign]
    cuda.nvtx.range_push = cuda.nvtx.range_pop = lambda *args: None


_stand_in_for_cuda()

from megatron.core import dist_checkpointing, parallel_state, tensor_parallel  # noqa: E402
from megatron.core.dist_checkpointing.strategies import filesystem_async  # noqa: E402
from megatron.core.distributed import (  # noqa: E402
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: E402
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer  # noqa: E402
from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer  # noqa: E402
from megatron.core.pipeline_parallel import get_forward_backward_func  # noqa: E402
from megatron.core.transformer import TransformerConfig  # noqa: E402
from megatron.core.transformer.moe import moe_utils  # noqa: E402

if not hasattr(moe_utils, "te_general_gemm"):
    moe_utils.te_general_gemm = None  # Megatron-core 0.16 asks for it without Transformer Engine, too

WORDS, LENGTH = 128, 16


def _set_states(
    self: Any,
    param: Any,
    tensors: dict[str, Any],
    stock: Any = DistributedOptimizer._set_main_param_and_optimizer_states,
) -> None:
    """Megatron's method, which with torch's AdamW finds no step in a checkpoint, or takes that of before loading.

    load_state_dict() has set the right one already, but as one tensor for all parameters, which then counts each of
    their updates.
    """
    group, order = self.model_param_group_index_map[param]
    state = self.optimizer.state[self.optimizer.param_groups[group]["params"][order]]
    state["step"] = state["step"].clone()
    stock(self, param, {**tensors, "step": state["step"]})


DistributedOptimizer._set_main_param_and_optimizer_states = _set_states


_groups: dict[tuple[int, int, int], dict[str, Any]] = {}  # what Megatron knows of them, by the parallel sizes


def use_parallel_sizes(tp: int, pp: int, ep: int) -> None:
    """Gives Megatron the process groups of these sizes. They are made once in a process, because gloo never ends the
    thread of a group, which wakes a hundred times a second."""
    parallel_state.destroy_model_parallel()
    if (tp, pp, ep) not in _groups:
        parallel_state.initialize_model_parallel(tp, pp, expert_model_parallel_size=ep)
        _groups[tp, pp, ep] = {name: value for name, value in vars(parallel_state).items() if name.isupper()}
    vars(parallel_state).update(_groups[tp, pp, ep])


class Training:
    """One rank of a training: the model, its optimizer, and a number of steps done."""

    def __init__(
        self,
        tp: int,
        pp: int,
        seed: int = 7,
        hidden: int = 32,
        layers: int = 2,
        words: int = WORDS,
        length: int = LENGTH,
        ep: int = 1,
        **more: Any,
    ) -> None:
        """`more` is for TransformerConfig."""
        use_parallel_sizes(tp, pp, ep)
        tensor_parallel.model_parallel_cuda_manual_seed(seed, force_reset_rng=True)
        torch.manual_seed(seed)
        config = TransformerConfig(
            num_layers=layers,
            hidden_size=hidden,
            num_attention_heads=4,
            tensor_model_parallel_size=tp,
            pipeline_model_parallel_size=pp,
            expert_model_parallel_size=ep,
            pipeline_dtype=torch.bfloat16,
            params_dtype=torch.bfloat16,
            bf16=True,
            hidden_dropout=0.0,
            attention_dropout=0.0,
            gradient_accumulation_fusion=False,
            use_cpu_initialization=True,
            bias_dropout_fusion=False,
            persist_layer_norm=False,
            finalize_model_grads_func=finalize_model_grads,
            **more,
        )
        model = GPTModel(
            config,
            get_gpt_layer_local_spec(num_experts=config.num_moe_experts),
            vocab_size=words,
            max_sequence_length=length,
            pre_process=parallel_state.is_pipeline_first_stage(),
            post_process=parallel_state.is_pipeline_last_stage(),
            share_embeddings_and_output_weights=True,
        ).bfloat16()
        ddp = DistributedDataParallelConfig(use_distributed_optimizer=True, overlap_grad_reduce=False)
        self.model = [DistributedDataParallel(config, ddp, model)]
        self.model[0].broadcast_params()
        self.optimizer = get_megatron_optimizer(
            OptimizerConfig(optimizer="adam", lr=1e-3, bf16=True, use_distributed_optimizer=True), self.model
        )
        self.words, self.length = words, length
        self.done = 0

    def batch(self) -> torch.Tensor:
        """The sequences of words of the next step, of all ranks."""
        generator = torch.Generator().manual_seed(100 + self.done)
        return torch.randint(0, self.words, (4, self.length + 1), generator=generator)

    def train(self, steps: int) -> list[float]:
        """The losses of some steps, the same on all ranks of the last stage; empty on others."""
        losses = []
        for _ in range(steps):
            self.model[0].zero_grad_buffer()
            self.optimizer.zero_grad()
            rank, ranks = parallel_state.get_data_parallel_rank(), parallel_state.get_data_parallel_world_size()
            words = self.batch()
            words = words[rank * len(words) // ranks : (rank + 1) * len(words) // ranks]

            def forward(_: Any, model: Any, words: torch.Tensor = words) -> Any:
                positions = torch.arange(self.length).repeat(len(words), 1)
                mask = torch.ones(self.length, self.length).tril().logical_not()[None, None]
                output = model(words[:, :-1], positions, mask, labels=words[:, 1:])
                return output, lambda out: (out.float().mean(), {"loss": out.detach().float().mean()})

            found = get_forward_backward_func()(
                forward_step_func=forward,
                data_iterator=None,
                model=self.model,
                num_microbatches=1,
                seq_length=self.length,
                micro_batch_size=len(words),
            )
            self.optimizer.step()
            self.done += 1
            losses += [each["loss"].item() for each in found]
        return losses

    def sharded(self, sharding: str = "fully_reshardable", *, loading: bool = False) -> dict[str, Any]:
        """The sharded state dict, as Megatron's training loop makes it."""
        metadata = {
            "distrib_optim_sharding_type": sharding,
            "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True),
            "singleton_local_shards": False,
            "chained_optim_avoid_prefix": True,
        }
        model = self.model[0].module.sharded_state_dict(metadata=metadata)
        optimizer = self.optimizer.sharded_state_dict(model, is_loading=loading, metadata=metadata)
        return {"model": model, "optimizer": optimizer, "iteration": self.done}

    def resume(self, folder: Path, sharding: str = "fully_reshardable", strategy: Any = None) -> None:
        if self.done == 0:
            self.train(1)  # makes the states of Adam, which are then filled
        state = dist_checkpointing.load(self.sharded(sharding, loading=True), str(folder), strategy)
        self.model[0].module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.done = state["iteration"]

    def tensors(self) -> dict[str, torch.Tensor]:
        """Copies of all weights, masters and moments of this rank."""
        found = {f"model.{name}": value for name, value in self.model[0].named_parameters()}
        inner = getattr(self.optimizer, "chained_optimizers", [self.optimizer])
        for i, optimizer in enumerate(inner):
            for j, group in enumerate(optimizer.optimizer.param_groups):
                for k, master in enumerate(group["params"]):
                    found[f"{i}.{j}.{k}.master"] = master
                    for name, value in optimizer.optimizer.state[master].items():
                        if isinstance(value, torch.Tensor):
                            found[f"{i}.{j}.{k}.{name}"] = value
        return {name: value.detach().clone() for name, value in found.items()}


def new_folder(parent: Path, iteration: int) -> Path:
    """The folder of an iteration, which rank 0 makes."""
    folder = parent / f"iter_{iteration:07d}"
    if dist.get_rank() == 0:
        folder.mkdir(parents=True, exist_ok=True)
    dist.barrier()
    return folder


def delete(folder: Path) -> None:
    if dist.get_rank() == 0:
        shutil.rmtree(folder)
    dist.barrier()


def run_ranks(ranks: int, function: Callable[..., Any], path: Path, *arguments: Any) -> None:
    """Runs a function on ranks that are forked from this process; ends with an error if one fails."""
    context = torch.multiprocessing.get_context("fork")
    meeting = path / f"meeting-{os.urandom(4).hex()}"
    gc.freeze()  # Megatron collects garbage in each save and load, which would copy all of this process into each rank
    with context.Manager() as manager:
        queues = [manager.Queue() for _ in range(ranks)]
        processes = [
            context.Process(target=one_forked_rank, args=(queue, rank, ranks, function, meeting, path, *arguments))
            for rank, queue in enumerate(queues)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
    meeting.unlink(missing_ok=True)
    if any(process.exitcode != 0 for process in processes):
        raise SystemExit(f"exit codes of the ranks: {[process.exitcode for process in processes]}")


def one_forked_rank(results: Any, *arguments: Any) -> None:
    """one_rank() with the queue for what Megatron's writers return, instead of one in a new process of each rank, which
    would import torch and outlive the rank."""
    filesystem_async._results_queue = results
    one_rank(*arguments)


def one_rank(rank: int, ranks: int, function: Callable[..., Any], meeting: Path, path: Path, *arguments: Any) -> None:
    # Processes that Megatron starts may outlive this one, and would keep the pipes of the script open.
    with (path / "output").open("ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    torch.set_num_threads(1)
    mode: Any = _OnCpu()
    mode.__enter__()  # until the process ends
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    code = 0
    try:
        function(path, *arguments)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        code = 1
    for child in multiprocessing.active_children():  # that of torch_dist's queue of results would stay for ever
        child.kill()
    os._exit(code)  # without a clean end, so that the other ranks' collectives fail
