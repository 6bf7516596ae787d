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

from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from bitsnap._bitsnap import NativePatch, make_patch as make_native_patch
from bitsnap._common import LARGEST_COUNT, brief, import_torch, label_of, loaded_torch, number_of
from bitsnap._states.packing import native_metadata
from bitsnap._tensors.arrays import (
    Memory,
    Source,
    Target,
    array_address,
    copy_into,
    fillable,
    is_tensor,
    named_source_of,
    note_filled,
)
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
    """One tensor of the caller, as contiguous memory: its own, or that of a copy."""

    native: _NativeWeight
    value: Any
    source: Source
    copy: Any  # None: its own

    def target(self) -> Target:
        """Raises InvalidArgumentError if the tensor cannot be written in place."""
        name, value = self.native[0], self.value
        where = f"weights[{name!r}]"
        if isinstance(value, np.generic):
            raise InvalidArgumentError(f"{where} is a scalar of numpy, which cannot be written in place: pass an array")
        if is_tensor(value) and any(n > 1 and step == 0 for n, step in zip(value.shape, value.stride(), strict=True)):
            raise InvalidArgumentError(f"{where} cannot be written in place: some of its elements are the same memory")
        return fillable(value, self.source, where)


def _named(weights: Weights, what: str) -> Mapping[str, Any]:
    torch = loaded_torch()
    if torch is not None and isinstance(weights, torch.nn.Module):
        named: Mapping[str, Any] = weights.state_dict()
        return named
    if not isinstance(weights, Mapping):
        raise TypeError(f"{what} must be a mapping of names to tensors, or a module, got {brief(weights)}")
    return weights


def _copy(value: Any, source: Source) -> tuple[Any, int]:
    """A contiguous copy on the CPU, in pinned memory if the tensor is on a GPU; and its address."""
    plain: Any
    if not is_tensor(value):
        plain = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("<")).reshape(value.shape)
        return plain, array_address(plain)
    plain = value.detach().resolve_conj().resolve_neg()
    if is_on_gpu(value):
        pinned = pinned_bytes(source.size_bytes).view(plain.dtype).view(plain.shape)
        plain = pinned.copy_(plain)
    plain = plain.cpu().contiguous()
    return plain, plain.data_ptr()


def _weights_of(weights: Weights, what: str) -> list[_Weight]:
    """All tensors, each with memory. The result keeps the memory alive. Tensors that are tied have one copy."""
    found = []
    copies: dict[Hashable, tuple[Any, int]] = {}
    for name, value in _named(weights, what).items():
        if not isinstance(name, str):
            raise TypeError(f"{what} must have names that are str, got {brief(name)}")
        label_of(name, f"a name in {what}")
        local = value.to_local() if hasattr(value, "to_local") else value
        source = named_source_of(local, f"{what}[{name!r}]")
        if isinstance(source.data, int):
            copy, address = None, source.data
        elif source.identity in copies:
            copy, address = copies[source.identity]
        else:
            copy, address = copies[source.identity] = _copy(local, source)
        native = (name, source.dtype, source.shape, address, source.size_bytes)
        found.append(_Weight(native, local, source, copy))
    return found


def _native(weights: list[_Weight]) -> list[_NativeWeight]:
    return [weight.native for weight in weights]


def _threads(threads: int) -> int:
    return number_of(threads, "threads", LARGEST_COUNT)


def _flag(value: bool, name: str) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {brief(value)}")
    return value


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
    versions = label_of(from_version, "from_version"), label_of(to_version, "to_version")
    texts, all_hashed = native_metadata(metadata), _flag(hash_unchanged, "hash_unchanged")
    new, old = _weights_of(weights, "weights"), _weights_of(base, "base")
    return make_native_patch(_native(new), _native(old), _threads(threads), all_hashed, *versions, texts)


class StagedPatch:
    """What patches change in given weights; made by :meth:`Patch.stage`."""

    def __init__(self, patch: NativePatch, weights: list[_Weight], threads: int, verify_all: bool) -> None:
        self._weights = weights
        self._native = patch.stage(_native(weights), _threads(threads), verify_all)
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
        dies during the call, :meth:`Patch.state_of` returns ``"partly"`` or ``"other"`` for the weights.

        Args:
            threads: 0: all that this process may use.

        Raises:
            InvalidArgumentError: one of the weights to change cannot be written, such as an array that is not
                writeable. None has changed then.
        """
        threads = _threads(threads)
        changed = {name for names in self._tensors for name in names}
        targets = [(weight, weight.target()) for weight in self._weights if weight.native[0] in changed]
        self._native.apply(threads)
        for weight, target in targets:
            if weight.copy is not None:
                self._write_back(weight, target)
            note_filled(weight.value)

    def changes(self, name: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """What changes in one tensor, for engines that write it themselves.

        Args:
            name: of a tensor that the patch changes.

        Returns:
            Ascending places of elements, counted in row-major order, as uint64; and their new bits, as unsigned
            integers of the size of an element. The elements of complex32 and complex128 are single bytes here.

        Raises:
            NotFoundError: the patch does not change such a tensor.
        """
        places, values = (np.frombuffer(part, np.uint8) for part in self._native.changes(name))
        places = places.view(np.uint64)
        return places, values.view(f"<u{values.nbytes // max(places.size, 1) or 1}")

    def _write_back(self, weight: _Weight, target: Target) -> None:
        """Copies what changed to a tensor that is not contiguous, or not on the CPU."""
        value = weight.value
        if not is_tensor(value) or not value.is_contiguous() or value.is_conj() or value.is_neg():
            copy_into(target, weight.copy, f"weights[{weight.native[0]!r}]")
            return
        torch = import_torch()
        places, values = self.changes(weight.native[0])
        item = values.itemsize
        new = torch.from_numpy(values.view(f"<{'u' if item == 1 else 'i'}{item}").copy()).to(value.device)
        with torch.inference_mode(value.is_inference()), torch.no_grad():
            value.view(-1).view(new.dtype)[torch.from_numpy(places.astype(np.int64)).to(value.device)] = new


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

        Raises:
            UnsupportedError: these are several patches that are joined.
        """
        own = _weights_of(weights, "weights")
        state: PatchState = self._native.state_of(_native(own), _threads(threads))  # type: ignore[assignment]
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
    if isinstance(patches, bytes | bytearray | memoryview | str) or not isinstance(patches, Iterable):
        raise TypeError(f"patches must be a list of patches, got {brief(patches)}")
    parts = list(patches)
    threads = _threads(threads)
    if not parts:
        raise InvalidArgumentError("patches must not be empty")
    for part in parts:
        Patch(part)  # alone: joined, one that ends early would look like a damaged one
    joined = b"".join(bytes(part) for part in parts)
    whole = Patch(joined)
    if base is None:
        return joined
    old = _weights_of(base, "base")
    # One copy of tensors that are tied.
    copies = {weight.native[3:]: np.copy(_bytes_of(weight.native)) for weight in old}
    new = [(*native[:3], array_address(copies[native[3:]]), native[4]) for native in _native(old)]
    whole._native.stage(new, threads, False).apply(threads)
    texts = list(whole.metadata.items())
    return make_native_patch(new, _native(old), threads, False, whole.from_version, whole.to_version, texts)


def _bytes_of(weight: _NativeWeight) -> np.ndarray[Any, Any]:
    _, _, _, address, size_bytes = weight
    return bytes_at(Memory(address, size_bytes, None))
