"""docs/spec/rans.md, the parts that its payloads share: the 256 interleaved states, and the streams that feed them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from second_reader.reader_errors import Truncated, require

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]

GROUPS = 4
LANES = 64
ROUND = GROUPS * LANES  # elements
SLOTS = 256
STATES_SIZE = 2 * ROUND
_FIRST_STATE = 256


class Cursor:
    """A position in a payload. Errors begin with `what`."""

    def __init__(self, data: bytes, what: str) -> None:
        self.data = data
        self.offset = 0
        self._what = what

    def take(self, size: int) -> bytes:
        taken = self.data[self.offset : self.offset + size]
        if len(taken) < size:
            raise Truncated(f"{self._what}: {size} bytes expected at {self.offset}, {len(taken)} remain")
        self.offset += size
        return taken

    def numbers(self, count: int) -> list[int]:
        """`count` numbers of four bytes."""
        return [int(number) for number in np.frombuffer(self.take(4 * count), "<u4")]

    def require_end(self) -> None:
        require(self.offset == len(self.data), f"{self._what}: {len(self.data) - self.offset} bytes behind the last")


class Lanes:
    """The states, from their stored values to their final ones."""

    def __init__(self, streams: list[bytes], stored: bytes) -> None:
        halves = np.frombuffer(stored, np.uint8).reshape(GROUPS, 2, LANES).astype(np.int64)
        require(bool(halves[:, 1].all()), "a state below 256")
        self._streams = [np.frombuffer(stream, np.uint8) for stream in streams]
        self._states = list(halves[:, 1] * 256 + halves[:, 0])
        self._places = [0] * GROUPS

    def slots(self, group: int) -> Numbers:
        slots: Numbers = self._states[group] % SLOTS
        return slots

    def advance(self, group: int, frequencies: Numbers, excess: Numbers) -> None:
        """Advances each lane past its slot, given by its frequency and its distance from the symbol's start."""
        states = frequencies * (self._states[group] // SLOTS) + excess
        grows = states < _FIRST_STATE
        place, count = self._places[group], int(grows.sum())
        stream = self._streams[group]
        require(place + count <= len(stream), "a stream ends before the last element")
        states[grows] = states[grows] * 256 + stream[place : place + count]
        self._places[group] = place + count
        self._states[group] = states

    def require_end(self) -> None:
        places = [len(stream) for stream in self._streams]
        require(self._places == places, "a stream does not end with the last element")
        require(all((states == _FIRST_STATE).all() for states in self._states), "a state does not end as 256")
