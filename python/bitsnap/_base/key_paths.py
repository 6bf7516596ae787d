"""Places in a state: their paths, the names of the tensors there, and how messages name them. Pure functions."""

from __future__ import annotations

from typing import TypeAlias

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
