"""What the tests of conversions share."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict_saver import save as save_distributed

from cli.command_line import INVALID_ARGUMENT, run


def quiet_save(state: dict[str, Any], path: Path) -> Path:
    """Saves in one process, without the warning that there is only one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save_distributed(state, checkpoint_id=path, no_dist=True)
    return path


def load_plain(path: Path) -> Any:
    """Loads a file whose pickle torch has to accept as harmless."""
    return torch.load(path, weights_only=True)


def refused(*arguments: object, status: int = INVALID_ARGUMENT) -> str:
    """What `convert` says when it fails."""
    return run("convert", *arguments, status=status).stderr.decode()
