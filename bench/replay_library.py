"""A stream in every way that there is, and the planner's choice, through ctypes: bench/native/stream_replay.hpp."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.native_library import DEFAULT_LIBRARY, Bytes

Table = NDArray[np.int64]  # a row for each way, a column for each chunk; -1: it cannot express the chunk


@dataclass(frozen=True)
class Stream:
    name: str
    dtype: str
    role: str
    data: Bytes
    base: Bytes | None  # as long
    peer: Bytes | None  # F32, as many elements
    row_elements: int
    step: dict[str, Bytes] = field(default_factory=dict)  # "base_moment", "moment", "square": what tells the step

    @property
    def like(self) -> str:
        """The same for streams that go by one choice."""
        return f"{re.sub('[0-9]+', '#', self.name)} {self.row_elements} {sorted(self.step)}"

    def chunk_bytes(self) -> Table:
        chunk = (1 << 18) * {"BF16": 2, "F16": 2, "F32": 4}[self.dtype]
        begins = np.arange(0, self.data.size, chunk)
        return np.minimum(self.data.size - begins, chunk).astype(np.int64)


@dataclass(frozen=True)
class Goal:
    objective: str
    store: int = 0  # bytes per second; 0: the objective's own
    codec: str = ""


class ReplayLibrary:
    def __init__(self, path: Path = DEFAULT_LIBRARY) -> None:
        self._functions: Any = ctypes.CDLL(str(path))
        text, number, pointer = ctypes.c_char_p, ctypes.c_uint64, ctypes.c_void_p
        signatures: dict[str, tuple[Any, list[Any]]] = {
            "ways": (text, []),
            "error": (text, []),
            "new_precedents": (pointer, []),
            "delete_precedents": (None, [pointer]),
            "open": (pointer, [text, text, *[pointer] * 3, number, number, *[pointer] * 3, text]),
            "close": (None, [pointer]),
            "chunks": (number, [pointer]),
            "encode": (ctypes.c_int64, [pointer, pointer]),
            "model": (ctypes.c_int64, [pointer, text, number, pointer, pointer]),
            "choose": (ctypes.c_int64, [pointer, pointer, text, number, text, pointer, pointer]),
        }
        for name, (result, arguments) in signatures.items():
            function = getattr(self._functions, f"bitsnap_replay_{name}")
            function.restype = result
            function.argtypes = arguments
        self.ways: list[str] = self._functions.bitsnap_replay_ways().decode().splitlines()

    @contextmanager
    def precedents(self) -> Iterator[int]:
        """Choices that chunks of a state's streams go by; one for each goal."""
        handle: int = self._functions.bitsnap_replay_new_precedents()
        try:
            yield handle
        finally:
            self._functions.bitsnap_replay_delete_precedents(handle)

    def replay(self, stream: Stream) -> Replay:
        return Replay(self._functions, stream, len(self.ways))


class Replay:
    """Of one stream."""

    def __init__(self, functions: Any, stream: Stream, ways: int) -> None:
        self._functions = functions
        self._stream = stream  # keeps the bytes alive
        moments = [stream.step.get(name) for name in ("base_moment", "moment", "square")]
        parts = (stream.data, stream.base, stream.peer, *moments)
        self._bytes = [None if part is None else np.ascontiguousarray(part) for part in parts]
        addresses = [None if part is None else part.ctypes.data for part in self._bytes]
        self._handle = functions.bitsnap_replay_open(
            stream.dtype.encode(),
            stream.role.encode(),
            *addresses[:3],
            stream.data.size,
            stream.row_elements,
            *addresses[3:],
            stream.like.encode(),
        )
        self._chunks: int = functions.bitsnap_replay_chunks(self._handle)
        self._times = np.zeros(3, np.int64)
        self.payloads: Table = np.empty((ways, self._chunks), np.int64)
        self._check(functions.bitsnap_replay_encode(self._handle, self.payloads.ctypes.data))

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *_: object) -> None:
        self._functions.bitsnap_replay_close(self._handle)

    def _check(self, result: int) -> None:
        if result < 0:
            raise RuntimeError(f"{self._stream.name}: {self._functions.bitsnap_replay_error().decode()}")

    def modelled(self, goal: Goal) -> Table:
        """Picoseconds."""
        times = np.empty_like(self.payloads)
        self._check(
            self._functions.bitsnap_replay_model(
                self._handle, goal.objective.encode(), goal.store, self.payloads.ctypes.data, times.ctypes.data
            )
        )
        return times

    def chosen(self, goal: Goal, precedents: int) -> Table:
        """The number of a way for each chunk."""
        ways = np.empty(self._chunks, np.int64)
        self._check(
            self._functions.bitsnap_replay_choose(
                self._handle,
                precedents,
                goal.objective.encode(),
                goal.store,
                goal.codec.encode(),
                ways.ctypes.data,
                self._times.ctypes.data,
            )
        )
        return ways

    @property
    def times_ns(self) -> Table:
        """What hashing, choosing and encoding what was chosen took since the last call."""
        taken = self._times.copy()
        self._times[:] = 0
        return taken
