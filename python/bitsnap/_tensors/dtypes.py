"""The dtypes of torch, numpy and ml_dtypes by their names in files, which are those of safetensors.

Nothing here imports torch or ml_dtypes before an object or a file needs them.
"""

from __future__ import annotations

import functools
import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from bitsnap.errors import InvalidArgumentError, UnsupportedError

if TYPE_CHECKING:
    import torch as pt

Framework = Literal["pt", "np"]


class _Names(NamedTuple):
    torch: str | None
    numpy: str | None
    ml_dtypes: str | None


# "C32" and "C128" have no name in safetensors; "F4" holds two elements in a byte and is known to torch alone.
_TABLE: dict[str, _Names] = {
    "BOOL": _Names("bool", "bool", None),
    "U8": _Names("uint8", "uint8", None),
    "I8": _Names("int8", "int8", None),
    "U16": _Names("uint16", "uint16", None),
    "I16": _Names("int16", "int16", None),
    "U32": _Names("uint32", "uint32", None),
    "I32": _Names("int32", "int32", None),
    "U64": _Names("uint64", "uint64", None),
    "I64": _Names("int64", "int64", None),
    "F4": _Names("float4_e2m1fn_x2", None, None),
    "F8_E4M3": _Names("float8_e4m3fn", None, "float8_e4m3fn"),
    "F8_E5M2": _Names("float8_e5m2", None, "float8_e5m2"),
    "F8_E4M3FNUZ": _Names("float8_e4m3fnuz", None, "float8_e4m3fnuz"),
    "F8_E5M2FNUZ": _Names("float8_e5m2fnuz", None, "float8_e5m2fnuz"),
    "F8_E8M0": _Names("float8_e8m0fnu", None, "float8_e8m0fnu"),
    "F16": _Names("float16", "float16", None),
    "BF16": _Names("bfloat16", None, "bfloat16"),
    "F32": _Names("float32", "float32", None),
    "F64": _Names("float64", "float64", None),
    "C32": _Names("complex32", None, None),
    "C64": _Names("complex64", "complex64", None),
    "C128": _Names("complex128", "complex128", None),
}
_PACKED = "F4"

_NUMPY_NAMES = {
    names.numpy or names.ml_dtypes: name for name, names in _TABLE.items() if names.numpy or names.ml_dtypes
}


_loaded_torch: ModuleType | None = None


def loaded_torch() -> ModuleType | None:
    """torch if the program has imported it, which is a condition for any object to be a tensor.

    None while another thread is still importing it: it is incomplete, and no tensor exists yet.
    """
    global _loaded_torch
    if _loaded_torch is None:
        torch = sys.modules.get("torch")
        _loaded_torch = None if getattr(getattr(torch, "__spec__", None), "_initializing", False) else torch
    return _loaded_torch


@functools.cache
def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def import_torch() -> Any:
    torch = _module("torch")
    if torch is None:
        raise ImportError("bitsnap: framework 'pt' needs the package torch; framework 'np' gives numpy arrays")
    return torch


def has_torch() -> bool:
    return _module("torch") is not None


@functools.cache
def torch_names() -> dict[pt.dtype, str]:
    """The names in files of all dtypes that can be stored."""
    torch = import_torch()
    return {
        getattr(torch, names.torch): name
        for name, names in _TABLE.items()
        if names.torch is not None and hasattr(torch, names.torch)
    }


def name_of_torch(dtype: pt.dtype) -> str | None:
    """The name in files, or None for a dtype that cannot be stored."""
    return torch_names().get(dtype)


def name_of_numpy(dtype: np.dtype[Any]) -> str | None:
    """The name in files, whatever the byte order, or None for a dtype that cannot be stored."""
    if dtype.hasobject or dtype.fields is not None or dtype.subdtype is not None:
        return None
    return _NUMPY_NAMES.get(dtype.name)


def torch_dtype(name: str, where: str) -> pt.dtype:
    """The dtype of torch; `where` names the tensor in the error."""
    torch = import_torch()
    names = _TABLE.get(name)
    if names is None or names.torch is None or not hasattr(torch, names.torch):
        raise UnsupportedError(f"{where}: torch {torch.__version__} has no dtype for '{name}'")
    dtype: pt.dtype = getattr(torch, names.torch)
    return dtype


def numpy_dtype(name: str, where: str) -> np.dtype[Any]:
    """The dtype of numpy, or of ml_dtypes; `where` names the tensor in the error."""
    names = _TABLE.get(name)
    if names is None or (names.numpy is None and names.ml_dtypes is None):
        raise UnsupportedError(f"{where}: numpy has no dtype for '{name}'")
    if names.numpy is not None:
        return np.dtype(names.numpy)
    ml_dtypes = _module("ml_dtypes")
    if ml_dtypes is None:
        raise ImportError(f"{where}: a numpy array of dtype '{name}' needs the package ml_dtypes")
    if not hasattr(ml_dtypes, str(names.ml_dtypes)):
        raise UnsupportedError(f"{where}: ml_dtypes {ml_dtypes.__version__} has no dtype for '{name}'")
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, str(names.ml_dtypes)))
    return dtype


def stored_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape as files have it: torch counts the bytes of packed dtypes, files count the elements."""
    if name == _PACKED and shape:
        return (*shape[:-1], shape[-1] * 2)
    return shape


def tensor_shape(name: str, shape: tuple[int, ...], where: str) -> tuple[int, ...]:
    """The shape as torch has it; the inverse of stored_shape."""
    if name != _PACKED or not shape:
        return shape
    if shape[-1] % 2 != 0:
        raise UnsupportedError(f"{where}: torch cannot hold dtype 'F4' with an odd last dimension, shape {list(shape)}")
    return (*shape[:-1], shape[-1] // 2)


def framework_name(framework: str) -> Framework:
    if framework in ("pt", "torch", "pytorch"):
        return "pt"
    if framework in ("np", "numpy"):
        return "np"
    raise InvalidArgumentError(f"unknown framework {framework!r}, expected 'pt' or 'np'")
