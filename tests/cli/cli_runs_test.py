"""The commands on runs: stored and restored bytes, text output and JSON."""

from __future__ import annotations

import re
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

import bitsnap
from cli.command_line import DIFFER, INVALID_ARGUMENT, NOT_FOUND, USAGE, run, run_json
from cli.command_runs import add, extracted, make_run, state
from cli.tensor_file import Tensor, random_bytes, to_bytes

STEPS = [10, 20, 30, 40, 50]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, bytes]]:
    """A run of five steps with a keyframe every third, never changed, and the files it was made from."""
    path = tmp_path_factory.mktemp("made") / "run"
    return path, make_run(path, STEPS, "--max-depth", 2)


@pytest.fixture
def own(made: tuple[Path, dict[int, bytes]], tmp_path: Path) -> Path:
    """A copy of it to be changed."""
    return Path(shutil.copytree(made[0], tmp_path / "run"))


def listed(path: Path) -> list[int]:
    return [checkpoint["step"] for checkpoint in run_json("log", path)]


def bytes_on_disk(path: Path) -> int:
    return sum(file.stat().st_size for file in (path / "checkpoints").rglob("*") if file.is_file())


@pytest.mark.parametrize("options", [[], ["--base", "keyframe"], ["--max-depth", 0], ["--policy", "raw"]])
def test_every_step_comes_back_byte_for_byte(tmp_path: Path, options: list[object]) -> None:
    files = make_run(tmp_path / "run", [1, 2, 3, 5, 8, 1300], *options)
    for step, data in files.items():
        assert extracted(f"{tmp_path}/run@{step}") == data
    assert extracted(f"{tmp_path}/run") == files[1300]


def test_awkward_files_come_back_from_a_chain(tmp_path: Path) -> None:
    chain = [
        to_bytes([Tensor("b", "U8", (5,), b"12345"), Tensor("a", "F4", (6,), b"abc")], {"k": "v"}, padding="   "),
        to_bytes([Tensor("a", "F4", (6,), b"abd"), Tensor("e", "F64", (0, 3), b"")]),
        to_bytes([]),
        to_bytes([Tensor("b", "BF16", (400_000,), random_bytes(800_000, 1))]),
    ]
    source = tmp_path / "in.safetensors"
    for step, data in enumerate(chain):
        source.write_bytes(data)
        run("add", tmp_path / "run", "--step", step, source)
    for step, data in enumerate(chain):
        assert extracted(f"{tmp_path}/run@{step}") == data
    run("verify", tmp_path / "run")


def test_add_prints_one_line(tmp_path: Path) -> None:
    source = tmp_path / "s.safetensors"
    source.write_bytes(state(10))
    line = rf"{re.escape(str(source))} : [\d.]+ kB -> [\d.]+ kB  \([\d.]+x, [\d.]+ [kMG]B/s\)  "
    done = run("add", tmp_path / "run", "--step", 10, source)
    assert re.fullmatch(line + re.escape(f"{tmp_path}/run@10, a keyframe\n"), done.stderr.decode())
    assert done.stdout == b""
    done = run("add", tmp_path / "run", "--step", 11, source)
    assert done.stderr.decode().endswith("run@11, base 10\n")
    assert run("add", "-q", tmp_path / "run", "--step", 12, source).stderr == b""
    verbose = run("add", "-v", tmp_path / "run", "--step", 13, source).stderr.decode()
    for word in ("id ", "policy lossless", "depth ", "exp_avg_sq", "total"):
        assert word in verbose


def test_add_reports_json(tmp_path: Path) -> None:
    source = tmp_path / "s.safetensors"
    source.write_bytes(state(10))
    before = time.time() * 1000 - 1
    first = run_json("add", tmp_path / "run", "--step", 7, source, "--policy", "lmc")
    assert first["step"] == 7
    assert first["base"] is None
    assert first["policy"] == "lmc"
    assert first["input_bytes"] == source.stat().st_size
    assert first["stored_bytes"] == bytes_on_disk(tmp_path / "run")
    assert first["pruned"] is None
    assert before < first["time_unix_ms"] < time.time() * 1000 + 1
    source.write_bytes(state(11))
    second = run_json("add", tmp_path / "run", "--step", 8, source)
    assert second["base"] == 7
    assert second["policy"] == "lmc"  # that of the run
    assert second["ratio"] > first["ratio"]
    third = run_json("add", tmp_path / "run", "--step", 9, source, "--keep-last", 1)
    assert third["base"] is None  # which nothing would keep
    assert third["pruned"]["kept"] == [9]
    assert not third["pruned"]["dry_run"]


