"""What people see who call bitsnap by hand: tables in notebooks, and a line of progress on terminals."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import bitsnap
from bitsnap import _display


def test_notebooks_show_stores_and_reports_as_tables(tmp_path: Path) -> None:
    path = tmp_path / "run <b>"
    with bitsnap.Store(path) as store:
        assert "0 checkpoints" in store._repr_html_()
        store.save(1, {"w": np.zeros(10)}, metrics={"loss": 0.25}, labels="best")
        saved = store.save(20, {"w": np.zeros(10)})
        shown = store._repr_html_()
        report = store.prune(keep_last=1)
    assert "run &lt;b&gt;: 2 checkpoints" in shown
    assert "<b>" not in shown
    for cell in ("<th>loss</th>", "<td>0.25</td>", "<td>best</td>", "<td>20</td>"):
        assert cell in shown
    assert "<tr><th>step</th><td>20</td></tr>" in saved._repr_html_()  # type: ignore[attr-defined]
    assert "removed" in report._repr_html_()  # type: ignore[attr-defined]
    assert "0 checkpoints" in store._repr_html_()  # closed


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_where_someone_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, now = Terminal(), 100.0
    monkeypatch.setattr("bitsnap._display.time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr("sys.stderr", terminal)
    line = _display.progress_line("saving step 7")
    assert line is not None
    line(10, 2_000_000_000)
    assert terminal.getvalue() == ""  # a short call has none
    now += 2
    line(500_000_000, 2_000_000_000)
    assert terminal.getvalue() == "\rsaving step 7: 25% of 2 GB, 250 MB/s"
    line(600_000_000, 2_000_000_000)  # too early to draw again
    assert terminal.getvalue().count("\r") == 1
    line(2_000_000_000, 2_000_000_000)
    assert terminal.getvalue().endswith("\r" + " " * len("saving step 7: 25% of 2 GB, 250 MB/s") + "\r")


@pytest.mark.parametrize("variable", [("BITSNAP_PROGRESS", "0"), ("RANK", "1")])
def test_progress_is_silent_if_it_is_switched_off(monkeypatch: pytest.MonkeyPatch, variable: tuple[str, str]) -> None:
    monkeypatch.setattr("sys.stderr", Terminal())
    assert _display.progress_line("x") is not None
    monkeypatch.setenv(*variable)
    assert _display.progress_line("x") is None


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_progress_is_silent_without_a_terminal(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO | None) -> None:
    monkeypatch.setattr("sys.stderr", stream)
    assert _display.progress_line("x") is None


class Tee:
    """As programs put it in place of stderr: it can write, and no more."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass


def test_any_object_may_stand_for_stderr(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    closed = io.StringIO()
    closed.close()
    for number, stream in enumerate((Tee(), closed)):
        monkeypatch.setattr("sys.stderr", stream)
        with bitsnap.Store(tmp_path / f"run{number}") as store:
            store.save(1, {"w": np.zeros(10)})
            assert store.load()["w"].shape == (10,)


def test_a_line_that_cannot_be_written_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(_display, "_QUIET_S", 0.0)
    monkeypatch.setattr(_display, "_REDRAWN_S", 0.0)
    line = _display.progress_line("x")
    terminal.close()
    assert line is not None
    line(1, 2)
