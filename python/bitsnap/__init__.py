"""bitsnap stores the checkpoints of a training many times smaller, and gives them back bit for bit,
or within bounds where that was asked for.

    import bitsnap

    with bitsnap.Store("run", keep_last=5) as store:
        store.save(100, {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 100})
        state = store.load()                                        # the newest

    bitsnap.save("step-100.bsnap", state)                          # single files
    bitsnap.save("step-110.bsnap", state, base="step-100.bsnap")   # what has changed since
    state = bitsnap.load("step-110.bsnap")

A Store keeps the checkpoints of a run, and a Checkpointer saves them without holding up the training. save() and load()
take whole states; save_file(), load_file() and safe_open() are named and used as in safetensors.
"""

from __future__ import annotations

import os

from bitsnap import _bitsnap, callbacks
from bitsnap._bitsnap import SaveSummary
from bitsnap._engine_saves import Save, SaveResult
from bitsnap._loss_reports import AdamNumbers, ErrorTally, LossReport, UpdateErrors
from bitsnap._store_reports import (
    Checkpoint,
    CommitOutcome,
    DroppedCheckpoint,
    PruneReport,
    RepairReport,
    RollbackReport,
    StoreDamage,
)
from bitsnap.agents import agent_status, stop_agent
from bitsnap.checkpointer import Checkpointer, Restored
from bitsnap.errors import (
    BackgroundSaveWarning,
    BitsnapError,
    BusyError,
    CancelledError,
    CorruptError,
    ExistsError,
    InternalError,
    InvalidArgumentError,
    IoError,
    NotFoundError,
    ResourceExhaustedError,
    RestoreWarning,
    TruncatedError,
    UnsupportedError,
)
from bitsnap.files import TensorSlice, load_file, safe_open, save_file
from bitsnap.policy import Policy, bounded
from bitsnap.snapshot import Inspection, Snapshot, TensorSummary, compress, decompress, inspect, snapshot_id, verify
from bitsnap.state import load, save
from bitsnap.store import Store

__version__: str = _bitsnap.version()

# Threads do not survive a fork: a child of a process that has used them works on its own thread alone.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_bitsnap.note_fork)

__all__ = [
    "AdamNumbers",
    "BackgroundSaveWarning",
    "BitsnapError",
    "BusyError",
    "CancelledError",
    "Checkpoint",
    "Checkpointer",
    "CommitOutcome",
    "CorruptError",
    "DroppedCheckpoint",
    "ErrorTally",
    "ExistsError",
    "Inspection",
    "InternalError",
    "InvalidArgumentError",
    "IoError",
    "LossReport",
    "NotFoundError",
    "Policy",
    "PruneReport",
    "RepairReport",
    "ResourceExhaustedError",
    "RestoreWarning",
    "Restored",
    "RollbackReport",
    "Save",
    "SaveResult",
    "SaveSummary",
    "Snapshot",
    "Store",
    "StoreDamage",
    "TensorSlice",
    "TensorSummary",
    "TruncatedError",
    "UnsupportedError",
    "UpdateErrors",
    "agent_status",
    "bounded",
    "callbacks",
    "compress",
    "decompress",
    "inspect",
    "load",
    "load_file",
    "safe_open",
    "save",
    "save_file",
    "snapshot_id",
    "stop_agent",
    "verify",
]
