"""The state of a model: its tensors, inside nested values and the wrappers of torch, and whether filling those of its
``state_dict()`` reaches what the module holds. If that is not certain, load_state_dict() takes the state back. Also the
states of the random generators of a process.
"""

from __future__ import annotations

import functools
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

import numpy as np
import torch
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from bitsnap._common import KeyPath, keystr, warn
from bitsnap._states.program_values import packed, registration_of
from bitsnap._states.tree import MAX_DEPTH
from bitsnap._states.typed_values import is_container, is_mapping, items_of, like
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
    own = _own_tensors(model)
    return all(
        isinstance(value, torch.Tensor) and key in own and memory_of(value) == memory_of(own[key])
        for key, value in state.items()
    )


def with_own_memory(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state with copies of the tensors that share memory, within themselves or with another one: such as expanded
    buffers, and views of a parameter. The copies can be filled, and load_back() loads them."""
    copied = dict(state)
    extents = []
    for key, value in state.items():
        if has_plain_memory(value) and not isinstance(value, DTensor) and value.numel() > 0:
            reach = 1 + sum((size - 1) * step for size, step in zip(value.shape, value.stride(), strict=True))
            begin = value.data_ptr()
            extents.append((str(value.device), begin, -(begin + reach * value.element_size()), key))
    before = ("", 0, "")  # the device, the end and the key of the tensor that reaches furthest
    for device, begin, end, key in sorted(extents):
        value = state[key]
        overlaps = device == before[0] and begin < before[1] and memory_of(value) != memory_of(state[before[2]])
        if overlaps or _is_expanded(value):
            copied[key] = value.detach().clone(memory_format=torch.contiguous_format)
        if device != before[0] or -end > before[1]:
            before = (device, -end, key)
    return copied


def load_back(model: torch.nn.Module, state: Mapping[str, Any], *, verify: bool = True) -> None:
    """Loads a state that state_dict() gave and a checkpoint has filled, and checks that the module has taken it.

    Parameters that the module replaces, as with ``assign=True``, keep their memory: an optimizer refers to it. A
    RestoreWarning names other values than tensors that the module gives differently afterwards.

    Args:
        verify: False allows other bits of tensors, too, with the RestoreWarning.

    Raises:
        InvalidArgumentError: load_state_dict() fails, or state_dict() gives other bits afterwards.
    """
    expected = {path: _fingerprint(value) for path, value in tensors_in(state, ())}
    numbers = {key: value for key, value in state.items() if isinstance(value, int | float | str | bytes)}
    held = [(module, dict(module._parameters)) for module in model.modules()]
    refused: Exception | None = None
    _fill_expanded(model, state)
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
    for module, parameters in held:
        _keep_parameters(module, parameters)
    found = model.state_dict()
    tensors = dict(tensors_in(found, ()))
    wrong = [
        str(path[0]) if len(path) == 1 else keystr(path, "state_dict()")
        for path, bits in expected.items()
        if path not in tensors or _fingerprint(tensors[path]) != bits
    ]
    if wrong and verify:
        more = f" and {len(wrong) - 4} more" if len(wrong) > 4 else ""
        raise InvalidArgumentError(
            f"the model does not take back what its state_dict() gave: after load_state_dict(), {', '.join(wrong[:4])}"
            f"{more} of {type(model).__name__} differ from the checkpoint: its hooks or overridden methods must be the "
            f"inverse of each other; restore(verify=False) allows it{f' ({refused})' if refused else ''}"
        ) from refused
    others = wrong + [key for key, value in numbers.items() if value == value and found.get(key) != value]  # NaN is not
    if others:
        reason = f": {refused}" if refused else ""
        warn(
            f"{type(model).__name__} has other values than the checkpoint: {', '.join(others[:4])}{reason}",
            RestoreWarning,
            stacklevel=4,
        )


def warn_of_lost_bits(model: torch.nn.Module, state: Mapping[str, Any]) -> None:
    """Warns of parameters and buffers that state_dict() gives with fewer bits than the module has."""
    own = _own_tensors(model)
    for key, value in state.items():
        held = own.get(key)
        if not (isinstance(held, torch.Tensor) and isinstance(value, torch.Tensor)):
            continue
        held, value = _local(held), _local(value)
        if not (has_plain_memory(held) and has_plain_memory(value)):
            continue
        if held.is_floating_point() and value.itemsize < held.itemsize and value.numel() == held.numel():
            warn(
                f"state_dict() of {type(model).__name__} gives {key} in {value.dtype}, the module has it in "
                f"{held.dtype}: a training that is restored continues with other values",
                RestoreWarning,
                stacklevel=6,
            )
            return


def memory_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Equal for tensors that are the same elements of the same memory."""
    local = _local(tensor)
    if not has_plain_memory(local):
        return (object(),)  # equal to none
    return (local.device, local.dtype, local.data_ptr(), tuple(local.shape), local.stride(), tuple(tensor.shape))


def has_plain_memory(value: Any) -> TypeGuard[torch.Tensor]:
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


def _own_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The parameters and buffers, by their names."""
    return {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers(remove_duplicate=False))}


def _is_expanded(tensor: torch.Tensor) -> bool:
    return any(size > 1 and step == 0 for size, step in zip(tensor.shape, tensor.stride(), strict=True))


def _fill_expanded(model: torch.nn.Module, state: Mapping[str, Any]) -> None:
    """Fills the expanded tensors of a module, into which torch copies nothing."""
    for key, own in _own_tensors(model).items():
        value = state.get(key)
        if has_plain_memory(own) and _is_expanded(own) and has_plain_memory(value) and value.shape == own.shape:
            once = tuple(slice(0, 1) if step == 0 else slice(None) for step in own.stride())
            own.detach()[once].copy_(value[once])


def _keep_parameters(module: torch.nn.Module, before: Mapping[str, torch.nn.Parameter | None]) -> None:
    for name, parameter in before.items():
        new = module._parameters.get(name)
        if parameter is None or new is None or new is parameter or parameter.is_meta:
            continue
        if (type(new), new.dtype, new.shape) == (type(parameter), parameter.dtype, parameter.shape):
            with torch.no_grad():
                parameter.copy_(new)
            module._parameters[name] = parameter


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


def tensors_in(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, torch.Tensor]]:
    """The tensors in dicts, lists and tuples at a path of a state, with their paths.

    Raises:
        InvalidArgumentError: a registered value has a DTensor, which nothing could fill.
    """
    if isinstance(value, torch.Tensor):
        yield path, value
    elif is_container(value):
        if len(path) < MAX_DEPTH:  # what is nested deeper, or contains itself, is refused when it is saved
            for key, item in items_of(value):
                yield from tensors_in(item, (*path, key))
    else:
        registration = registration_of(type(value))
        if registration is not None:
            content = packed(value, registration, lambda: keystr(path, "state"))
            for _, tensor in tensors_in(content, path):
                if isinstance(tensor, DTensor):
                    raise InvalidArgumentError(
                        f"{keystr(path, 'state')} is a registered value that holds a DTensor, which a restore cannot "
                        "fill: put the DTensor into a dict of its own"
                    )


def overlaid(value: Any, template: Any, changes: Mapping[KeyPath, Any], path: KeyPath = ()) -> Any:
    """A value with others at some paths in it, which `template` has, too.

    A container that `value` lacks is made like that of `template`, with the changes alone.

    Raises:
        InvalidArgumentError: a list of `value` has another length than that of `template`.
    """
    if not changes:
        return value
    if () in changes:
        return changes[()]
    below: defaultdict[Any, dict[KeyPath, Any]] = defaultdict(dict)
    for (key, *rest), change in changes.items():
        below[key][tuple(rest)] = change
    parts = dict(items_of(template))
    is_alike = is_container(value) and is_mapping(value) == is_mapping(template)
    items = dict(items_of(value)) if is_alike else {}
    if is_alike and not is_mapping(value) and len(items) != len(parts):
        raise InvalidArgumentError(
            f"{keystr(path, 'extra')} has {len(parts)} items, the checkpoint {len(items)}: a list with DTensors must "
            "keep its length"
        )
    for key, part in below.items():
        items[key] = overlaid(items.get(key), parts[key], part, (*path, key))
    return like(value if is_alike else template, items.items())


def random_state() -> dict[str, Any]:
    # As a tensor: torch.load() refuses numpy's arrays in what `bitsnap convert` writes.
    name, words, *rest = np.random.get_state()  # noqa: NPY002  what programs use
    return {
        "python": random.getstate(),
        "numpy": (name, torch.from_numpy(words), *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }


def set_random_state(state: Mapping[str, Any]) -> None:
    random.setstate(state["python"])
    name, words, *rest = state["numpy"]
    np.random.set_state((name, np.asarray(words), *rest))  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


# Modules that wrap others hold them by these names.
WRAPPERS = frozenset(("_orig_mod", "_checkpoint_wrapped_module"))


def without_wrappers(model: torch.nn.Module, name: str) -> str:
    """The name of a parameter or buffer in the model that was wrapped."""
    module: Any = model
    components = []
    for component in name.split("."):
        is_wrapped = component in WRAPPERS or (component == "module" and isinstance(module, DistributedDataParallel))
        if not is_wrapped:
            components.append(component)
        module = getattr(module, component, None)
    return ".".join(components)


def groups_of_replicas(model: torch.nn.Module) -> dict[int, Any]:
    """The groups of DistributedDataParallel, by the identities of the parameters that it keeps equal."""
    return {
        id(parameter): module.process_group
        for module in model.modules()
        if isinstance(module, DistributedDataParallel)
        for name, parameter in module.module.named_parameters()
        if name not in module.parameters_to_ignore
    }
