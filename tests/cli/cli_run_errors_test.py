"""Errors of the commands on runs, and how they report damage."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import bitsnap
from cli.command_line import (
    BUSY,
    CORRUPT,
    DAMAGED,
    INVALID_ARGUMENT,
    NOT_FOUND,
    USAGE,
    executable,
    run,
    run_json,
    wait_until_caught,
)
from cli.command_runs import add, extracted, make_run, state
from cli.tensor_file import Tensor, random_bytes, write

ON_RUNS = [
    ["log"],
    ["extract"],
    ["prune", "--keep-last", "1"],
    ["rollback", "--to", "1"],
    ["repair"],
    ["du"],
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "run"
    make_run(path, [10, 20, 30])
    return path


@pytest.fixture
def own(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def named(done: subprocess.CompletedProcess[bytes]) -> str:
    text = (done.stdout + done.stderr).decode()
    assert text.count("\n") == 1
    return text


@pytest.mark.parametrize("command", ON_RUNS, ids=lambda command: command[0])
def test_a_missing_run_is_not_found(tmp_path: Path, command: list[str]) -> None:
    assert "missing" in named(run(*command, tmp_path / "missing", status=NOT_FOUND))
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("command", ON_RUNS, ids=lambda command: command[0])
def test_a_plain_directory_is_rejected_as_run(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "notes").write_text("mine")
    assert "plain" in named(run(*command, tmp_path / "plain", status=NOT_FOUND))
    assert [file.name for file in (tmp_path / "plain").iterdir()] == ["notes"]


def test_add_rejects_a_directory_with_other_files(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "notes").write_text("mine")
    source = tmp_path / "s.safetensors"
    source.write_bytes(state(1))
    assert "plain" in named(run("add", tmp_path / "plain", "--step", 1, source, status=INVALID_ARGUMENT))
    assert [file.name for file in (tmp_path / "plain").iterdir()] == ["notes"]
    run("add", tmp_path / "no" / "folder", "--step", 1, source, status=NOT_FOUND)


@pytest.mark.parametrize("command", ["extract", "inspect", "verify", "diff"])
def test_a_missing_step_is_not_found_and_nearby_steps_are_named(made: Path, command: str) -> None:
    name = f"{made}@15"
    text = named(run(command, name, *([name] if command == "diff" else []), status=NOT_FOUND))
    assert "step 15" in text
    assert "10, 20 and 30" in text
    assert run_json("extract", name, "-o", "x", status=NOT_FOUND)["error"]["kind"] == "not_found"


@pytest.mark.parametrize("text", ["ten", "-0", "1.5", "0x10", "99999999999999999999", "a@b"])
def test_what_is_no_step_has_to_be_a_label(made: Path, text: str) -> None:
    for command in ("inspect", "verify", "extract"):
        said = named(run(command, f"{made}@{text}", status=NOT_FOUND))
        assert f"no checkpoint has the label '{text}'" in said


def test_something_has_to_follow_the_at_sign(made: Path) -> None:
    for command in ("inspect", "verify", "extract", "label"):
        assert "expected a step or a label" in named(run(command, f"{made}@", status=INVALID_ARGUMENT))


def test_a_step_has_to_be_above_the_newest(own: Path, tmp_path: Path) -> None:
    source = tmp_path / "s.safetensors"
    source.write_bytes(state(1))
    for step in (30, 29, 0):
        said = named(run("add", own, "--step", step, source, status=INVALID_ARGUMENT))
        assert "30" in said
        assert f"got {step};" in said
    assert len(run_json("log", own)) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prune", "run"], "--keep-last, --keep-every, --keep, --keep-labelled or --remove"),
        (["prune", "run", "--dry-run"], "--keep-last, --keep-every, --keep, --keep-labelled or --remove"),
        (["prune", "run", "--remove", "10", "--keep-last", "1"], "--keep-last excludes --remove"),
        (["prune", "run", "--keep-last", "0"], "'0'"),
        (["prune", "run", "--keep-every", "0"], "'0'"),
        (["prune", "run", "--keep-last", "-3"], "'-3'"),
        (["prune", "run", "--keep", "10,x"], "'x'"),
        (["prune", "run", "--keep-last", "1", "--reencode", "maybe"], "maybe"),
        (["du", "run", "--keep-last", "many"], "'many'"),
        (["add", "run", "x"], "--step"),
        (["add", "run", "x", "--step", "0x10"], "'0x10'"),
        (["add", "run", "x", "--step", "1", "--base", "none"], "none"),
        (["add", "run", "x", "--step", "1", "--max-depth", "33"], "33"),
        (["add", "run", "--step", "1"], "IN"),
        (["rollback", "run"], "--to"),
        (["extract", "run", "--shard", "first"], "'first'"),
        *[
            (
                ["rollback", "run", "--to", "1", f"--wait={wait}"],
                f"--wait must be a number of seconds from 0 to 86400000, got '{wait}'",
            )
            for wait in ("-1", "-0.5", "nan", "inf", "1e3", "0x10", "soon", ".", "1.5.2", "86400001")
        ],
    ],
)
def test_usage_errors_name_the_mistake(arguments: list[str], message: str) -> None:
    done = run(*arguments, status=USAGE)
    assert message in done.stderr.decode()
    assert done.stdout == b""


def test_add_takes_no_snapshots(own: Path, tmp_path: Path) -> None:
    source = tmp_path / "s.safetensors"
    source.write_bytes(state(1))
    run("compress", source)
    assert "s.bsnap" in named(run("add", own, "--step", 40, tmp_path / "s.bsnap", status=INVALID_ARGUMENT))
    run("add", own, "--step", 40, tmp_path / "missing", status=NOT_FOUND)
    run("add", tmp_path / "new", "--step", 40, tmp_path / "missing", status=NOT_FOUND)
    assert not (tmp_path / "new").exists()


def test_files_inside_a_run_are_rejected_as_input_and_output(own: Path) -> None:
    for out in (own / "out", own / "checkpoints" / "0000000010" / "out"):
        assert "may contain only checkpoints" in named(run("extract", own, "-o", out, status=INVALID_ARGUMENT))
        assert not out.exists()
    inside = own / "s.safetensors"
    inside.write_bytes(state(40))
    run("add", own, "--step", 40, inside, status=INVALID_ARGUMENT)
    snapshot = next((own / "checkpoints" / "0000000010").glob("*.bsnap"))
    stored = snapshot.read_bytes()
    run("extract", own, "-f", "-o", snapshot, status=INVALID_ARGUMENT)
    assert snapshot.read_bytes() == stored


def test_extract_overwrites_nothing_without_force(own: Path) -> None:
    out = own.parent / "run-30.safetensors"
    out.write_text("precious")
    assert "-f" in named(run("extract", own, status=INVALID_ARGUMENT))
    assert out.read_text() == "precious"
    run("extract", own, "-f")
    assert out.read_bytes() == extracted(str(own))
    run("extract", own, "-o", "-", "--json", status=INVALID_ARGUMENT)


def test_files_are_rejected_as_runs(tmp_path: Path) -> None:
    source = tmp_path / "s.safetensors"
    source.write_bytes(state(1))
    run("compress", source)
    said = named(run("extract", tmp_path / "s.bsnap", status=INVALID_ARGUMENT))
    assert "bitsnap decompress" in said
    for command in ON_RUNS:
        done = subprocess.run([executable(), *command, tmp_path / "s.bsnap"], capture_output=True, check=False)
        assert done.returncode in (INVALID_ARGUMENT, NOT_FOUND), command
        assert b"s.bsnap" in done.stderr


def test_runs_are_rejected_as_files(made: Path, tmp_path: Path) -> None:
    source = tmp_path / "s.safetensors"
    source.write_bytes(state(1))
    for name, what in ((f"{made}", "a run"), (f"{made}@20", "a checkpoint of a run")):
        for arguments in (
            ["decompress", name],
            ["compress", name],
            ["compress", source, "--base", name],
            ["bench", name],
            ["bench", source, "--base", name],
            ["add", tmp_path / "new", "--step", 1, name],
        ):
            said = named(run(*arguments, status=INVALID_ARGUMENT))
            assert f"{name}: is {what}, not a file; `bitsnap extract {name}` writes" in said
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["s.safetensors"]


@pytest.mark.parametrize("command", [command for command in ON_RUNS if command[0] not in ("log", "extract")], ids=str)
def test_commands_on_runs_reject_single_checkpoints(own: Path, command: list[str]) -> None:
    said = named(run(*command, f"{own}@20", status=INVALID_ARGUMENT))
    assert f"{own}@20: names one checkpoint, but this command needs the run: {own} " in said
    assert len(run_json("log", own)) == 3


def test_add_rejects_a_run_name_that_would_hide_a_checkpoint(own: Path, tmp_path: Path) -> None:
    source = tmp_path / "s.safetensors"
    source.write_bytes(state(40))
    said = named(run("add", f"{own}@40", "--step", 40, source, status=INVALID_ARGUMENT))
    assert "names one checkpoint" in said
    assert not Path(f"{own}@40").exists()


def test_a_missing_shard_is_not_found(made: Path) -> None:
    assert "shard 1" in named(run("extract", made, "--shard", 1, "-o", "x", status=NOT_FOUND))
    assert "shard 7" in named(run("inspect", made, "--shard", 7, status=NOT_FOUND))


def test_rollback_needs_an_existing_step(own: Path) -> None:
    for options in ([], ["-n"]):
        assert "10, 20 and 30" in named(run("rollback", own, "--to", 25, *options, status=NOT_FOUND))
    assert len(run_json("log", own)) == 3


def slow_source(path: Path) -> Path:
    """Takes about a second to add on one thread."""
    return write(path, [Tensor("w", "F32", (40_000_000,), bytes(80_000_000) + random_bytes(80_000_000, 1))])


@contextmanager
def command(*arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """Ends the process at the end of the block."""
    with subprocess.Popen([executable(), *map(str, arguments)], stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def writer(path: Path, source: Path) -> Iterator[subprocess.Popen[bytes]]:
    """An `add` that has the lock of the run."""
    with command("add", "-q", "-T1", path, "--step", "100", source) as process:
        until = time.monotonic() + 30
        while not list((path / "checkpoints").glob("0000000100/*")) and process.poll() is None:
            assert time.monotonic() < until
            time.sleep(0.001)
        assert process.poll() is None
        yield process


def test_one_of_two_writers_is_busy_unless_it_waits(own: Path, tmp_path: Path) -> None:
    slow = slow_source(tmp_path / "slow.safetensors")
    quick = tmp_path / "s.safetensors"
    quick.write_bytes(state(101))
    with writer(own, slow) as first:
        first.send_signal(signal.SIGSTOP)  # it must not end before the others have been refused
        busy = f"bitsnap: error: {own}: process {first.pid} is writing to it; "
        refused = busy + "--wait SECONDS waits for it [busy]\n"
        assert named(run("add", own, "--step", 101, quick, status=BUSY)) == refused
        assert named(run("prune", own, "--keep-last", 1, status=BUSY)) == refused
        assert named(run("rollback", own, "--to", 10, status=BUSY)) == refused
        assert named(run("repair", own, status=BUSY)) == busy + "repair the run after it has finished [busy]\n"
        # Readers and writers do not block each other.
        assert len(run_json("log", own)) == 3
        run("verify", own)
        run("prune", own, "--keep-last", 1, "-n")
        first.send_signal(signal.SIGCONT)
        run("add", own, "--step", 101, quick, "--wait", 60)
        assert first.wait(60) == 0
    assert [entry["step"] for entry in run_json("log", own)] == [10, 20, 30, 100, 101]
    assert extracted(str(own)) == quick.read_bytes()


def test_a_run_that_an_agent_holds_says_how_to_end_it(own: Path) -> None:
    with bitsnap.Checkpointer(own, agent=bitsnap.AgentOptions(threads=1, linger=60.0)) as checkpointer:
        checkpointer.restore()
        save = checkpointer.save(100, {"w": np.ones(100)})
        assert save is not None
        assert save.wait_persisted()
        process = checkpointer.agent_process
        try:
            for command in (("label", own, "--best", "loss"), ("prune", own, "--keep-last", 1), ("repair", own)):
                error = run(*command, status=BUSY).stderr.decode()
                assert f"{own}: process {process}, the agent of a training, holds it" in error
                assert f"`bitsnap agent stop {own}` ends it" in error
        finally:
            run("agent", "stop", own)
    run("prune", own, "--keep-last", 1)


def test_waiting_ends_at_an_interrupt(own: Path, tmp_path: Path) -> None:
    slow = slow_source(tmp_path / "slow.safetensors")
    with writer(own, slow) as first:
        first.send_signal(signal.SIGSTOP)
        with command("rollback", own, "--to", 10, "--wait", 1000) as second:
            wait_until_caught(second, signal.SIGINT)
            second.send_signal(signal.SIGINT)
            _, errors = second.communicate(timeout=100)
        assert second.returncode == 128 + signal.SIGINT
        assert b"interrupted" in errors
        first.send_signal(signal.SIGCONT)
        assert first.wait(60) == 0
    assert len(run_json("log", own)) == 4


def test_a_wait_may_be_a_fraction_of_a_second(own: Path, tmp_path: Path) -> None:
    with writer(own, slow_source(tmp_path / "slow.safetensors")) as first:
        first.send_signal(signal.SIGSTOP)
        start = time.monotonic()
        said = named(run("rollback", own, "--to", 10, "--wait", 0.4, status=BUSY))
        assert 0.4 <= time.monotonic() - start < 100
        assert f"process {first.pid} is writing to it; waited 0.4 s for it" in said
        first.send_signal(signal.SIGCONT)
        assert first.wait(60) == 0


def test_an_interrupted_add_leaves_the_run_as_it_was(own: Path, tmp_path: Path) -> None:
    slow = slow_source(tmp_path / "slow.safetensors")
    with writer(own, slow) as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 128 + signal.SIGINT
    assert len(run_json("log", own)) == 3
    assert run_json("verify", own)["ok"]
    add(own, 40)
    assert sorted(folder.name for folder in (own / "checkpoints").iterdir()) == [
        f"{step:010}" for step in (10, 20, 30, 40)
    ]


def damage_step(path: Path, step: int) -> Path:
    """Flips a byte of a chunk of that step."""
    file = next((path / "checkpoints" / f"{step:010}").glob("*.bsnap"))
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)
    return file


def test_damage_is_named_by_checkpoint_file_tensor_and_chunk(own: Path) -> None:
    file = damage_step(own, 20)
    done = run("verify", own, status=CORRUPT)
    lines = done.stdout.decode().splitlines()
    assert lines[0] == f"{own}@10: OK"
    assert lines[1].startswith(f"{own}@20: 1 damage")
    assert lines[2].startswith(f"  {file.relative_to(own)}: tensor '")
    assert "chunk 0" in lines[2]
    assert "[corrupt]: payload of" in lines[2]
    assert b"checkpoints of" in done.stderr
    assert "OK" not in run("verify", "-q", own, status=CORRUPT).stdout.decode()
    report = run_json("verify", own, status=CORRUPT)
    assert not report["ok"]
    damages = report["runs"][0]["checkpoints"][1]["damages"]
    assert damages[0]["file"] == str(file.relative_to(own))
    assert damages[0]["kind"] == "corrupt"
    assert run_json("verify", f"{own}@10")["ok"]
    run("verify", f"{own}@20", "--no-decode", status=CORRUPT)
    run("extract", f"{own}@20", "-c", status=CORRUPT)


@pytest.mark.parametrize("options", [[], ["--quiet"], ["--json"]], ids=str)
def test_add_warns_of_a_base_that_cannot_be_used(own: Path, tmp_path: Path, options: list[str]) -> None:
    file = damage_step(own, 30)
    source = tmp_path / "in.safetensors"
    source.write_bytes(state(40))
    done = run("add", own, "--step", 40, source, *options)
    warning = f"bitsnap: warning: {own}@40 is saved as a keyframe, as its base cannot be used: "
    lines = [line for line in done.stderr.decode().splitlines() if line.startswith("bitsnap: warning: ")]
    if options == ["--quiet"]:
        assert done.stderr == b""
    else:
        assert len(lines) == 1
        assert lines[0].startswith(warning)
        assert file.name in lines[0]
        assert lines[0].endswith(" [corrupt]")
    if options == ["--json"]:
        damage = json.loads(done.stdout)["base_damage"]
        assert list(damage) == ["kind", "message"]
        assert damage["kind"] == "corrupt"
        assert damage["message"] in lines[0]
    assert extracted(f"{own}@40") == state(40)
    source.write_bytes(state(50))
    next_one = run("add", own, "--step", 50, source, "--json")
    assert next_one.stderr == b""
    assert json.loads(next_one.stdout)["base_damage"] is None


def test_verify_goes_on_after_a_damaged_run(own: Path, made: Path) -> None:
    damage_step(own, 10)
    done = run("verify", own, made, tmp := own.parent / "missing", status=CORRUPT)
    assert f"{made}@30: OK" in done.stdout.decode()
    assert f"{tmp}: FAILED [not_found]" in done.stdout.decode()
    assert b"bitsnap: 2 of 3 arguments failed" in done.stderr


def test_a_damaged_commit_record_is_found_and_repaired(own: Path) -> None:
    record = own / "checkpoints" / "0000000020" / "commit.json"
    whole = record.read_bytes()
    record.write_bytes(whole[: len(whole) // 2])
    done = subprocess.run([executable(), "verify", own], capture_output=True, check=False)
    assert done.returncode in DAMAGED
    assert b"checkpoints/0000000020/commit.json" in done.stdout
    text = run("repair", own).stdout.decode()
    assert "step 20: mended: " in text
    assert text.endswith("3 checkpoints whole, 1 mended, 0 damaged, 0 lost\n")
    run("verify", own)
    assert len(run_json("log", own)) == 3


def test_a_dry_run_of_repair_reports_the_same_as_the_repair(own: Path) -> None:
    record = own / "checkpoints" / "0000000020" / "commit.json"
    record.write_bytes(damaged := record.read_bytes()[:100])
    foreseen = run_json("repair", own, "--dry-run")
    assert record.read_bytes() == damaged
    report = run_json("repair", own)
    assert {**foreseen, "dry_run": False} == report
    assert [entry["step"] for entry in report["mended"]] == [20]


def test_repair_reports_lost_checkpoints(own: Path) -> None:
    kept = extracted(f"{own}@10")
    file = damage_step(own, 20)
    data = bytearray(file.read_bytes())
    data[-60] ^= 1  # in the index, without which nothing can be read
    file.write_bytes(data)
    foreseen = run_json("repair", own, "--dry-run", status=CORRUPT)
    assert file.exists()
    assert [each["step"] for each in foreseen["dropped"]] == [20]
    assert [each["step"] for each in foreseen["damaged"]] == [30]
    done = run("repair", own, status=CORRUPT)
    text = done.stdout.decode()
    assert "step 20: lost, moved to damaged/" in text
    assert "step 30: damaged, kept: " in text
    assert text.endswith("1 checkpoint whole, 0 mended, 1 damaged, 1 lost\n")
    assert extracted(f"{own}@10") == kept
    assert extracted(str(own)) == kept
    assert list((own / "damaged").rglob("*.bsnap"))
    assert run_json("repair", own, status=CORRUPT)["dropped"] == []
    newest = run_json("log", own)[-1]["step"]
    add(own, newest + 1)


def test_repair_recreates_a_lost_run_record(own: Path) -> None:
    (own / "bitsnap.json").unlink()
    run("log", own, status=NOT_FOUND)
    run("repair", own)
    assert len(run_json("log", own)) == 3
    run("verify", own)


def test_hostile_names_do_not_reach_the_terminal(tmp_path: Path) -> None:
    evil = "a\x1b[2J\x07b\u202e\u200b"
    source = write(tmp_path / "s.safetensors", [Tensor(evil, "F32", (2000,), random_bytes(8000, 1))])
    path = tmp_path / "r\x1b[1m\u202eun"
    run("add", path, "--step", 1, source)
    damage_step(path, 1)
    for arguments in (
        ["log", path],
        ["inspect", path],
        ["analyze", path],
        ["diff", path, path],
        ["du", path],
        ["extract", path, "--force"],
        ["extract", f"{path}@7"],
        ["prune", path, "--keep-last", "1"],
        ["rollback", path, "--to", "1"],
        ["agent", "status", path],
        ["verify", path],
        ["repair", path],
    ):
        done = subprocess.run([executable(), *map(str, arguments)], capture_output=True, check=False)
        assert not re.search("[\x1b\u200b\u202e]", (done.stdout + done.stderr).decode()), arguments
