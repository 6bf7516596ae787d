"""On a terminal: the progress bar, narrow tables, refused floods, and interrupts."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest

from cli.command_line import INVALID_ARGUMENT, NOT_FOUND, executable, run, wait_until_caught
from cli.tensor_file import Tensor, weights, write

LONG_NAME = "model.layers." + "very." * 20 + "long.weight"


def sparse_source(path: Path, gigabytes: float) -> Path:
    """Zeros that take no space on the disk."""
    size = int(gigabytes * (1 << 30))
    header = f'{{"w":{{"dtype":"BF16","shape":[{size // 2}],"data_offsets":[0,{size}]}}}}'.encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + size)
    return path


def run_on_terminal(
    *arguments: object,
    streams: str,
    columns: int = 80,
    cwd: Path | None = None,
    environment: dict[str, str] | None = None,
) -> tuple[int, str]:
    """Runs the command with these streams ("out", "err") on a terminal; returns the status and the output."""
    master, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen(
        [executable(), *map(str, arguments)],
        stdout=terminal if "out" in streams else subprocess.DEVNULL,
        stderr=terminal if "err" in streams else subprocess.DEVNULL,
        cwd=cwd,
        env={**os.environ, "TERM": "xterm", **(environment or {})},
    ) as process:
        # The terminal stays open here until the command has ended: closing it last may drop what was written last.
        text = b""
        while True:
            if select.select([master], [], [], 0.05)[0]:
                text += os.read(master, 65536)
            elif process.poll() is not None:
                break
        os.close(terminal)
        os.close(master)
        return process.wait(60), text.decode()


def test_progress_is_shown_on_a_terminal_only(tmp_path: Path) -> None:
    source = sparse_source(tmp_path / "in.safetensors", 1)
    arguments = ["compress", source, "-f", "-T1"]
    status, text = run_on_terminal(*arguments, streams="err")
    assert status == 0
    assert " % " in text
    assert "in.safetensors [" in text
    assert "B/s" in text
    drawings, last = text.rsplit("\x1b[K", 1)
    assert "->" in last  # the bar is erased before the summary
    assert all(len(line) <= 80 for line in drawings.replace("\x1b[K", "").split("\r"))
    status, text = run_on_terminal(*arguments, "-q", streams="err")
    assert (status, text) == (0, "")
    assert b"\r" not in run(*arguments).stderr


def test_errors_are_coloured_on_a_terminal_that_allows_it(tmp_path: Path) -> None:
    arguments, plain = ["log", tmp_path / "no\x1b[7mrun"], "bitsnap: error: "
    _, text = run_on_terminal(*arguments, streams="err")
    assert text.startswith("bitsnap: \x1b[1;31merror:\x1b[0m ")
    assert text.count("\x1b") == 2  # and none of the name
    for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert run_on_terminal(*arguments, streams="err", environment=environment)[1].startswith(plain)
    assert run_on_terminal(*arguments, streams="err", environment={"NO_COLOR": ""})[1].startswith("bitsnap: \x1b")
    assert run(*arguments, status=NOT_FOUND).stderr.startswith(plain.encode())


def test_tables_fit_the_terminal(tmp_path: Path) -> None:
    source = write(tmp_path / "in.safetensors", [weights(LONG_NAME, 300_000, 1), weights("short", 300_000, 2)])
    run("compress", source)
    for columns in (100, 120):
        for path in (source, tmp_path / "in.bsnap"):
            status, text = run_on_terminal("inspect", path, streams="out", columns=columns)
            assert status == 0
            table = [line for line in text.splitlines() if " F32 " in line]
            assert len(table) == 2
            assert all(len(line) <= columns for line in table)
            assert "..." in table[0]
            assert "weight" in table[0]
    assert LONG_NAME in run("inspect", tmp_path / "in.bsnap").stdout.decode()


@pytest.mark.parametrize("columns", [40, 60, 80])
@pytest.mark.parametrize("command", ["log", "du", "inspect"])
def test_spare_columns_are_dropped_before_a_table_wraps(tmp_path: Path, command: str, columns: int) -> None:
    names = ["model.w", "master.w", "optimizer.exp_avg.w", "optimizer.exp_avg_sq.w", "mask"]
    tensors = [weights(name, 20_000, i) for i, name in enumerate(names)] + [Tensor("step", "I64", (), bytes(8))]
    source = write(tmp_path / "in.safetensors", tensors)
    steps = [str(10**14 + i) for i in range(3)]
    for step in steps:
        run("add", tmp_path / "r", "--step", step, source)
    status, text = run_on_terminal(command, "r", streams="out", columns=columns, cwd=tmp_path)
    assert status == 0
    # Of `inspect`, only the tables; the lines above them are not part of a table.
    shown = text.split("\r\n\r\n", 1)[1] if command == "inspect" else text
    assert max(len(line) for line in shown.splitlines()) <= columns
    whole = run(command, "r", cwd=tmp_path).stdout.decode()
    for word in ["stored", *(names[:2] if command == "inspect" else steps)]:
        assert word in shown
        assert word in whole
    left_out = {"log": " depth", "du": "(index)\n", "inspect": "  why\n"}[command]
    assert left_out in whole
    assert (columns == 80 and command != "inspect") or left_out not in shown.replace("\r\n", "\n")
    wide = run_on_terminal(command, "r", streams="out", columns=200, cwd=tmp_path)[1]
    assert wide.replace("\r\n", "\n") == whole


def test_binary_output_to_a_terminal_is_rejected(tmp_path: Path) -> None:
    source = write(tmp_path / "in.safetensors", [Tensor("t", "U8", (3,), b"abc")])
    run("compress", source)
    status, text = run_on_terminal("decompress", "-c", tmp_path / "in.bsnap", streams="out err")
    assert status == INVALID_ARGUMENT
    assert "terminal" in text
    status, _ = run_on_terminal("decompress", "-cf", tmp_path / "in.bsnap", streams="out err")
    assert status == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("command", ["compress", "decompress"])
def test_an_interrupt_leaves_no_file(tmp_path: Path, command: str, number: signal.Signals) -> None:
    source = sparse_source(tmp_path / "in.safetensors", 2)
    snapshot = tmp_path / "in.bsnap"
    arguments = ["compress", source]
    if command == "decompress":
        run("compress", source)
        source.unlink()
        arguments = ["decompress", snapshot]
    before = sorted(tmp_path.iterdir())
    with subprocess.Popen([executable(), *map(str, arguments), "-T1"], stderr=subprocess.PIPE) as process:
        until = time.monotonic() + 60
        while sorted(tmp_path.iterdir()) == before and process.poll() is None and time.monotonic() < until:
            time.sleep(0.001)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert b"interrupted" in errors
    assert sorted(tmp_path.iterdir()) == before


def test_bench_ends_at_an_interrupt(tmp_path: Path) -> None:
    source = write(tmp_path / "in.safetensors", [weights("w", 16_000_000, 1)])
    with subprocess.Popen([executable(), "bench", source], stderr=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        wait_until_caught(process, signal.SIGINT)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=100)
    assert process.returncode == 128 + signal.SIGINT
    assert output == b""
    assert b"interrupted" in errors


def test_an_ignored_interrupt_stays_ignored(tmp_path: Path) -> None:
    source = sparse_source(tmp_path / "in.safetensors", 1)
    with subprocess.Popen(
        [executable(), "compress", source, "-q", "-T1"], preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    ) as process:
        while not list(tmp_path.glob(".*.tmp")) and process.poll() is None:
            time.sleep(0.001)
        process.send_signal(signal.SIGHUP)
        assert process.wait(60) == 0
