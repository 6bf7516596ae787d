"""A URL in place of a path: every function refuses it by name, and writes nothing to a local folder of that name."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path, PurePosixPath

import pytest

import bitsnap
from bitsnap._common import checkpoint_id_of, is_url, local_path
from python.processes import run_script

# No object store whose buckets can be homes of runs: tests/python/objects has those.
URL = "hf://bucket/run/step-1"
CORE = ("bitsnap", "bitsnap.callbacks", "bitsnap.dcp", "bitsnap.torch")
FRAMEWORKS = ("accelerate", "deepspeed", "lightning", "transformers")
CALLS = "import sys; from python.arguments.path_arguments import main; main(*sys.argv[1:])"


def assert_all_refuse(folder: Path, *modules: str) -> set[str]:
    """Which parameters of the modules were given a URL."""
    result = json.loads(run_script(CALLS, folder, URL, *modules, timeout=300).splitlines()[-1])
    for label, outcome in result["outcomes"].items():
        expected = "returned False" if "validate_checkpoint_id" in label else f"UnsupportedError: {URL}: "
        assert outcome.startswith(expected), f"{label}: {outcome}"
    assert result["made"] == []
    return set(result["outcomes"])


def test_every_function_that_takes_a_path_refuses_a_url(tmp_path: Path) -> None:
    found = assert_all_refuse(tmp_path, *CORE)
    assert {
        "bitsnap.AgentOptions.__init__(log)",
        "bitsnap.Checkpointer.__init__(path)",
        "bitsnap.FolderFile.extract(path)",
        "bitsnap.Store.__init__(path)",
        "bitsnap.Store.add_folder(path)",
        "bitsnap.Store.repair(path)",
        "bitsnap.compress(source)",
        "bitsnap.load(path)",
        "bitsnap.save(bases)",
        "bitsnap.save_file(path)",
        "bitsnap.wait_committed(path)",
        "bitsnap.callbacks.JsonLines.__init__(path)",
        "bitsnap.dcp.AgentWriter.reset(checkpoint_id)",
        "bitsnap.dcp.StorageReader.reset(checkpoint_id)",
        "bitsnap.dcp.StorageWriter.__init__(path)",
        "bitsnap.dcp.to_torch_save(torch_save_path)",
        "bitsnap.torch.TrainingCheckpointer.__init__(path)",
    } <= found


def test_the_report_refuses_urls(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    pytest.importorskip("jinja2")
    assert len(assert_all_refuse(tmp_path, "bitsnap.report.report_page")) == 4


@pytest.mark.slow
@pytest.mark.parametrize("framework", [*FRAMEWORKS, "megatron"])
def test_functions_for_a_framework_refuse_urls(framework: str, tmp_path: Path) -> None:
    pytest.importorskip("megatron.core" if framework == "megatron" else framework)
    assert len(assert_all_refuse(tmp_path, f"bitsnap.{framework}")) >= 2


def test_an_accelerator_refuses_a_url_before_a_folder_is_made(tmp_path: Path) -> None:
    if importlib.util.find_spec("accelerate") is None:
        pytest.skip("accelerate is not installed")
    script = f"""
import os, sys, bitsnap, accelerate, bitsnap.accelerate
os.chdir(sys.argv[1])
for project in (None, {URL!r}):
    accelerator = bitsnap.accelerate.BitsnapAccelerator(cpu=True, project_config=accelerate.utils.ProjectConfiguration(
        project, automatic_checkpoint_naming=project is not None))
    calls = [lambda: accelerator.save_state(None if project else {URL!r}), lambda: accelerator.load_state({URL!r})]
    for call in calls:
        try:
            call()
            print("no error")
        except bitsnap.UnsupportedError as error:
            print("refused" if {URL!r} in str(error) else error)
print(os.listdir())
"""
    assert run_script(script, tmp_path).splitlines() == [*["refused"] * 4, "[]"]


@pytest.mark.parametrize(
    "path",
    [
        "abfs://bucket/run",
        "hf://datasets/a/b",
        "file:///tmp/run",
        "HTTPS://host/run",
        "az-2.x+y://a",
        PurePosixPath("hf://bucket/run"),
        PurePosixPath("abfs://bucket/run") / "step-1",
        PurePosixPath("file:///tmp/run"),
    ],
    ids=str,
)
def test_urls_are_recognised_with_any_scheme_and_as_pathlib_writes_them(path: str | PurePosixPath) -> None:
    assert is_url(path)
    for function in (local_path, checkpoint_id_of, bitsnap.Store, bitsnap.load):
        with pytest.raises(bitsnap.UnsupportedError, match="bitsnap saves to local files only"):
            function(path)


@pytest.mark.parametrize("path", ["./s3:/run", "a:/run", "run:1/step-1", "s3/run", "x/http://y", "s3:1", "/s3://a"])
def test_names_with_colons_and_slashes_are_local_paths(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert not is_url(path)
    assert local_path(path) == path
    if not path.startswith("/"):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        bitsnap.Store(path).close()
        assert Path(path).is_dir()
