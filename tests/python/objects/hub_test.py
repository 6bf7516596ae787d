"""push_to_hub(). The hub cannot be reached from tests: a class stands for the client of huggingface_hub, with the
arguments of the real one, and keeps what it is given."""

from __future__ import annotations

import inspect
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import bitsnap

hub = pytest.importorskip("huggingface_hub")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, dict[str, Any]]]:
    """What the client was asked for. Folders are copied to `tmp_path / "uploaded"`."""
    made: list[tuple[str, dict[str, Any]]] = []

    def replace(name: str, folder: str | None) -> None:
        signature = inspect.signature(getattr(hub.HfApi, name))

        def call(self: Any, *arguments: Any, **named: Any) -> Any:
            given = dict(signature.bind(self, *arguments, **named).arguments)
            del given["self"]
            made.append((name, given))
            if folder is not None:
                left_out = given.get("ignore_patterns") or given.get("exclude") or []
                shutil.copytree(given[folder], tmp_path / "uploaded", ignore=shutil.ignore_patterns(*left_out))
            return SimpleNamespace(commit_url="https://hub/commit/1")

        monkeypatch.setattr(hub.HfApi, name, call)

    for name, folder in (
        ("create_repo", None),
        ("upload_folder", "folder_path"),
        ("create_bucket", None),
        ("sync_bucket", "source"),
    ):
        replace(name, folder)
    return made


@pytest.fixture
def run(tmp_path: Path) -> Path:
    weights = {"layer.weight": np.ones((40, 30), np.float32)}
    with bitsnap.Store(tmp_path / "run") as store:
        for step in (1, 2):
            store.save(step, {"model": weights, "step": step})
    return tmp_path / "run"


def test_the_model_of_a_checkpoint_is_uploaded(run: Path, calls: list[Any], tmp_path: Path) -> None:
    (tmp_path / "like").mkdir()
    (tmp_path / "like" / "config.json").write_text('{"model_type": "x", "dtype": "float32"}')
    address = bitsnap.push_to_hub(f"{run}@latest", "me/model", like=tmp_path / "like", dtype="bf16", private=True)
    assert address == "https://hub/commit/1"
    (first, made), (second, uploaded) = calls
    assert (first, second) == ("create_repo", "upload_folder")
    assert made == {"repo_id": "me/model", "private": True, "exist_ok": True}
    assert uploaded["commit_message"] == "Add the model of step latest"
    assert json.loads((tmp_path / "uploaded" / "config.json").read_bytes())["dtype"] == "bfloat16"
    header = (tmp_path / "uploaded" / "model.safetensors").read_bytes()[:200]
    assert b'"layer.weight":{"dtype":"BF16"' in header
    assert not Path(uploaded["folder_path"]).exists()


def test_a_run_is_uploaded_and_is_one_there(run: Path, calls: list[Any], tmp_path: Path) -> None:
    assert bitsnap.push_to_hub(run, "hf://buckets/me/runs") == "hf://buckets/me/runs"
    assert [name for name, _ in calls] == ["create_bucket", "sync_bucket"]
    assert calls[0][1]["bucket_id"] == "me/runs"
    assert not (tmp_path / "uploaded" / "lock").exists()
    with bitsnap.Store(tmp_path / "uploaded", read_only=True) as store:
        assert store.steps() == [1, 2]
        assert not store.verify().damages


def test_a_folder_is_uploaded_as_it_is(calls: list[Any], tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    bitsnap.push_to_hub(tmp_path / "model", "me/model", revision="dev", message="First")
    assert calls[1][1]["revision"] == "dev"
    assert calls[1][1]["commit_message"] == "First"
    assert (tmp_path / "uploaded" / "config.json").exists()
    with pytest.raises(bitsnap.InvalidArgumentError, match="uploaded as it is"):
        bitsnap.push_to_hub(tmp_path / "model", "me/model", dtype="bf16")


def test_errors_say_what_is_wrong(run: Path, calls: list[Any], tmp_path: Path) -> None:
    for source in (tmp_path / "nothing", f"{tmp_path}/nothing@3"):
        with pytest.raises(bitsnap.NotFoundError, match="neither a folder nor a checkpoint, such as run@1000"):
            bitsnap.push_to_hub(source, "me/model")
    with pytest.raises(bitsnap.NotFoundError, match="step 7 not found"):
        bitsnap.push_to_hub(f"{run}@7", "me/model")
    with pytest.raises(bitsnap.InvalidArgumentError, match="neither revisions nor messages"):
        bitsnap.push_to_hub(run, "hf://buckets/me/runs", revision="dev")
    assert calls == []
