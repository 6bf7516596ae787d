"""Branches of a run on the command line: making, naming, drawing, keeping and removing them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import bitsnap
from cli.command_line import BUSY, INVALID_ARGUMENT, NOT_FOUND, USAGE, run, run_json
from cli.command_runs import add, extracted, make_run, state

STEPS = [10, 20, 30, 40]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose branches are lr2 from step 20 with step 25, lr3 from lr2@25, and old from step 30."""
    path = tmp_path_factory.mktemp("made") / "run"
    make_run(path, STEPS)
    run("branch", f"{path}@20", "lr2")
    run("add", f"{path}:lr2", "--step", 25, _file(path, 25))
    run("branch", f"{path}:lr2", "lr3")
    run("branch", f"{path}@30", "old", "--later")
    return path


@pytest.fixture
def own(made: Path, tmp_path: Path) -> Path:
    """A copy of it to be changed."""
    return Path(shutil.copytree(made, tmp_path / "run"))


def _file(path: Path, step: int) -> Path:
    source = path.with_name(f"{path.name}.step-{step}.safetensors")
    source.write_bytes(state(step))
    return source


def steps(name: object) -> list[int]:
    return [checkpoint["step"] for checkpoint in run_json("log", name)]


def text(*arguments: object, status: int = 0) -> str:
    return run(*arguments, status=status).stdout.decode()


def test_a_branch_is_named_wherever_a_run_is(made: Path) -> None:
    branch = f"{made}:lr2"
    assert steps(branch) == [20, 25]
    for name, step in ((f"{branch}@20", 20), (f"{branch}@25", 25), (f"{branch}@latest", 25), (branch, 25)):
        assert extracted(name) == state(step)
    assert extracted(f"{branch}@-2") == state(20)
    run("verify", branch)
    run("inspect", f"{branch}@20")
    run("diff", f"{made}@20", f"{branch}@20")
    assert run_json("du", branch)["checkpoints"] == 2
    assert steps(f"{made}:old") == [30, 40]
    assert steps(made) == STEPS


def test_a_path_that_exists_is_no_branch(tmp_path: Path, made: Path) -> None:
    (tmp_path / "run:lr2").mkdir()
    make_run(tmp_path / "run:lr2", [7])
    shutil.copytree(made, tmp_path / "run")
    assert steps(tmp_path / "run:lr2") == [7]


def test_a_missing_branch_is_named_with_the_others(made: Path) -> None:
    for command in (("log", f"{made}:lr4"), ("extract", f"{made}:lr4@20"), ("inspect", f"{made}:lr4@latest")):
        error = run_json(*command, status=NOT_FOUND)["error"]
        assert error["message"].endswith("has no branch 'lr4'; its branches: 'lr2', 'lr3', 'old'; did you mean 'lr2'?")
    run("add", f"{made}:lr4", "--step", 50, _file(made, 50), status=NOT_FOUND)
    run("prune", f"{made}:lr4", "--keep-last", 1, status=NOT_FOUND)
    run("watch", f"{made}:lr4", made.parent, status=NOT_FOUND)
    assert not Path(f"{made}:lr4").exists()


def test_the_log_draws_the_tree(made: Path) -> None:
    lines = text("log", made).splitlines()
    tree = lines[lines.index(str(made)) + 2 :]
    assert [line.split()[:-4] for line in tree] == [
        ["├─", "lr2", "20", "2", "25"],
        ["│", "└─", "lr3", "lr2@25", "1", "25"],
        ["└─", "old", "30", "2", "40"],
    ]
    of_branch = text("log", f"{made}:lr2").splitlines()
    assert "branch of run from step 20" in of_branch
    assert of_branch[-1].split()[:2] == ["└─", "lr3"]
    assert "lr2" not in text("log", f"{made}@20")


def test_branches_are_listed(made: Path) -> None:
    listed = run_json("branch", made)
    assert [each["name"] for each in listed["branches"]] == ["lr2", "lr3", "old"]
    lr2, lr3, old = listed["branches"]
    assert lr2["origin"] == {"run_id": bitsnap.Store(made, read_only=True).run_id, "branch": "", "step": 20}
    assert (lr3["origin"]["branch"], lr3["origin"]["step"]) == ("lr2", 25)
    assert (old["checkpoints"], old["newest"]) == (2, 40)
    assert old["own_bytes"] < 3000 < old["stored_bytes"]
    assert run_json("branch", f"{made}:lr2")["branches"] == listed["branches"]
    assert run_json("du", made)["branches"] == listed["branches"]
    assert "lr2" in text("du", made)


