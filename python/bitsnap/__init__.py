"""bitsnap stores the checkpoints of a training many times smaller and restores them bit for bit, or, on request, within
stated bounds.

    import bitsnap

    with bitsnap.Store("run", keep_last=5) as store:
        store.save(100, {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 100})
        state = store.load()                                        # the newest

    bitsnap.save("step-100.bsnap", state)                          # single files
    bitsnap.save("step-110.bsnap", state, base="step-100.bsnap")   # the changes since step 100
    state = bitsnap.load("step-110.bsnap")

A Store keeps the checkpoints of a run, and a Checkpointer saves them without stopping the training. Store.add_folder()
keeps the folders that other frameworks write. save() and load() write and read whole states; save_file(), load_file()
and safe_open() have the names and arguments of safetensors. Settings say how states are coded.
"""

from __future__ import annotations

import os

from bitsnap import _bitsnap, callbacks as callbacks
from bitsnap._bitsnap import (
    AdamNumbers as AdamNumbers,
    BaseReference as BaseReference,
    Branch as Branch,
    BranchOrigin as BranchOrigin,
    Checkpoint as Checkpoint,
    CommitOutcome as CommitOutcome,
    ErrorTally as ErrorTally,
    FileTensor as FileTensor,
    FolderEntry as FolderEntry,
    GlobalTensor as GlobalTensor,
    LossReport as LossReport,
    PruneReport as PruneReport,
    RepairReport as RepairReport,
    RollbackReport as RollbackReport,
    RunUsage as RunUsage,
    SaveState as SaveState,
    SaveSummary as SaveSummary,
    Settings as Settings,
    StoreDamage as StoreDamage,
    StoreVerification as StoreVerification,
    TensorPart as TensorPart,
    UpdateErrors as UpdateErrors,
    max_cost as max_cost,
    set_max_cost as set_max_cost,
)
from bitsnap._engine.steps import wait_committed as wait_committed
from bitsnap._in_memory import dumps as dumps, loads as loads
from bitsnap._objects import Client as _ObjectClient, RefusedError as _RefusedError
from bitsnap._run_copies import (
    MirrorStatus as MirrorStatus,
    mirror_status as mirror_status,
    push_to_hub as push_to_hub,
    wait_mirrored as wait_mirrored,
)
from bitsnap._states.adam import Adam as Adam, bounded as bounded
from bitsnap._states.program_values import register_value as register_value
from bitsnap._states.tensors import Box as Box, LazyTensor as LazyTensor
from bitsnap.agents import (
    AgentOptions as AgentOptions,
    JobOptions as JobOptions,
    MemoryOptions as MemoryOptions,
    agent_status as agent_status,
    stop_agent as stop_agent,
)
from bitsnap.checkpointer import Checkpointer as Checkpointer, Restored as Restored, Save as Save
from bitsnap.errors import (
    BackgroundSaveWarning as BackgroundSaveWarning,
    BitsnapError as BitsnapError,
    BusyError as BusyError,
    CancelledError as CancelledError,
    CorruptError as CorruptError,
    DamageWarning as DamageWarning,
    ExistsError as ExistsError,
    InternalError as InternalError,
    InvalidArgumentError as InvalidArgumentError,
    IoError as IoError,
    MemoryWarning as MemoryWarning,
    NotFoundError as NotFoundError,
    PlainBytesWarning as PlainBytesWarning,
    ResourceExhaustedError as ResourceExhaustedError,
    RestoreWarning as RestoreWarning,
    RetentionWarning as RetentionWarning,
    TruncatedError as TruncatedError,
    UnsupportedError as UnsupportedError,
)
from bitsnap.files import (
    TensorSlice as TensorSlice,
    compress as compress,
    decompress as decompress,
    load_file as load_file,
    safe_open as safe_open,
    save as save,
    save_file as save_file,
    save_folder as save_folder,
)
from bitsnap.folder import Folder as Folder, FolderFile as FolderFile, open_folder as open_folder
from bitsnap.snapshot import (
    Inspection as Inspection,
    Snapshot as Snapshot,
    TensorSummary as TensorSummary,
    inspect as inspect,
    snapshot_id as snapshot_id,
    verify as verify,
)
from bitsnap.state import load as load
from bitsnap.store import Store as Store
from bitsnap.weights import (
    Patch as Patch,
    StagedPatch as StagedPatch,
    apply_patch as apply_patch,
    fold_patches as fold_patches,
    make_patch as make_patch,
)

__version__: str = _bitsnap.version()

# Asked for the client of a bucket when a path leads into it.
_bitsnap.connect_object_stores(_ObjectClient, _RefusedError)

# Threads do not survive a fork: the child of a process that used several threads uses one.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_bitsnap.note_fork)
