"""Weights on the move: what changed between two versions of a model, as bytes, and how to apply it in place.

    patch = bitsnap.make_patch(new.state_dict(), old.state_dict())      # in the trainer
    bitsnap.apply_patch(model.state_dict(), patch)                      # in a rollout engine

A patch holds hashes of what it applies to and of what it makes. Weights that it does not apply to are refused before
any of them changes. An engine that must not stop for long stages the patch first, while it goes on::

    staged = bitsnap.Patch(patch).stage(model.state_dict())             # reads the weights, and writes none
    ...                                                                 # pause
    staged.apply()                                                      # writes what changes; cannot fail
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from bitsnap._bitsnap import NativePatch, make_patch as make_native_patch
from bitsnap._common import brief, import_torch, loaded_torch
from bitsnap._tensors.arrays import Memory, Source, array_address, is_tensor, named_source_of, note_filled
from bitsnap._tensors.device_copies import is_on_gpu, pinned_bytes
from bitsnap._tensors.reading import bytes_at
from bitsnap.errors import InvalidArgumentError

if TYPE_CHECKING:
    import torch

    Weights: TypeAlias = Mapping[str, Any] | torch.nn.Module
else:
    Weights = Any

PatchState: TypeAlias = Literal["applicable", "applied", "partly", "other"]
"""What weights are to a patch: what it applies to; what it makes; in some parts one and in some the other, because an
application was interrupted; or neither."""

_NativeWeight: TypeAlias = tuple[str, str, tuple[int, ...], int, int]


class _Weight(NamedTuple):
    """One tensor of the caller, as contiguous memory: its own, or a copy."""

    native: _NativeWeight
    value: Any
    owner: object
    is_copy: bool


def _named(weights: Weights, what: str) -> Mapping[str, Any]:
    torch = loaded_torch()
    if torch is not None and isinstance(weights, torch.nn.Module):
        named: Mapping[str, Any] = weights.state_dict()
        return named
    if not isinstance(weights, Mapping):
        raise TypeError(f"{what} must be a mapping of names to tensors, or a module, got {brief(weights)}")
    return weights


def _bits(value: Any, item: int) -> Any:
    """A tensor of torch as integers of the same size, which share its memory."""
    torch = import_torch()
    dtypes = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return value.detach().view(dtypes[item]) if item in dtypes else value.detach()


def _copy(value: Any, source: Source) -> tuple[object, int]:
    """A contiguous copy on the CPU, in pinned memory if the tensor is on a GPU."""
    if not is_tensor(value):
        plain = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("<"))
        return plain, array_address(plain)
    plain = value.detach().resolve_conj().resolve_neg()
    if is_on_gpu(value):
        memory = pinned_bytes(source.size_bytes)
        memory.view(plain.dtype).view(plain.shape).copy_(plain)
        return memory, memory.data_ptr()
    plain = plain.cpu().contiguous()
    return plain, plain.data_ptr()


def _weights_of(weights: Weights, what: str) -> list[_Weight]:
    """All tensors, each with memory. The result keeps the memory alive."""
    found = []
    for name, value in _named(weights, what).items():
        if not isinstance(name, str):
            raise TypeError(f"{what} must have names that are str, got {brief(name)}")
        local = value.to_local() if hasattr(value, "to_local") else value
        source = named_source_of(local, f"{what}[{name!r}]")
        owner, address, is_copy = source.owner, source.data, False
        if not isinstance(address, int):
            owner, address = _copy(local, source)
            is_copy = True
        native = (name, source.dtype, source.shape, address, source.size_bytes)
        found.append(_Weight(native, local, owner, is_copy))
    return found


def _native(weights: list[_Weight]) -> list[_NativeWeight]:
    return [weight.native for weight in weights]


def make_patch(
    weights: Weights,
    base: Weights,
    *,
    from_version: str = "",
    to_version: str = "",
    metadata: Mapping[str, str] | None = None,
    hash_unchanged: bool = False,
    threads: int = 0,
) -> bytes:
    """The patch that turns `base` into `weights`, bit for bit.

    Frozen weights cost only the reading, or nothing where they are the same memory in both. Tensors that share their
    memory are tied: they are stored once. A sharded tensor (DTensor) stands for what this rank holds of it, so that
    each rank makes the patch of its shard.

    Args:
        weights: names and tensors of torch or numpy, of any dtype, on any device; or a module. Contiguous tensors on
            the CPU are read in place, others are copied there first.
        base: the same tensors in an earlier version.
        from_version: the name of the version that `base` is, for people and messages.
        to_version: the name of the version that `weights` are.
        metadata: texts that the patch carries.
        hash_unchanged: also hash what did not change, so that receivers can ask for ``verify="all"``.
        threads: 0: all that this process may use.

    Returns:
        The patch. The same weights give the same bytes on every machine.

    Raises:
        InvalidArgumentError: the two do not have the same names, dtypes and shapes.
    """
    new, old = _weights_of(weights, "weights"), _weights_of(base, "base")
    texts = list((metadata or {}).items())
    return make_native_patch(_native(new), _native(old), threads, hash_unchanged, from_version, to_version, texts)


class StagedPatch:
    """What patches change in given weights; made by :meth:`Patch.stage`."""

    def __init__(self, patch: NativePatch, weights: list[_Weight], threads: int, verify_all: bool) -> None:
        self._weights = weights
        self._native = patch.stage(_native(weights), threads, verify_all)
        self._tensors = [names for names, _, _ in patch.tensors()]

    def __repr__(self) -> str:
        return f"StagedPatch({self.changed_elements} elements)"

    @property
    def changed_elements(self) -> int:
        """How many elements change."""
        return self._native.changed_elements

    @property
    def memory_bytes(self) -> int:
        """The memory that the staged changes take, in bytes."""
        return self._native.memory_bytes

    def apply(self, *, threads: int = 0) -> None:
        """Writes the changed elements to the weights that were staged, in place.

        Nothing may use the weights meanwhile, and nothing may have changed them since they were staged. If this process
        dies during the call, :meth:`Patch.state_of` says ``"partly"`` of what is left.

        Args:
            threads: 0: all that this process may use.
        """
        self._native.apply(threads)
        changed = {name for names in self._tensors for name in names}
        for weight in self._weights:
            name = weight.native[0]
            if name not in changed:
                continue
            if weight.is_copy:
                self._write_back(name, weight)
            note_filled(weight.value)

    def changes(self, name: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """What changes in one tensor, for engines that write it themselves.

        Args:
            name: of a tensor that the patch changes.

        Returns:
            Ascending places of elements, counted in row-major order, as uint64; and their new bits, as unsigned
            integers of the size of an element.

        Raises:
            NotFoundError: the patch does not change such a tensor.
        """
        places, values = self._native.changes(name)
        item = next((_item_bytes(weight) for weight in self._weights if weight.native[0] == name), 1)
        return np.frombuffer(places, np.uint64), np.frombuffer(values, f"<u{item}")

    def _write_back(self, name: str, weight: _Weight) -> None:
        """Copies what changed to a tensor that is not contiguous, or not on the CPU."""
        if not is_tensor(weight.value):
            weight.value[...] = weight.owner
            return
        torch = import_torch()
        if not weight.value.is_contiguous():
            weight.value.detach().copy_(weight.owner)
            return
        places, values = self.changes(name)
        device = weight.value.device
        flat = _bits(weight.value, values.itemsize).view(-1)
        new = torch.from_numpy(values.view(f"<{'u' if values.itemsize == 1 else 'i'}{values.itemsize}").copy())
        flat[torch.from_numpy(places.astype(np.int64)).to(device)] = new.to(device)


def _item_bytes(weight: _Weight) -> int:
    item: int = weight.value.element_size() if is_tensor(weight.value) else weight.value.itemsize
    return item


class Patch:
    """A patch, checked against its hash. Patches that are joined, as :func:`fold_patches` does, are one.

    Args:
        patch: what :func:`make_patch` returned.

    Raises:
        CorruptError: the bytes are no patch, or were changed.
        TruncatedError: bytes are missing at the end.
        UnsupportedError: a newer version of bitsnap made it.
    """

    def __init__(self, patch: bytes) -> None:
        if not isinstance(patch, bytes | bytearray | memoryview):
            raise TypeError(f"patch must be bytes, got {brief(patch)}")
        self._native = NativePatch(bytes(patch))

    def __repr__(self) -> str:
        return f"Patch({self.from_version!r} to {self.to_version!r}, {len(self.tensors)} tensors)"

    @property
    def from_version(self) -> str:
        """The name of the version that it applies to; empty if its maker gave none."""
        return self._native.from_version

    @property
    def to_version(self) -> str:
        """The name of the version that it makes; empty if its maker gave none."""
        return self._native.to_version

    @property
    def expected_id(self) -> str:
        """XXH3-128 of the parts that change, as the patch expects them; 32 hexadecimal digits."""
        return self._native.expected_id

    @property
    def result_id(self) -> str:
        """XXH3-128 of the parts that change, as the patch makes them; 32 hexadecimal digits."""
        return self._native.result_id

    @property
    def metadata(self) -> dict[str, str]:
        """The texts that its maker gave."""
        return self._native.metadata

    @property
    def tensors(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Dtype, as in safetensors, and shape of each tensor that changes, by name."""
        return {name: (dtype, tuple(shape)) for names, dtype, shape in self._native.tensors() for name in names}

    def stage(
        self, weights: Weights, *, verify: Literal["changed", "all"] = "changed", threads: int = 0
    ) -> StagedPatch:
        """Checks the weights, and decodes what changes in them. Writes nothing.

        Args:
            weights: names and tensors, or a module. It may have more tensors than the patch changes.
            verify: what is read and checked: ``"changed"``: the parts of the weights that change. ``"all"``: every byte
                of all weights, and the result; only for a patch with hashes of what does not change, and for weights
                with exactly the tensors of its maker.
            threads: 0: all that this process may use.

        Raises:
            NotFoundError: a tensor of the patch is missing.
            InvalidArgumentError: a tensor has another dtype or shape; or, with the code ``"wrong_base"``, the weights
                are not what the patch applies to. The message says whether it was applied already, in part, or never.
        """
        if verify not in ("changed", "all"):
            raise InvalidArgumentError(f"verify must be 'changed' or 'all', got {verify!r}")
        return StagedPatch(self._native, _weights_of(weights, "weights"), threads, verify == "all")

    def state_of(self, weights: Weights, *, threads: int = 0) -> PatchState:
        """What weights are to this patch, see :data:`PatchState`. Reads the parts that change.

        Args:
            weights: as for :meth:`stage`.
            threads: 0: all that this process may use.
        """
        state: PatchState = self._native.state_of(_native(_weights_of(weights, "weights")), threads)  # type: ignore[assignment]
        return state


