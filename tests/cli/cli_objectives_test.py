"""The choice of codecs: --objective, --store-speed and --codec of `compress` and `add`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cli.command_line import USAGE, run, run_json
from cli.command_runs import state
from cli.tensor_file import Tensor, to_bytes

ELEMENTS = 1 << 18
REASON_BYTES = 200  # the texts of the reasons differ, too
CODECS = (
    *("raw", "constant", "same", "zstd", "byte_group", "float_split", "bitmask", "ordinal_delta", "factored_split"),
    *("rounded_from", "optimizer_step", "scaled_by", "clustered"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of which half changed slightly, and moments with column scales: objectives choose different codecs."""
    path = tmp_path_factory.mktemp("objectives")
    random = np.random.default_rng(1)
    weights = (random.normal(0, 0.02, ELEMENTS).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    moved = weights.copy()
    moved[::2] ^= 1
    scales = 2.0 ** random.normal(0, 0.6, 512)
    for name, own in (("base", weights), ("next", moved)):
        moments = (random.normal(0, 1e-4, (512, 512)) * scales).astype(np.float32)
        tensors = [
            Tensor("model.w", "BF16", (ELEMENTS,), own.tobytes()),
            Tensor("optimizer.exp_avg.w", "F32", (512, 512), moments.tobytes()),
        ]
        (path / f"{name}.safetensors").write_bytes(to_bytes(tensors))
    run("compress", path / "base.safetensors")
    return path


def compressed(folder: Path, out: Path, *options: object) -> dict[str, str]:
    """The reasons of the tensors, after a check that the file round-trips."""
    run("compress", folder / "next.safetensors", "-o", out, "--base", folder / "base.bsnap", *options)
    back = run("decompress", "-c", out, "--base", folder / "base.bsnap").stdout
    assert back == (folder / "next.safetensors").read_bytes()
    return {tensor["name"]: tensor["reason"] for tensor in run_json("inspect", out)["tensors"]}


def test_an_objective_is_reported_and_kept_in_the_file(folder: Path, tmp_path: Path) -> None:
    sizes = {}
    for objective in ("ratio", "balanced", "speed"):
        out = tmp_path / f"{objective}.bsnap"
        report = run_json("compress", folder / "next.safetensors", "-o", out, "--objective", objective)
        assert report["objective"] == objective
        assert run_json("inspect", out)["objective"] == objective
        assert f"policy lossless for {objective}" in run("inspect", out).stdout.decode()
        sizes[objective] = report["output_bytes"]
    assert sizes["ratio"] < sizes["balanced"] - REASON_BYTES
    assert sizes["balanced"] < sizes["speed"] + REASON_BYTES
    assert run_json("compress", folder / "next.safetensors", "-o", tmp_path / "x.bsnap")["objective"] == "balanced"
    raw = run_json("compress", folder / "next.safetensors", "-o", tmp_path / "raw.bsnap", "--policy", "raw")
    assert raw["objective"] is None
    assert run_json("inspect", tmp_path / "raw.bsnap")["objective"] is None


def test_reasons_name_the_objective_and_its_estimates(folder: Path, tmp_path: Path) -> None:
    reasons = compressed(folder, tmp_path / "ratio.bsnap", "--objective", "ratio")
    assert "; ratio: " in reasons["model.w"]
    assert " us" not in reasons["model.w"]
    assert "factored_split 1/1; ratio: factored_split" in reasons["optimizer.exp_avg.w"]
    reasons = compressed(folder, tmp_path / "balanced.bsnap")
    assert "; balanced: " in reasons["model.w"]
    assert " kB in " in reasons["model.w"]
    assert " us" in reasons["model.w"]


def test_a_slow_store_favors_size_and_a_fast_one_time(folder: Path, tmp_path: Path) -> None:
    sizes = {}
    for speed in ("1M", "200M", "20G", "1T"):
        compressed(folder, tmp_path / f"{speed}.bsnap", "--store-speed", speed)
        sizes[speed] = (tmp_path / f"{speed}.bsnap").stat().st_size
    compressed(folder, tmp_path / "ratio.bsnap", "--objective", "ratio")
    assert abs(sizes["1M"] - (tmp_path / "ratio.bsnap").stat().st_size) < REASON_BYTES
    assert sizes["1M"] < sizes["200M"] + REASON_BYTES < sizes["20G"] < sizes["1T"] - REASON_BYTES
    assert sizes["1T"] > 6 * ELEMENTS


@pytest.mark.parametrize("codec", CODECS)
def test_a_forced_codec_stores_every_chunk_that_it_accepts(folder: Path, tmp_path: Path, codec: str) -> None:
    reasons = compressed(folder, tmp_path / "x.bsnap", "--codec", codec, "--policy", "lmc")
    assert all(reason.endswith(f"; {codec} is forced") for reason in reasons.values())
    used = {tensor["name"]: tensor["codecs"] for tensor in run_json("inspect", tmp_path / "x.bsnap")["tensors"]}
    on_base = {"byte_group", "bitmask", "ordinal_delta"}
    takes = {"zstd", "float_split", "factored_split"}
    assert set(used["model.w"]) == {f"{codec}+base" if codec in on_base else codec if codec in takes else "raw"}


def test_a_forced_codec_codes_unchanged_chunks_again(folder: Path, tmp_path: Path) -> None:
    base = folder / "base.bsnap"
    run("compress", folder / "base.safetensors", "-o", tmp_path / "x.bsnap", "--base", base, "--codec", "float_split")
    for tensor in run_json("inspect", tmp_path / "x.bsnap")["tensors"]:
        assert set(tensor["codecs"]) == {"float_split"}


def test_an_unknown_codec_is_rejected_with_the_list_of_codecs(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.bsnap"
    done = run("compress", folder / "next.safetensors", "-o", out, "--codec", "gzip", status=USAGE)
    for word in (b"'gzip'", *(codec.encode() for codec in CODECS)):
        assert word in done.stderr
    assert not out.exists()
    source = folder / "next.safetensors"
    done = run("add", tmp_path / "run", "--step", 1, source, "--codec", "gzip", status=USAGE)
    assert b"'gzip'" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [
        ["--objective", "best"],
        ["--objective", ""],
        *(["--store-speed", speed] for speed in ("999999", "1.5G", "2 G", "2g", "1001G", "-1M", "G", "")),
        ["--store-speed", "99999999999999999999G"],
    ],
)
def test_an_invalid_objective_or_speed_is_a_usage_error(folder: Path, tmp_path: Path, options: list[str]) -> None:
    done = run("compress", folder / "next.safetensors", "-o", tmp_path / "x.bsnap", *options, status=USAGE)
    assert options[0].encode() in done.stderr
    assert not (tmp_path / "x.bsnap").exists()


def test_modelled_times_do_not_depend_on_threads_or_cpu_level(folder: Path, tmp_path: Path) -> None:
    variants = [["-T1"], ["-T5"], ["--cpu-level", "scalar"]]
    for objective in ("ratio", "balanced", "speed"):
        files = set()
        for number, variant in enumerate(variants):
            out = tmp_path / f"{objective}-{number}.bsnap"
            compressed(folder, out, "--objective", objective, *variant)
            files.add(out.read_bytes())
        assert len(files) == 1


def test_a_run_keeps_objective_and_store_speed_but_no_forced_codec(tmp_path: Path) -> None:
    path, source = tmp_path / "run", tmp_path / "s.safetensors"
    source.write_bytes(state(1))
    first = run_json("add", path, "--step", 1, source, "--objective", "speed", "--store-speed", "5G", "--codec", "zstd")
    assert first["objective"] == "speed"
    assert b'"objective":"speed","store_speed":5000000000,' in (path / "bitsnap.json").read_bytes()
    codecs = {codec for tensor in run_json("inspect", f"{path}@1")["tensors"] for codec in tensor.get("codecs", {})}
    assert codecs == {"zstd"}
    source.write_bytes(state(2))
    assert run_json("add", path, "--step", 2, source)["objective"] == "speed"
    found = run_json("inspect", f"{path}@2")
    assert found["objective"] == "speed"
    assert not any("forced" in tensor.get("reason", "") for tensor in found["tensors"])
    source.write_bytes(state(3))
    assert run_json("add", path, "--step", 3, source, "--objective", "ratio")["objective"] == "ratio"
    source.write_bytes(state(4))
    verbose = run("add", "-v", path, "--step", 4, source).stderr.decode()
    assert "policy lossless for speed" in verbose
    run("verify", path)


def test_a_rewritten_checkpoint_keeps_its_objective(tmp_path: Path) -> None:
    path, source = tmp_path / "run", tmp_path / "s.safetensors"
    for step, options in ((1, []), (2, ["--objective", "ratio"])):
        source.write_bytes(state(step))
        run("add", path, "--step", step, source, *options)
    run("prune", path, "--keep-last", 1, "--reencode", "always")
    found = run_json("inspect", f"{path}@2")
    assert found["bases"] == []
    assert found["objective"] == "ratio"
