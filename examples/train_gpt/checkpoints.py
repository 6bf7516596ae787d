"""Stores the example's checkpoints; the only module here that calls a storage library.

A training saves with a `Saver`: `EngineSaver` uses a bitsnap.Checkpointer, which copies each step's state into the
memory of an agent and stores every Nth of them; `FolderSaver` stores checkpoints itself. A `CheckpointFolder` reads
stored checkpoints: `BitsnapFolder` is a bitsnap.Store, which codes each checkpoint against the previous one;
`TorchFolder` does the same with torch.save, one file per step, for comparison.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import torch

from records import ROLES, raw_bytes_by_role

if TYPE_CHECKING:
    from types import TracebackType

STORAGES = ("bitsnap", "torch")
Policy: TypeAlias = Literal["lossless", "lmc", "bitsnap", "raw"]


class Closing(ABC):
    """A context manager that closes itself."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None: ...


class CheckpointFolder(Closing):
    """Stored checkpoints; after close(), other processes may write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def steps(self) -> list[int]:
        """The steps with a complete checkpoint, without interrupted saves."""

    @abstractmethod
    def save(self, step: int, state: Any) -> None: ...

    @abstractmethod
    def load(self, step: int) -> Any: ...

    @abstractmethod
    def stored_bytes(self, step: int) -> int:
        """The size of the checkpoint on disk."""

    @abstractmethod
    def stored_bytes_by_role(self, step: int) -> dict[str, int]:
        """The size by role; bytes of no tensor (names, index) count as "other"."""

    @abstractmethod
    def keyframe_steps(self) -> list[int]:
        """Steps whose checkpoint is not coded against another one."""


class BitsnapFolder(CheckpointFolder):
    def __init__(self, folder: Path, policy: Policy | None = None, *, read_only: bool = False) -> None:
        import bitsnap

        super().__init__(folder)
        if not read_only:
            folder.parent.mkdir(parents=True, exist_ok=True)
        # BitSnap's loss of moments is turned off, because all policies must restore the same bits.
        settings = bitsnap.Settings(policy=policy, loss=["*=exact"] if policy == "bitsnap" else None)
        self._store = bitsnap.Store(folder, settings=settings, read_only=read_only)

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
        # Small tensors share chunks, so their cost is divided by their size.
        shared = found.pool_stored_bytes / max(found.pool_raw_bytes, 1)
        sizes = dict.fromkeys(ROLES, 0.0)
        for tensor in found.tensors:
            if tensor.alias_of is None:
                own = tensor.stored_bytes
                sizes[tensor.role] += tensor.raw_bytes * shared if own is None else own
        rounded = {role: round(size) for role, size in sizes.items()}
        # The index and the commit record belong to no tensor.
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


class Saver(Closing):
    """Saves checkpoints; after close(), all saves are stored."""

    @abstractmethod
    def wants(self, step: int) -> bool: ...

    @abstractmethod
    def newest(self) -> tuple[int, Any, str] | None:
        """The newest state, its step, and its source."""

    @abstractmethod
    def save(self, step: int, state: Any) -> float:
        """Seconds for which the training waited."""

    def finished(self) -> list[dict[str, Any]]:
        """The sizes and times of the saves that ended since the last call."""
        return []


class EngineSaver(Saver):
    """Saves every step in memory and every Nth to the disk while the training continues."""

    # Seconds for which an agent waits for the next training after a kill.
    _LINGER_SECONDS = 60

    def __init__(self, folder: Path, every: int) -> None:
        import bitsnap

        folder.parent.mkdir(parents=True, exist_ok=True)
        self._checkpointer = bitsnap.Checkpointer(
            folder,
            every=every,
            every_memory=1,
            agent=bitsnap.AgentOptions(linger=self._LINGER_SECONDS),
            on_progress=bitsnap.callbacks.JsonLines(folder.with_name(f"{folder.name}-saves.jsonl")),
        )
        self._saves: list[bitsnap.Save] = []

    def close(self) -> None:
        self._checkpointer.close()

    def wants(self, step: int) -> bool:
        return True

    def newest(self) -> tuple[int, Any, str] | None:
        restored = self._checkpointer.restore()
        return None if restored is None else (restored.step, restored.state, restored.source)

    def save(self, step: int, state: Any) -> float:
        start = time.monotonic()
        save = self._checkpointer.save(step, state)
        seconds = time.monotonic() - start
        assert save is not None
        self._saves.append(save)
        return seconds

    def finished(self) -> list[dict[str, Any]]:
        done = [save for save in self._saves if save.done()]
        self._saves = [save for save in self._saves if not save.done()]
        results = [save.result() for save in done]
        return [
            {
                "step": result.step,
                "raw_bytes": result.raw_bytes,
                "stored_bytes": result.stored_bytes,
                "stall_seconds": result.stall_seconds,
                "encode_seconds": result.encode_seconds,
                "on_disk": save.persist,
            }
            for save, result in zip(done, results, strict=True)
        ]


class FolderSaver(Saver):
    def __init__(self, folder: CheckpointFolder, every: int) -> None:
        self._folder, self._every = folder, every

    def close(self) -> None:
        self._folder.close()

    def wants(self, step: int) -> bool:
        return step % self._every == 0

    def newest(self) -> tuple[int, Any, str] | None:
        steps = self._folder.steps()
        return (steps[-1], self._folder.load(steps[-1]), "store") if steps else None

    def save(self, step: int, state: Any) -> float:
        start = time.monotonic()
        self._folder.save(step, state)
        return time.monotonic() - start


def open_saver(storage: str, folder: Path, every: int) -> Saver:
    return FolderSaver(TorchFolder(folder), every) if storage == "torch" else EngineSaver(folder, every)


def end_agent(folder: Path) -> None:
    """Ends the agent now; otherwise it ends by itself some time after its last training."""
    import bitsnap

    with suppress(bitsnap.NotFoundError):
        bitsnap.stop_agent(folder)


def open_folder(
    storage: str, folder: Path, policy: Policy | None = None, *, read_only: bool = False
) -> CheckpointFolder:
    return TorchFolder(folder) if storage == "torch" else BitsnapFolder(folder, policy, read_only=read_only)
