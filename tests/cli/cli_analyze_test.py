"""`bitsnap analyze`: findings that can be worked out by hand, the compared states, and the output."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.cli_terminal_test import run_on_terminal
from cli.command_line import INVALID_ARGUMENT, NOT_FOUND, USAGE, run, run_json
from cli.command_runs import make_run
from cli.tensor_file import Tensor, weights, write

ELEMENTS = 8192


def bf16(name: str, values: np.ndarray[Any, Any]) -> Tensor:
    return Tensor(name, "BF16", values.shape, values.astype(np.uint16).tobytes())


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A weight whose elements are 1 or -2. In each half, a quarter moves by one ULP and a quarter by six. Second
    moments do not change."""
    folder = tmp_path_factory.mktemp("analyze")
    first = np.where(np.arange(ELEMENTS) % 2 == 0, 0x3F80, 0xC000)
    second = first + np.array([0, 0, 0, 0, 1, 1, 6, 6])[np.arange(ELEMENTS) % 8]
    second_moment = weights("optimizer.exp_avg_sq.layers.3.w", 3 * ELEMENTS, 2)
    step = Tensor("step", "I64", (), np.int64(7).tobytes())
    return (
        write(folder / "a.safetensors", [bf16("model.layers.3.w", first), second_moment, step]),
        write(folder / "b.safetensors", [bf16("model.layers.3.w", second), second_moment, step]),
    )


def role(state: Any, name: str) -> Any:
    found = [each for each in state["roles"] if each["role"] == name]
    assert len(found) == 1
    return found[0]


def best(state: Any, name: str) -> tuple[Any, Any]:
    found = role(state, name)["best"]
    return found["alone"], found["base"]


def test_findings_match_values_worked_out_by_hand(files: tuple[Path, Path]) -> None:
    document = run_json("analyze", *files)
    first, second = document["states"]
    assert (first["against"], second["against"]["path"]) == (None, str(files[0]))
    weight = role(first, "weight")
    assert (weight["dtype"], weight["elements"], weight["looked_at"]) == ("BF16", ELEMENTS, ELEMENTS)
    assert weight["entropy"] == {
        "sign": 1.0,
        "exponent": 1.0,
        "planes": [1.0, 1.0],
        "xor_planes": None,
        "delta": None,
        "delta_by_exponent": None,
    }
    # 3F80 and C000: the equal bits are constant.
    assert weight["bits"]["constant"] == [0] * 9 + [1] * 7
    assert weight["change"] is None
    assert weight["best"]["base"] is None

    weight = role(second, "weight")
    assert weight["change"]["changed"] == 0.5
    assert weight["change"]["sign_changed"] == 0
    assert weight["change"]["ulp"] == [
        {"from": 0, "to": 0, "share": 0.5},
        {"from": 1, "to": 1, "share": 0.25},
        {"from": 2, "to": 3, "share": 0},
        {"from": 4, "to": 7, "share": 0.25},
    ]
    # 0, 1 or 6 is added to bits that are 0; as -2 goes down where 1 goes up, the exponent says the sign of each.
    assert weight["bits"]["same"] == [1] * 13 + [0.75, 0.75, 0.75]
    assert math.isclose(weight["entropy"]["delta"], 2.0)
    assert math.isclose(weight["entropy"]["delta_by_exponent"], 1.5)
    assert math.isclose(weight["entropy"]["xor_planes"][1], 1.5)

    square = role(second, "exp_avg_sq")
    assert square["change"]["changed"] == 0
    assert square["best"]["base"] == {"codec": "same+base", "bits": 0, "elements": 3 * ELEMENTS}
    assert square["bits"]["same"] == [1] * 32


