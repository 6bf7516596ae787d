"""Whether filling the tensors of a module's ``state_dict()`` reaches what the module holds, and the way back through
its ``load_state_dict()`` where that is not certain."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from bitsnap.errors import InvalidArgumentError

_METHODS = (
    "state_dict",
    "load_state_dict",
    "_save_to_state_dict",
    "_load_from_state_dict",
    "get_extra_state",
    "set_extra_state",
)
_HOOKS = (
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
# Of torch, where hooks and overridden methods only rename, gather, or read states of earlier versions.
_HARMLESS = (
    "torch.nn.modules.",
    "torch.nn.parallel.",
    "torch.nn.utils.parametriz",
    "torch.distributed.fsdp.",
    "torch.distributed.algorithms._checkpoint.",
)
_NOT_HARMLESS = "torch.nn.modules.lazy"
# Elements of a fingerprint that are added up at once: 1 MiB, which caches hold.
_CHUNK = 1 << 17
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}


def fills_in_place(model: torch.nn.Module, state: Mapping[str, Any]) -> bool:
    """Whether all tensors of a state_dict() are the memory of the module's own parameters and buffers, and nothing runs
    when such a state is loaded."""
    if not all(_is_plain(module) for module in model.modules()):
        return False
    own = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    return all(
        isinstance(value, torch.Tensor) and key in own and memory_of(value) == memory_of(own[key])
        for key, value in state.items()
    )


def load_back(model: torch.nn.Module, state: Mapping[str, Any]) -> None:
    """Loads a state that state_dict() gave and a checkpoint has filled, and checks that the module has taken it.

    Raises:
        InvalidArgumentError: state_dict() gives other bits afterwards.
    """
    expected = {key: _fingerprint(value) for key, value in state.items() if isinstance(value, torch.Tensor)}
    refused: Exception | None = None
    try:
        model.load_state_dict(state)
    except RuntimeError as error:  # keys that it makes and does not know: then the tensors may be its own
        refused = error
    found = model.state_dict()
    wrong = [
        key
        for key, bits in expected.items()
        if not isinstance(found.get(key), torch.Tensor) or _fingerprint(found[key]) != bits
    ]
    if wrong:
        more = f" and {len(wrong) - 4} more" if len(wrong) > 4 else ""
        raise InvalidArgumentError(
            f"the model does not take back what its state_dict() gave: after load_state_dict(), {', '.join(wrong[:4])}"
            f"{more} of {type(model).__name__} differ from the checkpoint: its hooks or overridden methods must be the "
            f"inverse of each other{f' ({refused})' if refused else ''}"
        ) from refused


def memory_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Equal for tensors that are the same elements of the same memory."""
    local = _local(tensor)
    return (local.device, local.dtype, local.data_ptr(), tuple(local.shape), local.stride(), tuple(tensor.shape))


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether tensors have the same dtype, shape and bits, wherever they are."""
    a, b = _local(a), _local(b)
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    return memory_of(a) == memory_of(b) or _fingerprint(a) == _fingerprint(b.to(a.device))


def _is_plain(module: torch.nn.Module) -> bool:
    kind = type(module)
    if any(name in vars(module) for name in _METHODS):
        return False
    for name in _METHODS:
        maker = next((each for each in kind.__mro__ if name in vars(each)), kind)
        if maker is not torch.nn.Module and not _is_harmless(maker):
            return False
    hooks = (getattr(each, "hook", each) for name in _HOOKS for each in getattr(module, name).values())
    return all(_is_harmless(hook) for hook in hooks)


def _is_harmless(maker: Any) -> bool:
    place = f"{getattr(maker, '__module__', '')}."
    return place.startswith(_HARMLESS) and not place.startswith(_NOT_HARMLESS)


def _local(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _fingerprint(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Of dtype, shape and bits; it depends on the position of each element. Needs 3 MiB besides."""
    local = _local(tensor)
    if type(local) is not torch.Tensor or local.layout != torch.strided or local.is_quantized:
        return (type(local), local.dtype, tuple(local.shape))  # whose bits only its own class knows
    words = local.contiguous().reshape(-1)
    wide = words.nbytes % 8 == 0
    if wide and words.data_ptr() % 8:
        words = words.clone()
    words = words.view(torch.int64 if wide else _INTEGERS[local.element_size()])
    total = torch.zeros((), dtype=torch.int64, device=local.device)
    for part in torch.split(words, _CHUNK):
        total = total * 0x9E3779B97F4A7C1 + (part.to(torch.int64) * _weights(local.device)[: part.numel()]).sum()
    return (local.dtype, tuple(local.shape), int(total))


@functools.lru_cache(maxsize=2)
def _weights(device: torch.device) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    weights = torch.randint(-(2**62), 2**62, (_CHUNK,), generator=generator)
    return weights.bitwise_or_(1).to(device)  # an odd one loses no bit
