"""Whether filling the tensors of a module's ``state_dict()`` reaches what the module holds, and the way back through
its ``load_state_dict()`` where that is not certain."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from bitsnap._overlay import tensors_in
from bitsnap._places import place_of
from bitsnap.errors import InvalidArgumentError, RestoreWarning

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

    A RestoreWarning names other values than tensors that the module gives differently afterwards.

    Raises:
        InvalidArgumentError: load_state_dict() fails, or state_dict() gives other bits afterwards.
    """
    expected = {path: _fingerprint(value) for path, value in tensors_in(state, ())}
    numbers = {key: value for key, value in state.items() if isinstance(value, int | float | str | bytes)}
    refused: Exception | None = None
    try:
        model.load_state_dict(state)
    except Exception as error:
        # Of torch: keys that state_dict() makes and load_state_dict() does not know. Tensors may be the module's own.
        refused = error
        if not (isinstance(error, RuntimeError) and str(error).startswith("Error(s) in loading state_dict for")):
            raise InvalidArgumentError(
                f"the model does not take the checkpoint: load_state_dict() of {type(model).__name__} raised "
                f"{type(error).__name__}: {error}"
            ) from error
    found = model.state_dict()
    tensors = dict(tensors_in(found, ()))
    wrong = [
        str(path[0]) if len(path) == 1 else place_of(path, "state_dict()")
        for path, bits in expected.items()
        if path not in tensors or _fingerprint(tensors[path]) != bits
    ]
    if wrong:
        more = f" and {len(wrong) - 4} more" if len(wrong) > 4 else ""
        raise InvalidArgumentError(
            f"the model does not take back what its state_dict() gave: after load_state_dict(), {', '.join(wrong[:4])}"
            f"{more} of {type(model).__name__} differ from the checkpoint: its hooks or overridden methods must be the "
            f"inverse of each other{f' ({refused})' if refused else ''}"
        ) from refused
    others = [key for key, value in numbers.items() if value == value and found.get(key) != value]  # NaN is not
    if others:
        warnings.warn(
            f"{type(model).__name__} has other values than the checkpoint: {', '.join(others[:4])}",
            RestoreWarning,
            stacklevel=4,
        )


def memory_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Equal for tensors that are the same elements of the same memory."""
    local = _local(tensor)
    if not has_plain_memory(local):
        return (object(),)  # equal to none
    return (local.device, local.dtype, local.data_ptr(), tuple(local.shape), local.stride(), tuple(tensor.shape))


def has_plain_memory(value: Any) -> bool:
    """Whether a value is a tensor, perhaps of a class derived from torch's, whose elements lie in memory of its own."""
    is_wrapper = is_traceable_wrapper_subclass(value)
    return (
        isinstance(value, torch.Tensor) and not is_wrapper and value.layout == torch.strided and not value.is_quantized
    )


def as_plain(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as a tensor of torch's own class, whose functions no derived class changes."""
    is_torchs = type(tensor) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, DTensor)
    return tensor if is_torchs else tensor.as_subclass(torch.Tensor)


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
    if not has_plain_memory(local):
        return (type(local), local.dtype, tuple(local.shape))  # whose bits only its own class knows
    words = as_plain(local).resolve_conj().resolve_neg().contiguous().reshape(-1)
    wide = words.nbytes % 8 == 0
    if wide and (words.data_ptr() % 8 or words.storage_offset() * words.element_size() % 8):
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
