"""A training of a GPT in mixed precision on one GPU, whose state is of the size and kind that large trainings save.

bfloat16 weights run forward and backward; fused AdamW steps on float32 masters with float32 moments: 14 bytes per
parameter. The model, the text and the sampler are those of examples/train_gpt, so that the values are those of a real
training after its first steps. Everything also runs on the CPU with a small model, for tests of the programs that use
it.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn

from bench.states import State, bytes_of, tensors_in
from bench.train_gpt import Corpus, Gpt, ModelConfig, Sampler, read_text

BYTES_PER_PARAMETER = 14
ROLES = ("model", "master", "exp_avg", "exp_avg_sq")  # the keys of a state that hold tensors
_VOCAB = 2048
_WARMUP = 10  # steps
_PIECE_ELEMENTS = 1 << 24  # of a fingerprint, whose temporary memory is eight bytes for each


def layers_for(gigabytes: float, width: int) -> int:
    """The number of layers of a state of about this size: a layer has 12 width^2 parameters."""
    of_layers = gigabytes * 1e9 / BYTES_PER_PARAMETER - _VOCAB * width
    return max(1, round(of_layers / (12 * width * width)))


@functools.cache
def _corpus() -> Corpus:
    """Enough text for the batches of any run here, and quick to split into tokens."""
    return Corpus(read_text(1_000_000), _VOCAB)


class GpuTraining:
    """Weights, masters and moments, and the steps that change them. One thread may use it."""

    def __init__(
        self, device: torch.device, layers: int, width: int, *, batch: int = 4, block: int = 512, seed: int = 1
    ) -> None:
        torch.manual_seed(seed)
        self.device, self.layers = device, layers
        config = ModelConfig(
            vocab=_VOCAB,
            block=block,
            layers=layers,
            heads=max(1, width // 64),
            width=width,
            dropout=0.0,
            compute="bfloat16" if device.type == "cuda" else "float32",
        )
        with torch.device(device):
            self._model = Gpt(config)
        self._masters = {name: nn.Parameter(p.detach().clone()) for name, p in self._model.named_parameters()}
        self._model.to(torch.bfloat16)
        self._weights = dict(self._model.named_parameters())
        self._optimizer = torch.optim.AdamW(
            list(self._masters.values()), lr=3e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True
        )
        self._sampler = Sampler(_corpus(), block, batch, seed)
        self.tokens_per_step = batch * block
        self.steps = 0

    @property
    def parameters(self) -> int:
        return sum(master.numel() for master in self._masters.values())

    @property
    def raw_bytes(self) -> int:
        return bytes_of(self.state())

    def step(self) -> Tensor:
        """One step of the optimizer. Returns the loss, for which the device may still be computing."""
        inputs, targets = (tokens.to(self.device, non_blocking=True) for tokens in self._sampler.next())
        loss = self._model(inputs, targets)
        loss.backward()
        for name, master in self._masters.items():
            weight = self._weights[name]
            assert weight.grad is not None
            master.grad = weight.grad.float()
            weight.grad = None
        self.steps += 1
        for group in self._optimizer.param_groups:
            group["lr"] = 3e-4 * min(1.0, self.steps / _WARMUP)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            torch._foreach_copy_(list(self._weights.values()), list(self._masters.values()))
        result: Tensor = loss.detach()
        return result

    def run(self, steps: int) -> float:
        """Takes steps and waits for them. Returns the last loss."""
        loss = torch.zeros(())
        for _ in range(steps):
            loss = self.step()
        synchronize(self.device)
        return float(loss)

    def state(self) -> State:
        """The live tensors, with the names that bitsnap knows the roles of. There are moments after the first step."""
        slots = {name: self._optimizer.state[master] for name, master in self._masters.items()}
        return {
            "step": self.steps,
            "model": {name: weight.detach() for name, weight in self._weights.items()},
            "master": {name: master.detach() for name, master in self._masters.items()},
            "exp_avg": {name: slot["exp_avg"] for name, slot in slots.items()},
            "exp_avg_sq": {name: slot["exp_avg_sq"] for name, slot in slots.items()},
        }


def synchronize(device: torch.device) -> None:
    """Waits for the work of the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def fingerprints(state: State) -> list[tuple[int, int]]:
    """Two sums over the bits of each tensor, one of which depends on their order. Computed on the device."""
    return [_fingerprint(tensor) for tensor in tensors_in(state)]


def _fingerprint(tensor: Tensor) -> tuple[int, int]:
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.element_size()]
    bits = tensor.detach().reshape(-1).view(integers)
    plain = ordered = 0
    for begin in range(0, bits.numel(), _PIECE_ELEMENTS):
        piece = bits[begin : begin + _PIECE_ELEMENTS].to(torch.int64)
        places = torch.arange(begin, begin + piece.numel(), device=bits.device)
        plain += int(piece.sum())
        # Sums of int64 wrap around, which keeps a difference of one element a difference.
        ordered ^= int((piece * (2 * places + 1)).sum())
    return plain, ordered
