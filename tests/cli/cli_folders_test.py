"""Folders and files of every kind on the command line."""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest

from cli.command_line import INVALID_ARGUMENT, NOT_FOUND, executable, run, run_json
from cli.command_runs import state
from cli.tensor_file import random_bytes, weights


def listing(path: Path) -> dict[str, tuple[object, ...]]:
    """Everything about a folder that has to come back."""
    found: dict[str, tuple[object, ...]] = {}
    for each in sorted([path, *path.rglob("*")]):
        info = each.lstat()
        content: object = None
        if each.is_symlink():
            content = str(each.readlink())
        elif each.is_file():
            content = each.read_bytes()
        found[str(each.relative_to(path))] = (info.st_mode, info.st_mtime_ns, content)
    return found


def make_checkpoint(path: Path, step: int) -> Path:
    """A folder as a trainer writes it, with arrays whose values depend on the step."""
    path.mkdir(parents=True)
    (path / "model.safetensors").write_bytes(state(step))
    values = np.frombuffer(weights("w", 40_000, 1).data, np.float32) + np.float32(step)
    np.savez(path / "optimizer.npz", exp_avg=values, step=np.int64(step))
    np.save(path / "order.npy", np.asfortranarray(values.reshape(200, 200)))
    (path / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    (path / "logs").mkdir()
    (path / "latest").symlink_to("model.safetensors")
    os.link(path / "order.npy", path / "logs" / "same.npy")
    (path / "trainer_state.json").chmod(0o600)
    os.utime(path / "logs", ns=(0, 123_456_789))
    return path


def test_a_folder_is_added_and_extracted_as_it_was(tmp_path: Path) -> None:
    folders = {step: make_checkpoint(tmp_path / f"checkpoint-{step}", step) for step in (1, 2)}
    before = {step: listing(folder) for step, folder in folders.items()}
    reports = [run_json("add", tmp_path / "run", "--step", step, folder) for step, folder in folders.items()]
    assert reports[1]["base"] == 1
    assert reports[0]["input_bytes"] == sum(
        (folders[1] / name).stat().st_size for name in ("model.safetensors", "optimizer.npz", "order.npy")
    ) + len('{"global_step": 1}')
    for step in folders:
        run("extract", f"{tmp_path}/run@{step}", "-o", tmp_path / f"out-{step}")
        assert listing(tmp_path / f"out-{step}") == before[step]
        out = tmp_path / f"out-{step}"
        assert (out / "order.npy").samefile(out / "logs" / "same.npy")
    run("extract", tmp_path / "run", cwd=tmp_path)
    assert listing(tmp_path / "run-2") == before[2]
    assert "exists already" in run("extract", tmp_path / "run", "-o", out, status=INVALID_ARGUMENT).stderr.decode()


def test_one_file_and_one_tensor_are_extracted(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "checkpoint-1", 1)
    run("add", tmp_path / "run", "--step", 1, folder)
    path = f"{tmp_path}/run@1"
    for name in ("trainer_state.json", "optimizer.npz", "logs/same.npy"):
        assert run("extract", path, "--file", name, "-c").stdout == (folder / name).read_bytes()
    run("extract", path, "--file", "logs/same.npy", cwd=tmp_path)
    assert (tmp_path / "same.npy").read_bytes() == (folder / "order.npy").read_bytes()
    one = run("extract", path, "--tensor", "optimizer.npz/exp_avg", "-c").stdout
    header = json.loads(one[8 : 8 + int.from_bytes(one[:8], "little")])
    assert header["optimizer.npz/exp_avg"]["shape"] == [40_000]
    assert one[8 + int.from_bytes(one[:8], "little") :] == np.load(folder / "optimizer.npz")["exp_avg"].tobytes()
    for option, name in (("--file", "missing"), ("--tensor", "missing"), ("--file", "../../etc/passwd")):
        assert f"'{name}'" in run("extract", path, option, name, status=NOT_FOUND).stderr.decode()
    for name in ("logs", "latest"):
        run("extract", path, "--file", name, "-o", tmp_path / "x", status=INVALID_ARGUMENT)
    run("extract", path, "-c", status=INVALID_ARGUMENT)


@pytest.mark.parametrize("name", ["order.npy", "optimizer.npz", "trainer_state.json", "."])
def test_files_and_folders_are_compressed_and_restored(tmp_path: Path, name: str) -> None:
    folder = make_checkpoint(tmp_path / "in" / "checkpoint-1", 1)
    source = folder / name
    run("compress", source, cwd=tmp_path)
    snapshot = Path(f"{source}.bsnap") if name != "." else folder.with_name("checkpoint-1.bsnap")
    if name == ".":
        run("decompress", snapshot, "-o", tmp_path / "out")
        assert listing(tmp_path / "out") == listing(folder)
        return
    assert run("decompress", snapshot, "-c").stdout == source.read_bytes()
    run("decompress", snapshot, status=INVALID_ARGUMENT)  # the file is still there
    run("decompress", snapshot, "-f")
    assert source.stat().st_mtime_ns == snapshot.with_suffix("").stat().st_mtime_ns


def test_a_folder_is_compressed_against_a_base_with_bases_elsewhere(tmp_path: Path) -> None:
    folders = {step: make_checkpoint(tmp_path / f"checkpoint-{step}", step) for step in (1, 2, 3)}
    for folder in folders.values():
        (folder / "vocabulary").write_bytes(random_bytes(300_000, 1))  # which the third snapshot reads from the first
    snapshots = {step: tmp_path / f"snapshots-{step}" / "x.bsnap" for step in folders}
    bases: list[object] = []
    for step, folder in folders.items():
        snapshots[step].parent.mkdir()
        # The output is checked before it gets its name, with the bases of its base.
        run("compress", folder, "-o", snapshots[step], *bases)
        bases = ["--base", snapshots[step], *bases]
    assert len(run_json("inspect", snapshots[3])["bases"]) == 2
    run("decompress", snapshots[3], "-o", tmp_path / "out", *bases[2:])
    assert listing(tmp_path / "out") == listing(folders[3])


def test_inspect_lists_files_and_tensors(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "checkpoint-1", 1)
    run("add", tmp_path / "run", "--step", 1, folder)
    text = run("inspect", tmp_path / "run").stdout.decode()
    assert "optimizer.npz/exp_avg" in text
    assert "same file as" in text
    entries = {each["path"]: each for each in run_json("inspect", tmp_path / "run")["folder"]["entries"]}
    assert entries["model.safetensors"]["container"] == "safetensors"
    assert entries["optimizer.npz"]["tensors"] == 2
    assert entries["trainer_state.json"]["mode"] == "0600"
    names = {tensor["name"] for tensor in run_json("inspect", folder / "optimizer.npz")["tensors"]}
    assert names == {"file", "exp_avg", "step"}


def test_a_damaged_container_is_stored_with_a_warning(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "checkpoint-1", 1)
    (folder / "optimizer.npz").write_bytes((folder / "optimizer.npz").read_bytes()[:-30])
    with zipfile.ZipFile(folder / "other.zip", "w") as archive:
        archive.writestr("../../evil", "evil")
    before = listing(folder)
    done = run("add", tmp_path / "run", "--step", 1, folder)
    assert "optimizer.npz" in done.stderr.decode()
    assert "stored as plain bytes" in done.stderr.decode()
    run("extract", tmp_path / "run", "-o", tmp_path / "out")
    assert listing(tmp_path / "out") == before


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "checkpoint-1", 1)
    os.mkfifo(folder / "pipe")
    assert "pipe" in run("add", tmp_path / "run", "--step", 1, folder, status=13).stderr.decode()
    assert not (tmp_path / "run").exists()


def test_a_failed_check_leaves_the_old_output(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "checkpoint-1", 1)
    run("compress", folder)
    snapshot = tmp_path / "checkpoint-1.bsnap"
    # A file that changes again and again changes during one of the saves.
    with subprocess.Popen(["sh", "-c", f"while :; do touch '{folder}/trainer_state.json'; done"]) as toucher:
        status = 0
        while status == 0:
            before = snapshot.read_bytes()
            status = subprocess.run(
                [executable(), "compress", "-f", folder], capture_output=True, check=False
            ).returncode
        toucher.kill()
    assert status == INVALID_ARGUMENT
    assert snapshot.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []
