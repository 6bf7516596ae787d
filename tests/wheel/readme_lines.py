"""Runs the lines of README.md that need no torch with the bitsnap of this Python: those of the store, of the
Checkpointer with its agent, and of the shell. Needs numpy and the packages of bitsnap[report], and no source tree.

    python readme_lines.py README.md
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import bitsnap

NEEDS_OTHERS = tuple(
    f"bitsnap.{name}" for name in ("torch", "dcp", "megatron", "lightning", "transformers", "accelerate", "deepspeed")
)
# `bitsnap watch` runs as long as the training.
WATCH = """
bitsnap() {
    if [ "$1" = watch ]; then
        timeout --preserve-status --signal INT 4 bitsnap "$@" || [ $? = 130 ]
    else
        command bitsnap "$@"
    fi
}
"""


def write_safetensors(path: Path, state: dict[str, np.ndarray[Any, Any]]) -> None:
    header, data = {}, b""
    for name, value in state.items():
        header[name] = {"dtype": "F32", "shape": value.shape, "data_offsets": [len(data), len(data) + value.nbytes]}
        data += value.tobytes()
    text = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


class Training:
    """Stands in for a model and its optimizer: a state dict of arrays that changes a little at each step."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(1)
        self.state = {name: self.random.standard_normal((64, 400), dtype=np.float32) for name in ("a", "b")}

    def train(self, step: int = 0) -> None:
        for value in self.state.values():
            value += np.float32(1e-4) * self.random.standard_normal(value.shape, dtype=np.float32)

    def names(self) -> dict[str, Any]:
        part = SimpleNamespace(state_dict=lambda: self.state, load_state_dict=self.state.update)
        return {"model": part, "optimizer": part, "train": self.train, "step": 100, "steps": 101}


def run_python(code: str, place: str) -> None:
    training = Training()
    names = training.names()
    exec(compile(code, place, "exec"), names)
    with bitsnap.Store("run", read_only=True) as store:
        assert store.latest() == 100
        loaded = store.load()["model"]
    assert all(np.array_equal(loaded[name], training.state[name]) for name in training.state)


def run_shell(code: str, place: str) -> None:
    training = Training()
    for step in (1000, 2000):
        training.train()
        for folder in ("", "checkpoints/"):
            write_safetensors(Path(f"{folder}checkpoint-{step}/model.safetensors"), training.state)
    write_safetensors(Path("model.safetensors"), training.state)
    if "bitsnap log" in code:
        with bitsnap.Store("run") as store:
            for step in (1000, 2000, 2001, 2002):
                training.train()
                store.save(step, {"model": training.state})
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", WATCH + code],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{place}: {done.stderr}{done.stdout}"
    if "extract" in code:
        stored, restored = Path("checkpoint-1000/model.safetensors"), Path("restored/model.safetensors")
        assert stored.read_bytes() == restored.read_bytes()


def main() -> None:
    readme = Path(sys.argv[1]).resolve()
    text = readme.read_text()
    ran = 0
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        language, code = found.groups()
        if code.startswith(("make ", "torchrun ", "pip ")) or any(other in code for other in NEEDS_OTHERS):
            continue
        place = f"{readme.name}:{text[: found.start()].count(chr(10)) + 2}"
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                (run_python if language == "python" else run_shell)(code, place)
            finally:
                if "Checkpointer" in code:
                    bitsnap.stop_agent("run", timeout=20)
                os.chdir("/")
        ran += 1
        print(f"{place}: ran")
    assert ran >= 4, f"{readme}: has {ran} blocks that can run here, expected 4 or more"


if __name__ == "__main__":
    main()
