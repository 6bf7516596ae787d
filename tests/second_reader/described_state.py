"""What the second reader finds in a snapshot, in the words of golden/state_description.py."""

from __future__ import annotations

from typing import Any

from golden.state_description import describe, describe_tensor
from second_reader.bsnap_reader import Snapshot
from second_reader.typed_tree import TensorRef, Typed


def describe_state(snapshot: Snapshot) -> Any:
    """The tree, with each tensor in its place."""

    def describe_other(value: TensorRef | Typed) -> Any:
        if isinstance(value, Typed) and value.name in ("bytes", "str"):
            content = snapshot.read_tensor(value.content.index)
            return describe(content if value.name == "bytes" else content.decode(), describe_other)
        if isinstance(value, Typed):
            return {"typed": [value.name, describe(value.content, describe_other)]}
        return _describe_reference(snapshot, value)

    return describe(snapshot.tree, describe_other)


def describe_named(snapshot: Snapshot) -> dict[str, Any]:
    """The tensors by name."""
    return {
        tensor.name: _describe_reference(snapshot, TensorRef("tensor", number))
        for number, tensor in enumerate(snapshot.tensors)
    }


def _describe_reference(snapshot: Snapshot, reference: TensorRef) -> dict[str, Any]:
    tensor = snapshot.tensors[reference.index]
    return describe_tensor(reference.kind, tensor.dtype, tensor.shape, snapshot.read_tensor(reference.index))
