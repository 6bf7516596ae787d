"""Tensors of torch and arrays of numpy: their dtypes, and their memory, which the library reads and decodes into.

Dtypes have the names of safetensors. A :class:`Source` is one tensor to store. A tensor on the CPU is passed by its
address and strides, so it is never copied as a whole. A tensor on another device is copied to the CPU by a thread of
the library when it is needed, and the copy is freed after its last byte has been read. Nothing here imports torch or
ml_dtypes before an object or a file needs them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from bitsnap._bitsnap import TensorInfo, scatter
from bitsnap._common import import_torch, loaded_torch, optional_module
from bitsnap._tensors.device_copies import DeviceTensor, is_on_gpu
from bitsnap.errors import InvalidArgumentError, UnsupportedError

if TYPE_CHECKING:
    import torch as pt
    from torch import Tensor

    AnyTensor: TypeAlias = Tensor | np.ndarray[Any, Any]
else:
    AnyTensor = Any

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
    ml_dtypes = optional_module("ml_dtypes")
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


# Address, shape, strides in bytes, bytes of an element.
Strided: TypeAlias = tuple[int, tuple[int, ...], tuple[int, ...], int]
# The name of a whole tensor, or "" for that of the part; the shape of the whole tensor; the offset of the part.
NativeBox: TypeAlias = tuple[str, tuple[int, ...], tuple[int, ...]]
Data: TypeAlias = int | Strided | Callable[[], tuple[object, int]]


class Source(NamedTuple):
    """One tensor to store. `data` is valid as long as `owner` lives.

    Made by tuple.__new__() where there may be hundreds of thousands, which takes less than half the time.
    """

    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    data: Data
    identity: Hashable | None  # equal for two tensors that are the same memory, read in the same way
    owner: object


class Memory(NamedTuple):
    """Contiguous memory of exactly a tensor's size. Valid as long as `owner` lives."""

    address: int
    size_bytes: int
    owner: object


# --- torch


def is_tensor(value: object) -> bool:
    torch = loaded_torch()
    return torch is not None and isinstance(value, torch.Tensor)


class NotStorableTensorError(Exception):
    """A tensor or array has no plain bytes. The message goes on after the caller's name for it."""


def _refuse(what: str, instead: str) -> NotStorableTensorError:
    return NotStorableTensorError(f"is {what} and cannot be stored: {instead}")


def _in_transform() -> NotStorableTensorError:
    return _refuse(
        "a tensor inside a transform of torch.func (vmap, grad, ...), which has no memory of its own,",
        "return it from the transformed function, and store the result",
    )


def _check_tensor(tensor: Tensor) -> str:
    """The name of the dtype. Raises NotStorableTensorError for a tensor that has no plain memory."""
    torch = import_torch()
    kind = type(tensor)
    if torch.nn.parameter.is_lazy(tensor):
        raise _refuse("an uninitialized parameter", "run the module once first")
    if tensor.is_meta:
        raise _refuse("a meta tensor, which has no data", "materialize it first")
    if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ and kind is not torch.nn.Parameter:
        raise _refuse(f"a {kind.__module__}.{kind.__qualname__}", "pass the plain tensors it is made of")
    if tensor.is_nested:
        raise _refuse("a nested tensor", "store its parts, as unbind() gives them")
    if tensor.is_quantized:
        raise _refuse(f"a quantized tensor ({tensor.dtype})", "store int_repr(), scales and zero points")
    if tensor.layout != torch.strided:
        raise _refuse(f"a tensor of layout {tensor.layout}", "store its indices and values, or to_dense()")
    name = name_of_torch(tensor.dtype)
    if name is None:
        raise _refuse(f"a tensor of dtype {tensor.dtype}", "view it as a dtype that has whole bytes")
    return name


def _bits(tensor: Tensor) -> Tensor:
    """The same memory as integers, which torch copies bit for bit for every dtype."""
    torch = import_torch()
    dtype = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}.get(tensor.element_size())
    plain: Tensor = tensor.detach()
    if dtype is not None:
        plain = plain.view(dtype)
    return plain