def test_add_prunes_after_saving(tmp_path: Path) -> None:
    path = tmp_path / "run"
    files = {step: add(path, step, "--keep-last", 2, "--keep-every", 30) for step in (10, 20, 30, 40, 50, 60, 70, 80)}
    assert listed(path) == [30, 60, 70, 80]
    for step in listed(path):
        assert extracted(f"{path}@{step}") == files[step]
    run("verify", path)
    source = tmp_path / "s.safetensors"
    source.write_bytes(state(90))
    said = run("add", path, "--step", 90, source, "--keep-last", 2, "--keep-every", 30).stderr.decode()
    assert len(said.splitlines()) == 2
    assert "4 kept" in said


def test_the_log_lists_steps_with_the_newest_last(made: tuple[Path, dict[int, bytes]]) -> None:
    lines = run("log", made[0]).stdout.decode().splitlines()
    assert lines[0].split() == ["step", "time", "raw", "stored", "ratio", "base", "depth"]
    rows = [line.split() for line in lines[1:6]]
    assert [int(row[0]) for row in rows] == STEPS
    for row in rows:
        assert abs(datetime.strptime(f"{row[1]} {row[2]}", "%Y-%m-%d %H:%M:%S").timestamp() - time.time()) < 3600
    assert [row[8] for row in rows] == ["-", "10", "20", "-", "40"]
    assert lines[7].startswith("total  5 checkpoints")
    assert len(lines) == 8


