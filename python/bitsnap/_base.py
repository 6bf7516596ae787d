"""What needs nothing else of this package: JSON from files, torch if it is there, the places in a
state, and Python's garbage collector.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeAlias


def parse_json(text: str | bytes) -> Any:
    """What a text says that may come from anywhere. Raises ValueError, also if it nests deeper than Python can read."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it nests too deeply") from None


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
def optional_module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def import_torch() -> Any:
    torch = optional_module("torch")
    if torch is None:
        raise ImportError("bitsnap: framework 'pt' needs the package torch; framework 'np' gives numpy arrays")
    return torch


def has_torch() -> bool:
    return optional_module("torch") is not None


# The keys that lead from the state to a value.
KeyPath: TypeAlias = tuple[object, ...]
# Longer paths are cut in messages.
_SHOWN_PATH = 400


def component(key: object) -> str:
    """A key as part of the name of a tensor: ``optimizer.state.0.exp_avg``."""
    if isinstance(key, str):
        return key
    try:
        return str(key) if isinstance(key, int | None) else repr(key)
    except ValueError:
        return _printed(key)


def _printed(key: object) -> str:
    """A key as its repr(); an integer of more decimal digits than Python prints is hexadecimal."""
    try:
        return repr(key)
    except ValueError:
        if isinstance(key, int):
            return hex(key)
        if not isinstance(key, tuple | frozenset):
            raise
        return f"{type(key).__name__}({', '.join(map(_printed, key))})"


def keystr(path: KeyPath, root: str) -> str:
    """A place as messages name it: ``state['optimizer']['state'][0]``."""
    text = root + "".join(f"[{_printed(key)}]" for key in path)
    return text if len(text) <= _SHOWN_PATH else f"{text[:_SHOWN_PATH]}..."


def join(path: KeyPath, name: str, key: object) -> str:
    """The dotted name of an item in the container at `path` with the name `name`."""
    return f"{name}.{component(key)}" if path else component(key)


_NEVER = 1 << 30

_lock = threading.RLock()  # a signal handler may save at any point
_users = 0
_thresholds = (0, 0, 0)  # as they were before the first user


@contextmanager
def without_collection() -> Iterator[None]:
    """Keeps the collector from running by itself, which would visit the growing state again and again in vain.

    Without it, a load of 100,000 tensors takes 1.7 times as long, and a save up to 1.3 times. It takes the thresholds
    of the collector away, so that switching it off and on, and collecting, remain the program's. Cyclic garbage of
    other threads waits meanwhile.
    """
    global _users, _thresholds
    with _lock:
        if _users == 0 and gc.get_threshold()[0] != _NEVER:
            _thresholds = gc.get_threshold()
            gc.set_threshold(_NEVER, *_thresholds[1:])
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users = max(_users - 1, 0)  # 0 already in a child that was forked inside
            if _users == 0:
                _restore()


def _restore() -> None:
    if gc.get_threshold()[0] == _NEVER:  # nobody has chosen others
        gc.set_threshold(*_thresholds)


def _start_anew() -> None:
    """In a forked child, which has none of the other threads."""
    global _lock, _users
    _lock = threading.RLock()
    if _users > 0:
        _users = 0
        _restore()


os.register_at_fork(after_in_child=_start_anew)
