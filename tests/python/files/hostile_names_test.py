"""Names of files in a checkpoint lead nowhere else: no file of the user is written, and no other file is read."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

import bitsnap
from bitsnap._runs import path_saves

torch = pytest.importorskip("torch")
accelerate = pytest.importorskip("accelerate")
pytest.importorskip("transformers")
import bitsnap.accelerate  # noqa: E402
import bitsnap.transformers  # noqa: E402

HOSTILE = [
    *("{victim}", "../../victim", "..", ""),
    *("config.json", "model.safetensors", "bitsnap.json", "bitsnap-reference.json", "sitecustomize.py"),
]
LINEAR = {"weight": torch.zeros(2, 2), "bias": torch.zeros(2)}


# Where names that a checkpoint gives become parts of paths: each calls one function for it, of C++ or of Python.
PLACES = {
    "interop/folder/folder_description.cpp": "os::is_plain_path",  # the entries of a folder
    "src/store/checkpoint_files.cpp": "os::is_plain_name",  # the files of a checkpoint
    "src/os/atomic_file.cpp": "is_plain_name",  # what a caller names
    "python/bitsnap/deepspeed/_tags.py": "plain_path",  # the state of a file, the files of a tag, and `latest`
    "python/bitsnap/_runs/framework_files.py": "plain_path",  # references that are to be removed, files of folders
    "python/bitsnap/_runs/mirrored_runs.py": "plain_path",  # references that are brought back
    "python/bitsnap/_runs/folder_saves.py": "plain_name",  # the small files of Transformers and Accelerate
    "python/bitsnap/megatron/_torch_dist.py": "plain_path",  # the files of Megatron's own format
}
CHECKS = {"src/os/plain_name.cpp", "python/bitsnap/_references.py"}
# These follow ".." in a link or a path of the user, within a list of entries or to name a file.
OTHERS = {
    "interop/convert/training_state.cpp",
    "cli/commands/compress_command.cpp",
    "cli/input/run_path.cpp",
    "src/os/file_system_posix.cpp",
    "src/os/cgroup.cpp",
}


def test_each_name_of_a_checkpoint_goes_through_one_function() -> None:
    root = Path(__file__).resolve().parents[3]
    called: dict[str, str] = {}
    checked = set()
    for folder in ("src", "interop", "cli", "python"):
        for path in sorted((root / folder).rglob("*.*")):
            name = str(path.relative_to(root))
            if path.suffix not in (".cpp", ".py") or "_test" in path.name or "_fuzz" in path.name:
                continue
            text = path.read_text()
            if re.search(r'(?:[!=]= |, |\()"\.\."', text):
                checked.add(name)
            if match := re.search(r"\b((?:os::)?(?:is_)?plain_(?:name|path))\(", text):
                called[name] = match[1]
    assert {name: function for name, function in called.items() if name not in CHECKS} == PLACES
    assert checked == CHECKS | OTHERS


def checkpoint(folder: Path, files: dict[str, Any]) -> Path:
    folder.mkdir(parents=True)
    path_saves.save(folder / "bitsnap-reference.json", 1, {"files": files, "objects": [], "model": LINEAR})
    return folder


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    made = tmp_path / "victim"
    made.write_text("precious")
    return made


@pytest.mark.parametrize("name", HOSTILE)
def test_exports_write_no_file_that_the_framework_does_not(tmp_path: Path, victim: Path, name: str) -> None:
    hostile = checkpoint(tmp_path / "a" / "checkpoint-1", {name.format(victim=victim): "code"})
    (tmp_path / "b").mkdir()
    for module in (bitsnap.transformers, bitsnap.accelerate):
        with pytest.raises(bitsnap.CorruptError, match="checkpoint-1"):
            module.export(hostile, tmp_path / "b" / "c")
        assert list((tmp_path / "b").iterdir()) == []
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("name", HOSTILE)
def test_loading_writes_no_file_that_the_framework_does_not(tmp_path: Path, victim: Path, name: str) -> None:
    hostile = checkpoint(tmp_path / "a" / "checkpoint-1", {name.format(victim=victim): "code"})
    accelerator = bitsnap.accelerate.use(accelerate.Accelerator(cpu=True))
    accelerator.prepare(torch.nn.Linear(2, 2))
    with pytest.raises(bitsnap.CorruptError, match="checkpoint-1"):
        accelerator.load_state(str(hostile))
    assert victim.read_text() == "precious"


def test_exports_keep_links_and_leave_out_pipes(tmp_path: Path, victim: Path) -> None:
    folder = checkpoint(tmp_path / "checkpoint-1", {})
    (folder / "link").symlink_to(victim)
    os.mkfifo(folder / "pipe")
    (folder / "notes.txt").write_text("notes")
    for number, module in enumerate((bitsnap.transformers, bitsnap.accelerate)):
        target = tmp_path / str(number)
        module.export(folder, target)
        assert (target / "link").readlink() == victim
        assert (target / "notes.txt").read_text() == "notes"
        assert not (target / "pipe").exists()
        mask = os.umask(0)
        os.umask(mask)
        assert target.stat().st_mode & 0o777 == 0o777 & ~mask


def test_exports_write_through_no_link_of_the_checkpoint(tmp_path: Path, victim: Path) -> None:
    optimizer = {"state": {}, "param_groups": [{"params": ["weight"], "lr": 0.1}]}
    for number, module in enumerate((bitsnap.transformers, bitsnap.accelerate)):
        folder = tmp_path / str(number) / "checkpoint-1"
        folder.mkdir(parents=True)
        files: dict[str, Any] = (
            {"scheduler.pt": {}, "rng_state.pth": {}} if number == 0 else {"scheduler.bin": {}, "scaler.pt": {}}
        )
        state = {"files": files, "objects": [{}], "model": LINEAR, "optimizer": optimizer}
        path_saves.save(folder / "bitsnap-reference.json", 1, state)
        missing = tmp_path / "missing"
        for name in (*files, "optimizer.pt", "optimizer.bin", "custom_checkpoint_0.pkl"):
            (folder / name).symlink_to(victim)
        (folder / "model.safetensors").symlink_to(missing)
        module.export(folder, tmp_path / f"plain-{number}")
        assert victim.read_text() == "precious"
        assert not missing.exists()
        written = {path.name for path in (tmp_path / f"plain-{number}").iterdir() if not path.is_symlink()}
        assert written >= {*files, "model.safetensors"}


def test_exports_into_the_checkpoint_itself_hold_no_copy_of_themselves(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "checkpoint-1", {})
    (folder / "more").mkdir()
    for module in (bitsnap.transformers, bitsnap.accelerate):
        target = folder / "more" / module.__name__
        module.export(folder, target)
        assert (target / "model.safetensors").is_file()
        assert list((target / "more").iterdir()) in ([], [target / "more" / "bitsnap.transformers"])


def test_exports_into_a_folder_that_is_not_there_say_so(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "checkpoint-1", {})
    for module in (bitsnap.transformers, bitsnap.accelerate):
        with pytest.raises(bitsnap.NotFoundError, match="missing: there is no such directory"):
            module.export(folder, tmp_path / "missing" / "target")


def state_file(name: object, shard: object = 0) -> str:
    text = "the state is in the run that bitsnap-reference.json names"
    return json.dumps({"bitsnap": text, "shard": shard, "name": name})


def test_files_of_deepspeed_lead_to_their_own_tag_only(tmp_path: Path, victim: Path) -> None:
    deepspeed_files = pytest.importorskip("bitsnap.deepspeed._tags")
    tag = tmp_path / "ck" / "global_step1"
    tag.mkdir(parents=True)
    path_saves.save(tag / "bitsnap-reference.json", 1, {"state.pt": {"w": torch.ones(3)}})
    path = tag / "state.pt"
    path.write_text(state_file("state.pt"))
    assert deepspeed_files.state_of(path, False)["w"].sum() == 3
    contents = [state_file(name) for name in ("/" * 50, "../" * 20 + "x", "a/b/c/d/e/f/g/h", "", 5, None, "other.pt")]
    for content in (*contents, state_file("state.pt", 10**30), '{"bitsnap": ' + "[" * 4000, "{}"):
        path.write_text(content)
        with pytest.raises(bitsnap.CorruptError, match=r"state\.pt"):
            deepspeed_files.state_of(path, False)
    for latest in ("../evil", "..", ".", "a/../../x", str(victim), "", "a\0b", "x" * 300):
        (tmp_path / "ck" / "latest").write_text(latest)
        with pytest.raises(bitsnap.CorruptError, match="latest"):
            deepspeed_files.latest_of(tmp_path / "ck")