def test_the_log_reports_json(made: tuple[Path, dict[int, bytes]]) -> None:
    report = run_json("log", made[0])
    assert [entry["step"] for entry in report] == STEPS
    assert [entry["base"] for entry in report] == [None, 10, 20, None, 40]
    assert [entry["links"] for entry in report] == [0, 1, 2, 0, 1]
    assert sum(entry["stored_bytes"] for entry in report) == bytes_on_disk(made[0])
    for entry in report:
        utc = datetime.strptime(entry["time"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
        assert round(utc.timestamp() * 1000) == entry["time_unix_ms"]
        assert entry["shards"] == 1
        assert entry["raw_bytes"] == 3 * 6000 * 4 + 8


def test_prune_removes_steps_by_name(tmp_path: Path) -> None:
    path = tmp_path / "run"
    files = {step: add(path, step) for step in (10, 20, 30, 40)}
    dry = run("prune", path, "--remove", "20,40", "--dry-run").stdout.decode()
    assert "would remove step 40" in dry
    assert listed(path) == [10, 20, 30, 40]
    report = run_json("prune", path, "--remove", "20,40", "--reencode", "never")
    assert report["kept"] == [10, 30]
    assert [entry["step"] for entry in report["removed"]] == [40]
    assert [entry["step"] for entry in report["needed"]] == [20]
    assert listed(path) == [10, 30]
    for step in (10, 30):
        assert extracted(f"{path}@{step}") == files[step]
    assert "nearby are 10 and 30" in run("prune", path, "--remove", 20, status=NOT_FOUND).stderr.decode()


def test_the_log_shows_labels_and_prune_keeps_them(tmp_path: Path) -> None:
    path = tmp_path / "run"
    for step in (10, 20, 30):
        add(path, step)
    with bitsnap.Store(path) as store:
        store.label(10, ["best", "epoch=3"])
    lines = run("log", path).stdout.decode().splitlines()
    assert lines[0].split()[-1] == "labels"
    assert lines[1].endswith("best, epoch=3")
    assert [entry["labels"] for entry in run_json("log", path)] == [["best", "epoch=3"], [], []]
    run("prune", path, "--keep-labelled")
    assert listed(path) == [10, 30]


def test_labels_are_given_listed_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "run@home"
    assert "no labels" in run("label", path_of_new_run(path)).stdout.decode()
    add(path, 20, "--label", "last", "--label", "epoch=1@0.5")
    run("label", f"{path}@10", "best", "first")
    listed_labels = [line.split() for line in run("label", path).stdout.decode().splitlines()]
    assert listed_labels == [["step", "label"], ["10", "best"], ["20", "epoch=1@0.5"], ["10", "first"], ["20", "last"]]
    assert run_json("label", path, "best") == {
        "run": str(path),
        "labels": {"best": 20, "epoch=1@0.5": 20, "last": 20},
    }
    assert run_json("label", f"{path}@10")["labels"] == {"first": 10}
    assert "names step 20" in run("label", f"{path}@10", "--remove", "best", status=INVALID_ARGUMENT).stderr.decode()
    run("label", path, "--remove", "best", "--remove", "first", "--remove", "best")
    assert run_json("label", path)["labels"] == {"epoch=1@0.5": 20, "last": 20}
    for change in (["--remove", "lost"], ["a\nb"]):
        run("label", path, *change, status=NOT_FOUND if change[0] == "--remove" else INVALID_ARGUMENT)
    assert "step 30 not found" in run("label", f"{path}@30", "x", status=NOT_FOUND).stderr.decode()
    run("label", path, "x", "--remove", "last", status=USAGE)
    assert run_json("label", path)["labels"] == {"epoch=1@0.5": 20, "last": 20}


def path_of_new_run(path: Path) -> Path:
    add(path, 10)
    return path


def test_a_label_stands_for_its_step(own: Path, made: tuple[Path, dict[int, bytes]], tmp_path: Path) -> None:
    run("label", f"{own}@20", "best", "epoch=1@0.5")
    for label in ("best", "epoch=1@0.5"):
        assert extracted(f"{own}@{label}") == made[1][20]
    assert [entry["step"] for entry in run_json("log", f"{own}@best")] == [20]
    run("verify", f"{own}@best")
    run("diff", f"{own}@best", f"{own}@20")
    run("diff", f"{own}@best", f"{own}@30", status=DIFFER)
    run("convert", f"{own}@best", tmp_path / "out.safetensors")
    assert run_json("inspect", f"{own}@best")["id"] == run_json("inspect", f"{own}@20")["id"]
    assert "a similar label is 'best'" in run("extract", f"{own}@bes", status=NOT_FOUND).stderr.decode()


def test_the_log_shows_times_in_the_users_zone(
    made: tuple[Path, dict[int, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = run_json("log", made[0])[0]["time_unix_ms"] // 1000
    for zone, hours in (("UTC0", 0), ("AHEAD-5", 5)):
        monkeypatch.setenv("TZ", zone)
        shown = datetime.fromtimestamp(seconds + hours * 3600, UTC).strftime("%Y-%m-%d %H:%M:%S")
        assert shown in run("log", made[0]).stdout.decode().splitlines()[1]


def test_the_log_of_one_step_shows_that_one(made: tuple[Path, dict[int, bytes]]) -> None:
    whole = run("log", made[0]).stdout.decode().splitlines()
    lines = run("log", f"{made[0]}@20").stdout.decode().splitlines()
    assert [line.split() for line in lines] == [whole[0].split(), whole[2].split()]
    assert run_json("log", f"{made[0]}@20") == [entry for entry in run_json("log", made[0]) if entry["step"] == 20]
    assert b"10, 20, 30" in run("log", f"{made[0]}@25", status=NOT_FOUND).stderr


def test_an_empty_run_has_an_empty_log(own: Path) -> None:
    shutil.rmtree(own / "checkpoints")
    (own / "checkpoints").mkdir()
    assert run("log", own).stdout.decode() == f"{own}: no checkpoint yet\n"
    assert run_json("log", own) == []
    assert run_json("verify", own)["runs"][0]["checkpoints"] == []
    assert run_json("du", own)["checkpoints"] == 0


def test_damaged_commit_records_are_shown(own: Path) -> None:
    record = own / "checkpoints" / "0000000020" / "commit.json"
    record.write_bytes(record.read_bytes()[:-30])
    text = run("log", own).stdout.decode()
    row = next(line for line in text.splitlines() if line.split()[0] == "20")
    assert row.split()[1] == "damaged"
    assert "step 20 [" in text
    assert "commit.json" in text
    report = run_json("log", own)
    assert [entry["step"] for entry in report] == STEPS
    assert [entry["step"] for entry in report if "damage" in entry] == [20]
    assert report[1]["damage"]["kind"] in ("truncated", "corrupt")


def test_extract_writes_next_to_the_run(own: Path, made: tuple[Path, dict[int, bytes]]) -> None:
    run("extract", own)
    assert (own.parent / "run-50.safetensors").read_bytes() == made[1][50]
    run("extract", "run/@20", cwd=own.parent)
    assert (own.parent / "run-20.safetensors").read_bytes() == made[1][20]
    run("extract", ".@10", cwd=own)
    assert (own.parent / "run-10.safetensors").read_bytes() == made[1][10]
    out = own.parent / "out"
    report = run_json("extract", f"{own}@30", "-o", out)
    assert out.read_bytes() == made[1][30]
    assert (report["step"], report["shard"], report["shards"]) == (30, 0, 1)
    assert report["output_bytes"] == out.stat().st_size
    assert report["original_header"]
    said = run("extract", f"{own}@30", "-f", "-o", out).stderr.decode()
    assert said.startswith(f"{own}@30 : ")
    assert run("extract", f"{own}@30", "-o", "-").stdout == made[1][30]


def test_verify_names_checkpoints(made: tuple[Path, dict[int, bytes]], tmp_path: Path) -> None:
    path = made[0]
    assert run("verify", path).stdout.decode() == "".join(f"{path}@{step}: OK\n" for step in STEPS)
    assert run("verify", f"{path}@30").stdout.decode() == f"{path}@30: OK\n"
    assert run("verify", "-q", path).stdout == b""
    assert "5 checkpoints" in run("verify", "-v", path).stdout.decode()
    source = tmp_path / "s.safetensors"
    source.write_bytes(made[1][10])
    run("compress", source)
    mixed = run("verify", tmp_path / "s.bsnap", f"{path}@10", "--no-decode").stdout.decode()
    assert mixed == f"{tmp_path}/s.bsnap: OK\n{path}@10: OK\n"
    report = run_json("verify", tmp_path / "s.bsnap", path)
    assert report["ok"]
    assert len(report["files"]) == 1
    assert [entry["step"] for entry in report["runs"][0]["checkpoints"]] == STEPS
    assert report["runs"][0]["strays"] == []


def test_prune_reports_removed_and_kept_checkpoints_and_why(own: Path, made: tuple[Path, dict[int, bytes]]) -> None:
    before = {file.relative_to(own) for file in own.rglob("*")}
    foreseen = run_json("prune", own, "--keep-last", 2, "--keep", "30", "--reencode", "never", "--dry-run")
    assert {file.relative_to(own) for file in own.rglob("*")} == before
    assert foreseen["kept"] == [30, 40, 50]
    assert [entry["step"] for entry in foreseen["needed"]] == [10, 20]
    assert foreseen["needed"][1]["by"] == 30
    done = run("prune", own, "--keep-last", 2, "--keep", "30", "--reencode", "never")
    text, outlook = done.stdout.decode(), done.stderr.decode()
    assert re.search(
        r"^run: frees up to 0 B of [\d.]+ kB\nstep 10 stays, because step 30 needs it \([\d.]+ kB\)\nstep 20 ", outlook
    )
    assert re.search(
        r"^step 20 pruned; its files stay until step 30 no longer needs them \([\d.]+ kB\)$", text, re.MULTILINE
    )
    held = r"in [\d.]+ kB \([\d.]+x\)"
    assert re.search(rf"\n2 pruned, of which 2 stay as files for others; 3 kept {held}\n$", text)
    assert listed(own) == [30, 40, 50]
    again = run("prune", own, "--keep-last", 3, "--reencode", "never").stdout.decode()
    assert "\nstep 20 was pruned before; its files stay until step 30 no longer needs them (" in again
    assert re.search(rf"\nnothing to prune; 3 kept {held}, 2 pruned before still needed\n$", again)
    foretold = run("prune", own, "--keep-last", 2, "--reencode", "never", "-n").stdout.decode()
    assert re.search(
        rf"\nwould prune 1; would remove 2 that were pruned before; would free [\d.]+ kB; 2 kept {held}\n$", foretold
    )
    report = run_json("prune", own, "--keep-last", 2, "--reencode", "never")
    assert [entry["step"] for entry in report["removed"]] == [10, 20, 30]
    assert report["removed_bytes"] == report["freed_bytes"] == sum(entry["bytes"] for entry in report["removed"])
    for step in (40, 50):
        assert extracted(f"{own}@{step}") == made[1][step]


def test_prune_counts_checkpoints_that_leave_the_log(own: Path) -> None:
    options = ("--keep-last", 1, "--reencode", "never")
    foreseen = run("prune", own, *options, "-n").stdout.decode()
    assert "would prune step 40; its files would stay until step 50 no longer needs them" in foreseen
    assert re.search(
        r"\nwould prune 4, of which 1 would stay as files for others; would free [\d.]+ kB; 1 kept in .*\n$", foreseen
    )
    text = run("prune", own, *options).stdout.decode()
    assert re.search(r"\n4 pruned, of which 1 stays as files for others; freed [\d.]+ kB; 1 kept in .*\n$", text)
    assert listed(own) == [50]


def test_prune_rewrites_checkpoints_that_depend_on_removed_ones(own: Path, made: tuple[Path, dict[int, bytes]]) -> None:
    before = bytes_on_disk(own)
    foreseen = run("prune", own, "--keep", "20,30", "--keep-last", 1, "--reencode", "always", "-n").stdout.decode()
    assert "would rewrite step 20" in foreseen
    report = run_json("prune", own, "--keep", "20,30", "--keep-last", 1, "--reencode", "always")
    assert report["kept"] == [20, 30, 50]
    assert {entry["step"] for entry in report["rewritten"]} >= {20, 50}
    assert report["needed"] == []
    assert report["freed_bytes"] == before - bytes_on_disk(own)
    assert run_json("log", own)[0]["base"] is None
    for step in (20, 30, 50):
        assert extracted(f"{own}@{step}") == made[1][step]
    run("verify", own)
    assert run("prune", own, "--keep-last", 3).stdout.decode().startswith("nothing to prune; 3 kept in ")


def test_prune_removes_strays_and_names_them(own: Path) -> None:
    stray = own / "checkpoints" / "0000000050" / "shard-00000-of-00001.r1.bsnap"
    stray.write_bytes(b"left behind")
    assert run_json("verify", own)["runs"][0]["strays"] == ["checkpoints/0000000050/shard-00000-of-00001.r1.bsnap"]
    note = run("verify", own).stderr.decode()
    assert note.startswith(f"{own}: 1 file or folder belongs to no checkpoint: ")
    assert note.endswith(" without a record and removes the other files, as `bitsnap prune` does\n")
    assert "shard-00000-of-00001.r1.bsnap, which belongs" in run("prune", own, "--keep-last", 5).stdout.decode()
    assert not stray.exists()


def test_rollback_makes_a_step_the_newest(own: Path, made: tuple[Path, dict[int, bytes]]) -> None:
    foreseen = run_json("rollback", own, "--to", 30, "--dry-run")
    assert listed(own) == STEPS
    assert foreseen["removed"] == [50, 40]
    text = run("rollback", own, "--to", 30, "-n").stdout.decode()
    assert text.startswith("would remove step 50\nwould remove step 40\n")
    report = run_json("rollback", own, "--to", 30)
    assert report["removed"] == foreseen["removed"]
    assert report["removed_bytes"] == foreseen["removed_bytes"]
    assert listed(own) == [10, 20, 30]
    assert run("rollback", own, "--to", 30).stdout == b"nothing to remove: step 30 is the newest\n"
    data = add(own, 35)
    assert extracted(str(own)) == data
    assert extracted(f"{own}@30") == made[1][30]


def test_rollback_reports_removed_steps(own: Path) -> None:
    text = run("rollback", own, "--to", 40).stdout.decode()
    assert re.fullmatch(r"removed step 50\nremoved 1 checkpoint, freed [\d.]+ kB; step 40 is the newest\n", text), text


def test_repair_of_an_undamaged_run_changes_nothing(own: Path) -> None:
    assert run("repair", own).stdout.decode() == f"{own}: 5 checkpoints whole, 0 mended, 0 damaged, 0 lost\n"
    assert run_json("repair", own, "-n") == {
        "run": str(own),
        "dry_run": True,
        "checkpoints": 5,
        "newest": 50,
        "mended": [],
        "damaged": [],
        "dropped": [],
        "strays": [],
    }


def test_du_accounts_for_every_byte(made: tuple[Path, dict[int, bytes]]) -> None:
    report = run_json("du", made[0])
    assert report["stored_bytes"] == bytes_on_disk(made[0])
    for part in [report, *report["steps"]]:
        stored = sum(role["stored_bytes"] for role in part["roles"].values())
        assert stored + part["pool"]["stored_bytes"] + part["index_bytes"] == part["stored_bytes"]
    assert sum(step["stored_bytes"] for step in report["steps"]) == report["stored_bytes"]
    assert list(report["roles"]) == ["weight", "exp_avg", "exp_avg_sq"]
    assert report["roles"]["weight"]["raw_bytes"] == 5 * 6000 * 4
    assert report["prune"] is None


def test_du_counts_pruned_files_that_others_need(own: Path) -> None:
    run("prune", own, "--keep-last", 2, "--keep", 30, "--reencode", "never")
    report = run_json("du", own)
    assert [step["step"] for step in report["steps"]] == [30, 40, 50]
    assert [entry["step"] for entry in report["needed"]] == [10, 20]
    assert report["stored_bytes"] == bytes_on_disk(own)
    assert report["needed"] == run_json("log", own)[0]["needed"] == run_json("log", f"{own}@30")[0]["needed"]
    *_, total, first, second = run("log", own).stdout.decode().splitlines()
    assert first.startswith("step 10 was pruned, but step 30 needs it (")
    assert second.startswith("step 20 was pruned, but step 30 needs it (")
    raw_bytes = sum(step["raw_bytes"] for step in report["steps"])
    assert total.split()[-1] == f"{raw_bytes / report['stored_bytes']:.3f}x"
    text = run("du", own).stdout.decode()
    assert "(needed)" in text
    assert "step 20 was pruned, but step 30 needs it" in text


def test_du_shows_roles_and_steps_and_what_pruning_frees(made: tuple[Path, dict[int, bytes]]) -> None:
    text = run("du", made[0], "--keep-last", 2).stdout.decode()
    for word in ("role", "exp_avg_sq", "(pool)", "(index)", "total", "share"):
        assert word in text
    assert [line.split()[0] for line in text.splitlines() if re.match(r" +\d+ ", line)] == [str(s) for s in STEPS]
    assert "would prune 3; would free" in text
    assert run_json("du", made[0], "--keep-last", 2)["prune"]["kept"] == [40, 50]
    assert len(listed(made[0])) == 5


def test_du_of_many_steps_shows_the_sums(tmp_path: Path) -> None:
    path = tmp_path / "run"
    for step in range(51):
        add(path, step, elements=100)
    text = run("du", path).stdout.decode()
    assert "51 checkpoints; -v shows each" in text
    assert "stored" in text
    assert len(text.splitlines()) < 15
    assert len(run("du", "-v", path).stdout.decode().splitlines()) > 55
    assert len(run_json("du", path)["steps"]) == 51


def test_inspect_accepts_checkpoints(made: tuple[Path, dict[int, bytes]]) -> None:
    text = run("inspect", f"{made[0]}@20").stdout.decode()
    assert f"checkpoint {made[0]}@20, saved 2" in text
    assert "against    step 10" in text
    assert "exp_avg_sq" in text
    assert "a keyframe" in run("inspect", f"{made[0]}@10").stdout.decode()
    report = run_json("inspect", made[0])
    assert report["checkpoint"]["step"] == 50
    assert report["checkpoint"]["base"] == 40
    assert report["metadata"] == {"step": "50"}


def test_diff_accepts_checkpoints(made: tuple[Path, dict[int, bytes]], tmp_path: Path) -> None:
    path = made[0]
    assert "equal: 4 tensors" in run("diff", f"{path}@50", path).stdout.decode()
    report = run_json("diff", f"{path}@10", f"{path}@20", status=DIFFER)
    assert report["differing_tensors"] == 4
    source = tmp_path / "s.safetensors"
    source.write_bytes(made[1][30])
    run("compress", source)
    run("diff", tmp_path / "s.bsnap", f"{path}@30")


def test_an_existing_file_wins_over_run_at_step(own: Path) -> None:
    file = own.parent / "run@20"
    run("compress", write_state(own.parent, 7), "-o", file)
    assert run_json("inspect", file)["metadata"] == {"step": "7"}
    assert run("verify", file).stdout.decode() == f"{file}: OK\n"
    file.unlink()
    assert run_json("inspect", file)["metadata"] == {"step": "20"}


def test_the_name_of_a_run_may_contain_an_at_sign(tmp_path: Path) -> None:
    path = tmp_path / "lr@3"
    path.mkdir()  # without it, the name is taken for step 3 of a run
    files = make_run(path, [1, 2])
    assert extracted(str(path)) == files[2]
    assert extracted(f"{path}@1") == files[1]
    run("verify", path)


def test_steps_may_have_leading_zeros_like_folder_names(own: Path, made: tuple[Path, dict[int, bytes]]) -> None:
    assert extracted(f"{own}@0000000010") == made[1][10]
    assert run_json("rollback", own, "--to", "0000000030")["newest"] == 30


def write_state(folder: Path, step: int) -> Path:
    source = folder / "s.safetensors"
    source.write_bytes(state(step))
    return source
