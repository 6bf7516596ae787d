"""Writes the files of interop/*/fixtures with pickle and torch.

The files are golden: they are written once, with the torch version that they name, and read for ever. Run this script
only to add a file. It leaves files that exist alone, and needs torch and numpy.

    python tests/write_container_files.py [NAME...]     writes the missing files, or only those whose path contains NAME
"""

from __future__ import annotations

import collections
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

INTEROP = Path(__file__).resolve().parent.parent / "interop"


class Thing:
    """An object whose state is a dict."""

    def __init__(self) -> None:
        self.size = 3


class Pair(tuple):
    """An object whose class gets arguments."""

    def __getnewargs__(self) -> tuple[object, ...]:
        return (tuple(self),)


Thing.__module__ = Pair.__module__ = "fixture"


def values() -> dict[str, object]:
    shared = ["a", 1.5]
    ordered = collections.OrderedDict([("x", 1), ("y", None)])
    circle: list[object] = []
    circle.append(circle)
    return {
        "numbers": [0, 255, 65535, -1, 2**31, -(2**63), True, False],
        "magic": 0x1950A86A20F9469CFC6C,
        "texts": ["", "plain", "x" * 300],
        "shared": (shared, shared),
        "ordered": ordered,
        "circle": circle,
        "tuples": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
        "thing": Thing(),
    }


def write_pickles(write: Callable[[str, Callable[[], bytes]], None]) -> None:
    module = type(sys)("fixture")
    module.Thing, module.Pair = Thing, Pair  # type: ignore[attr-defined]
    sys.modules["fixture"] = module
    for protocol in range(6):
        write(f"pickle/fixtures/values_{protocol}.pkl", lambda p=protocol: pickle.dumps(values(), protocol=p))
    for protocol in (2, 4, 5):
        extra = {"set": {1}, "frozen": frozenset([2]), "bytes": b"abc", "array": bytearray(b"xyz"), "pair": Pair((1, 2))}
        write(f"pickle/fixtures/extra_{protocol}.pkl", lambda p=protocol, e=extra: pickle.dumps(e, protocol=p))


def main() -> None:
    wanted = sys.argv[1:]

    def write(name: str, make: Callable[[], bytes]) -> None:
        path = INTEROP / name
        if path.exists() or (wanted and not any(part in name for part in wanted)):
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make())

    write_pickles(write)


if __name__ == "__main__":
    main()
