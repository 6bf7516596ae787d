"""Lossy coding: --policy bounded, --loss and its short forms, and the output of `inspect`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from cli.command_line import INVALID_ARGUMENT, USAGE, run, run_json
from cli.tensor_file import Tensor, to_bytes

ELEMENTS = 1 << 18
ADAM = ("--betas", "0.9,0.95", "--eps", "1e-8", "--adam-step", 100)
EXACT = ("--loss", "*:*.w=exact")
Floats = NDArray[np.float32]


def moments() -> tuple[Floats, Floats, Floats]:
    random = np.random.default_rng(3)
    masters = random.normal(0, 0.02, ELEMENTS).astype(np.float32)
    scales = np.exp(random.normal(-9, 1, ELEMENTS))
    squares = (scales**2).astype(np.float32)
    firsts = (random.normal(0, 0.3, ELEMENTS) * scales).astype(np.float32)
    return masters, firsts, squares


def rounded(masters: Floats) -> NDArray[np.uint16]:
    bits = masters.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("loss") / "state.safetensors"
    masters, firsts, squares = moments()
    tensors = [Tensor("model.w", "BF16", (512, 512), rounded(masters).tobytes())]
    tensors += [
        Tensor(f"{role}.w", "F32", (512, 512), data.tobytes())
        for role, data in (("master", masters), ("exp_avg", firsts), ("exp_avg_sq", squares))
    ]
    path.write_bytes(to_bytes(tensors))
    return path


def stored(snapshot: Path, name: str) -> Floats:
    """The restored data of one tensor of 512 x 512."""
    back = run("decompress", "-c", snapshot).stdout
    order = ["model.w", "master.w", "exp_avg.w", "exp_avg_sq.w"]
    place = order.index(name)
    end = len(back) - 4 * ELEMENTS * (len(order) - 1 - place)
    return np.frombuffer(back[end - 4 * ELEMENTS : end], np.float32)


def test_bounded_shrinks_files_keeps_its_bounds_and_records_them(state: Path, tmp_path: Path) -> None:
    out = tmp_path / "bounded.bsnap"
    report = run_json("compress", state, "-o", out, "--policy", "bounded", "--objective", "ratio", *ADAM)
    assert report["policy"] == "bounded"
    assert report["objective"] == "ratio"
    assert report["ratio"] > 3
    masters, firsts, squares = moments()
    assert (rounded(stored(out, "master.w")) == rounded(masters)).all()
    assert np.abs(stored(out, "exp_avg_sq.w") / squares - 1).max() <= 2**-4
    beside = np.sqrt(stored(out, "exp_avg_sq.w") / (1 - 0.95**100)) + 1e-8
    assert np.abs(stored(out, "exp_avg.w") - firsts).max() > 0
    assert (np.abs(stored(out, "exp_avg.w") - firsts) / (1 - 0.9**100) / beside).max() <= 0.0101
    tensors = {tensor["name"]: tensor for tensor in run_json("inspect", out)["tensors"]}
    assert "quantizer" not in tensors["model.w"]
    assert tensors["exp_avg_sq.w"]["quantizer"]["name"] == "mantissa_bits"
    assert tensors["exp_avg_sq.w"]["quantizer"]["max_relative"] <= tensors["exp_avg_sq.w"]["quantizer"]["bound"]
    first = tensors["exp_avg.w"]["quantizer"]
    assert first["adam"] == {"betas": [0.9, 0.95], "eps": 1e-8, "step": 100}
    assert 0 < first["update"]["mean"] < first["update"]["largest"] <= first["bound"]
    assert tensors["exp_avg.w"]["codec"] == "scaled_by"
    text = run("inspect", out).stdout.decode()
    for part in ("lossy role", "update_step 0.02", "master_bits 8", "mantissa_bits 3", "of the update"):
        assert part in text
    assert "lossy" not in run("inspect", make_lossless(state, tmp_path)).stdout.decode()


def make_lossless(state: Path, folder: Path) -> Path:
    run("compress", state, "-o", folder / "lossless.bsnap")
    return folder / "lossless.bsnap"


def test_adam_values_are_required_and_never_guessed(state: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.bsnap"
    missing = run("compress", state, "-o", out, "--policy", "bounded", status=INVALID_ARGUMENT).stderr.decode()
    assert "exp_avg.w" in missing
    assert "--betas 0.9,0.95" in missing
    some = run("compress", state, "-o", out, *ADAM[:2], status=INVALID_ARGUMENT).stderr.decode()
    assert "--eps and --adam-step missing" in some
    assert not out.exists()
    run("compress", state, "-o", out, "--policy", "bounded", "--loss", "exp_avg=exact")


def test_rules_win_over_those_of_any_policy(state: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.bsnap"
    run("compress", state, "-o", out, "--loss", "exp_avg_sq=mantissa_bits:6", *EXACT, "--policy", "bounded")
    _, firsts, squares = moments()
    assert (stored(out, "exp_avg.w") == firsts).all()
    error = np.abs(stored(out, "exp_avg_sq.w") / squares - 1).max()
    assert 2**-8 < error <= 2**-7
    # Rules win over short forms, wherever these stand.
    run("compress", state, "-o", out, "--force", "--v-bits", 2, "--loss", "exp_avg_sq:*.w=mantissa_bits:6")
    assert (stored(out, "exp_avg.w") == firsts).all()
    assert np.abs(stored(out, "exp_avg_sq.w") / squares - 1).max() == error


def test_bitsnap_loses_moments_to_clusters(state: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.bsnap"
    run("compress", state, "-o", out, "--policy", "bitsnap")
    for name in ("exp_avg.w", "exp_avg_sq.w"):
        assert np.unique(stored(out, name)).size <= 16 * 256
    assert (stored(out, "master.w") == moments()[0]).all()


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--loss", "exp_avg", "expected ROLE[:PATTERN]=WHAT"),
        ("--loss", "moment=exact", "expected ROLE[:PATTERN]=WHAT"),
        ("--loss", "exp_avg=clusters:17", "16 or 256"),
        ("--master-bits", "16", "from 0 to 15"),
        ("--v-bits", "2.5", "an integer"),
        ("--update-step", "0", "above 0"),
        ("--betas", "0.9", "two numbers"),
        ("--eps", "tiny", "--eps must be a number"),
    ],
)
def test_an_invalid_rule_is_a_usage_error(state: Path, option: str, value: str, said: str) -> None:
    assert said in run("compress", state, option, value, status=USAGE).stderr.decode()


def test_a_rule_that_matches_no_tensor_is_reported(state: Path, tmp_path: Path) -> None:
    rules = ("--loss", "exp_avg:*.embde*=exact", "--loss", "exp_avg:*.w=exact")
    said = run("compress", state, "-o", tmp_path / "a.bsnap", *rules).stderr.decode()
    assert "bitsnap: warning: the rule exp_avg:*.embde*=exact fits no tensor" in said
    assert said.count("warning") == 1
    assert "warning" in run("add", tmp_path / "run", "--step", 1, state, *rules).stderr.decode()
    quiet = run("add", tmp_path / "run", "--step", 2, state, "--quiet", *rules)
    assert not quiet.stderr


def test_a_run_keeps_its_rules(state: Path, tmp_path: Path) -> None:
    run("add", tmp_path / "run", "--step", 1, state, "--policy", "bounded", "--v-bits", 5, *ADAM)
    run("add", tmp_path / "run", "--step", 2, state, *ADAM)
    for step in (1, 2):
        tensors = run_json("inspect", f"{tmp_path / 'run'}@{step}")["tensors"]
        amounts = {tensor["role"]: tensor["quantizer"]["amount"] for tensor in tensors if "quantizer" in tensor}
        assert amounts == {"master": 8, "exp_avg": 0.02, "exp_avg_sq": 5}
    refused = run("add", tmp_path / "run", "--step", 3, state, status=INVALID_ARGUMENT).stderr.decode()
    assert "--adam-step" in refused
    # Rules for one step come before those of the run, which stay.
    run("add", tmp_path / "run", "--step", 3, state, *ADAM, "--master-bits", 4)
    tensors = run_json("inspect", f"{tmp_path / 'run'}@3")["tensors"]
    amounts = {tensor["role"]: tensor["quantizer"]["amount"] for tensor in tensors if "quantizer" in tensor}
    assert amounts == {"master": 4, "exp_avg": 0.02, "exp_avg_sq": 5}
    run("add", tmp_path / "run", "--step", 4, state, "--policy", "lossless")
    assert not any("quantizer" in tensor for tensor in run_json("inspect", f"{tmp_path / 'run'}@4")["tensors"])
