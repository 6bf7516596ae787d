"""The shared library of bench/native through ctypes: bitsnap's codecs, memcpy, and baselines that are C libraries.

`cmake --preset bench && cmake --build build/bench --target bitsnap_bench` builds the library. Sessions share one arena
for payloads, which is touched before anything is measured; a payload is valid until the next encoding.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.corpus_runs import PROJECT

Bytes = NDArray[np.uint8]
DEFAULT_LIBRARY = PROJECT / "build" / "bench" / "bench" / "libbitsnap_bench.so"


def _address(array: Bytes | None) -> int | None:
    if array is None:
        return None
    if not array.flags.c_contiguous:
        raise ValueError("the native coders need contiguous bytes")
    return array.ctypes.data


class NativeLibrary:
    def __init__(self, path: Path = DEFAULT_LIBRARY) -> None:
        self._functions: Any = ctypes.CDLL(str(path))
        signatures: dict[str, tuple[Any, list[Any]]] = {
            "coders": (ctypes.c_char_p, []),
            "cpu_level": (ctypes.c_char_p, []),
            "error": (ctypes.c_char_p, []),
            "accepts": (ctypes.c_int, [ctypes.c_char_p, ctypes.c_char_p]),
            "open": (ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint]),
            "close": (None, [ctypes.c_void_p]),
            "room": (ctypes.c_uint64, [ctypes.c_void_p, ctypes.c_uint64]),
            "encode": (
                ctypes.c_int64,
                [ctypes.c_void_p] * 3 + [ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64],
            ),
            "decode": (
                ctypes.c_int,
                [ctypes.c_void_p] * 3 + [ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64],
            ),
        }
        for name, (result, arguments) in signatures.items():
            function = getattr(self._functions, f"bitsnap_bench_{name}")
            function.restype = result
            function.argtypes = arguments
        self._arena: Bytes = np.zeros(0, np.uint8)
        self._sessions: dict[tuple[str, str, str, int], int] = {}

    def coders(self) -> dict[str, bool]:
        """Names, and whether the coder uses a base."""
        lines: str = self._functions.bitsnap_bench_coders().decode()
        return {name: mark == "base" for name, mark in (line.split("\t") for line in lines.splitlines())}

    def cpu_level(self) -> str:
        level: str = self._functions.bitsnap_bench_cpu_level().decode()
        return level

    def accepts(self, coder: str, dtype: str) -> bool:
        return bool(self._functions.bitsnap_bench_accepts(coder.encode(), dtype.encode()))

    def _session(self, coder: str, dtype: str, role: str, threads: int) -> int:
        key = (coder, dtype, role, threads)
        if key not in self._sessions:
            opened = self._functions.bitsnap_bench_open(coder.encode(), dtype.encode(), role.encode(), threads)
            if not opened:
                raise ValueError(f"there is no coder {coder!r}")
            self._sessions[key] = opened
        return self._sessions[key]

    def close_sessions(self) -> None:
        """Frees the working memory of all coders; the next encoding allocates it again."""
        for session in self._sessions.values():
            self._functions.bitsnap_bench_close(session)
        self._sessions.clear()

    def _fail(self, coder: str) -> RuntimeError:
        return RuntimeError(f"{coder}: {self._functions.bitsnap_bench_error().decode()}")

    def encode(self, coder: str, dtype: str, role: str, threads: int, data: Bytes, base: Bytes | None) -> int:
        session = self._session(coder, dtype, role, threads)
        room = self._functions.bitsnap_bench_room(session, data.size)
        if self._arena.size < room:
            self._arena = np.ones(room, np.uint8)  # ones, not zeros: each page is touched
        size: int = self._functions.bitsnap_bench_encode(
            session, _address(data), _address(base), data.size, _address(self._arena), self._arena.size
        )
        if size < 0:
            raise self._fail(coder)
        return size

    def decode(self, coder: str, dtype: str, role: str, threads: int, base: Bytes | None, out: Bytes) -> None:
        session = self._session(coder, dtype, role, threads)
        if self._functions.bitsnap_bench_decode(
            session, _address(base), _address(out), out.size, _address(self._arena), self._arena.size
        ):
            raise self._fail(coder)
