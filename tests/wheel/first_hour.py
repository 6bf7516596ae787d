"""The first hour of a new user, with the bitsnap of this Python and real Transformers: trains a small GPT-2 with three
lines of bitsnap, kills it, resumes it, looks at the run, and takes the model out. Prints what each step took.

    python first_hour.py

Needs torch and transformers beside bitsnap, no source tree, no network and no GPU.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

TRAINING = """
import json, os, signal, sys
from pathlib import Path
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed
import bitsnap.transformers

folder, kill_in = sys.argv[1], int(sys.argv[2])

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        tokens = torch.randint(128, (32,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}

class Watcher(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        if state.global_step == kill_in:
            os.kill(os.getpid(), signal.SIGKILL)

set_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=32, n_embd=64, n_layer=2, n_head=4,
                                   bos_token_id=0, eos_token_id=0))
arguments = TrainingArguments(folder, max_steps=12, save_steps=3, per_device_train_batch_size=4, report_to=[],
                              use_cpu=True, disable_tqdm=True, logging_steps=1, seed=0)
trainer = Trainer(model, arguments, train_dataset=Data(), callbacks=[Watcher()])
bitsnap.transformers.use(trainer)
trainer.train(resume_from_checkpoint=any(Path(folder).glob("checkpoint-*")))
losses = {entry["step"]: entry["loss"] for entry in trainer.state.log_history if "loss" in entry}
Path(folder, "losses.json").write_text(json.dumps(losses))
torch.save(trainer.model.state_dict(), Path(folder, "last.pt"))
"""

LOADING = """
import sys, warnings
import torch
warnings.simplefilter("error")
from transformers import AutoModelForCausalLM
model, info = AutoModelForCausalLM.from_pretrained(sys.argv[1], output_loading_info=True)
assert not any(info.values()), info
expected = torch.load(sys.argv[2])
assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())
"""

LOG = """
import sys, bitsnap
print(bitsnap.load(sys.argv[1] + "@latest").keys())
"""


def python(script: str, *arguments: object, status: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == status, (done.returncode, done.stdout[-2000:], done.stderr[-4000:])
    return done.stdout


def command(*arguments: object) -> str:
    program = Path(sysconfig.get_path("scripts")) / "bitsnap"
    return subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, check=True, timeout=600
    ).stdout


def main() -> None:
    begin = time.monotonic()

    def step(what: str, call: Callable[[], object]) -> None:
        start = time.monotonic()
        call()
        print(f"{time.monotonic() - start:6.1f} s  {what}", flush=True)

    with tempfile.TemporaryDirectory() as made:
        out, plain, page = Path(made, "out"), Path(made, "plain"), Path(made, "page.html")
        step("train, and be killed in step 8", lambda: python(TRAINING, out, 8, status=-signal.SIGKILL))
        step("resume to the end", lambda: python(TRAINING, out, -1))
        step("the same training without the kill", lambda: python(TRAINING, plain, -1))
        resumed = json.loads((out / "losses.json").read_text())
        assert resumed == json.loads((plain / "losses.json").read_text()), "the losses differ"
        step("bitsnap log", lambda: print(command("log", out / "bitsnap"), end=""))
        assert "loss" in command("log", out / "bitsnap").split("\n")[0].split()
        step("bitsnap label", lambda: command("label", out / "bitsnap", "--best", "loss"))
        step("bitsnap report", lambda: command("report", out / "bitsnap", "-o", page, "-q"))
        assert page.stat().st_size > 10_000
        step("the state in Python", lambda: python(LOG, out / "bitsnap"))
        step("the model out of it", lambda: command("convert", out / "checkpoint-12", out / "model", "--to", "hf"))
        step("from_pretrained()", lambda: python(LOADING, out / "model", out / "last.pt"))
    print(f"{time.monotonic() - begin:6.1f} s  in all")


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    main()
