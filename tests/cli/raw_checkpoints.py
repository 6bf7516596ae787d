"""Checkpoints as frameworks write them, with small files, and a process that writes them slowly.

python raw_checkpoints.py DIRECTORY LAYOUT LAST    continues after the newest complete step, up to LAST
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

PAUSE = 0.02  # seconds between two pieces of a file
PIECES = 3

Files = dict[str, bytes]


def data(step: int, name: str, size: int = 9000) -> bytes:
    """Different at each step, but not much."""
    common = random.Random(name).randbytes(size)
    return common[: size - 500] + random.Random(f"{name} {step}").randbytes(500)


def safetensors(step: int, name: str) -> bytes:
    values = data(step, name, 8000)
    header = f'{{"w":{{"dtype":"F32","shape":[2000],"data_offsets":[0,8000]}},"__metadata__":{{"step":"{step}"}}}}'
    return len(header).to_bytes(8, "little") + header.encode() + values


def name_of(layout: str, step: int) -> str:
    names = {
        "transformers": f"checkpoint-{step}",
        "renamed": f"checkpoint-{step}",
        "megatron": f"iter_{step:07}",
        "deepspeed": f"global_step{step}",
        "dcp": f"step-{step}",
    }
    return names[layout]


def files_of(layout: str, step: int) -> Files:
    """In the order in which the framework writes them."""
    if layout == "megatron":
        return {f"mp_rank_0{rank}/model_optim_rng.pt": data(step, f"rank {rank}") for rank in (0, 1)}
    if layout == "deepspeed":
        names = ("mp_rank_00_model_states.pt", "zero_pp_rank_1_mp_rank_00_optim_states.pt")
        return {name: data(step, name) for name in names}
    if layout == "dcp":
        return {**{f"__{rank}_0.distcp": data(step, f"{rank}") for rank in (0, 1)}, ".metadata": data(step, "m", 700)}
    return {
        "model.safetensors": safetensors(step, "model"),
        "training_args.bin": data(0, "arguments", 900),
        "optimizer.pt": data(step, "optimizer"),
        "trainer_state.json": f'{{"global_step": {step}}}'.encode(),
    }


def read(folder: Path) -> Files:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def write_slowly(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if len(content) < 100:  # a marker appears at once, and is never empty: the training would begin again
        handle = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.write(handle, content)
        os.ftruncate(handle, len(content))
        os.close(handle)
        return
    with path.open("wb", buffering=0) as file:
        size = len(content) // PIECES + 1
        for begin in range(0, len(content), size):
            file.write(content[begin : begin + size])
            time.sleep(PAUSE)


def write_checkpoint(directory: Path, layout: str, step: int) -> Path:
    """Writes it as the framework does, with the marker last."""
    folder = directory / name_of(layout, step)
    files = files_of(layout, step)
    if layout == "renamed":
        temporary = directory / f"tmp-{folder.name}"
        for name, content in files.items():
            write_slowly(temporary / name, content)
        temporary.rename(folder)
        return folder
    for name, content in files.items():
        if name == ".metadata":
            write_slowly(folder / ".metadata.tmp", content)
            (folder / ".metadata.tmp").rename(folder / name)
        else:
            write_slowly(folder / name, content)
    if layout == "megatron":
        write_slowly(directory / "latest_checkpointed_iteration.txt", str(step).encode())
    if layout == "deepspeed":
        write_slowly(directory / "latest", folder.name.encode())
    return folder


def newest_complete(directory: Path, layout: str) -> int:
    """As a training finds it that resumes. A watcher may have deleted complete checkpoints, but not the newest."""
    if layout in ("megatron", "deepspeed"):
        marker = directory / ("latest" if layout == "deepspeed" else "latest_checkpointed_iteration.txt")
        text = marker.read_text() if marker.is_file() else ""
        return int(text.removeprefix("global_step") or 0)
    newest = 0
    prefix = name_of(layout, 0)[:-1]
    for path in directory.glob(f"{prefix}*"):
        step = int(path.name.removeprefix(prefix))
        if read(path).keys() >= files_of(layout, step).keys():
            newest = max(newest, step)
    return newest


def main(directory: Path, layout: str, last: int, write: Callable[[Path, str, int], Path] = write_checkpoint) -> None:
    for step in range(newest_complete(directory, layout) + 1, last + 1):
        write(directory, layout, step)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
