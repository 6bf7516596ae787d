"""Names of checkpoints that count from the newest one, and the other name of log."""

from __future__ import annotations

from pathlib import Path

from cli.command_line import NOT_FOUND, run, run_json
from cli.command_runs import extracted, make_run


def test_checkpoints_are_named_from_the_newest_one(tmp_path: Path) -> None:
    path = tmp_path / "run"
    files = make_run(path, [10, 20, 30, 40, 50])
    for name, step in (("latest", 50), ("-1", 50), ("-2", 40), ("-5", 10)):
        assert [checkpoint["step"] for checkpoint in run_json("log", f"{path}@{name}")] == [step]
        assert extracted(f"{path}@{name}") == files[step]
    assert b"@-6: the run has 5 checkpoints" in run("log", f"{path}@-6", status=NOT_FOUND).stderr
    assert run("ls", path).stdout == run("log", path).stdout
    run("label", f"{path}@20", "latest", "-1")
    assert [run_json("log", f"{path}@{name}")[0]["step"] for name in ("latest", "-1")] == [20, 20]
