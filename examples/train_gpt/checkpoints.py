"""Where the example's checkpoints are stored: the only module here that calls a storage library.

`BitsnapFolder` is a bitsnap.Store, which codes each checkpoint against the one before. `TorchFolder` offers the same on
torch.save, one file per step, for comparison. One writer at a time; whoever only reads opens with `read_only`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch

from records import ROLES, raw_bytes_by_role

if TYPE_CHECKING:
    from types import TracebackType

STORAGES = ("bitsnap", "torch")
Policy: TypeAlias = Literal["lossless", "lmc", "bitsnap", "raw"]


class CheckpointFolder(ABC):
    """A context manager: at the end of the block others may write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> CheckpointFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def steps(self) -> list[int]:
        """Steps whose checkpoint is complete: a save that was cut short is not among them."""

    @abstractmethod
    def save(self, step: int, state: Any) -> None: ...

    @abstractmethod
    def load(self, step: int) -> Any: ...

    @abstractmethod
    def stored_bytes(self, step: int) -> int:
        """What the checkpoint takes on disk."""

    @abstractmethod
    def stored_bytes_by_role(self, step: int) -> dict[str, int]:
        """The same by role; what belongs to no tensor (names, index) counts as "other"."""

    @abstractmethod
    def keyframe_steps(self) -> list[int]:
        """Steps whose checkpoint is not coded against another one."""


class BitsnapFolder(CheckpointFolder):
    def __init__(self, folder: Path, policy: Policy | None = None, *, read_only: bool = False) -> None:
        import bitsnap

        super().__init__(folder)
        if not read_only:
            folder.parent.mkdir(parents=True, exist_ok=True)
        # What the method of BitSnap loses of moments is left out: all are to give the same bits.
        exact = bitsnap.Policy("bitsnap", ["*=exact"]) if policy == "bitsnap" else policy
        self._store = bitsnap.Store(folder, policy=exact, read_only=read_only)

    def close(self) -> None:
        self._store.close()

    def steps(self) -> list[int]:
        return self._store.steps()

    def save(self, step: int, state: Any) -> None:
        self._store.save(step, state)

    def load(self, step: int) -> Any:
        return self._store.load(step)

    def stored_bytes(self, step: int) -> int:
        return self._store.checkpoint(step).stored_bytes

    def stored_bytes_by_role(self, step: int) -> dict[str, int]:
        import bitsnap

        found = bitsnap.inspect(self._store.snapshot(step))
        # Small tensors share chunks: each is taken to cost as much per byte as all of them together.
        shared = found.pool_stored_bytes / max(found.pool_raw_bytes, 1)
        sizes = dict.fromkeys(ROLES, 0.0)
        for tensor in found.tensors:
            if tensor.alias_of is None:
                own = tensor.stored_bytes
                sizes[tensor.role] += tensor.raw_bytes * shared if own is None else own
        rounded = {role: round(size) for role, size in sizes.items()}
        # The index, which says what is where, and the commit record belong to no tensor.
        rounded["other"] += self.stored_bytes(step) - sum(rounded.values())
        return rounded

    def keyframe_steps(self) -> list[int]:
        return [checkpoint.step for checkpoint in self._store.checkpoints() if checkpoint.base is None]


class TorchFolder(CheckpointFolder):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        folder.mkdir(parents=True, exist_ok=True)

    def close(self) -> None:
        pass

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:06d}.pt"

    def steps(self) -> list[int]:
        return sorted(int(path.stem.removeprefix("step-")) for path in self.folder.glob("step-??????.pt"))

    def save(self, step: int, state: Any) -> None:
        path = self.path(step)
        partial = path.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(path)

    def load(self, step: int) -> Any:
        return torch.load(self.path(step), weights_only=True)

    def stored_bytes(self, step: int) -> int:
        return self.path(step).stat().st_size

    def stored_bytes_by_role(self, step: int) -> dict[str, int]:
        sizes = raw_bytes_by_role(self.load(step))  # torch.save stores tensors as they are
        sizes["other"] = 0
        sizes["other"] = self.stored_bytes(step) - sum(sizes.values())
        return sizes

    def keyframe_steps(self) -> list[int]:
        return self.steps()


def open_folder(
    storage: str, folder: Path, policy: Policy | None = None, *, read_only: bool = False
) -> CheckpointFolder:
    return TorchFolder(folder) if storage == "torch" else BitsnapFolder(folder, policy, read_only=read_only)