class _UsualTensors(NamedTuple):
    """What nearly all tensors are, whose other properties need no look."""

    types: frozenset[type]
    layout: object
    names: Mapping[Any, str]  # of dtypes


@functools.cache
def _usual_tensors() -> _UsualTensors:
    torch = import_torch()
    return _UsualTensors(frozenset((torch.Tensor, torch.nn.Parameter)), torch.strided, torch_names())


def _tensor_source(tensor: Tensor) -> Source:
    usual = _usual_tensors()
    name = usual.names.get(tensor.dtype)
    if (
        name is None
        or type(tensor) not in usual.types
        or tensor.layout is not usual.layout
        or tensor.is_nested
        or tensor.is_meta
    ):
        name = _check_tensor(tensor)
    shape = tuple(tensor.shape)
    item = tensor.element_size()
    size_bytes = tensor.numel() * item
    try:
        # Keeps the storage alive, not the tensor: a parameter may be assigned other memory while it is being read.
        owner = tensor.untyped_storage()
    except NotImplementedError:  # the wrappers of vmap, grad and jvp
        raise _in_transform() from None
    if size_bytes == 0:
        return Source(name, stored_shape(name, shape), 0, 0, None, tensor)
    is_contiguous, is_conj, is_neg = tensor.is_contiguous(), tensor.is_conj(), tensor.is_neg()
    extent = size_bytes
    if not is_contiguous:
        extent = item + item * sum((n - 1) * step for n, step in zip(shape, tensor.stride(), strict=True))
    if owner.nbytes() < tensor.storage_offset() * item + extent:
        raise _refuse("a tensor whose storage has been freed", "gather its shards first")
    address = tensor.data_ptr()
    if address == 0:  # the wrappers of functionalize
        raise _in_transform()
    stored = shape if item != 1 else stored_shape(name, shape)  # of packed dtypes, which are of single bytes
    is_plain = tensor.is_cpu and not is_on_gpu(tensor) and not is_conj and not is_neg
    if is_plain and is_contiguous:
        return tuple.__new__(Source, (name, stored, size_bytes, address, (address, name, shape), owner))
    strides = tensor.stride()
    identity = (address, tensor.device, name, shape, strides, is_conj, is_neg)
    data = (address, shape, tuple(step * item for step in strides), item) if is_plain else _copied(tensor)
    return Source(name, stored, size_bytes, data, identity, owner)


def usual_sources() -> Mapping[type, Callable[[Any], Source]]:
    """What describes values of the types that nearly all tensors have, as source_of() does."""
    return {} if loaded_torch() is None else dict.fromkeys(_usual_tensors().types, _tensor_source)


def _copied(tensor: Tensor) -> Data:
    """A function that copies to the CPU what is not plain memory there."""

    if is_on_gpu(tensor):
        return DeviceTensor(tensor.detach(), _plain)

    def make() -> tuple[object, int]:
        on_cpu = _plain(tensor).cpu()
        return on_cpu, on_cpu.data_ptr()

    return make


def _plain(tensor: Tensor) -> Tensor:
    """A contiguous tensor of integers on the same device, with the same bits."""
    return _bits(tensor.detach().resolve_conj().resolve_neg()).contiguous()


# --- numpy


