"""Memory is bounded by the chunks in flight, for any file size."""

from __future__ import annotations

import struct
import subprocess
import threading
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from cli.command_line import executable
from cli.tensor_file import weights

LIMIT = 512 << 20
TENSOR = 4 << 30
DENSE = 4 << 20  # per 64 MiB; the rest is zeros, which take no space on the disk
STRIDE = 64 << 20


class AnonymousMemory:
    """The largest observed anonymous memory of a process."""

    def __init__(self, pid: int) -> None:
        self.most = 0
        self._status = Path(f"/proc/{pid}/status")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.is_set():
            try:
                text = self._status.read_text()
            except OSError:
                return
            for line in text.splitlines():
                if line.startswith("RssAnon:"):
                    self.most = max(self.most, int(line.split()[1]) * 1024)
            time.sleep(0.005)

    def stop(self) -> int:
        self._stop.set()
        self._thread.join()
        return self.most


@pytest.mark.slow
def test_a_four_gibibyte_tensor_needs_little_memory(tmp_path: Path) -> None:
    source = tmp_path / "in.safetensors"
    snapshot = tmp_path / "in.bsnap"
    header = f'{{"w":{{"dtype":"BF16","shape":[{TENSOR // 2}],"data_offsets":[0,{TENSOR}]}}}}'.encode()
    dense = np.frombuffer(weights("w", DENSE // 2, 1, "BF16").data, np.uint16).copy()
    with source.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        start = file.tell()
        for offset in range(0, TENSOR, STRIDE):
            file.seek(start + offset)
            dense[0] = offset // STRIDE
            file.write(dense.tobytes())
        file.truncate(start + TENSOR)

    with subprocess.Popen([executable(), "compress", "-q", source]) as process:
        memory = AnonymousMemory(process.pid)
        assert process.wait(250) == 0
    compressing = memory.stop()
    assert snapshot.stat().st_size < TENSOR // 10

    command = [executable(), "decompress", "-q", "-c", str(snapshot)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as process,
        source.open("rb") as original,
    ):
        memory = AnonymousMemory(process.pid)
        assert process.stdout is not None
        while piece := original.read(8 << 20):
            assert process.stdout.read(len(piece)) == piece
        assert process.stdout.read() == b""
        assert process.wait(60) == 0
    decompressing = memory.stop()
    print(f"anonymous memory: {compressing >> 20} MiB compressing, {decompressing >> 20} MiB decompressing")
    assert 0 < compressing < LIMIT
    assert 0 < decompressing < LIMIT


def test_a_nested_pickle_takes_memory_in_proportion_to_its_size(tmp_path: Path) -> None:
    levels = 8_000_000
    pickled = b"\x80\x02" + b"]" * levels + b"a" * (levels - 1) + b"."
    with zipfile.ZipFile(tmp_path / "x.pt", "w") as file:
        file.writestr("a/data.pkl", pickled)
        file.writestr("a/version", "3\n")
    with subprocess.Popen([executable(), "inspect", tmp_path / "x.pt"], stderr=subprocess.PIPE) as process:
        memory = AnonymousMemory(process.pid)
        process.communicate()
        assert memory.stop() <= (64 << 20) + 20 * len(pickled)
