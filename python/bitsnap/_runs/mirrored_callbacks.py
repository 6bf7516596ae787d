"""What the callbacks of Lightning that save checkpoints know of them, for a run that is brought back.

They look for the last checkpoint before anything is loaded, and delete only files that they know.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bitsnap._references import absolute, find_references
from bitsnap._runs import path_checkpoints as paths
from bitsnap._runs.folder_saves import part_of
from bitsnap._runs.mirrored_runs import bring_back
from bitsnap._runs.options import Options
from bitsnap.errors import BitsnapError, InvalidArgumentError
from bitsnap.store import Store


def bring_back_for(trainer: Any, options: Options, *, is_first: bool) -> None:
    """Brings checkpoints back from the copy to the directory of the callbacks of a trainer, if they are not there.

    Raises:
        InvalidArgumentError: the callbacks name no directory, or several.
        BitsnapError: what bring_back() raises.
    """
    callbacks = getattr(trainer, "checkpoint_callbacks", [])
    if options.mirror is None or not callbacks:
        return
    folders = {getattr(each, "dirpath", None) for each in callbacks}
    (folder,) = folders if len(folders) == 1 else (None,)
    if folder is None:
        found = ", ".join(sorted(map(repr, folders)))
        raise InvalidArgumentError(
            f"mirror: expected ModelCheckpoint(dirpath=...), the same for all callbacks that save, found {found}: a "
            "copy is that of one directory, and is brought back there"
        )
    run = absolute(folder) / paths.RUN
    keeps_few = any(getattr(each, "save_top_k", 1) != -1 for each in callbacks)
    if bring_back(run, options, is_first=is_first, all_steps=keeps_few, keeps=_keeps) and is_first:
        _link_last(callbacks, run)


def _keeps(store: Store, step: int, reference: Path) -> bool:
    """Whether no callback has deleted the checkpoint, as far as the newest one says.

    A file that is deleted while an agent has not committed the next one leaves the run later.
    """
    own, now = (_known_to_callbacks(store, each) for each in (step, store.latest()))
    return not any(name == reference.name for _, name in own - now)


def _known_to_callbacks(store: Store, step: int | None) -> set[tuple[str, str]]:
    """The names of callbacks and of the files that they know, when a checkpoint was saved."""
    found = set()
    with suppress(BitsnapError):  # a state may need pickle
        states = part_of(store.snapshot(step), "callbacks", allow_pickle=False)
        for name, state in states.items() if isinstance(states, Mapping) else ():
            if isinstance(state, Mapping):
                known = [*(state.get("best_k_models") or {}), *map(state.get, ("best_model_path", "last_model_path"))]
                found |= {(str(name), Path(path).name) for path in known if isinstance(path, str)}
    return found


def _link_last(callbacks: Sequence[Any], run: Path) -> None:
    """Makes the links that ModelCheckpoint(save_last="link") has made: a copy has none."""
    newest = max(find_references(run.parent).references.items(), key=lambda each: each[1].saves[0].step)[0]
    for each in callbacks:
        link = run.parent / f"{getattr(each, 'CHECKPOINT_NAME_LAST', '')}{getattr(each, 'FILE_EXTENSION', '')}"
        if getattr(each, "save_last", None) == "link" and not os.path.lexists(link):
            link.symlink_to(os.path.relpath(newest, run.parent))