def test_all_coders_and_quantizers_are_reported(files: tuple[Path, Path]) -> None:
    state = run_json("analyze", *files)["states"][1]
    weight = role(state, "weight")
    codecs = {(each["name"], each["form"]): each for each in weight["codecs"]}
    assert {("float_split", "alone"), ("byte_group", "base"), ("ordinal_delta", "base"), ("bitmask", "base")} <= set(
        codecs
    )
    # A bit for each element, and the changed half.
    assert math.isclose(codecs["bitmask", "base"]["bits"], 1 + 16 * 0.5, rel_tol=0.01)
    baselines = {(each["name"], each["form"]) for each in weight["baselines"]}
    names = {"zstd-1", "zstd-3", "lz4"}
    assert baselines == {(name, form) for name in names for form in ("alone", "planes", "xor+planes")}
    points = [(each["name"], each["parameter"]) for each in role(state, "exp_avg_sq")["quantizers"]]
    assert points == [*(("round_mantissa", k) for k in range(1, 13)), ("clusters", 16), ("clusters", 256)]
    assert [each["parameter"] for each in weight["quantizers"]] == [1, 2, 3, 4, 5, 6]
    for point in role(state, "exp_avg_sq")["quantizers"][:12]:
        assert 0 < point["mean_relative"] < point["max_relative"] <= 2.0 ** -(point["parameter"] + 1)
        assert point["bits_on_base"] == 0
    nominal = [each["nominal_bits"] for each in role(state, "exp_avg_sq")["quantizers"][11:]]
    assert nominal == [None, 12, 16]


ADAM = ("--betas", "0.9,0.95", "--eps", "1e-8")


