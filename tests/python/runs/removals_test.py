"""References that stay until the checkpoint that takes their place is committed."""

from __future__ import annotations

from pathlib import Path

import pytest

import bitsnap
from bitsnap._references import Saved, refer, reference_of
from bitsnap._runs import path_checkpoints as paths
from bitsnap._runs.framework_files import finish_removals, postpone_removal
from python.runs.path_checkpoints_test import saved, steps, value_at

LOST = Saved(3, "lost")


def save_at(path: Path) -> Saved:
    return reference_of(path).saves[0]


def end(folder: Path) -> None:
    """What the next process that writes to the run does."""
    with bitsnap.Store(folder / "bitsnap") as store:
        paths.forget(store)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "bitsnap")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Has a, b and c, whose steps are 1, 2 and 3."""
    for step, name in enumerate("abc", 1):
        saved(tmp_path / name, step)
    return tmp_path


def test_a_reference_goes_when_its_save_is_committed_and_stays_if_that_is_lost(folder: Path) -> None:
    before = (folder / "a").stat()
    run = folder / "bitsnap"
    assert postpone_removal(run, folder / "a", save_at(folder / "c"))
    assert postpone_removal(run, folder / "b", LOST)
    assert (folder / "a").stat() == before
    finish_removals(run, lambda save: False)
    assert names(folder) == ["a", "b", "c"]
    end(folder)
    assert names(folder) == ["b", "c"]
    assert steps(folder) == [2, 3]
    assert not (run / "removals.json").exists()
    end(folder)
    assert value_at(folder / "b") == 2


def test_what_waits_for_a_save_that_was_lost_goes_with_the_one_after_it(folder: Path) -> None:
    run, last = folder / "bitsnap", save_at(folder / "c")
    refer(folder / "b", run, reference_of(folder / "b").run_id, (LOST,))
    assert postpone_removal(run, folder / "a", LOST)
    finish_removals(run, lambda save: save != LOST)
    assert names(folder) == ["a", "b", "c"]
    assert postpone_removal(run, folder / "b", last)
    finish_removals(run, lambda save: save == last)
    assert names(folder) == ["c"]


def test_copies_links_and_what_has_the_path_now_stay(folder: Path) -> None:
    run = folder / "bitsnap"
    (folder / "link").symlink_to(folder / "a")
    assert not postpone_removal(run, folder / "link", LOST)
    for name in "ab":
        assert postpone_removal(run, folder / name, save_at(folder / "c"))
    (folder / "copy").write_bytes((folder / "a").read_bytes())
    saved(folder / "other", 4)  # which ends them
    assert names(folder) == ["c", "copy", "link", "other"]
    assert value_at(folder / "copy") == 1
    assert postpone_removal(run, folder / "c", save_at(folder / "other"))
    (folder / "c").write_text("of the user")
    end(folder)
    assert (folder / "c").read_text() == "of the user"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"version": 1, "removals": [{"path": "a", "save": [1, ""], "until": [3, ""]}]}',
        '{"version": 0, "removals": [{"path": "../a", "save": [1, ""], "until": [3, ""]}]}',
        '{"version": 0, "removals": [{"path": "a", "save": [1], "until": [3, ""]}]}',
        '{"version": 0, "removals": [{"path": "a", "save": [1, ""], "until": ["3", ""]}]}',
    ],
)
def test_a_damaged_list_removes_nothing(folder: Path, text: str) -> None:
    (folder / "bitsnap" / "removals.json").write_text(text)
    end(folder)
    assert names(folder) == ["a", "b", "c"]
