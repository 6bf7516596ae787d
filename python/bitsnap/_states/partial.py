"""Loading what can be read of a damaged snapshot: which tensors cannot, and a state without them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from bitsnap import _bitsnap
from bitsnap._arguments import Progress
from bitsnap._states.pickled_values import PickledValue
from bitsnap._states.registry import PackedValue
from bitsnap._states.tree import KeyPath, Reference, is_container, keystr, references
from bitsnap._states.typed_values import is_mapping, items_of, like
from bitsnap.errors import BitsnapError, DamageWarning

_LISTED = 20


def damaged_tensors(
    native: _bitsnap.Snapshot, threads: int = 0, progress: Progress | None = None
) -> dict[int, BitsnapError]:
    """The tensors that cannot be read, by number. Decodes every tensor."""
    return {each.tensor: each.error for each in native.damaged_tensors(threads, progress)}


def without_damaged(tree: Any, damaged: Mapping[int, BitsnapError], stacklevel: int) -> tuple[Any, set[KeyPath]]:
    """The loaded tree without the damaged tensors, and the places that it lost. Warns of them.

    A dict loses the entry, a list or tuple holds None instead, and a value of a program is left out as a whole.

    Raises:
        CorruptError, TruncatedError, ...: the first error, if nothing is left.
    """
    places = dict(references(tree))
    found = {keystr(path, "state"): damaged[each.index] for path, each in places.items() if each.index in damaged}
    if not found:
        return tree, set()
    left = _without(tree, damaged)
    kept = set() if left is ... else {path for path, _ in references(left)}
    if not kept:
        raise next(iter(found.values()))
    warn_of_damage(found, stacklevel + 1)
    return left, places.keys() - kept


def warn_of_damage(damaged: Mapping[str, BitsnapError], stacklevel: int) -> None:
    """Warns once of all that is left out, with the errors by name or place."""
    lines = [f"{len(damaged)} damaged, and left out:"]
    lines += [f"{name}: {error}" for name, error in list(damaged.items())[:_LISTED]]
    if len(damaged) > _LISTED:
        lines.append(f"and {len(damaged) - _LISTED} more")
    warnings.warn(DamageWarning("\n  ".join(lines), dict(damaged)), stacklevel=stacklevel + 1)


def _without(tree: Any, damaged: Mapping[int, BitsnapError]) -> Any:
    """Ellipsis if nothing is left of the value."""
    if isinstance(tree, Reference):
        return ... if tree.index in damaged else tree
    if isinstance(tree, PackedValue | PickledValue):
        return ... if any(each.index in damaged for _, each in references(tree)) else tree
    if not is_container(tree):
        return tree
    items = [(key, _without(item, damaged)) for key, item in items_of(tree)]
    if is_mapping(tree):
        return like(tree, [(key, item) for key, item in items if item is not ...])
    return like(tree, [(key, None if item is ... else item) for key, item in items])
