"""The corpus of the benchmark: four runs of a GPT with 10.6 M parameters, and the pairs of states that are compared.

Each phase of a run has a first state and states 1, 10 and 50 steps later. Needs no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DISTANCES = (1, 10, 50)
ROLES = ("weight", "weight_fp16", "master", "exp_avg", "exp_avg_sq")
PROJECT = Path(__file__).resolve().parents[1]
DEFAULT_FOLDER = PROJECT / "build" / "corpus" / "bench"


@dataclass(frozen=True)
class Run:
    """A training. `phases` names the first step of each; a run with a `parent` starts from that run's last weights."""

    name: str
    beta2: float
    peak_lr: float
    final_lr: float
    phases: dict[str, int]
    about: str
    warmup: int = 0
    steps: int = 100
    parent: str = ""
    trained: tuple[str, ...] = ()
    seed: int = 1
    weight_decay: float = 0.1
    compute: str = "bfloat16"  # of activations and gradients, on every machine
    halves: bool = False  # whether fp16 weights are written, too

    def written_steps(self) -> list[int]:
        """The steps that are written, in order."""
        steps = {first + more for first in self.phases.values() for more in (0, *DISTANCES)}
        return sorted(steps)


_MIDDLE = {"warm-up": 5, "middle": 300, "end": 550}

RUNS = (
    Run(
        name="beta95",
        beta2=0.95,
        peak_lr=1e-3,
        final_lr=1e-4,
        warmup=60,
        steps=600,
        phases=_MIDDLE,
        about="pre-training, betas 0.9 and 0.95: warm-up of 60 steps to 1e-3, cosine to 1e-4 at step 600",
        halves=True,
    ),
    Run(
        name="beta999",
        beta2=0.999,
        peak_lr=1e-3,
        final_lr=1e-4,
        warmup=60,
        steps=600,
        phases=_MIDDLE,
        about="the same with betas 0.9 and 0.999",
    ),
    Run(
        name="finetune",
        beta2=0.999,
        peak_lr=1e-6,
        final_lr=1e-6,
        phases={"finetune": 50},
        about="from the last bf16 weights of beta95 at a learning rate of 1e-6, betas 0.9 and 0.999, no weight decay",
        parent="beta95",
        seed=2,
        weight_decay=0.0,
    ),
    Run(
        name="frozen",
        beta2=0.999,
        peak_lr=1e-4,
        final_lr=1e-4,
        phases={"frozen": 20},
        about="from the same weights at 1e-4, the last of 8 blocks and the last norm trained, all else frozen",
        parent="beta95",
        trained=("blocks.7.", "norm."),
        seed=3,
    ),
)


@dataclass(frozen=True)
class Pair:
    """A state and the earlier state that it is coded against."""

    run: str
    phase: str
    step: int
    base_step: int

    @property
    def distance(self) -> int:
        return self.step - self.base_step

    @property
    def name(self) -> str:
        return f"{self.run}/{self.phase}/{self.base_step}-{self.step}"


def all_pairs() -> list[Pair]:
    return [
        Pair(run.name, phase, first + distance, first)
        for run in RUNS
        for phase, first in run.phases.items()
        for distance in DISTANCES
    ]


def run_named(name: str) -> Run:
    for run in RUNS:
        if run.name == name:
            return run
    raise ValueError(f"there is no run {name!r}; the runs are {', '.join(run.name for run in RUNS)}")


def state_path(folder: Path, run: str, step: int) -> Path:
    return folder / run / f"state-{step:06d}.safetensors"


def halves_path(folder: Path, run: str, step: int) -> Path:
    return folder / run / f"weights-fp16-{step:06d}.safetensors"
