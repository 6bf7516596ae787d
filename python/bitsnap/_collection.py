"""Python's garbage collector while many objects are made that all live on."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """Keeps the collector from running, which would visit the growing state again and again and find nothing.

    Without it, a load of 100,000 tensors takes 1.7 times as long, and a save up to 1.3 times. Cyclic garbage of other
    threads waits meanwhile. Changes nothing if the program has switched the collector off.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
