"""The output of inspect, diff, bench and other commands, as text and as JSON."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from cli.command_line import DIFFER, INVALID_ARGUMENT, run, run_json
from cli.tensor_file import Tensor, random_bytes, weights, write

CHUNK = 1 << 18


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """base.bsnap, and next.bsnap that depends on it, with their safetensors files."""
    folder = tmp_path_factory.mktemp("output")
    w = weights("model.w", 2 * CHUNK + 100, 1, "BF16")
    first = [
        w,
        weights("optimizer.exp_avg.w", CHUNK, 2),
        Tensor("optimizer.exp_avg_sq.w", "F32", (512, 512), bytes(CHUNK * 4)),
        Tensor("tokens", "I64", (CHUNK,), np.arange(CHUNK, dtype=np.int64).tobytes()),
        Tensor("step", "F32", (), np.float32(7).tobytes()),
        Tensor("nothing", "F16", (0, 4), b""),
    ]
    changed = np.frombuffer(w.data, np.uint16).copy()
    changed[:1000] += 3
    second = [
        Tensor("model.w", "BF16", w.shape, changed.tobytes()),
        *first[1:4],
        Tensor("step", "F32", (), np.float32(8).tobytes()),
        Tensor("added", "U8", (3,), b"new"),
    ]
    write(folder / "base.safetensors", first, {"step": "7"})
    write(folder / "next.safetensors", second, {"step": "8"})
    run("compress", folder / "base.safetensors")
    run("compress", folder / "next.safetensors", "--base", folder / "base.bsnap")
    return folder


def test_compress_prints_one_line(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.bsnap"
    done = run("compress", folder / "base.safetensors", "-o", out)
    line = rf"{re.escape(str(folder))}/base\.safetensors : [\d.]+ MB -> [\d.]+ [kM]B  \([\d.]+x, [\d.]+ [kMG]B/s\)  "
    assert re.fullmatch(line + re.escape(str(out)) + "\n", done.stderr.decode())
    assert done.stdout == b""
    assert run("compress", "-qf", folder / "base.safetensors", "-o", out).stderr == b""
    verbose = run("compress", "-vf", folder / "base.safetensors", "-o", out).stderr.decode()
    for word in ("id ", "chunks", "exp_avg_sq", "total"):
        assert word in verbose


def test_compress_reports_json(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.bsnap"
    report = run_json("compress", folder / "next.safetensors", "-o", out, "--base", folder / "base.bsnap")
    assert report["output_bytes"] == out.stat().st_size
    assert report["input_bytes"] == (folder / "next.safetensors").stat().st_size
    assert math.isclose(report["ratio"], report["input_bytes"] / report["output_bytes"])
    assert report["base"] == run_json("inspect", folder / "base.bsnap")["id"]
    assert report["id"] == run_json("inspect", out)["id"] == run_json("inspect", folder / "next.bsnap")["id"]
    assert report["policy"] == "lossless"


def test_decompress_reports_json(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.safetensors"
    report = run_json("decompress", folder / "next.bsnap", "-o", out)
    assert report["output_bytes"] == out.stat().st_size
    assert report["input_bytes"] == (folder / "next.bsnap").stat().st_size
    assert report["original_header"]
    run("decompress", folder / "next.bsnap", "-c", "--json", status=INVALID_ARGUMENT)


def test_inspect_shows_tensors_roles_and_totals(folder: Path) -> None:
    text = run("inspect", folder / "next.bsnap").stdout.decode()
    lines = text.splitlines()
    for word in ("id ", "format", "writer", "policy lossless", "base.bsnap", "metadata", "step = 8", "total", "why"):
        assert word in text
    rows = {line.split()[0]: line for line in lines if line}
    assert "BF16" in rows["model.w"]
    assert f"[{2 * CHUNK + 100}]" in rows["model.w"]
    assert "same" in rows["tokens"]
    assert "(pool)" in rows["step"]
    assert "1.05 MB" in rows["optimizer.exp_avg.w"]
    assert text.index("weight") < text.index("total")


def test_inspect_accounts_for_every_byte(folder: Path) -> None:
    for name in ("base.bsnap", "next.bsnap"):
        report = run_json("inspect", "-v", folder / name)
        size = (folder / name).stat().st_size
        assert report["file_bytes"] == report["total"]["stored_bytes"] == size
        own = sum(tensor.get("stored_bytes", 0) for tensor in report["tensors"])
        assert own + report["pool"]["stored_bytes"] + report["index_bytes"] == size
        assert sum(role["stored_bytes"] for role in report["roles"].values()) == own
        raw = sum(tensor["raw_bytes"] for tensor in report["tensors"])
        assert raw == report["total"]["raw_bytes"]
        assert sum(role["raw_bytes"] for role in report["roles"].values()) + report["pool"]["raw_bytes"] == raw
        for tensor in report["tensors"]:
            if "chunks" in tensor:
                assert sum(chunk["stored_bytes"] for chunk in tensor["chunks"]) == tensor["stored_bytes"]
                assert sum(chunk["raw_bytes"] for chunk in tensor["chunks"]) == tensor["raw_bytes"]
                assert sum(tensor["codecs"].values()) == len(tensor["chunks"])
                assert tensor["reason"]


def test_inspect_reports_json(folder: Path) -> None:
    report = run_json("inspect", folder / "next.bsnap")
    assert report["kind"] == "snapshot"
    assert report["format"] == 0
    assert report["policy"] == "lossless"
    assert report["metadata"] == {"step": "8"}
    assert report["bases"] == [{"id": run_json("inspect", folder / "base.bsnap")["id"], "name": "base.bsnap"}]
    assert report["depth"] >= 1
    tensors = {tensor["name"]: tensor for tensor in report["tensors"]}
    assert list(tensors) == ["model.w", "optimizer.exp_avg.w", "optimizer.exp_avg_sq.w", "tokens", "step", "added"]
    assert tensors["optimizer.exp_avg_sq.w"]["role"] == "exp_avg_sq"
    assert tensors["optimizer.exp_avg_sq.w"]["shape"] == [512, 512]
    assert tensors["step"]["pooled"]
    assert "chunks" not in tensors["tokens"]


def test_inspect_shows_safetensors_files_too(folder: Path) -> None:
    text = run("inspect", folder / "base.safetensors").stdout.decode()
    for word in ("safetensors", "model.w", "[512, 512]", "exp_avg_sq", "total", "step = 7"):
        assert word in text
    report = run_json("inspect", folder / "base.safetensors")
    assert report["kind"] == "safetensors"
    assert [tensor["name"] for tensor in report["tensors"]][-1] == "nothing"
    assert report["roles"]["exp_avg"]["raw_bytes"] == CHUNK * 4


def test_long_lists_and_long_names_are_shown_whole(tmp_path: Path) -> None:
    long_name = "a." * 200 + "end"
    tensors = [Tensor(f"t{i}", "U8", (1,), b"x") for i in range(3000)]
    source = write(tmp_path / "in.safetensors", [*tensors, Tensor(long_name, "U8", (1,), b"y")])
    run("compress", source)
    for path in (source, tmp_path / "in.bsnap"):
        text = run("inspect", path).stdout.decode()
        assert sum(line.startswith("t") and " U8 " in line for line in text.splitlines()) == 3000
        assert long_name in text


def test_verify_prints_ok(folder: Path) -> None:
    assert run("verify", folder / "base.bsnap").stdout.decode() == f"{folder}/base.bsnap: OK\n"
    verbose = run("verify", "-v", folder / "next.bsnap").stdout.decode()
    assert "6 tensors" in verbose
    assert "B/s" in verbose
    assert run("verify", "-q", folder / "base.bsnap", folder / "next.bsnap").stdout == b""
    report = run_json("verify", "--no-decode", folder / "base.bsnap")
    assert report["ok"]
    assert not report["decoded"]
    assert report["files"][0]["damages"] == []


def test_diff_of_equal_snapshots_is_zero(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "raw.bsnap"
    run("compress", folder / "base.safetensors", "-o", other, "--policy", "raw")
    assert "equal: 6 tensors" in run("diff", folder / "base.bsnap", other).stdout.decode()
    report = run_json("diff", folder / "base.bsnap", other)
    assert report["equal"]
    assert report["a"]["id"] == report["b"]["id"]


def test_diff_counts_changes_and_ulps(folder: Path) -> None:
    report = run_json("diff", folder / "base.bsnap", folder / "next.bsnap", status=DIFFER)
    tensors = {tensor["name"]: tensor for tensor in report["tensors"]}
    assert tensors["model.w"]["kind"] == "changed"
    assert tensors["model.w"]["changed"] == 1000
    assert math.isclose(tensors["model.w"]["changed_fraction"], 1000 / (2 * CHUNK + 100))
    assert tensors["model.w"]["largest_ulp"] == 3
    assert tensors["tokens"]["kind"] == "equal"
    assert tensors["nothing"]["kind"] == "only_in_a"
    assert tensors["added"]["kind"] == "only_in_b"
    assert not report["metadata_equal"]
    text = run("diff", folder / "base.bsnap", folder / "next.bsnap", status=DIFFER).stdout.decode()
    for word in ("only in A", "only in B", "0.2 %", "the metadata differs", "4 of 7 tensors differ"):
        assert word in text
    assert run("diff", "-q", folder / "base.bsnap", folder / "next.bsnap", status=DIFFER).stdout == b""


def test_diff_measures_distances_across_zero_and_of_integers(tmp_path: Path) -> None:
    def pair(name: str, dtype: str, a: bytes, b: bytes) -> tuple[Tensor, Tensor]:
        return Tensor(name, dtype, (1,), a), Tensor(name, dtype, (1,), b)

    pairs = [
        # From the smallest negative value over -0 and +0 to the smallest positive one.
        pair("sign", "F32", b"\x01\0\0\x80", b"\x01\0\0\0"),
        pair("zero", "BF16", b"\0\x80", b"\0\0"),
        pair("integer", "I32", (-5).to_bytes(4, "little", signed=True), (7).to_bytes(4, "little")),
        pair("byte", "U8", b"\x10", b"\x30"),
    ]
    pairs.append((Tensor("shape", "U8", (2,), b"ab"), Tensor("shape", "U8", (1, 2), b"ab")))
    for name, index in (("a", 0), ("b", 1)):
        run("compress", write(tmp_path / f"{name}.safetensors", [pair[index] for pair in pairs]))
    report = run_json("diff", tmp_path / "a.bsnap", tmp_path / "b.bsnap", status=DIFFER)
    tensors = {tensor["name"]: tensor for tensor in report["tensors"]}
    assert tensors["sign"]["largest_ulp"] == 3
    assert tensors["zero"]["largest_ulp"] == 1
    assert tensors["integer"]["largest_ulp"] == 12
    assert tensors["byte"]["largest_ulp"] == 32
    assert tensors["shape"]["kind"] == "incomparable"


def test_diff_finds_a_difference_in_metadata_only(tmp_path: Path) -> None:
    for name in ("a", "b"):
        run("compress", write(tmp_path / f"{name}.safetensors", [Tensor("t", "U8", (1,), b"x")], {"note": name}))
    text = run("diff", tmp_path / "a.bsnap", tmp_path / "b.bsnap", status=DIFFER).stdout.decode()
    assert "0 of 1 tensor differ" in text
    assert "the metadata differs" in text


GENERAL = [
    "memcpy",
    "zstd-1",
    "zstd-1+planes",
    "zstd-3",
    "zstd-3+planes",
    "lz4",
    "lz4+planes",
]
BENCH = ["--limit-mb", "1", "--seconds", "0.2", "-T2"]


def test_bench_reports_json_in_its_fixed_form(folder: Path) -> None:
    report = run_json("bench", folder / "base.safetensors", *BENCH)
    rows = {(row["name"], row["threads"]): row for row in report["results"]}
    assert len(rows) == len(report["results"])
    names = [name for name, threads in rows if threads == 1]
    for name in [*GENERAL, "raw", "zstd", "byte_group", "float_split"]:
        assert name in names
        for threads in (1, 2):
            row = rows[name, threads]
            for key in ("ratio", "encode_gbps", "decode_gbps"):
                assert isinstance(row[key], float)
                assert row[key] > 0
    assert rows["memcpy", 1]["ratio"] == 1.0
    assert rows["float_split", 1]["ratio"] > 1.0
    assert {threads for _, threads in rows} == {1, 2}
    assert not any("base" in name or "xor" in name for name in names)
    assert report["sample_bytes"] <= report["bytes"]


def test_bench_measures_against_a_base(folder: Path) -> None:
    report = run_json("bench", folder / "next.bsnap", "--base", folder / "base.safetensors", *BENCH)
    rows = {row["name"]: row for row in report["results"]}
    for name in ("same+base", "byte_group+base", "bitmask+base", "ordinal_delta+base", "zstd-1+xor+planes"):
        assert name in rows
    assert rows["byte_group+base"]["ratio"] > rows["byte_group"]["ratio"]


def test_bench_shows_a_table(folder: Path) -> None:
    text = run("bench", folder / "base.bsnap", *BENCH).stdout.decode()
    for word in ["coder", "ratio", "encode GB/s", "of memcpy", "sample", "bit by bit", *GENERAL]:
        assert word in text


def test_bench_rejects_a_file_without_bytes(tmp_path: Path) -> None:
    run("bench", write(tmp_path / "in.safetensors", [Tensor("e", "F32", (0,), b"")]), status=INVALID_ARGUMENT)


def test_bench_accepts_every_dtype(tmp_path: Path) -> None:
    tensors = [
        Tensor(dtype, dtype, (4096,), random_bytes(4096 * size, 1))
        for dtype, size in (("BF16", 2), ("F8_E5M2", 1), ("C64", 8), ("BOOL", 1), ("I32", 4), ("F64", 8), ("Q9", 1))
    ]
    run("bench", write(tmp_path / "in.safetensors", tensors), *BENCH)