def test_making_says_what_is_shared_and_what_is_wrong(own: Path) -> None:
    made = run_json("branch", f"{own}@10", "new")["made"]
    assert (made["name"], made["newest"], made["copied_bytes"]) == ("new", 10, 0)
    assert f"`{own}:next` names it" in text("branch", f"{own}:lr2@20", "next")
    assert run("branch", own, "quiet", "-q").stdout == b""
    run("branch", own, "new", status=INVALID_ARGUMENT)
    run("branch", f"{own}@11", "other", status=NOT_FOUND)
    run("branch", own, "a/b", status=INVALID_ARGUMENT)
    run("branch", own, "500", status=INVALID_ARGUMENT)
    run("branch", f"{own}@10", status=INVALID_ARGUMENT)
    run("branch", own, "--later", status=USAGE)
    run("branch", own.parent / "none", "new", status=NOT_FOUND)


def test_a_rollback_offers_a_branch_and_keeps_what_it_removes(own: Path) -> None:
    assert "--keep-as NAME keeps them in a branch" in text("rollback", own, "--to", 20, "--dry-run")
    assert "would stay in the branch was" in text("rollback", own, "--to", 20, "--dry-run", "--keep-as", "was")
    run("branch", f"{own}:was", status=NOT_FOUND)
    assert "which stay in the branch was" in text("rollback", own, "--to", 20, "--keep-as", "was")
    assert steps(own) == [10, 20]
    assert steps(f"{own}:was") == [20, 30, 40]
    assert extracted(f"{own}:was@40") == state(40)
    run("rollback", own, "--to", 10, "--keep-as", "was", status=INVALID_ARGUMENT)
    assert steps(own) == [10, 20]
    assert "nothing to remove" in text("rollback", own, "--to", 20, "--keep-as", "none")
    assert "none" not in [each["name"] for each in run_json("branch", own)["branches"]]


def test_run_and_branch_go_their_ways(own: Path) -> None:
    run("prune", own, "--keep-last", 1, "--reencode", "always")
    run("prune", f"{own}:lr2", "--keep-last", 1)
    run("rollback", f"{own}:old", "--to", 30)
    run("repair", f"{own}:lr2")
    add(own, 50)
    for name, expected in ((own, [40, 50]), (f"{own}:lr2", [25]), (f"{own}:lr3", [25]), (f"{own}:old", [30])):
        assert steps(name) == expected
        run("verify", name)
        for step in expected:
            assert extracted(f"{name}@{step}") == state(step)


def test_removing_a_branch_leaves_those_that_were_made_from_it(own: Path) -> None:
    with bitsnap.Store(f"{own}:lr2"):
        run("branch", own, "--remove", "lr2", status=BUSY)
    assert [each["name"] for each in run_json("branch", own, "--remove", "lr2")["branches"]] == ["lr3", "old"]
    assert steps(f"{own}:lr3") == [25]
    assert extracted(f"{own}:lr3") == state(25)
    lines = text("log", own).splitlines()
    assert lines[-2].split()[:2] == ["├─", "lr3"]
    run("branch", own, "--remove", "lr3", "--remove", "lr2", "--remove", "old", status=NOT_FOUND)
    run("branch", own, "--remove", "lr3", "--remove", "old", "--remove", "old")
    assert text("branch", own) == f"{own}: no branches\n"


def test_files_from_before_a_branch_are_not_called_pruned(tmp_path: Path) -> None:
    make_run(tmp_path / "run", [1, 2, 3])
    run("branch", tmp_path / "run@3", "lr2")
    branch = f"{tmp_path}/run:lr2"
    assert " 2 earlier, needed" in text("log", branch)
    for command in (("log", branch), ("du", branch), ("prune", branch, "--keep-last", 1, "--reencode", "never")):
        found = text(*command)
        assert "step 1 is from before the branch" in found
        assert "was pruned" not in found
        assert "pruned before" not in found
    pruned = text("prune", branch, "--keep-last", 1, "--reencode", "always")
    assert "removed 2 from before the branch" in pruned
    assert "pruned before" not in pruned
    run("prune", tmp_path / "run", "--keep-last", 1, "--reencode", "never")
    assert "step 1 was pruned, but step 3 needs it" in text("log", tmp_path / "run")


def test_a_blank_name_is_no_branch(own: Path) -> None:
    assert b"the name of the branch is blank: ' '" in run("branch", own, " ", status=INVALID_ARGUMENT).stderr


def test_an_extracted_branch_lies_beside_the_run(own: Path) -> None:
    run("extract", f"{own}:lr2@20")
    assert (own.parent / "run-lr2-20.safetensors").read_bytes() == state(20)
    run("extract", f"{own}:lr2@20", "-o", own / "x.safetensors", status=INVALID_ARGUMENT)
