"""What conversions never do: lose a file that exists, run what a file says, grow without bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from cli.command_line import RESOURCE_EXHAUSTED, UNSUPPORTED, run
from python.files.conversions import load_plain, quiet_save, refused
from python.same_bits import assert_same


def test_small_files_become_no_large_ones(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(1).expand(20_000_000)}, tmp_path / "a.pt")
    assert "take more than 6710" in refused(tmp_path / "a.pt", tmp_path / "b.pt", status=RESOURCE_EXHAUSTED)
    text = "x" * 1_000_000
    torch.save({"w": torch.ones(1), "texts": [text] * 20}, tmp_path / "c.pt")
    assert "the texts of the pickle" in refused(tmp_path / "c.pt", tmp_path / "d.pt", status=RESOURCE_EXHAUSTED)


def test_outputs_are_never_lost(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(3)}, tmp_path / "a.pt")
    (tmp_path / "b.pt").write_text("precious")
    assert "exists" in refused(tmp_path / "a.pt", tmp_path / "b.pt")
    assert (tmp_path / "b.pt").read_text() == "precious"
    message = refused(tmp_path / "a.pt", tmp_path / "a.pt", "-f")
    assert "a.pt" in message
    run("convert", tmp_path / "a.pt", tmp_path / "b.pt", "-f")
    assert_same(load_plain(tmp_path / "b.pt"), {"w": torch.ones(3)})
    message = refused(tmp_path / "a.pt", tmp_path / "c")
    assert "its name does not tell the format; name it " in message
    (tmp_path / "d").mkdir()
    assert "exists already" in refused(tmp_path / "a.pt", tmp_path / "d", "--to", "dcp", "-f")
    assert list((tmp_path / "d").iterdir()) == []
    message = refused(tmp_path / "a.pt", f"{tmp_path}/run", "--to", "run")
    assert "the step is missing" in message


def test_files_that_others_need_are_kept(tmp_path: Path) -> None:
    for step in (1, 2):
        torch.save({"w": torch.arange(3000.0) * step}, tmp_path / f"{step}.pt")
    run("compress", tmp_path / "1.pt", "-o", tmp_path / "1.bsnap")
    run("compress", tmp_path / "2.pt", "-o", tmp_path / "2.bsnap", "--base", tmp_path / "1.bsnap")
    before = (tmp_path / "1.bsnap").read_bytes()
    refused(tmp_path / "2.bsnap", tmp_path / "1.bsnap", "-f")
    assert (tmp_path / "1.bsnap").read_bytes() == before
    run("add", tmp_path / "run", "--step", 1, tmp_path / "1.pt")
    for name in ("bitsnap.json", "new.pt", "checkpoints/x.pt"):
        message = refused(tmp_path / "1.pt", tmp_path / "run" / name, "--to", "torch", "-f")
        assert "may contain only checkpoints" in message
    run("verify", tmp_path / "run")


class Canary:
    """Whoever unpickles it makes a directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.mkdir, (self.path,)


def test_nothing_in_a_file_runs(tmp_path: Path) -> None:
    canary = Canary(tmp_path / "canary")
    torch.save({"w": torch.ones(3), "evil": canary, canary: 1}, tmp_path / "a.pt")
    run("convert", tmp_path / "a.pt", tmp_path / "b.pt", status=UNSUPPORTED)
    run("convert", tmp_path / "a.pt", tmp_path / "b.pt", "--tensors-only")
    assert_same(load_plain(tmp_path / "b.pt"), {"w": torch.ones(3)})
    quiet_save({"w": torch.ones(3), "evil": canary}, tmp_path / "dcp")
    run("convert", tmp_path / "dcp", tmp_path / "c.pt", "--tensors-only")
    assert not canary.path.exists()
