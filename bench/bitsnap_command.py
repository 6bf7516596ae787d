"""The command `bitsnap` for experiments on what it stores: state files to snapshots and back, and what each role took.

Everything goes through files and the command, as it does for who has a state on the disk. Any thread may call it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench.moment_errors import Adam


def adam_options(adam: Adam) -> list[str]:
    """What the command has to be told where an update is to keep a bound."""
    return ["--betas", f"{adam.beta1},{adam.beta2}", "--eps", f"{adam.epsilon}", "--adam-step", f"{adam.step}"]


class BitsnapCommand:
    def __init__(self, program: Path) -> None:
        self._program = program

    def compress(self, state: Path, out: Path, options: Sequence[str], base: Path | None = None) -> None:
        based = [] if base is None else ["--base", str(base)]
        self._run("compress", str(state), "-o", str(out), "--force", *based, *options)

    def decompress(self, snapshot: Path, out: Path) -> None:
        self._run("decompress", str(snapshot), "-o", str(out), "--force")

    def element_bytes(self, snapshot: Path) -> dict[str, float]:
        """Stored bytes of an element of each role, without tensors so small that they share a pool."""
        found = json.loads(self._run("inspect", str(snapshot), "--json"))
        return {role: part["stored_bytes"] / part["elements"] for role, part in found["roles"].items()}

    def _run(self, *arguments: str) -> str:
        done = subprocess.run([self._program, *arguments], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(
                f"{self._program} {' '.join(arguments)}: status {done.returncode}: {done.stderr.strip()}"
            )
        return done.stdout
