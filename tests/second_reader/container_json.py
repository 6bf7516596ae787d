"""docs/spec/snapshot.md, the JSON parts: what the state is (content) and how it is stored (encoding)."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from second_reader.chunk_codecs import ELEMENT_SIZES, MAX_ELEMENTS, OPAQUE
from second_reader.reader_errors import require
from second_reader.strict_json import check_type, count, counts, members, parse
from second_reader.typed_tree import parse_tree

_ROLES = {"weight", "master", "exp_avg", "exp_avg_sq", "other"}
_MAX_SIZE = 2**63 - 1
_MAX_PARAMETER_SETS = 65_535
_MAX_INPUTS = 255
_MAX_RANK = 255


@dataclass(frozen=True)
class Tensor:
    name: str
    dtype: str
    shape: list[int]
    role: str
    size: int
    alias: int | None
    pool: int | None
    global_shape: list[int] | None
    offset: list[int] | None


@dataclass(frozen=True)
class Content:
    tensors: list[Tensor]
    pool_size: int
    metadata: dict[str, str]
    tree: Any
    has_tree: bool


@dataclass(frozen=True)
class StreamInput:
    base: int | None
    stream: int
    element: int


@dataclass(frozen=True)
class StreamEncoding:
    rank: int
    inputs: list[StreamInput]
    parameters: list[int]


@dataclass(frozen=True)
class Encoding:
    bases: list[tuple[str, str]]  # id and name
    parameter_sizes: list[int]
    streams: list[StreamEncoding]


@dataclass(frozen=True)
class Stream:
    """Elements in chunks; `first_chunk` is the number of its first one."""

    dtype: str
    elements: int
    first_chunk: int

    @property
    def width(self) -> int:
        return ELEMENT_SIZES.get(self.dtype, 1)

    @property
    def chunk_count(self) -> int:
        return -(-self.elements // MAX_ELEMENTS)

    def chunk_elements(self, chunk: int) -> tuple[int, int]:
        """First element and number of elements of this stream's chunk number `chunk`, counted from 0."""
        first = chunk * MAX_ELEMENTS
        return first, min(MAX_ELEMENTS, self.elements - first)


def parse_content(section: bytes) -> Content:
    top = members(parse(section, "content"), "content", {"tensors"}, {"pool", "metadata", "tree"}, closed=True)
    pool_size = count(top["pool"], "content: pool") if "pool" in top else 0
    require("pool" not in top or pool_size > 0, "content: a pool of no bytes")
    tensors: list[Tensor] = []
    for number, entry in enumerate(check_type(top["tensors"], list, "content: tensors")):
        tensors.append(_parse_tensor(entry, tensors, pool_size, f"content: tensor {number}"))
    names = {tensor.name for tensor in tensors}
    require(len(names) == len(tensors), "content: two tensors have one name")
    metadata = check_type(top.get("metadata", {}), dict, "content: metadata")
    for key, value in metadata.items():
        check_type(value, str, f"content: metadata {key!r}")
    tree = parse_tree(top.get("tree"), [tensor.shape for tensor in tensors])
    return Content(tensors, pool_size, metadata, tree, "tree" in top)


def _parse_tensor(entry: Any, earlier: list[Tensor], pool_size: int, where: str) -> Tensor:
    optional = {"alias", "pool", "bytes", "global_shape", "offset", "global_name"}
    fields = members(entry, where, {"name", "dtype", "shape", "role"}, optional, closed=True)
    name, dtype = (check_type(fields[key], str, f"{where}: {key}") for key in ("name", "dtype"))
    role = check_type(fields["role"], str, f"{where}: role")
    require(role in _ROLES, f"{where}: role {role!r}")
    shape = counts(fields["shape"], f"{where}: shape")
    size = math.prod(shape) * ELEMENT_SIZES.get(dtype, 1)
    require(size <= _MAX_SIZE, f"{where}: shape {shape[:8]} is too large")
    if dtype in ELEMENT_SIZES:
        require("bytes" not in fields, f"{where}: bytes of the known dtype {dtype}")
    else:
        require("bytes" in fields, f"{where}: dtype {dtype!r} is not known, and there is no size in bytes")
        size = count(fields["bytes"], f"{where}: bytes")

    alias = pool = None
    require(size > 0 or not fields.keys() & {"alias", "pool"}, f"{where}: of size 0, yet with alias or pool")
    require(not {"alias", "pool"} <= fields.keys(), f"{where}: both alias and pool")
    if "alias" in fields:
        alias = count(fields["alias"], f"{where}: alias")
        require(alias < len(earlier), f"{where}: alias {alias} is not an earlier tensor")
        require(earlier[alias].alias is None, f"{where}: alias {alias} is itself one")
        require(earlier[alias].size == size, f"{where}: alias {alias} has another size")
    if "pool" in fields:
        pool = count(fields["pool"], f"{where}: pool")
        require(pool + size <= pool_size, f"{where}: bytes {pool} to {pool + size} of a pool of {pool_size}")

    global_shape = offset = None
    require(("global_shape" in fields) == ("offset" in fields), f"{where}: global_shape and offset not together")
    if "offset" in fields:
        global_shape = counts(fields["global_shape"], f"{where}: global_shape")
        offset = counts(fields["offset"], f"{where}: offset")
        require(len(shape) == len(offset) == len(global_shape), f"{where}: a box of another rank")
        inside = all(o + s <= g for o, s, g in zip(offset, shape, global_shape, strict=True))
        require(inside, f"{where}: the box {shape} at {offset} leaves {global_shape}")
    if "global_name" in fields:
        require("offset" in fields, f"{where}: global_name without offset")
        global_name = check_type(fields["global_name"], str, f"{where}: global_name")
        require(global_name not in ("", name), f"{where}: global_name {global_name!r}")
    return Tensor(name, dtype, shape, role, size, alias, pool, global_shape, offset)


