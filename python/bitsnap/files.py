"""Flat dicts of tensors in files, under the names that safetensors gave these functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

import numpy as np

from bitsnap import _bitsnap, _dtypes
from bitsnap._adam import AdamOfState
from bitsnap._arrays import AnyTensor, is_tensor, source_of
from bitsnap._options import (
    Bases,
    Masters,
    Objective,
    PathLike,
    PolicyName,
    Progress,
    Role,
    given_settings,
    native_target,
)
from bitsnap._reading import Device, Loader, device_of
from bitsnap._slicing import read_part
from bitsnap._tree import Entries, check_text
from bitsnap.errors import InvalidArgumentError
from bitsnap.policy import Policy, policy_of, warn_of_idle_rules
from bitsnap.snapshot import Snapshot, find_tensor, native_base, native_snapshot


def native_metadata(metadata: Mapping[str, str] | None) -> list[tuple[str, str]]:
    if metadata is not None and not isinstance(metadata, Mapping):
        raise TypeError(f"metadata is a dict of str to str, not {metadata!r}")
    for key, value in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidArgumentError(f"metadata maps str to str, but has {key!r}: {value!r}")
        check_text(key, f"the metadata key {key!r}")
        check_text(value, f"metadata[{key!r}]")
    return list((metadata or {}).items())


def save_file(
    tensors: Mapping[str, AnyTensor],
    path: PathLike,
    metadata: Mapping[str, str] | None = None,
    *,
    base: PathLike | Snapshot | None = None,
    bases: Bases = (),
    policy: PolicyName | Policy = "lossless",
    objective: Objective = "balanced",
    store_speed: int = 0,
    codec: str = "",
    roles: Mapping[str, Role] | None = None,
    masters: Masters | None = None,
    max_depth: int = 8,
    overwrite: bool = True,
    threads: int = 0,
    progress: Progress | None = None,
) -> _bitsnap.SaveSummary:
    """Saves named tensors as one snapshot.

    The file appears whole or not at all: it is written beside its place, synced, and renamed over what was there.

    Args:
        tensors: torch tensors and numpy arrays of any shape, strides, device, and of any dtype with whole bytes. Those
            of other devices are brought to the CPU one after another; those that are not contiguous are copied, when
            their turn comes. Tensors that are the same memory (tied weights) are stored once. They must not change
            before the function returns.
        path: the file to write.
        metadata: strings to keep with the tensors.
        base: an earlier snapshot to store differences against; reading the new file then needs that one too. Tensors
            are compared by name.
        bases: where the base's own bases are looked for, beside its directory.
        policy: "lossless" takes what is best of all codecs; "lmc" is the method of that paper; "raw" stores as is.
            These give back the same bits. "bounded" is "lossless" but for what masters and moments lose, within
            bounds, and "bitsnap" the method of that paper, which quantizes moments. bounded() says by how much, and
            Policy() gives any of them rules.
        objective: what is best under "lossless" and "bounded": "ratio" for least bytes; "balanced" for least time,
            modelled from recorded speeds, of coding and writing at 2 GB/s and of reading back one in ten; "speed" for
            the same in a store of 20 GB/s, each read back.
        store_speed: the store's bytes per second that the objective counts on, 10**6 to 10**12; 0 for its own.
        codec: the name of a codec to force on every chunk that it takes, all others raw; "" for none.
        roles: what tensors are, by name, where the name does not tell: "weight", "master", "exp_avg", "exp_avg_sq" or
            "other". It guides the coding, and says what a policy that is not lossless does to a tensor.
        masters: which float32 tensor a bfloat16 or float16 one is the rounding of, by name, such as
            ``{"model.w": "optimizer.w"}``; where it begins at an element of a flat buffer,
            ``{"model.w": ("optimizer.flat", 1000)}``. For these nothing is looked for; all others are found by
            themselves where they can be. A wrong one costs bytes and changes no bits.
        max_depth: how many snapshots may have to be read for one tensor, beside its own.
        overwrite: replace a file that is there; False refuses.
        threads: 0 for all that the process may use. The file is the same for any number.
        progress: called now and then with (done bytes, total bytes), on any thread; returning False cancels.

    Returns:
        id, raw_bytes, stored_bytes and chunks of what was written.

    Raises:
        InvalidArgumentError: a tensor has no plain data (meta, sparse, quantized), named by its key; or an argument is
            wrong, such as a master that is not there or has not all elements of the weight; or first moments are to be
            rounded and nobody says Adam's numbers.
        ExistsError: the file is there, and `overwrite` is False.
        IoError: the file could not be written. What was at `path` before is still there.
        CancelledError: `progress` returned False.
    """
    chosen = policy_of(policy)
    entries = Entries(roles, masters)
    for name, tensor in tensors.items():
        if not isinstance(name, str):
            raise InvalidArgumentError(f"tensors have names that are str, not {name!r}")
        check_text(name, f"the name {name!r}")
        if not is_tensor(tensor) and not _is_array(tensor):
            raise InvalidArgumentError(
                f"tensors[{name!r}] is of type {type(tensor).__qualname__}, not a tensor or array; "
                "bitsnap.save stores nested states with other values"
            )
        entries.add(name, source_of(tensor, f"tensors[{name!r}]"))
    adam = AdamOfState(chosen)
    adam.tell(entries)
    warn_of_idle_rules(chosen, entries)
    with adam.explained():
        return _bitsnap.save(
            native_target(path, overwrite),
            entries.finish(),
            None,
            native_metadata(metadata),
            settings=given_settings(
                policy=chosen.name,
                objective=objective,
                store_speed=store_speed,
                max_depth=max_depth,
                loss=chosen.rules,
                codec=codec,
            ),
            base=native_base(base, bases, path, overwrite),
            overwrite=overwrite,
            threads=threads,
            progress=progress,
        )


def _is_array(value: object) -> bool:
    return isinstance(value, np.ndarray | np.generic)


def load_file(
    path: PathLike | Snapshot,
    device: Device = "cpu",
    *,
    framework: str = "pt",
    bases: Bases = (),
    threads: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Loads all tensors of a snapshot by name, decoded in parallel straight into their memory.

    Args:
        path: the file, or an open snapshot.
        device: where the tensors go, as torch names it.
        framework: "pt" for torch tensors, "np" for numpy arrays (of the dtypes of ml_dtypes for bfloat16 and float8).
        bases: where the snapshots that this one needs are looked for, beside its directory.
        threads: 0 for all that the process may use.
        progress: called now and then with (done bytes, total bytes); returning False cancels.

    Returns:
        name to tensor, in the order in which they were saved. Tied tensors are one object.

    Raises:
        NotFoundError: the file or one of its bases is not there.
        CorruptError, TruncatedError: the file is damaged. Nothing wrong is ever given out.
        UnsupportedError: the framework has no such dtype.
    """
    kind = _dtypes.framework_name(framework)
    where = device_of(device, kind)
    native = native_snapshot(path, bases)
    infos = native.tensors
    loader = Loader(native, infos)
    tickets = {info.name: loader.want(i, kind, where) for i, info in enumerate(infos)}
    loader.run(threads, progress)
    return {name: loader.get(ticket) for name, ticket in tickets.items()}


