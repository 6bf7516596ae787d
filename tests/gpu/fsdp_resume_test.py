"""A training with FSDP2 that is killed and resumed: on a GPU in every way, without one in the first way on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gpu.fsdp_resume import STEPS, WAYS, Printed, Verdict, verdicts


@pytest.mark.slow
def test_a_killed_training_goes_on_with_the_same_losses(tmp_path: Path) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for verdict in verdicts(WAYS if device == "cuda" else WAYS[:1], device, tmp_path):
        assert verdict.is_equal, str(verdict)


def test_a_verdict_needs_equal_losses_and_a_restored_step() -> None:
    assert Verdict("dcp", 6, []).is_equal
    assert not Verdict("dcp", 6, [7]).is_equal
    assert not Verdict("dcp", 0, []).is_equal
    assert "losses differ at [7]" in str(Verdict("dcp", 6, [7]))
    assert f"losses of steps 7 to {STEPS} equal" in str(Verdict("dcp", 6, []))


def test_lines_of_a_training_are_read() -> None:
    printed = Printed()
    for line in ("restored 3", "agent 77", "step 4 0x1.8p+1", "[rank0] of another kind"):
        printed.read(line)
    assert printed == Printed({4: "0x1.8p+1"}, 3, 77)
