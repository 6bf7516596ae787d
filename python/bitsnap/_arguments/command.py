"""Finds the command bitsnap that came with this package."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

from bitsnap.errors import NotFoundError


def find_program(*first: Path) -> Path:
    """Looks into the folders `first`, then beside the package and beside this Python, and last on PATH.

    Raises:
        NotFoundError: it is in none of them.
    """
    package = Path(__file__).resolve().parents[1]
    folders = (*first, package / "bin", Path(sysconfig.get_path("scripts")), Path(sys.executable).parent)
    for folder in folders:
        program = folder / "bitsnap"
        if program.is_file() and os.access(program, os.X_OK):
            return program
    found = shutil.which("bitsnap")
    if found is None:
        looked = ", ".join(str(folder) for folder in dict.fromkeys(folders))
        raise NotFoundError(f"bitsnap: the command is neither beside this Python ({looked}) nor on PATH")
    return Path(found)
