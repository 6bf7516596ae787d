"""What adapters put in the place of a framework's own, and how they give it back."""

from __future__ import annotations

from typing import Any

_MISSING = object()


class Replacing:
    """Attributes that were replaced, to be given back in the other order."""

    def __init__(self) -> None:
        self._stock: list[tuple[Any, str, Any]] = []

    def __bool__(self) -> bool:
        return bool(self._stock)

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """What the object or its class had is given back by undo()."""
        self._stock.append((owner, name, vars(owner).get(name, _MISSING)))
        setattr(owner, name, value)

    def undo(self) -> None:
        while self._stock:
            owner, name, stock = self._stock.pop()
            if stock is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, stock)


def give_class(host: Any, base: type) -> None:
    """Makes an object one of a class that is derived from `base`, an adapter's, and from its own class."""
    if not isinstance(host, base):
        kind = type(host)
        host.__class__ = type(kind.__name__, (base, kind), {"__module__": kind.__module__, "_stock_class": kind})


def give_class_back(host: Any, *attributes: str) -> bool:
    """Undoes give_class(), and deletes attributes that the object has; whether there was anything to undo."""
    kind = vars(type(host)).get("_stock_class")
    if kind is None:
        return False
    host.__class__ = kind
    for name in attributes:
        vars(host).pop(name, None)
    return True
