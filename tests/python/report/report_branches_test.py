"""Branches of a run on its page: the tree of them, their lines in a plot, and two of them side by side."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bitsnap
from bitsnap.report.report_branches import rows
from bitsnap.report.report_data import RunData, directory_of, gather
from bitsnap.report.report_live import _fingerprint
from cli.command_line import run
from python.report.report_against_test import cells_of
from python.report.report_pages import Page, page_of, traces
from python.report.report_servers import Server


def save(path: Path | str, steps: list[int], loss: float) -> None:
    with bitsnap.Store(path) as store:
        for step in steps:
            weights = np.random.default_rng(step).standard_normal(4096).astype(np.float32)
            store.save(step, {"model": {"w": weights}}, metrics={"loss": loss / step})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with the branches lr2 from step 2, and old from step 3; lr3 is one of lr2, from step 4."""
    path = tmp_path_factory.mktemp("branches") / "run"
    save(path, [1, 2, 3, 4], 4)
    run("branch", f"{path}@2", "lr2")
    save(f"{path}:lr2", [3, 4, 5], 2)
    run("branch", f"{path}:lr2@4", "lr3")
    save(f"{path}:lr3", [5, 6], 1)
    run("branch", f"{path}@3", "old")
    return path


def tree_of(page: Page) -> list[list[str]]:
    """The cells of the table of branches, and what is in its last column."""
    (table,) = [i for i, (tag, attributes) in enumerate(page.tags) if attributes.get("id") == "branches"]
    assert page.tags[table][0] == "section"
    cells = page.texts["td"]
    first = next(i for i, text in enumerate(cells) if text.strip().removeprefix("└─ ") in {"lr2", "lr3"})
    count = sum(text.startswith("--against ") for text in page.texts["code"])
    return [cells[first + 7 * i : first + 7 * i + 4] for i in range(count)]


def test_the_page_shows_the_tree(made: Path) -> None:
    page = page_of(made, steps=1)
    assert tree_of(page) == [["lr2", "2", "4", "5"], ["\u2003└─ lr3", "4", "3", "6"], ["old", "3", "1", "3"]]
    assert [text for text in page.texts["code"] if text.startswith("--against ")] == [
        f"--against {made}:{name}" for name in ("lr2", "lr3", "old")
    ]


def test_the_run_and_its_branches_are_drawn_together(made: Path) -> None:
    figure = page_of(made, steps=1).document["figures"]["branches"]
    assert figure["controls"][0]["options"] == ["steps", "stored bytes", "loss"]
    lines = [each for each in traces(figure, 0) if each["mode"] != "lines"]
    assert [(each["name"], each["x"], set(each["y"])) for each in lines] == [
        ("run", ["1", "2", "3", "4"], {"run"}),
        ("lr2", ["2", "3", "4", "5"], {"lr2"}),
        ("lr3", ["4", "5", "6"], {"lr3"}),
        ("old", ["3"], {"old"}),
    ]
    forks = [(each["x"][0], *each["y"]) for each in traces(figure, 0) if each["mode"] == "lines"]
    assert forks == [("2", "run", "lr2"), ("4", "lr2", "lr3"), ("3", "run", "old")]
    assert [(each["name"], each["y"][-1]) for each in traces(figure, 2)] == [
        ("run", 1),
        ("lr2", 0.4),
        ("lr3", 1 / 6),
        ("old", 4 / 3),
    ]
    assert len(traces(figure, 1)) == 4


def test_a_branch_says_where_it_begins_and_shows_its_own_branches(made: Path, tmp_path: Path) -> None:
    page = page_of(Path(f"{made}:lr2"), steps=1)
    assert tree_of(page) == [["lr3", "4", "3", "6"]]
    assert f"--against {made}:lr3" in page.texts["code"]
    assert "branch of the run from step 2" in page.texts["span"]
    assert "branch of lr2 from step 4" in page_of(Path(f"{made}:lr3"), steps=1).texts["span"]
    assert page_of(made, steps=1).texts["span"].count("branch of") == 0


def test_a_run_without_branches_has_no_part_for_them(some_run: Path) -> None:
    page = page_of(some_run, steps=1)
    assert "branches" not in page.document["figures"]
    assert not [attributes for _, attributes in page.tags if attributes.get("id") == "branches"]


def test_two_branches_stand_side_by_side(made: Path) -> None:
    table = cells_of(Path(f"{made}:lr2"), Path(f"{made}:lr3"))
    assert table["loss at step 5"] == ["0.4", "0.2", "-50.0 %"]
    figures = page_of(made, against=Path(f"{made}:lr2"), steps=1).document["figures"]
    assert [(each["name"], each["x"]) for each in traces(figures["metrics"], 0)] == [
        ("run", ["1", "2", "3", "4"]),
        ("run:lr2", ["2", "3", "4", "5"]),
    ]


def test_timings_of_a_branch_are_found(made: Path) -> None:
    (made / "branches" / "lr2" / "timings.jsonl").write_text('{"step": 3, "stall_seconds": 0.5}\n')
    try:
        assert [each.step for each in gather(Path(f"{made}:lr2"), steps=0).timings] == [3]
    finally:
        (made / "branches" / "lr2" / "timings.jsonl").unlink()


def test_a_branch_of_one_that_was_removed_stands_below_the_run() -> None:
    def branch(name: str, origin: Any) -> dict[str, Any]:
        return {"name": name, "path": name, "origin": origin and {"branch": origin, "step": 1}, "log": None}

    data = RunData(
        "run", {"steps": []}, [], [], {}, branches=[branch("a", "gone"), branch("b", "a"), branch("c", None)]
    )
    assert [(row["name"], row["depth"]) for row in rows(data)] == [("a", 0), ("b", 1), ("c", 0)]


def test_the_directory_of_a_branch_is_that_of_the_store(made: Path, tmp_path: Path) -> None:
    for name in ("lr2", "old"):
        with bitsnap.Store(f"{made}:{name}", read_only=True) as store:
            assert str(directory_of(Path(f"{made}:{name}"))) == os.fsdecode(store.path)
    assert directory_of(made) == made
    (tmp_path / "a:b").mkdir()
    assert directory_of(tmp_path / "a:b") == tmp_path / "a:b"
    assert directory_of(tmp_path / "a:c") == tmp_path / "a:c"


def test_a_live_page_shows_a_branch_as_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "run"
    save(path, [1, 2], 4)
    with Server(path, "--steps", 1) as server:
        server.update_until(lambda page: bool(page.document["figures"]))
        run("branch", f"{path}@1", "lr2")
        server.update_until(lambda page: "branches" in page.document["figures"])
        save(f"{path}:lr2", [2, 3], 4)
        server.update_until(lambda page: tree_of(page) == [["lr2", "1", "3", "3"]])
    with Server(Path(f"{path}:lr2"), "--against", path, "--steps", 1) as server:
        server.update_until(lambda page: "loss at step 2" in page.texts.get("td", []))


def test_a_live_page_of_a_branch_sees_what_changes(made: Path) -> None:
    before = _fingerprint(Path(f"{made}:old"), None)
    assert before
    assert before == _fingerprint(Path(f"{made}:old"), None)
    run("branch", f"{made}:old@3", "other")
    try:
        assert _fingerprint(Path(f"{made}:old"), None) != before
    finally:
        run("branch", made, "--remove", "other")
    assert _fingerprint(Path(f"{made}:none"), None) == []
