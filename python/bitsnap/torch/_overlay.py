"""Tensors inside nested values, and values with others in their places."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from bitsnap._base import KeyPath, keystr
from bitsnap._states.program_values import packed, registration_of
from bitsnap._states.tree import MAX_DEPTH
from bitsnap._states.typed_values import is_container, is_mapping, items_of, like
from bitsnap.errors import InvalidArgumentError


def tensors_in(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, torch.Tensor]]:
    """The tensors in dicts, lists and tuples at a path of a state, with their paths.

    Raises:
        InvalidArgumentError: a registered value has a DTensor, which nothing could fill.
    """
    if isinstance(value, torch.Tensor):
        yield path, value
    elif is_container(value):
        if len(path) < MAX_DEPTH:  # what is nested deeper, or contains itself, is refused when it is saved
            for key, item in items_of(value):
                yield from tensors_in(item, (*path, key))
    else:
        registration = registration_of(type(value))
        if registration is not None:
            content = packed(value, registration, lambda: keystr(path, "state"))
            for _, tensor in tensors_in(content, path):
                if isinstance(tensor, DTensor):
                    raise InvalidArgumentError(
                        f"{keystr(path, 'state')} is a registered value that holds a DTensor, which a restore cannot "
                        "fill: put the DTensor into a dict of its own"
                    )


def overlaid(value: Any, template: Any, changes: Mapping[KeyPath, Any], path: KeyPath = ()) -> Any:
    """A value with others at some paths in it, which `template` has, too.

    A container that `value` lacks is made like that of `template`, with the changes alone.

    Raises:
        InvalidArgumentError: a list of `value` has another length than that of `template`.
    """
    if not changes:
        return value
    if () in changes:
        return changes[()]
    below: defaultdict[Any, dict[KeyPath, Any]] = defaultdict(dict)
    for (key, *rest), change in changes.items():
        below[key][tuple(rest)] = change
    parts = dict(items_of(template))
    is_alike = is_container(value) and is_mapping(value) == is_mapping(template)
    items = dict(items_of(value)) if is_alike else {}
    if is_alike and not is_mapping(value) and len(items) != len(parts):
        raise InvalidArgumentError(
            f"{keystr(path, 'extra')} has {len(parts)} items, the checkpoint {len(items)}: a list with DTensors must "
            "keep its length"
        )
    for key, part in below.items():
        items[key] = overlaid(items.get(key), parts[key], part, (*path, key))
    return like(value if is_alike else template, items.items())
