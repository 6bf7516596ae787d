"""Single files: saving states, named tensors, and files and folders of others; and reading tensors by name, with the
names and arguments of safetensors.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bitsnap._bitsnap import (
    SaveOptions,
    SaveSummary,
    Settings,
    Snapshot as NativeSnapshot,
    compress as native_compress,
    decompress as native_decompress,
    save as native_save,
)
from bitsnap._common import (
    Bases,
    Device,
    Masters,
    PathLike,
    Progress,
    Role,
    brief,
    may_pickle,
    native_path,
    native_target,
    same_file,
    settings_of,
    warn_of_idle_rules,
)
from bitsnap._display import progress_line
from bitsnap._states.adam import Adam, AdamOfState, Adams, AdamSources
from bitsnap._states.packing import PackedState, Packer, as_packed
from bitsnap._states.tensors import (
    Box,
    Entries,
    LazyTensor,
    box_around,
    check_text,
    local_part,
    place_in_whole,
    tensor_of,
)
from bitsnap._tensors.arrays import AnyTensor, framework_name, is_tensor, named_source_of
from bitsnap._tensors.reading import Loader, device_of, read_part
from bitsnap.errors import InvalidArgumentError
from bitsnap.folder import open_source
from bitsnap.snapshot import (
    Snapshot,
    damaged_tensors,
    explained_load,
    find_tensor,
    names_of,
    native_snapshot,
    snapshot_target,
    warn_of_damage,
)


def save(
    path: PathLike,
    state: Any,
    *,
    base: PathLike | Snapshot | None = None,
    bases: Bases = (),
    settings: Settings | str | None = None,
    adam: Adams | None = None,
    metadata: Mapping[str, str] | None = None,
    roles: Mapping[str, Role] | None = None,
    masters: Masters | None = None,
    allow_pickle: bool = False,
    overwrite: bool = False,
    threads: int = 0,
    progress: Progress | None = None,
) -> SaveSummary:
    """Saves a state, any nesting of dict, list and tuple around tensors and values, as one snapshot.

    A state may hold torch tensors, numpy arrays and numpy scalars, int of any size, float, complex, bool, str, bytes
    and None; OrderedDict, Counter, defaultdict with a builtin type as factory, argparse.Namespace, set and frozenset;
    torch.Size, torch.dtype, torch.device, pathlib paths, date, time, datetime, timedelta, time zones with a fixed
    offset, and members of enum classes; a Box, which holds a part of a sharded tensor, and a DTensor, of which the part
    of this process is saved as a Box; and values of the types that register_value() was called for. Keys of dicts and
    items of sets may be str, int, float, bool, bytes, None, tuples and frozensets of those, enum members, dtypes,
    devices, paths and times. ``state_dict()`` of modules, optimizers and schedulers, ``torch.get_rng_state()``, numpy
    generators' ``bit_generator.state`` and ``random.getstate()`` can be saved as they are. Every value comes back with
    its type and, without loss, its bits; only torch's version string comes back as a str. The file does not store
    devices of tensors, nor whether a tensor is a parameter or requires a gradient.

    The name of a tensor is its place, as in ``optimizer.state.0.exp_avg``. Tensors of a base are found by name.

    Args:
        path: the file to write. It appears completely or not at all.
        state: the state. Its tensors must not change before the function returns.
        metadata: strings to keep with the state.
        allow_pickle: pickle values that cannot be stored otherwise: the innermost ones, each with all that it holds.
            Loading the state then needs the same consent, because unpickling runs code. False raises an error that
            names them.
        base, bases, settings, adam, roles, masters, overwrite, threads, progress: as in save_file().

    Returns:
        id, raw_bytes, stored_bytes and chunks of the file.

    Raises:
        InvalidArgumentError: a value of the state cannot be stored; the message names its place, as in
            ``state['optimizer']['state'][0]``. Or first moments are rounded and a value of Adam is missing. Nothing was
            written.
        ExistsError: the file exists and `overwrite` is False.
        IoError: the file could not be written. A file that was at `path` before is unchanged.
        CancelledError: `progress` returned False.
    """
    chosen = settings_of(settings)
    packed = Packer(plans=False).pack(
        state, chosen, adam, roles=roles, masters=masters, metadata=metadata, may_pickle=may_pickle(allow_pickle)
    )
    return write_packed(
        path, packed, chosen, base=base, bases=bases, overwrite=overwrite, threads=threads, progress=progress
    )


def save_file(
    tensors: Mapping[str, AnyTensor | Box | LazyTensor],
    path: PathLike,
    metadata: Mapping[str, str] | None = None,
    *,
    base: PathLike | Snapshot | None = None,
    bases: Bases = (),
    settings: Settings | str | None = None,
    adam: Adams | None = None,
    roles: Mapping[str, Role] | None = None,
    masters: Masters | None = None,
    overwrite: bool = False,
    threads: int = 0,
    progress: Progress | None = None,
) -> SaveSummary:
    """Saves named tensors as one snapshot.

    The file appears completely or not at all: it is written under a temporary name, synced, and renamed.

    Args:
        tensors: torch tensors and numpy arrays of any shape, strides and device, and of any dtype with whole bytes.
            Tensors on other devices are copied to the CPU one after another, and tensors that are not contiguous are
            copied when they are stored. Tensors that share memory (tied weights) are stored once. A Box holds a part of
            a sharded tensor. The tensors must not change before the function returns.
        path: the file to write.
        metadata: strings to keep with the tensors.
        base: an earlier snapshot to code against; reading the new file then needs the base. Tensors are compared by
            name.
        bases: files or directories that are searched for the bases of the base, besides its directory.
        settings: how the state is coded, or the name of a policy, such as "bounded". Settings.base is not used here.
        adam: Adam's betas, eps and step for first moments, if `settings` rounds them and the state does not have them;
            or a dict or function of the names of tensors that gives them.
        roles: the roles of tensors, by name, where the name does not tell: "weight", "master", "exp_avg", "exp_avg_sq"
            or "other". A role guides the coding and selects loss rules.
        masters: the float32 tensor that a bfloat16 or float16 tensor is the rounding of, by name, such as
            ``{"model.w": "optimizer.w"}``; for a flat buffer, with the element at which the weight begins:
            ``{"model.w": ("optimizer.flat", 1000)}``. bitsnap searches no other master for these weights. A wrong entry
            costs space and changes no bits.
        overwrite: replace the file if it exists.
        threads: 0 for all that the process may use. The file is the same for any number.
        progress: called with (done bytes, total bytes) at most every 50 ms and at the end, on any thread; returning
            False cancels.

    Returns:
        id, raw_bytes, stored_bytes and chunks of the file.

    Raises:
        InvalidArgumentError: a tensor has no plain data (meta, sparse, quantized); the message names its key. Or an
            argument is wrong: a master does not exist or does not have all elements of the weight. Or first moments
            are rounded and a value of Adam is missing.
        ExistsError: the file exists and `overwrite` is False.
        IoError: the file could not be written. A file that was at `path` before is unchanged.
        CancelledError: `progress` returned False.
    """
    chosen = settings_of(settings)
    packed = _pack_tensors(tensors, chosen, adam, roles=roles, masters=masters, metadata=metadata)
    return write_packed(
        path, packed, chosen, base=base, bases=bases, overwrite=overwrite, threads=threads, progress=progress
    )


def compress(
    source: PathLike,
    path: PathLike,
    *,
    base: PathLike | Snapshot | None = None,
    bases: Bases = (),
    settings: Settings | str | None = None,
    adam: Adam | None = None,
    overwrite: bool = False,
    threads: int = 0,
    progress: Progress | None = None,
) -> SaveSummary:
    """Stores a safetensors file as a snapshot, from which decompress() restores the file byte for byte.

    The arguments are those of save_file(). The memory needed depends on the number of threads, not on the size of the
    file. Settings that allow loss change the restored file; if they round first moments, `adam` must have all values,
    as in ``adam=bitsnap.Adam(betas=(0.9, 0.95), eps=1e-8, step=1000)``.
    """
    chosen = settings_of(settings)
    if overwrite and same_file(source, path):
        raise InvalidArgumentError(f"{os.fspath(path)!r} is the source itself; compress to another file")
    numbers = AdamOfState(chosen, adam)
    known = numbers.for_all()
    with numbers.explained(path):
        target = snapshot_target(path, overwrite, stacklevel=2)
        native = _native_base(base, bases, path, overwrite)
        options = SaveOptions(settings=chosen, adam=known, base=native, overwrite=overwrite, threads=threads)
        return native_compress(native_path(source), target, options, progress)


def decompress(
    source: PathLike | Snapshot,
    path: PathLike,
    *,
    bases: Bases = (),
    overwrite: bool = False,
    threads: int = 0,
    progress: Progress | None = None,
) -> int:
    """Writes a snapshot as a safetensors file, atomically; returns the size of that file in bytes.

    A snapshot of compress() gives the original file, byte for byte. Any other gets a new header, with its tree of
    values as JSON under "bitsnap.tree" in the metadata.
    """
    return native_decompress(
        native_snapshot(source, bases),
        native_target(path, overwrite),
        overwrite=overwrite,
        threads=threads,
        progress=progress,
    )


def save_folder(
    source: PathLike,
    path: PathLike,
    *,
    base: PathLike | Snapshot | None = None,
    bases: Bases = (),
    settings: Settings | str | None = None,
    adam: Adam | None = None,
    overwrite: bool = False,
    threads: int = 0,
    progress: Progress | None = None,
) -> SaveSummary:
    """Stores a folder, or a file, of any kind as one snapshot; open_folder() reads it and extracts it byte for byte.

    The other arguments are those of compress(). Settings that allow loss change the tensors that their rules name.

    Args:
        source: the folder or file. It must not change before the function returns.
        path: the file to write, outside of `source`.

    Raises:
        NotFoundError: there is no such folder or file.
        InvalidArgumentError: the folder changed while it was being saved; `path` is as it was before. Or first moments
            are rounded and `adam` does not have all values.
        UnsupportedError: a file is a pipe, a socket or a device.
        ExistsError: `path` exists and `overwrite` is False.

    Warns:
        PlainBytesWarning: files look like those of a known format, but bitsnap could not find their tensors.
    """
    chosen = settings_of(settings)
    target = snapshot_target(path, overwrite, stacklevel=2)
    folder = open_source(source, None, chosen, stacklevel=2)
    numbers = AdamOfState(chosen, adam)
    known = numbers.for_all()
    with numbers.explained(path):
        native = _native_base(base, bases, path, overwrite)
        options = SaveOptions(settings=chosen, adam=known, base=native, overwrite=overwrite, threads=threads)
        return folder.save(target, options, progress)


def write_packed(
    path: PathLike,
    packed: PackedState,
    settings: Settings,
    *,
    base: PathLike | Snapshot | None,
    bases: Bases,
    overwrite: bool,
    threads: int,
    progress: Progress | None,
) -> SaveSummary:
    """Writes one file. For save() and save_file(), whose caller is warned of rules that match nothing."""
    warn_of_idle_rules(settings, packed.names(), stacklevel=3)
    with packed.adam.explained(path):
        target = snapshot_target(path, overwrite, stacklevel=3)
        native = _native_base(base, bases, path, overwrite)
        options = SaveOptions(settings=settings, base=native, overwrite=overwrite, threads=threads)
        return native_save(target, packed.native, options, progress or progress_line(f"saving {os.fspath(path)!r}"))


def _pack_tensors(
    tensors: Mapping[str, AnyTensor | Box | LazyTensor],
    settings: Settings,
    adam: Adams | AdamSources | None,
    *,
    roles: Mapping[str, Role] | None,
    masters: Masters | None,
    metadata: Mapping[str, str] | None,
) -> PackedState:
    """A flat dict of tensors."""
    entries = Entries(roles, masters)
    for name, tensor in tensors.items():
        if not isinstance(name, str):
            raise InvalidArgumentError(f"the names of tensors must be str, got {brief(name)}")
        check_text(name, f"the name {name!r}")
        tensor = local_part(tensor, (name,))
        box = place_in_whole(tensor)
        tensor = tensor_of(tensor)
        if not is_tensor(tensor) and not isinstance(tensor, np.ndarray | np.generic | LazyTensor):
            raise InvalidArgumentError(
                f"tensors[{name!r}] is of type {type(tensor).__qualname__}, not a tensor, array or Box; "
                "bitsnap.save stores nested states with other values"
            )
        if box is not None:
            check_text(box[0], f"the name of tensors[{name!r}]")
        where = f"tensors[{name!r}]"
        is_lazy = isinstance(tensor, LazyTensor)
        entries.add(name, tensor.source(where) if is_lazy else named_source_of(tensor, where), box=box)
    numbers = AdamOfState(settings, adam)
    numbers.tell(entries)
    return as_packed(numbers, entries, None, metadata)


def _native_base(
    base: PathLike | Snapshot | None, bases: Bases, path: PathLike, overwrite: bool
) -> NativeSnapshot | None:
    """The base to code a file at `path` against. The library refuses to replace the bases of the base."""
    if base is None:
        return None
    base_path = base.path if isinstance(base, Snapshot) else base
    if overwrite and same_file(base_path, path):
        raise InvalidArgumentError(
            f"{os.fspath(path)!r} is its own base and would be replaced; save to another file, or without a base"
        )
    return native_snapshot(base, bases)


def load_file(
    path: PathLike | Snapshot,
    device: Device = "cpu",
    *,
    framework: str = "pt",
    bases: Bases = (),
    partial: bool = False,
    threads: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Loads all tensors of a snapshot by name.

    Args:
        path: the file, or an open snapshot.
        device: the device of the tensors, as torch names it.
        framework: "pt" for torch tensors, "np" for numpy arrays (of the dtypes of ml_dtypes for bfloat16 and float8).
        bases: files or directories that are searched for the bases of the snapshot, besides its directory.
        partial: load the tensors that can be read of a damaged file, and warn of the others. The first pass decodes
            every tensor to find them.
        threads: 0 for all that the process may use.
        progress: called with (done bytes, total bytes), with `partial` once more from the start; returning False
            cancels.

    Returns:
        the tensors by name, in the order in which they were saved. Tied tensors are one object.

    Raises:
        NotFoundError: the file or one of its bases does not exist.
        CorruptError, TruncatedError: the file is damaged; with `partial`, no tensor of it can be read.
        UnsupportedError: the framework does not have a dtype of the file.

    Warns:
        DamageWarning: with `partial`, tensors are left out.
    """
    with explained_load(path, "load_file", partial):
        opened = safe_open(path, framework, device, bases=bases, threads=threads)
        indexes = {name: i for i, name in enumerate(opened.keys())}
        damaged = damaged_tensors(opened._native(), threads, progress) if partial else {}
        if damaged:
            found = {name: damaged[i] for name, i in indexes.items() if i in damaged}
            if len(found) == len(indexes):
                raise next(iter(found.values()))
            warn_of_damage(found, stacklevel=2)
        return opened._read({name: i for name, i in indexes.items() if i not in damaged}, progress)