def array_address(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _check_array(array: np.ndarray[Any, Any]) -> str:
    kind = type(array)
    if kind is not np.ndarray and kind is not np.memmap:
        raise _refuse(f"a {kind.__module__}.{kind.__qualname__}", "pass the plain arrays it is made of")
    name = name_of_numpy(array.dtype)
    if name is None:
        raise _refuse(f"an array of dtype {array.dtype}", "convert it to numbers or bytes first")
    return name


def _array_source(array: np.ndarray[Any, Any]) -> Source:
    name = _check_array(array)
    if array.size == 0:
        return Source(name, array.shape, 0, 0, None, array)

    def make() -> tuple[object, int]:
        plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        return plain, array_address(plain)

    address = array_address(array)
    identity: Hashable = ("numpy", address, array.dtype.str, name, array.shape, array.strides)
    data: Data = make
    if array.dtype == array.dtype.newbyteorder("<"):
        data = address if array.flags.c_contiguous else (address, array.shape, array.strides, array.itemsize)
        if array.flags.c_contiguous:
            identity = ("numpy", address, name, array.shape)  # whatever the strides of dimensions of one element
    return Source(name, array.shape, array.nbytes, data, identity, array)


def _scalar_source(scalar: np.generic) -> Source:
    return _array_source(np.asarray(scalar))._replace(identity=None)


# --- both


def source_of(value: Any) -> Source:
    """Describes a torch tensor, or a numpy array or scalar. Raises NotStorableTensorError if it has no plain bytes."""
    return source_maker(value)(value)


def source_maker(value: Any) -> Callable[[Any], Source]:
    """What describes values of this type."""
    if is_tensor(value):
        return _tensor_source
    return _scalar_source if isinstance(value, np.generic) else _array_source


def named_source_of(value: Any, where: str) -> Source:
    """The same. `where` names the value in an InvalidArgumentError, such as ``state['model']['weight']``."""
    try:
        return source_of(value)
    except NotStorableTensorError as error:
        raise InvalidArgumentError(f"{where} {error}") from None


class Target(NamedTuple):
    """A tensor of the caller to fill. `place` is memory to decode into; None means that a copy fills the tensor."""

    value: Any
    place: Memory | None
    strided: Strided | None  # memory on the CPU in which no two elements are the same
    identity: Hashable | None


def target_of(value: Any, info: TensorInfo, where: str) -> Target:
    """Checks that dtype, shape and memory of the caller's tensor fit. Raises InvalidArgumentError if not."""
    source = named_source_of(value, where)
    if (source.dtype, source.shape) != (info.dtype, info.shape):
        raise InvalidArgumentError(
            f"{where} is {source.dtype} {list(source.shape)}, but the snapshot holds {info.dtype} {list(info.shape)}"
        )
    return fillable(value, source, where)


def fillable(value: Any, source: Source, where: str) -> Target:
    """Checks that the caller's tensor, which `source` describes, can be filled. Raises InvalidArgumentError if not."""
    if isinstance(value, np.ndarray) and not value.flags.writeable:
        raise InvalidArgumentError(f"{where} is an array that is not writeable")
    if isinstance(source.data, int):
        return Target(value, Memory(source.data, source.size_bytes, source.owner), None, source.identity)
    if isinstance(source.data, tuple) and _may_overlap(source.data):
        raise InvalidArgumentError(f"{where} cannot be filled in place: several of its elements may be the same memory")
    strided = source.data if isinstance(source.data, tuple) else None
    return Target(value, None, strided, source.identity)


def _may_overlap(memory: Strided) -> bool:
    _, shape, strides, extent = memory
    for step, length in sorted((abs(step), length) for step, length in zip(strides, shape, strict=True) if length > 1):
        if step < extent:
            return True
        extent += (length - 1) * step
    return False


def copy_into(place: Target, staged: Any, where: str) -> None:
    """Copies a contiguous tensor or array, bit for bit, into one of any layout and device. To a GPU on its current
    stream, and without waiting if `staged` is pinned.
    """
    target = place.value
    try:
        if place.strided is not None:
            address = staged.data_ptr() if is_tensor(staged) else array_address(staged)
            scatter(address, staged.nbytes, place.strided)
            return
        if isinstance(target, np.ndarray):
            np.copyto(target, staged, casting="equiv")
            return
        torch = import_torch()
        with torch.no_grad():
            if target.is_conj() or target.is_neg():
                target.copy_(staged)
            else:
                _bits(target).copy_(_bits(staged), non_blocking=is_on_gpu(target))
    except (RuntimeError, ValueError) as error:
        raise InvalidArgumentError(f"{where} cannot be filled in place: {error}") from error


def gpu_of(target: Any) -> pt.device | None:
    """The GPU that a tensor is on, if it is on one."""
    return target.device if is_tensor(target) and is_on_gpu(target) else None


def note_filled(target: Any) -> None:
    """Tells autograd that the memory of a tensor has changed."""
    if is_tensor(target) and not target.is_inference():
        import_torch().autograd.graph.increment_version(target)
