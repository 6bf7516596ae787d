"""Where the example's checkpoints are stored: the only module here that calls a storage library.

A folder holds one file per step, `step-000120.bsnap`, each stored against the one before. `TorchFolder` offers the
same on torch.save, for comparison. One writer at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch

from records import ROLES, raw_bytes_by_role

STORAGES = ("bitsnap", "torch")
Policy: TypeAlias = Literal["lossless", "lmc", "bitsnap", "raw"]


class CheckpointFolder(ABC):
    suffix = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:06d}{self.suffix}"

    def steps(self) -> list[int]:
        """Steps whose checkpoint has its final name: a save that was cut short never gets it."""
        return sorted(int(path.stem.removeprefix("step-")) for path in self.folder.glob(f"step-??????{self.suffix}"))

    def stored_bytes(self, step: int) -> int:
        return self.path(step).stat().st_size

    @abstractmethod
    def save(self, step: int, state: Any) -> None:
        """Stores `state`, with the newest checkpoint of the folder as its base."""

    @abstractmethod
    def load(self, step: int) -> Any: ...

    @abstractmethod
    def stored_bytes_by_role(self, step: int) -> dict[str, int]:
        """The size of the file by role; what belongs to no tensor (names, index) counts as "other"."""


class BitsnapFolder(CheckpointFolder):
    suffix = ".bsnap"

    def __init__(self, folder: Path, policy: Policy = "lossless") -> None:
        super().__init__(folder)
        self._policy = policy

    def save(self, step: int, state: Any) -> None:
        import bitsnap

        earlier = self.steps()
        base = self.path(earlier[-1]) if earlier else None
        bitsnap.save(self.path(step), state, base=base, policy=self._policy)

    def load(self, step: int) -> Any:
        import bitsnap

        return bitsnap.load(self.path(step))

    def stored_bytes_by_role(self, step: int) -> dict[str, int]:
        import bitsnap

        found = bitsnap.inspect(self.path(step))
        # Small tensors share chunks: each is taken to cost as much per byte as all of them together.
        shared = found.pool_stored_bytes / max(found.pool_raw_bytes, 1)
        sizes = dict.fromkeys(ROLES, 0.0)
        for tensor in found.tensors:
            if tensor.alias_of is None:
                own = tensor.stored_bytes
                sizes[tensor.role] += tensor.raw_bytes * shared if own is None else own
        rounded = {role: round(size) for role, size in sizes.items()}
        # The index, which says what is where, belongs to no tensor.
        rounded["other"] += self.stored_bytes(step) - sum(rounded.values())
        return rounded


class TorchFolder(CheckpointFolder):
    suffix = ".pt"

    def save(self, step: int, state: Any) -> None:
        path = self.path(step)
        partial = path.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(path)

    def load(self, step: int) -> Any:
        return torch.load(self.path(step), weights_only=True)

    def stored_bytes_by_role(self, step: int) -> dict[str, int]:
        sizes = raw_bytes_by_role(self.load(step))  # torch.save stores tensors as they are
        sizes["other"] = 0
        sizes["other"] = self.stored_bytes(step) - sum(sizes.values())
        return sizes


def open_folder(storage: str, folder: Path, policy: Policy = "lossless") -> CheckpointFolder:
    return TorchFolder(folder) if storage == "torch" else BitsnapFolder(folder, policy)
