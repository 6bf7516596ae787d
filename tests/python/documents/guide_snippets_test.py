"""The examples of README.md and of the guides for PyTorch run as they are written, each in a directory of its own.

A prelude defines what the text leaves open: a model, an optimizer, a training, and checkpoints to store. Blocks of
`make` are left out, because the tests themselves run by it, and those of `torchrun`, whose examples have tests of their
own.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import bitsnap
import bitsnap.lightning

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [
    "README.md",
    "docs/index.md",
    "docs/guide/torch.md",
    "docs/guide/dcp.md",
    "docs/guide/weights.md",
    "docs/guide/lightning.md",
    "docs/guide/transformers.md",
    "docs/guide/interfaces.md",
    "docs/guide/how_it_works.md",
    "docs/guide/questions.md",
]

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:torch.distributed is")]


def blocks(kind: str) -> Iterator[Any]:
    """The fenced blocks of Python, or of the shell, which have no language or "sh". "text" is neither."""
    for document in DOCUMENTS:
        text = (ROOT / document).read_text()
        for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            language, code = found.groups()
            line = text[: found.start()].count("\n") + 2
            assert language in ("", "sh", "python", "text"), f"{document}:{line}"
            if language == "text":  # what a program prints
                continue
            if (language == "python") == (kind == "python") and not code.startswith(("make ", "torchrun ")):
                yield pytest.param(f"{document}:{line}", code, id=f"{Path(document).stem}-{line}")


@pytest.fixture
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    with contextlib.suppress(bitsnap.NotFoundError):
        bitsnap.stop_agent("run", timeout=20)


def training() -> dict[str, Any]:
    """The names that the examples use."""
    torch.manual_seed(1)

    def make_model() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(64, 200), torch.nn.ReLU(), torch.nn.Linear(200, 64))

    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters())

    def train(step: int = 0) -> None:
        optimizer.zero_grad()
        x = torch.randn(8, 64)
        (model(x) - x).square().mean().backward()
        optimizer.step()

    train()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    names = {"model": model, "optimizer": optimizer, "train": train, "state": state, "step": 100, "steps": 101}
    return names | {"make_model": make_model}


def of_weights(model: torch.nn.Module, train: Callable[[], None]) -> dict[str, Any]:
    """The names that the examples with patches use: two patches, and an engine that has applied the first."""
    versions = []
    for _ in range(3):
        versions.append(copy.deepcopy(model))
        train()
    first, engine, last = versions
    patches = [bitsnap.make_patch(engine, first), bitsnap.make_patch(last, engine)]
    return {"copy": copy, "bitsnap": bitsnap, "base": first, "engine": engine, "patches": patches, "patch": patches[1]}


def of_lightning() -> dict[str, Any]:
    """The names that the examples with Lightning use, and a checkpoint."""
    lightning = pytest.importorskip("lightning")
    demos = importlib.import_module("lightning.pytorch.demos.boring_classes")
    model = demos.BoringModel()
    checkpoint = {"state_dict": model.state_dict(), "pytorch-lightning_version": lightning.__version__}
    bitsnap.lightning.CheckpointIO().save_checkpoint(checkpoint, "checkpoints/last.ckpt")
    return {"L": lightning, "bitsnap": bitsnap, "Model": demos.BoringModel, "model": model}


def of_transformers() -> dict[str, Any]:
    """The names that the examples with Transformers use, and a checkpoint in the folder `out`."""
    import transformers

    import bitsnap.transformers

    transformers.set_seed(1)
    sizes = {"vocab_size": 64, "n_positions": 16, "n_embd": 32, "n_layer": 1, "n_head": 2}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(bos_token_id=0, eos_token_id=0, **sizes))
    arguments = transformers.TrainingArguments(
        "out", max_steps=2, save_steps=2, use_cpu=True, report_to=[], disable_tqdm=True
    )
    sentences = [{"input_ids": torch.arange(16), "labels": torch.arange(16)}] * 16
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=sentences)
    bitsnap.transformers.use(trainer, weights=False).train()
    Path("plain").mkdir()
    return {"model": model, "arguments": arguments, "sentences": sentences}


@pytest.mark.parametrize(("place", "code"), list(blocks("python")))
def test_the_python_of_the_guides_runs(clean: Path, place: str, code: str) -> None:
    names = training()
    if "fully_shard" in code:
        # In one process, without torch.distributed, a stand-in that divides nothing.
        names |= {"torch": torch, "bitsnap": bitsnap, "fully_shard": lambda module: module}
    if "weights" in place:
        names |= of_weights(names["model"], names["train"])
    if "lightning" in place or "lightning" in code:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Lightning has many, for example of a loader without processes
            exec(compile(code, place, "exec"), names | of_lightning())
        return
    if "transformers" in place or "transformers" in code:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            used = {} if "accelerate" in code else of_transformers()
            exec(compile(code, place, "exec"), names | used)
        return
    exec(compile(code, place, "exec"), names)
    if "checkpointer" in names:
        names["checkpointer"].close()
    if ".save(" not in code:
        return
    with bitsnap.Store("run", read_only=True) as store:
        assert store.latest() == 100
        assert not store.verify().damages
    if "with " not in code or "Checkpointer" in code:
        # A second run of the same lines goes on.
        again = training() | {"step": 101, "steps": 201}
        exec(compile(code, place, "exec"), again)
        if "checkpointer" in again:
            again["checkpointer"].close()
            with bitsnap.Store("run", read_only=True) as store:
                assert store.latest() == 200


@pytest.mark.parametrize(("place", "code"), list(blocks("shell")))
def test_the_commands_of_the_guides_run(clean: Path, place: str, code: str) -> None:
    names = training()
    (clean / "examples").symlink_to(ROOT / "examples")
    for step in (1000, 2000):
        names["train"]()
        for folder in (clean / f"checkpoint-{step}", clean / f"checkpoints/checkpoint-{step}"):
            folder.mkdir(parents=True)
            save_file(dict(names["model"].state_dict()), folder / "model.safetensors")
    save_file(dict(names["model"].state_dict()), clean / "model.safetensors")
    if "bitsnap log" in code:
        with bitsnap.Store("run") as store:
            for step in (1000, 2000, 2001, 2002):
                names["train"]()
                store.save(step, names["state"])
    # `bitsnap watch` runs as long as the training.
    prelude = """
        bitsnap() {
            if [ "$1" = watch ]; then
                timeout --preserve-status --signal INT 4 bitsnap "$@" || [ $? = 130 ]
            else
                command bitsnap "$@"
            fi
        }
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"{prelude}\n{code}"],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, f"{place}: {done.stderr}{done.stdout}"


