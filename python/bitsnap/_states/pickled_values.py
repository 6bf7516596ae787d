"""Values that only pickle can store: saved and loaded with the caller's consent, `allow_pickle=True`.

A file holds the name of the type as text and the pickle as bytes. Reading the file without consent leaves the bytes
alone: only unpickled() runs them, and only load() with consent calls it.
"""

from __future__ import annotations

import contextlib
import functools
import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bitsnap._base import import_torch, loaded_torch
from bitsnap.errors import InvalidArgumentError

# The name of a pickled value in the typed tree. docs/spec/typed_tree.md.
PICKLED = "pickle"
# Of every version of Python that this package supports: the same value gives the same bytes.
_PROTOCOL = 5


@dataclass
class PickledValue:
    """In a loaded tree: a value that has not been unpickled. Not hashable, as no key is."""

    type_name: str
    content: Any  # bytes, or what stands for bytes that are stored as a tensor


def may_pickle(allow_pickle: bool) -> bool:
    """Checks the argument, because a mistaken value must not allow a pickle."""
    if not isinstance(allow_pickle, bool):
        raise TypeError(f"allow_pickle must be True or False, got {allow_pickle!r}")
    return allow_pickle


def type_name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def pickled(value: Any, where: Callable[[], str]) -> bytes:
    """Raises InvalidArgumentError if pickle cannot store the value either."""
    kind = pickle.Pickler if loaded_torch() is None else _torch_pickler()
    file = io.BytesIO()
    try:
        kind(file, _PROTOCOL).dump(value)
    except Exception as error:
        raise InvalidArgumentError(
            f"{where()} is of type {type_name(type(value))} and cannot be stored, not even pickled: "
            f"{type(error).__name__}: {error}"
        ) from error
    return file.getvalue()


@functools.cache
def _torch_pickler() -> type[pickle.Pickler]:
    """Pickles what holds tensors in the dtypes that torch has had no storage class for since 2.1, such as float8.

    torch pickles their storages in a way that it cannot read.
    """
    torch = import_torch()

    class Pickler(pickle.Pickler):
        def __init__(self, file: io.BytesIO, protocol: int) -> None:
            super().__init__(file, protocol)
            self._of_tensors: set[int] = set()

        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                with contextlib.suppress(RuntimeError, NotImplementedError):  # it has no storage
                    self._of_tensors.add(value.untyped_storage()._cdata)
            if type(value) is not torch.UntypedStorage:
                return NotImplemented
            typed = torch.TypedStorage(wrap_storage=value, dtype=torch.uint8, _internal=True)
            # The function of torch that makes such a tensor expects a typed storage.
            return typed.__reduce__() if value._cdata in self._of_tensors else (getattr, (typed, "_untyped_storage"))

    return Pickler


def check_consent(value: PickledValue, may_unpickle: bool, where: str) -> None:
    """Raises InvalidArgumentError if the caller did not consent to run what the file says."""
    if not may_unpickle:
        raise InvalidArgumentError(
            f"{where} is a pickled value of type {value.type_name!r}: pass allow_pickle=True to load it if you trust "
            "the file, because unpickling runs code that the file chooses; or load other parts with keys="
        )


def unpickled(type_name: str, content: bytes, where: Callable[[], str]) -> Any:
    """Runs the pickle. Only for callers who have consented."""
    try:
        return pickle.loads(content)
    except Exception as error:
        raise InvalidArgumentError(
            f"{where()} is a pickled value of type {type_name!r} and cannot be unpickled: "
            f"{type(error).__name__}: {error}"
        ) from error