class TensorSlice:
    """A tensor in a file that can be indexed: what is asked for is read, and no more than the chunks it touches."""

    def __init__(
        self,
        native: _bitsnap.Snapshot,
        index: int,
        info: _bitsnap.TensorInfo,
        framework: _dtypes.Framework,
        device: Any,
        threads: int,
    ) -> None:
        self._native = native
        self._index = index
        self._info = info
        self._framework = framework
        self._device = device
        self._threads = threads

    def get_shape(self) -> list[int]:
        """The shape, in elements."""
        return list(self._info.shape)

    def get_dtype(self) -> str:
        """The dtype as safetensors names it, such as "BF16"."""
        return self._info.dtype

    def __getitem__(self, key: Any) -> Any:
        """The elements that integers, slices (with steps of any sign) and an ellipsis pick, as numpy counts them.

        Whole ranges of the first dimensions are decoded in place; others are read in pieces of up to 32 MiB.
        """
        part = read_part(self._native, self._index, self._info, key, self._framework, self._threads)
        return part if self._device is None else part.to(self._device)


class safe_open:  # noqa: N801  named as safetensors names it
    """Opens a snapshot to read single tensors and parts of them; named and used as in safetensors.

    Example:
        with bitsnap.safe_open("model.bsnap", framework="pt") as f:
            weight = f.get_tensor("lm_head.weight")
            rows = f.get_slice("wte.weight")[1000:2000]

    Args:
        path: the file, or an open snapshot.
        framework: "pt" for torch tensors, "np" for numpy arrays.
        device: where tensors go, as torch names it.
        bases: where the snapshots that this one needs are looked for, beside its directory.
        threads: 0 for all that the process may use.
    """

    def __init__(
        self,
        path: PathLike | Snapshot,
        framework: str,
        device: Device = "cpu",
        *,
        bases: Bases = (),
        threads: int = 0,
    ) -> None:
        self._framework = _dtypes.framework_name(framework)
        self._device = device_of(device, self._framework)
        self._threads = threads
        self._snapshot: _bitsnap.Snapshot | None = native_snapshot(path, bases)
        self._infos = self._snapshot.tensors

    def _native(self) -> _bitsnap.Snapshot:
        if self._snapshot is None:
            raise InvalidArgumentError("the snapshot is closed: it was opened in a `with` block that has ended")
        return self._snapshot

    def __enter__(self) -> safe_open:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._snapshot = None

    def keys(self) -> list[str]:
        """The names of the tensors, in the order in which they were saved."""
        self._native()
        return [info.name for info in self._infos]

    def metadata(self) -> dict[str, str] | None:
        """The strings that were saved with the tensors; None if there are none."""
        return self._native().metadata or None

    def get_tensor(self, name: str) -> Any:
        """One tensor. Raises NotFoundError if there is none of that name."""
        return self.get_tensors([name])[name]

    def get_tensors(self, names: Iterable[str]) -> dict[str, Any]:
        """Several tensors by name, decoded together."""
        native = self._native()
        loader = Loader(native, self._infos)
        tickets = {name: loader.want(find_tensor(native, name), self._framework, self._device) for name in names}
        loader.run(self._threads, None)
        return {name: loader.get(ticket) for name, ticket in tickets.items()}

    def get_slice(self, name: str) -> TensorSlice:
        """A tensor to be indexed, of which nothing is read yet. Raises NotFoundError if there is none of that name."""
        native = self._native()
        index = find_tensor(native, name)
        return TensorSlice(native, index, self._infos[index], self._framework, self._device, self._threads)