# One rank, whose collectives in shared memory would be compiled when they are first used.
DEEPSPEED = """
import os, sys
import torch
os.environ.update(DS_ACCELERATOR="cpu", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
torch.distributed.init_process_group("gloo", init_method="file://" + os.path.abspath("ranks"), rank=0, world_size=1)
import deepspeed
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.AdamW(model.parameters())
config = {
    "train_micro_batch_size_per_gpu": 8,
    "zero_optimization": {"stage": 1},
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "bf16": {"enabled": True},
}
def train():
    loss = engine(torch.ones(8, 64, dtype=torch.bfloat16)).float().square().mean()
    engine.backward(loss)
    engine.step()
"""


def test_the_guide_for_deepspeed_runs_from_top_to_bottom(clean: Path) -> None:
    pytest.importorskip("deepspeed")
    text = (ROOT / "docs/guide/deepspeed.md").read_text()
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    first, background = [code for language, code in found if language == "python"]
    (commands,) = [code for language, code in found if language == "sh"]
    script = f"{DEEPSPEED}\n{first}\n"
    script += "train()\nengine.save_checkpoint('checkpoints', tag='global_step1000')\n"
    script += f"{background}\ntrain()\nengine.save_checkpoint('checkpoints', tag='global_step1001')\n"
    script += "engine.destroy()\ntorch.distributed.destroy_process_group()\n"
    Path("train.py").write_text(script)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"python train.py\n{commands}"],
        env={**os.environ, "PATH": path, "DS_ACCELERATOR": "cpu"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    with bitsnap.Store("checkpoints/bitsnap", read_only=True) as store:
        assert store.labels() == {"global_step1000": 1000, "global_step1001": 1001}
    assert Path("checkpoints/latest").read_text() == "global_step1001"
    assert Path("plain/latest").read_text() == "global_step1000"
    assert set(torch.load("merged/pytorch_model.bin")) == {"weight", "bias"}


def test_the_tutorial_runs_from_top_to_bottom(clean: Path) -> None:
    text = (ROOT / "docs/guide/tutorial.md").read_text()
    script = []
    for language, code in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if language == "python":
            name = re.match(r"# (\w+\.py)\n", code)
            script.append(f"cat > {name[1]} <<'END'\n{code}END" if name else f"python - <<'END'\n{code}END")
        else:
            assert language in ("sh", "text")
            script += [code] if language == "sh" else []
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(script)],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    (again,) = set(re.findall(r"^step 120 loss (.*)$", done.stdout, re.MULTILINE))  # resumed and unbroken
    assert "killed\nbegins after step 80\n" in done.stdout
    assert float.fromhex(again) < 1
    sizes = re.search(r"(\d+) bytes: (\d+) exact, (\d+) bounded", done.stdout)
    assert sizes is not None
    raw, exact, bounded = map(int, sizes.groups())
    assert 1.3 * bounded < exact < raw