class TensorSlice:
    """A tensor of an open snapshot, of which an index reads only the chunks that it touches."""

    def __init__(self, opened: safe_open, name: str) -> None:
        self._opened = opened
        self._native = opened._native()
        self._index = find_tensor(self._native, name)
        self._info = self._native.tensors[self._index]

    def get_shape(self) -> list[int]:
        """The shape, in elements."""
        return list(self._info.shape)

    def get_dtype(self) -> str:
        """The dtype as safetensors names it, such as "BF16"."""
        return self._info.dtype

    def __getitem__(self, key: Any) -> Any:
        """The elements at integers, slices (with steps of any sign) and an ellipsis, as in numpy.

        Ranges of the first dimensions are decoded in place; others are read in pieces of up to 32 MiB.
        """
        opened = self._opened
        part = read_part(self._native, self._index, self._info, key, opened._framework, opened._threads)
        return part if opened._device is None else part.to(opened._device)


class safe_open:  # noqa: N801  named as safetensors names it
    """Opens a snapshot to read single tensors and parts of them, as in safetensors.

    Example:
        with bitsnap.safe_open("model.bsnap", framework="pt") as f:
            weight = f.get_tensor("lm_head.weight")
            rows = f.get_slice("wte.weight")[1000:2000]

    Args:
        path: the file, or an open snapshot.
        framework: "pt" for torch tensors, "np" for numpy arrays.
        device: the device of the tensors, as torch names it.
        bases: files or directories that are searched for the bases of the snapshot, besides its directory.
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
        self._framework = framework_name(framework)
        self._device = device_of(device, self._framework)
        self._threads = threads
        self._snapshot: NativeSnapshot | None = native_snapshot(path, bases)

    def _native(self) -> NativeSnapshot:
        if self._snapshot is None:
            raise InvalidArgumentError("the snapshot is closed: it was opened in a `with` block that has ended")
        return self._snapshot

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *error: object) -> None:
        self._snapshot = None

    def keys(self) -> list[str]:
        """The names of the tensors, in the order in which they were saved."""
        return names_of(self._native())

    def metadata(self) -> dict[str, str] | None:
        """The strings that were saved with the tensors; None if there are none."""
        return self._native().metadata or None

    def get_tensor(self, name: str) -> Any:
        """One tensor. Raises NotFoundError if there is none of that name."""
        return self.get_tensors([name])[name]

    def get_tensors(self, names: Iterable[str]) -> dict[str, Any]:
        """Several tensors by name, decoded together."""
        native = self._native()
        return self._read({name: find_tensor(native, name) for name in names}, None)

    def _read(self, indexes: dict[str, int], progress: Progress | None) -> dict[str, Any]:
        loader = Loader(self._native())
        tickets = {name: loader.want(index, self._framework, self._device) for name, index in indexes.items()}
        loader.run(self._threads, progress)
        return {name: loader.get(ticket) for name, ticket in tickets.items()}

    def get_box(self, name: str) -> Box | None:
        """The box of a tensor that is a part of a sharded one, with its elements; None for any other tensor."""
        native = self._native()
        info = native.tensors[find_tensor(native, name)]
        return box_around(self.get_tensor(name), info) if info.global_shape is not None else None

    def get_slice(self, name: str) -> TensorSlice:
        """A tensor to be indexed; reads nothing yet. Raises NotFoundError if there is none of that name."""
        return TensorSlice(self, name)
