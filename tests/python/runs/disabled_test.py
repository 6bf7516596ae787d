"""BITSNAP_DISABLE: frameworks save as without bitsnap, and what bitsnap has saved before is loaded all the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from python.processes import run_script

ACCELERATE = """
import accelerate, bitsnap.accelerate
def made():
    accelerator = accelerate.Accelerator(cpu=True)
    model = torch.nn.Linear(4, 4)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    model(torch.ones(4)).sum().backward(); optimizer.step()
    return accelerator, model
accelerator, model = made()
bitsnap.accelerate.use(accelerator)
folders = [str(path / "ours"), str(path / "stock")]
accelerator.save_state(folders[0])
os.environ["BITSNAP_DISABLE"] = "1"
accelerator.save_state(folders[1])
saved = model.weight.detach().clone()
accelerate.Accelerator.load_state(accelerator, folders[1])
for folder in folders:
    torch.nn.init.zeros_(model.weight)
    accelerator.load_state(folder)
    assert torch.equal(model.weight, saved)
"""

LIGHTNING = """
import bitsnap.lightning
io = bitsnap.lightning.CheckpointIO()
state = {"state_dict": {"w": torch.ones(4)}, "global_step": 3}
(path / "ours").mkdir(); (path / "stock").mkdir()
io.save_checkpoint(state, path / "ours" / "a.ckpt")
os.environ["BITSNAP_DISABLE"] = "1"
io.save_checkpoint(state, path / "stock" / "a.ckpt")
assert torch.load(path / "stock" / "a.ckpt")["global_step"] == 3
for name in ("ours", "stock"):
    assert io.load_checkpoint(path / name / "a.ckpt")["global_step"] == 3
    io.remove_checkpoint(path / name / "a.ckpt")
io.save_checkpoint(state, path / "stock" / "a.ckpt")
"""

TRANSFORMERS = """
import transformers
from python.transformers.transformers_trainings import trainer_of
trainer = trainer_of(str(path), {}, 2)
trainer.train()
(path / "checkpoint-2").rename(path / "ours")
os.environ["BITSNAP_DISABLE"] = "1"
trainer = trainer_of(str(path), {}, 4)
trainer.train(resume_from_checkpoint=str(path / "ours"))
assert list(trainer.losses) == [3, 4]
(path / "checkpoint-4").rename(path / "stock")
del os.environ["BITSNAP_DISABLE"]
trainer = trainer_of(str(path), None, 6)
trainer.train(resume_from_checkpoint=str(path / "stock"))
assert list(trainer.losses) == [5, 6]
"""

DEEPSPEED = """
import bitsnap.deepspeed
from python.deepspeed.deepspeed_test import new_engine, train
torch.distributed.init_process_group("gloo", init_method=f"file://{path}/meeting", rank=0, world_size=1)
engine = new_engine(1)
bitsnap.deepspeed.use(engine)
for step, name in enumerate(("ours", "stock"), 1):
    train(engine, range(step, step + 1))
    engine.save_checkpoint(str(path / name), tag="a")
    os.environ["BITSNAP_DISABLE"] = "1"
torch.load(path / "stock" / "a" / "mp_rank_00_model_states.pt", weights_only=False)["module"]
for step, name in enumerate(("ours", "stock"), 1):
    engine.load_checkpoint(str(path / name), tag="a")
    assert engine.global_steps == step
"""


SLOW = [pytest.param(each, marks=pytest.mark.slow) for each in (LIGHTNING, DEEPSPEED)]


@pytest.mark.parametrize("script", [ACCELERATE, TRANSFORMERS, *SLOW])
def test_disabled_adapters_save_as_their_frameworks(tmp_path: Path, script: str) -> None:
    if script is DEEPSPEED:
        pytest.importorskip("deepspeed")
    head = "import json, os, sys, torch\nfrom pathlib import Path\npath = Path(sys.argv[1])\n"
    tail = """
def files(name):
    return sorted(str(each.relative_to(path / name)) for each in (path / name).rglob("*") if each.is_file())
print(json.dumps([files("ours"), files("stock")]))
"""
    out = run_script(head + script + tail, tmp_path)
    ours, stock = json.loads(out.splitlines()[-1])
    suffixes = {Path(each).suffix for each in stock}
    assert not any("bitsnap" in each for each in stock)
    assert suffixes & {".pt", ".bin", ".ckpt"}
    assert ours != stock