@pytest.fixture(scope="module")
def moments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both moments of a matrix; the mean update is a third."""
    random = np.random.default_rng(3)
    scales = np.exp(random.normal(-9, 1, ELEMENTS))
    values = {"exp_avg": random.normal(0, 0.4, ELEMENTS) * scales, "exp_avg_sq": scales**2}
    return write(
        tmp_path_factory.mktemp("moments") / "moments.safetensors",
        [Tensor(f"{name}.w", "F32", (ELEMENTS,), data.astype(np.float32).tobytes()) for name, data in values.items()],
    )


def swept(state: Any, name: str = "exp_avg") -> dict[float, Any]:
    return {each["parameter"]: each for each in role(state, name)["quantizers"] if each["name"] == "update_step"}


def test_update_steps_match_those_of_compress(moments: Path, tmp_path: Path) -> None:
    (state,) = run_json("analyze", moments, *ADAM, "--adam-step", 100)["states"]
    assert state["adam"] == {"betas": [0.9, 0.95], "eps": 1e-8, "step": 100}
    points = swept(state)
    assert list(points) == [0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2]
    assert swept(state, "exp_avg_sq") == {}
    assert all(each["update"] is None for each in role(state, "exp_avg_sq")["quantizers"])
    assert all(each["update"]["mean"] > 0 for each in role(state, "exp_avg")["quantizers"])
    point = points[0.02]
    assert (point["codec"], point["bits_on_base"], point["nominal_bits"]) == ("scaled_by", None, None)
    assert 0.0098 < point["update"]["largest"] < 0.0101
    assert math.isclose(point["update"]["mean"], 0.005, rel_tol=0.1)

    rule = ("--loss", "exp_avg=update_step:0.02", "--objective", "ratio")
    run("compress", moments, "-o", tmp_path / "out.bsnap", *rule, *ADAM, "--adam-step", 100)
    stored = next(
        each for each in run_json("inspect", tmp_path / "out.bsnap")["tensors"] if each["name"] == "exp_avg.w"
    )
    assert math.isclose(point["bits"], 8 * stored["stored_bytes"] / ELEMENTS, rel_tol=0.01)
    for key in ("mean_relative", "max_relative", "mean_square", "max_absolute"):
        assert point[key] == stored["quantizer"][key]
    assert all(
        point["update"][key] == value for key, value in stored["quantizer"]["update"].items() if key != "elements"
    )


def test_adam_values_come_from_options_or_the_snapshot(moments: Path, tmp_path: Path) -> None:
    (state,) = run_json("analyze", moments)["states"]
    assert (state["adam"], swept(state)) == (None, {})
    assert "update_step is left out: it needs Adam's values" in run("analyze", moments).stdout.decode()
    told = run("analyze", moments, *ADAM, "--adam-step", 100).stdout.decode()
    assert "left out" not in told
    assert next(line.split() for line in told.splitlines() if line.startswith("update_step 0.02"))[2:]
    missing = run("analyze", moments, *ADAM, status=INVALID_ARGUMENT).stderr.decode()
    assert "--adam-step missing" in missing
    assert b"--eps" in run("analyze", moments, "--betas", "0.9,0.95", status=INVALID_ARGUMENT).stderr
    wrong = ("--betas", "0.9,1", "--eps", "1e-8", "--adam-step", 9)
    assert b"beta2" in run("analyze", moments, *wrong, status=INVALID_ARGUMENT).stderr

    alone = write(tmp_path / "alone.safetensors", [weights("exp_avg.w", ELEMENTS, 1)])
    (state,) = run_json("analyze", alone, *ADAM, "--adam-step", 100)["states"]
    assert swept(state) == {}, "there are no second moments"
    assert "left out" not in run("analyze", alone, *ADAM, "--adam-step", 100).stdout.decode()

    # A file with bounded loss has its Adam values; an option overrides them.
    bounded = tmp_path / "bounded.bsnap"
    run("compress", moments, "-o", bounded, "--policy", "bounded", *ADAM, "--adam-step", 100)
    (state,) = run_json("analyze", bounded)["states"]
    assert state["adam"]["step"] == 100
    assert swept(state)[0.02]["mean_relative"] == 0
    assert run_json("analyze", bounded, *ADAM, "--adam-step", 7)["states"][0]["adam"]["step"] == 7

    # A checkpoint counts its own steps.
    run("add", tmp_path / "run", "--step", 20, moments)
    assert run_json("analyze", tmp_path / "run", *ADAM)["states"][0]["adam"]["step"] == 20
    text = run("analyze", tmp_path / "run").stdout.decode()
    assert "as --betas 0.9,0.95 --eps 1e-8\n" in text


def test_only_the_last_state_has_baselines_and_details_are_optional(
    files: tuple[Path, Path],
) -> None:
    first, second = run_json("analyze", *files)["states"]
    for name in ("baselines", "quantizers"):
        assert [bool(role(state, "weight")[name]) for state in (first, second)] == [False, True]
    assert role(first, "weight")["codecs"]
    details = {"bits", "entropy", "codecs", "baselines", "quantizers"}
    for state in (first, second):
        for tensor in state["tensors"]:
            assert not details & set(tensor)
    (long,) = run_json("analyze", files[1], "-v")["states"]
    (chosen,) = run_json("analyze", files[1], "--tensor", "model.*")["states"]
    for state in (long, chosen):
        tensor = next(each for each in state["tensors"] if each["name"] == "model.layers.3.w")
        assert details <= set(tensor)
        assert tensor["baselines"] == role(state, "weight")["baselines"]
    assert {"change", "best", "elements"} <= set(second["tensors"][0])


def test_tensors_have_layers_and_small_ones_are_skipped(files: tuple[Path, Path]) -> None:
    tensors = {each["name"]: each for each in run_json("analyze", files[0])["states"][0]["tensors"]}
    assert tensors["model.layers.3.w"]["layer"] == 3
    assert tensors["model.layers.3.w"]["skipped"] is None
    assert tensors["step"]["skipped"] == "small"
    assert tensors["step"]["layer"] is None
    assert "entropy" not in tensors["step"]


def test_snapshots_have_the_findings_of_their_files_and_stored_sizes(files: tuple[Path, Path], tmp_path: Path) -> None:
    a, b = tmp_path / "a.bsnap", tmp_path / "b.bsnap"
    run("compress", files[0], "-o", a)
    run("compress", files[1], "-o", b, "--base", a)
    from_files = run_json("analyze", *files)["states"][1]
    from_snapshots = run_json("analyze", a, b)["states"][1]
    assert from_snapshots["stored_bytes"] == b.stat().st_size
    assert from_files["stored_bytes"] is None
    assert role(from_snapshots, "weight")["stored_bytes"] < role(from_snapshots, "weight")["raw_bytes"]
    assert role(from_snapshots, "exp_avg_sq")["stored_bytes"] == 0
    for name in ("weight", "exp_avg_sq"):
        mine, other = role(from_snapshots, name), role(from_files, name)
        for key in ("stored_bytes", "ratio"):
            mine.pop(key)
            other.pop(key)
        assert mine == other


def test_a_sample_is_bounded_and_the_same_for_any_number_of_threads(tmp_path: Path) -> None:
    tensors = [weights(f"model.{i}.w", 700_000, i) for i in range(3)]
    source = write(tmp_path / "in.safetensors", tensors)
    one = run_json("analyze", source, "--limit-mb", 1, "-T1")
    assert one == run_json("analyze", source, "--limit-mb", 1, "-T4")
    assert one["limit_bytes"] == 1_000_000
    assert 500_000 < one["states"][0]["looked_at_bytes"] < 1_100_000
    assert b"--full reads everything" in run("analyze", source, "--limit-mb", 1).stdout
    whole = run_json("analyze", source, "--full", "--tensor", "model.1.*")
    assert whole["limit_bytes"] is None
    assert whole["states"][0]["looked_at_bytes"] == whole["states"][0]["analyzed_bytes"] == 2_800_000
    run("analyze", source, "--full", "--limit-mb", 1, status=USAGE)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    make_run(path, [10, 20, 30, 40])
    return path


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["{}"], [(40, 30)]),
        (["{}@20"], [(20, 10)]),
        (["{}@10"], [(10, None)]),
        (["{}@10", "{}@40"], [(10, None), (40, 10)]),
        (["{}@30", "{}"], [(30, None), (40, 30)]),
        (["{}", "--steps", "1"], [(40, 30)]),
        (["{}", "--steps", "2"], [(10, None), (40, 30)]),
        (["{}", "--steps", "3"], [(10, None), (20, 10), (40, 30)]),
        (["{}", "--steps", "99"], [(10, None), (20, 10), (30, 20), (40, 30)]),
    ],
)
def test_checkpoints_are_compared_with_the_ones_before(
    made: Path, arguments: list[str], expected: list[tuple[int, int | None]]
) -> None:
    states = run_json("analyze", *(argument.format(made) for argument in arguments))["states"]
    assert [(each["step"], each["against"] and each["against"]["step"]) for each in states] == expected


def test_errors_name_what_is_wrong(made: Path, files: tuple[Path, Path], tmp_path: Path) -> None:
    assert b"25" in run("analyze", f"{made}@25", status=NOT_FOUND).stderr
    assert b"'nothing*'" in run("analyze", files[0], "--tensor", "nothing*", status=NOT_FOUND).stderr
    for arguments in ([files[0]], [f"{made}@20"], [made, made]):
        assert b"--steps" in run("analyze", *arguments, "--steps", 2, status=INVALID_ARGUMENT).stderr
    for wrong in (["--steps", "0"], ["--steps", "x"], ["--limit-mb", "0"]):
        run("analyze", made, *wrong, status=USAGE)
    run("analyze", status=USAGE)
    (tmp_path / "text").write_text("no tensors here" * 10)
    assert b"text" in run("analyze", files[0], tmp_path / "text", status=15).stderr


@pytest.mark.parametrize(
    ("glob", "count"),
    [("*", 2), ("*layers.?.w", 2), ("model.*", 1), ("*exp*sq*", 1), ("model.layers.3.w", 1), ("?odel.*.*.w", 1)],
)
def test_globs_select_tensors(files: tuple[Path, Path], glob: str, count: int) -> None:
    state = run_json("analyze", files[0], "--tensor", glob)["states"][0]
    assert sum(each["skipped"] is None for each in state["tensors"]) == count
    if glob != "*":
        assert run("analyze", files[0], "--tensor", glob[1:] + "!", status=NOT_FOUND).stdout == b""


def test_tables_show_what_changed(files: tuple[Path, Path], made: Path) -> None:
    text = run("analyze", *files).stdout.decode()
    # Sign, exponent, mantissa: its last three bits stay in three quarters of the elements; the others are zeros.
    assert "weight      * ******** ****777                  . ........ 0000...\n" in text
    assert "best with base" in text
    assert "round_mantissa 12" in text
    assert "model.layers.3.w" not in text
    assert "model.layers.3.w" in run("analyze", *files, "-v").stdout.decode()
    alone = run("analyze", files[0]).stdout.decode()
    assert "without an earlier state" in alone
    assert "best with base" not in alone
    assert "ULP" not in alone
    over = run("analyze", made, "--steps", 3).stdout.decode()
    assert "3 checkpoints, each against the one before" in over
    assert next(line.split()[:2] for line in over.splitlines() if line.startswith("weight ")) == ["weight", "10"]


def test_states_without_large_tensors_have_nothing_to_show(tmp_path: Path) -> None:
    source = write(tmp_path / "in.safetensors", [weights("w", 100, 1), Tensor("e", "F16", (0, 4), b"")])
    assert b"no tensor of 4 KiB or more" in run("analyze", source, source).stdout
    assert run_json("analyze", source)["states"][0]["roles"] == []


@pytest.mark.parametrize("columns", [80, 120])
def test_tables_fit_a_terminal(made: Path, columns: int) -> None:
    status, text = run_on_terminal("analyze", made, "--steps", 2, "-v", streams="out", columns=columns)
    assert status == 0
    lines = text.replace("\r", "").splitlines()
    assert all(len(line) <= columns for line in lines if str(made) not in line)
    assert any("optimizer.exp_avg_sq.w" in line for line in lines)