def streams_of(content: Content) -> tuple[list[Stream], dict[int, int]]:
    """The streams, and the number of each tensor's stream, if it has one."""
    streams: list[Stream] = []
    stream_of_tensor: dict[int, int] = {}
    next_chunk = 0

    def add(dtype: str, size: int) -> None:
        nonlocal next_chunk
        streams.append(Stream(dtype, size // ELEMENT_SIZES.get(dtype, 1), next_chunk))
        next_chunk += streams[-1].chunk_count

    for number, tensor in enumerate(content.tensors):
        if tensor.size > 0 and tensor.alias is None and tensor.pool is None:
            stream_of_tensor[number] = len(streams)
            add(tensor.dtype if tensor.dtype in ELEMENT_SIZES else OPAQUE, tensor.size)
    if content.pool_size:
        add("U8", content.pool_size)
    return streams, stream_of_tensor


def parse_encoding(section: bytes, streams: list[Stream]) -> Encoding:
    optional = {"writer", "policy", "objective", "bases", "parameters", "streams"}
    top = members(parse(section, "encoding"), "encoding", set(), optional, closed=False)
    for key in ("writer", "policy", "objective"):
        check_type(top.get(key, ""), str, f"encoding: {key}")

    bases = []
    for entry in check_type(top.get("bases", []), list, "encoding: bases"):
        fields = members(entry, "encoding: base", {"id"}, {"name"}, closed=False)
        base_id = check_type(fields["id"], str, "encoding: id of a base")
        require(re.fullmatch("[0-9a-f]{32}", base_id) is not None, f"encoding: {base_id!r} is not an id")
        bases.append((base_id, check_type(fields.get("name", ""), str, "encoding: name of a base")))
    require(len({base_id for base_id, _ in bases}) == len(bases), "encoding: a base appears twice")

    sizes = counts(top.get("parameters", []), "encoding: parameters", 2**32 - 1)
    require(len(sizes) <= _MAX_PARAMETER_SETS, f"encoding: {len(sizes)} parameter sets")
    entries = check_type(top.get("streams", []), list, "encoding: streams")
    require(len(entries) == len(streams), f"encoding: {len(entries)} streams, the content has {len(streams)}")
    parsed = [_parse_stream(entry, number, streams, len(bases), len(sizes)) for number, entry in enumerate(entries)]
    for number, stream in enumerate(parsed):
        for item in stream.inputs:
            if item.base is None:
                require(item.stream < len(parsed), f"encoding: stream {number}: its input {item.stream}")
                before = (parsed[item.stream].rank, item.stream) < (stream.rank, number)
                require(before, f"encoding: stream {number}: its input {item.stream} does not come before it")
    return Encoding(bases, sizes, parsed)


def _parse_stream(entry: Any, number: int, streams: list[Stream], bases: int, sets: int) -> StreamEncoding:
    where = f"encoding: stream {number}"
    fields = members(entry, where, set(), {"rank", "inputs", "parameters", "reason"}, closed=False)
    check_type(fields.get("reason", ""), str, f"{where}: reason")
    rank = count(fields.get("rank", 0), f"{where}: rank")
    require(rank <= _MAX_RANK, f"{where}: rank {rank}")
    inputs = []
    for item in check_type(fields.get("inputs", []), list, f"{where}: inputs"):
        named = members(item, f"{where}: input", {"stream", "element"}, {"base"}, closed=False)
        base = count(named["base"], f"{where}: base") if "base" in named else None
        require(base is None or base < bases, f"{where}: base {base} of {bases}")
        stream = count(named["stream"], f"{where}: input")
        inputs.append(StreamInput(base, stream, count(named["element"], f"{where}: element")))
    require(len(inputs) <= _MAX_INPUTS, f"{where}: {len(inputs)} inputs")
    parameters = counts(fields.get("parameters", []), f"{where}: parameters")
    require(all(index < sets for index in parameters), f"{where}: a parameter set that is not there")
    require(len(parameters) <= _MAX_PARAMETER_SETS, f"{where}: {len(parameters)} parameter sets")
    return StreamEncoding(rank, inputs, parameters)