def apply_patch(
    weights: Weights, patch: bytes, *, verify: Literal["changed", "all"] = "changed", threads: int = 0
) -> None:
    """Changes weights in place: ``Patch(patch).stage(weights).apply()``. If it raises, no weight has changed.

    Args:
        weights: names and tensors, or a module.
        patch: what :func:`make_patch` or :func:`fold_patches` returned.
        verify: as for :meth:`Patch.stage`.
        threads: 0: all that this process may use.

    Raises:
        BitsnapError: as :class:`Patch` and :meth:`Patch.stage`.
    """
    Patch(patch).stage(weights, verify=verify, threads=threads).apply(threads=threads)


def fold_patches(patches: Iterable[bytes], base: Weights | None = None, *, threads: int = 0) -> bytes:
    """One patch for several that follow one another.

    Args:
        patches: in order; each applies to what the one before makes.
        base: the weights that the first applies to. Without them, the patches are joined, in time of their bytes, and
            as large as all together. With them, the result is made anew: what changed twice is stored once, which takes
            the time of :func:`make_patch` and a copy of the weights.
        threads: 0: all that this process may use.

    Raises:
        InvalidArgumentError: there are none; or the names of their versions, where they have some, do not follow one
            another.
    """
    parts = list(patches)
    opened = [Patch(part) for part in parts]
    if not opened:
        raise InvalidArgumentError("patches must not be empty")
    for before, after in itertools.pairwise(opened):
        if before.to_version and after.from_version and before.to_version != after.from_version:
            raise InvalidArgumentError(
                f"the patch from {after.from_version!r} follows one to {before.to_version!r}: they are out of order"
            )
    joined = b"".join(bytes(part) for part in parts)
    if base is None:
        return joined
    old = _weights_of(base, "base")
    copies = [np.copy(_bytes_of(weight)) for weight in old]
    new = [(*weight.native[:3], array_address(copy), copy.nbytes) for weight, copy in zip(old, copies, strict=True)]
    NativePatch(joined).stage(new, threads, False).apply(threads)
    first, last = opened[0], opened[-1]
    return make_native_patch(
        new, _native(old), threads, False, first.from_version, last.to_version, list(last.metadata.items())
    )


def _bytes_of(weight: _Weight) -> np.ndarray[Any, Any]:
    _, _, _, address, size_bytes = weight.native
    return bytes_at(Memory(address, size_bytes, weight.owner))
