"""The page of a run: it loads nothing, says what the command says, and no name in it becomes more than text."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bitsnap
from bitsnap.errors import InvalidArgumentError, NotFoundError, printable
from bitsnap.report import report_changes, report_page
from bitsnap.report.report_command import main
from bitsnap.report.report_data import (
    CommandFailed,
    RunData,
    error_text,
    gather,
    plot_text,
    ratio_text,
    read_timings,
    share_text,
    size_text,
    spread,
)
from bitsnap.report.report_page import write_report
from cli.command_line import INVALID_ARGUMENT, NOT_FOUND, USAGE, run, run_json
from python.report.report_pages import Page, make_run, page_of, traces

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u202e\x1b[2J%{y}$<!--'\"&.x.w"


@pytest.fixture(scope="module")
def page(some_run: Path) -> Page:
    return page_of(some_run)


# ---- the page


def test_the_page_loads_nothing(page: Page) -> None:
    for tag, attributes in page.tags:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base", "form", "audio", "video", "image"}
        assert "src" not in attributes
        assert all(not name.startswith("on") for name in attributes)
        if "href" in attributes:
            assert (attributes["href"] or "").startswith("#")
    (style,) = page.texts["style"]
    assert "url(" not in style
    assert "@import" not in style
    assert not re.search(r"https?://", style + json.dumps(page.document) + page.texts["script"][2])
    assert not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|importScripts|import)\s*\(", page.texts["script"][2])


def test_the_policy_lets_no_request_leave_and_only_its_own_scripts_run(page: Page) -> None:
    rules = dict(rule.strip().split(" ", 1) for rule in page.policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data: blob:"
    assert set(rules) == {"default-src", "script-src", "style-src", "img-src", "base-uri", "form-action"}
    scripts = page.texts["script"]
    assert len(scripts) == 3
    plotly = gzip.decompress(base64.b64decode(scripts[1], validate=True))
    hashes = [base64.b64encode(hashlib.sha256(script).digest()).decode() for script in (plotly, scripts[2].encode())]
    assert rules["script-src"].split() == [f"'sha256-{each}'" for each in hashes]
    assert b"plotly.js" in plotly[:400]


def test_what_is_in_the_page_is_what_the_command_says(page: Page, some_run: Path) -> None:
    sizes = run_json("du", some_run)
    figure = page.document["figures"]["bytes"]
    *stacked, raw = traces(figure, 0)
    assert [each["name"] for each in stacked] == [
        "weights",
        "masters",
        "first moments",
        "second moments",
        "small tensors",
        "index",
    ]
    for trace in [*stacked, raw]:
        assert trace["x"] == ["10", "20", "30"]
    unit = {"kB": 1e3, "B": 1}[figure["variants"]["0"]["layout"]["yaxis"]["ticksuffix"].strip()]
    for i, step in enumerate(sizes["steps"]):
        assert math.isclose(sum(trace["y"][i] for trace in stacked) * unit, step["stored_bytes"])
        assert math.isclose(raw["y"][i] * unit, step["raw_bytes"])
        assert math.isclose(stacked[1]["y"][i] * unit, step["roles"]["master"]["stored_bytes"])
    tiles = [text for text in page.texts["span"] if text]
    assert ratio_text(sizes["ratio"]) in tiles
    assert size_text(sizes["raw_bytes"]) in tiles
    assert "lossless, every bit" in tiles
    assert any("policy lossless" in text for text in tiles)


def test_the_ratio_counts_pruned_checkpoints_that_others_need(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", [1, 2, 3])
    with bitsnap.Store(path) as store:
        store.prune(keep_last=1, reencode="never")
        usage = store.usage()
    assert usage.needed_bytes > usage.stored_bytes
    texts = [text for text in page_of(path).texts["span"] if text]
    assert ratio_text(usage.ratio) in texts
    assert size_text(usage.held_bytes) in texts


def test_reasons_are_those_of_inspect(page: Page, some_run: Path) -> None:
    table = page.document["reasons"]
    found = {(row[0], table["texts"][row[1]]): row for row in table["rows"]}
    for step in (10, 30):
        for tensor in run_json("inspect", f"{some_run}@{step}")["tensors"]:
            if "stored_bytes" not in tensor:
                continue
            row = found[step, tensor["name"]]
            assert (table["texts"][row[4]], row[5], row[6]) == (
                tensor["codec"],
                tensor["raw_bytes"],
                tensor["stored_bytes"],
            )
            assert table["texts"][row[7]] == tensor["reason"]


def test_the_tensors_of_a_cell_of_the_map_are_in_the_table(page: Page, some_run: Path) -> None:
    layers, table = page.document["figures"]["layers"], page.document["reasons"]
    states = run_json("analyze", "--steps", 8, some_run)["states"]
    for i, role in enumerate(layers["controls"][0]["options"]):
        (heat,) = traces(layers, i, 0)
        for step in heat["x"]:
            for label in heat["y"]:
                cell = (int(step), role, label)
                (row,) = [r for r in table["rows"] if (r[0], *(table["texts"][r[k]] for k in (2, 8))) == cell]
                assert table["texts"][row[1]].endswith("layers.3.w")
                analyzed = next(
                    tensor
                    for state in states
                    if state["step"] == int(step)
                    for tensor in state["tensors"]
                    if tensor["name"] == table["texts"][row[1]]
                )
                shares = [round(part["share"], 4) for part in analyzed["change"]["ulp"]]
                assert row[9] == shares[: len(row[9])]
                assert not any(shares[len(row[9]) :])


def test_every_figure_is_one_that_plotly_takes(run_data: RunData) -> None:
    graph_objects = pytest.importorskip("plotly.graph_objects")

    def plain(value: Any) -> Any:
        if isinstance(value, str) and value.startswith("@"):
            return "Blues" if value in {"@sequential", "@diverging"} else "#123456"
        if isinstance(value, list):
            return [plain(each) for each in value]
        return {name: plain(each) for name, each in value.items()} if isinstance(value, dict) else value

    style = report_page._text("report.css")
    names = set()
    for _, _, figures in report_page.sections(run_data):
        for figure in figures:
            names.add(figure.name)
            counts = [range(len(control["options"])) for control in figure.controls]
            assert len(figure.variants) == math.prod(map(len, counts))
            for variant in figure.variants.values():
                graph_objects.Figure(plain(variant["data"]), plain(variant["layout"]))
                for name in re.findall(r'"@(\w+)"', json.dumps(variant)):
                    assert name in {"sequential", "diverging"} or f"--p-{name}:" in style, name
    assert names == {"bytes", "ratio", "layers", "distances", "planes", "bits", "coders", "rate", "codecs"}


def test_hostile_names_are_text(tmp_path: Path) -> None:
    path = make_run(tmp_path / "<b>run", [1, 2], HOSTILE)
    page = page_of(path, title="<i>title</i>")
    assert [tag for tag, _ in page.tags if tag in {"script", "img", "b", "i"}] == ["script"] * 3
    assert "<i>title</i>" in page.texts["h1"]
    table = page.document["reasons"]
    shown = [text for text in table["texts"] if "alert" in text]
    assert f"model.{printable(HOSTILE)}" in shown
    text = json.dumps(page.document["figures"], ensure_ascii=False)
    # What plotly is given holds its own line breaks and nothing else that looks like an element.
    assert "&lt;/script" in text
    assert "<" not in text.replace("<br>", "").replace("<extra></extra>", "")
    for each in [*shown, text]:
        assert not re.search("[\u202a-\u202e\u2066-\u2069\x1b]", each)
    # The element that holds the data has nothing that could end it.
    raw = report_page.render(gather(path, steps=8), with_scripts=False)
    embedded = raw[raw.index('id="data"') : raw.index("</script>", raw.index('id="data"'))]
    assert "<" not in embedded[embedded.index(">") + 1 :]


def test_names_for_plots_hold_no_markup_and_no_templates() -> None:
    assert plot_text("<a href='x'>%{y}$&") == "&lt;a href='x'&gt;%&#123;y}&#36;&amp;"
    assert printable("a\x00\u202eb\n") == "a\\x00\\u202eb\\n"


# ---- runs of other kinds


def test_a_run_of_one_step_has_no_comparisons(tmp_path: Path) -> None:
    page = page_of(make_run(tmp_path / "run", [7]))
    figures = page.document["figures"]
    assert "distances" not in figures
    assert [control["options"] for control in figures["layers"]["controls"]][1] == ["ratio"]
    assert figures["bits"]["controls"][0]["options"] == ["set"]
    assert "step 7" in page.texts["span"]


def test_an_empty_run_is_an_error_and_leaves_no_page(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    bitsnap.Store(tmp_path / "run").close()
    output = tmp_path / "page.html"
    assert main([str(tmp_path / "run"), "-o", str(output)]) == NOT_FOUND
    assert "no readable checkpoint" in capfd.readouterr().err
    assert not output.exists()
    assert not list(tmp_path.glob("*.tmp"))


def test_what_the_command_cannot_read_ends_as_the_command_ends(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "missing")
    assert main([missing, "-o", str(tmp_path / "page.html")]) == NOT_FOUND
    assert "missing" in capfd.readouterr().err
    with pytest.raises(CommandFailed, match="exit status 12"):
        write_report(missing, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_a_page_that_exists_is_replaced_only_with_force(some_run: Path, tmp_path: Path) -> None:
    output = tmp_path / "page.html"
    output.write_text("mine")
    assert main([str(some_run), "-o", str(output)]) == INVALID_ARGUMENT
    assert output.read_text() == "mine"
    assert main([str(some_run), "-qfo", str(output), "--steps", "1"]) == 0
    assert output.read_text(encoding="utf-8").startswith("<!doctype html>")
    with pytest.raises(NotFoundError, match=r"page\.html: there is no folder"):
        write_report(some_run, tmp_path / "nowhere" / "page.html")


def test_what_is_no_file_is_left_alone_before_any_work(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "missing"  # whoever asked for it would be told so
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name, said in (("pipe", "pipe: it is not a regular file"), ("folder", "folder: it is a directory")):
        assert main([str(missing), "-fo", str(tmp_path / name)]) == INVALID_ARGUMENT
        assert said in capfd.readouterr().err
    assert (tmp_path / "pipe").is_fifo()


def test_a_page_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> tuple[int, str]:
        raise PermissionError(13, "Permission denied", "/somewhere/.else")

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    with pytest.raises(PermissionError, match=r"page\.html") as failed:
        report_page.write_whole(tmp_path / "page.html", "text")
    assert failed.value.filename == str(tmp_path / "page.html")


def test_the_command_runs_it(some_run: Path, tmp_path: Path) -> None:
    output = tmp_path / "page.html"
    done = run("report", some_run, "-o", output, "--steps", 1, "--title", "a title")
    assert done.stderr.decode().endswith(f"{output}\n")
    assert "a title" in Page(output.read_text(encoding="utf-8")).texts["h1"]
    assert b"bitsnap report" in run("report", "--help").stdout
    assert b"--steps" in run("report", some_run, "--steps", 0, status=USAGE).stderr


def test_missing_packages_are_named_with_how_to_get_them(some_run: Path, tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules[sys.argv[1]] = None; from bitsnap.report.report_command import main;"
        "sys.exit(main(sys.argv[2:]))"
    )
    for module, package in (("plotly", "plotly"), ("jinja2", "Jinja2")):
        done = subprocess.run(
            [sys.executable, "-c", script, module, some_run, "-o", tmp_path / "page.html"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == NOT_FOUND, done
        assert package in done.stderr
        assert "pip install 'bitsnap[report]'" in done.stderr
        assert not (tmp_path / "page.html").exists()


# ---- times


def test_stall_and_throughput_are_shown_where_they_are_known(some_run: Path, tmp_path: Path, page: Page) -> None:
    assert "timings" not in page.document["figures"]
    file = tmp_path / "timings.jsonl"
    file.write_text('{"step": 20, "stall_seconds": 0.5, "save_seconds": 2}\n\n{"step": 10, "stall_seconds": 0.25}\n')
    figure = page_of(some_run, timings=file, steps=1).document["figures"]["timings"]
    stall, speed = traces(figure)
    assert (stall["x"], stall["y"]) == (["10", "20"], [0.25, 0.5])
    raw = run_json("du", some_run)["steps"][1]["raw_bytes"]
    assert speed["y"] == [None, raw / 2 / 1000]
    assert speed["customdata"] == ["", f"{raw / 2000:.1f} kB/s"]
    (variant,) = figure["variants"].values()
    axis = variant["layout"]["yaxis2"]
    assert (axis["ticksuffix"], axis["tickformat"]) == (" kB/s", ".3~r")


@pytest.mark.parametrize("line", ["[]", "{}", '{"step": "x"}', '{"step": 1, "stall_seconds": []}', "{"])
def test_times_that_cannot_be_read_name_their_line(tmp_path: Path, line: str) -> None:
    file = tmp_path / "timings.jsonl"
    file.write_text('{"step": 1, "stall_seconds": 1}\n' + line)
    with pytest.raises(InvalidArgumentError, match=r"timings\.jsonl, line 2"):
        read_timings(file)


@pytest.mark.parametrize(
    "line",
    [
        b'{"step": 1, "stall_seconds": NaN}',
        b'{"step": 1, "save_seconds": 1e400}',
        b'{"step": 1, "save_seconds": -1}',
        b'{"step": 1e400}',
        b'{"step": NaN}',
        b'{"step": 1, "stall_seconds": 1' + b"0" * 400 + b"}",
        b"[" * 100_000,
        b'{"step": "\xff"}',
    ],
)
def test_timings_that_are_no_times_are_no_crash(tmp_path: Path, line: bytes) -> None:
    file = tmp_path / "timings.jsonl"
    file.write_bytes(b'{"step": 1}\n' + line + b"\n")
    with pytest.raises(InvalidArgumentError, match=r"timings\.jsonl.*(line 2|byte 22 is not UTF-8)"):
        read_timings(file)


# ---- parts


def test_distances_and_changes_are_those_of_analyze(run_data: RunData) -> None:
    state = run_data.states[-1]
    figure = report_changes.distance_figure(run_data)
    assert figure is not None
    weight, *_ = traces(figure, len(run_data.states) - 2)
    role = next(role for role in state["roles"] if role["role"] == "weight")
    assert weight["y"] == [100 * part["share"] for part in role["change"]["ulp"]]
    layers = report_changes.layers_figure(run_data)
    assert layers is not None
    assert [control["options"][control["chosen"]] for control in layers.controls] == ["weights", "distance"]
    (heat,) = traces(layers, 1, 1)
    tensor = next(t for t in state["tensors"] if t["role"] == "master" and t["skipped"] is None)
    assert (heat["x"], heat["y"]) == (["20", "30"], ["layer 3"])
    assert heat["z"][0][1] == tensor["change"]["changed"]
    (moved,) = traces(layers, 1, 0)
    expected = sum(math.log2(part["from"]) * part["share"] for part in tensor["change"]["ulp"] if part["from"] > 1)
    assert math.isclose(moved["z"][0][1], expected)
    (ratios,) = traces(layers, 1, 2)
    assert ratios["text"][0][2] == ratio_text(tensor["ratio"])


def test_many_checkpoints_are_spread() -> None:
    assert spread([1, 2, 3], 8) == [1, 2, 3]
    assert spread(list(range(100)), 4) == [0, 33, 66, 99]
    assert spread([1, 2, 3], 1) == [3]


def test_numbers_are_said_as_people_say_them() -> None:
    assert [size_text(size) for size in (0, 999, 1000, 99_960, 1_065_397_620)] == [
        "0 B",
        "999 B",
        "1.00 kB",
        "100 kB",
        "1.07 GB",
    ]
    assert [ratio_text(ratio) for ratio in (None, 1.665, 12.34, 350890.7)] == ["–", "1.67×", "12.3×", "350,891×"]
    assert [share_text(share) for share in (0, 1e-6, 0.5, 0.9999, 1)] == ["0 %", "<0.1 %", "50.0 %", ">99.9 %", "100 %"]
    assert [error_text(error) for error in (0, 0.0225, 4e-12, 250)] == ["0", "2.2 %", "4.0·10⁻¹²", "2.5·10²"]
