"""Reading tensors of a snapshot by name, with the names and arguments of safetensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bitsnap import _bitsnap
from bitsnap._common import Bases, Device, PathLike, Progress
from bitsnap._states.tensors import Box, box_around
from bitsnap._tensors.arrays import framework_name
from bitsnap._tensors.reading import Loader, device_of, read_part
from bitsnap.errors import InvalidArgumentError
from bitsnap.snapshot import Snapshot, damaged_tensors, find_tensor, names_of, native_snapshot, warn_of_damage


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
        self._snapshot: _bitsnap.Snapshot | None = native_snapshot(path, bases)

    def _native(self) -> _bitsnap.Snapshot:
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
