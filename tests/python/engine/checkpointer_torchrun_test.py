"""bitsnap.Checkpointer under torchrun: a rank is killed, torchrun starts all ranks again, and the training goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bitsnap
from python.engine.checkpointer_jobs import Jobs

STEPS = 10
KILLED_STEP = 5
RANKS = 2

# In its first life, the job trains once without checkpoints, and then with them until rank 1 kills itself. Each rank
# writes what it does to a file, one JSON document on a line.
TRAINING = """
import json, os, signal, sys
import torch, bitsnap
import torch.distributed as dist

path, job, notes, steps, killed_step = *sys.argv[1:4], *map(int, sys.argv[4:])
rank, life = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
is_first_life = life == 0
# The ranks of each life meet at another place: torchrun's own still has the addresses of ranks that have died.
dist.init_process_group("gloo", init_method=f"file://{notes}/meeting-{life}", rank=rank, world_size=2)
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)

def note(**what):
    with open(f"{notes}/{rank}", "a") as file:
        print(json.dumps(what), file=file)

class Training:
    def __init__(self):
        torch.manual_seed(0)
        self.samples = torch.Generator().manual_seed(rank)  # each rank sees samples of its own
        layers = torch.nn.Linear(32, 128), torch.nn.GELU(), torch.nn.Linear(128, 1)
        self.model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, steps)

    def state(self):
        parts = {"model": self.model, "optimizer": self.optimizer, "schedule": self.schedule}
        return {name: part.state_dict() for name, part in parts.items()} | {"samples": self.samples.get_state()}

    def load(self, state):
        for name in ("model", "optimizer", "schedule"):
            getattr(self, name).load_state_dict(state[name])
        self.samples.set_state(state["samples"])

    def step(self):
        x = torch.randn(16, 32, generator=self.samples)
        loss = (self.model(x) - x.sin().sum(1, keepdim=True)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss.item().hex()

if is_first_life:
    undisturbed = Training()
    note(undisturbed=[undisturbed.step() for _ in range(steps)])

training, begin = Training(), 0
agent = bitsnap.AgentOptions(threads=1, linger=20)
with bitsnap.Checkpointer(path, job=bitsnap.JobOptions(job), agent=agent, timeout=60, keep_last=3) as checkpointer:
    restored = checkpointer.restore()
    if restored is not None:
        training.load(restored.state)
        begin = restored.step + 1
    note(restored=None if restored is None else restored.step)
    for step in range(begin, steps):
        note(step=step, loss=training.step())
        checkpointer.save(step, training.state)
        if is_first_life and step == killed_step:
            dist.barrier()
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
note(done=True)
"""


def train(folder: Path, path: Path, job: str) -> list[list[dict[str, Any]]]:
    """Trains under torchrun; what each rank noted."""
    folder.mkdir()
    (folder / "training.py").write_text(TRAINING)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    restarts = ["--max-restarts=2", "--monitor-interval=0.1"]
    arguments = [folder / "training.py", path, job, folder, STEPS, KILLED_STEP]
    with subprocess.Popen([*torchrun, *restarts, *map(str, arguments)], stderr=subprocess.PIPE, text=True) as process:
        try:
            _, error = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.terminate()  # torchrun then ends the ranks, too
            raise
    assert process.returncode == 0, error
    return [[json.loads(line) for line in (folder / str(rank)).read_text().splitlines()] for rank in range(RANKS)]


@pytest.mark.slow
def test_torchrun_restarts_a_training_with_a_killed_rank_and_it_goes_on_bit_for_bit(jobs: Jobs, tmp_path: Path) -> None:
    for notes in train(tmp_path / "training", jobs.path, jobs.job):
        losses = notes[0]["undisturbed"]
        assert len(losses) == STEPS
        assert notes[1:] == [
            {"restored": None},
            *({"step": step, "loss": losses[step]} for step in range(KILLED_STEP + 1)),
            # What all ranks have staged survives them.
            {"restored": KILLED_STEP},
            *({"step": step, "loss": losses[step]} for step in range(KILLED_STEP + 1, STEPS)),
            {"done": True},
        ]
    with bitsnap.Store(jobs.path, read_only=True) as store:
        assert store.steps() == [STEPS - 3, STEPS - 2, STEPS - 1]
        assert {each.shards for each in store.checkpoints()} == {RANKS}
        store.verify()
