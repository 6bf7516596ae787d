"""The page of a run: it loads nothing, says what the command says, and no name in it becomes more than text."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import math
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bitsnap
from bitsnap.errors import InvalidArgumentError, NotFoundError
from bitsnap.report import report_changes, report_figures, report_page
from bitsnap.report.report_command import main, write_report
from bitsnap.report.report_data import CommandFailed, RunData, gather, read_timings, spread
from bitsnap.report.report_text import error_text, plot_text, printable, ratio_text, share_text, size_text
from cli.command_line import INVALID_ARGUMENT, NOT_FOUND, USAGE, run, run_json
from cli.tensor_file import Tensor, weights, write

ELEMENTS = 4096
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u202e\x1b[2J%{y}$<!--'\"&.x.w"


class Page(HTMLParser):
    """The elements of a page, and what stands in its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: str | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = tag
        self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = None

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            self.texts[self._open][-1] += data

    @property
    def document(self) -> Any:
        return json.loads(self.texts["script"][0])

    @property
    def policy(self) -> str:
        (policy,) = [a["content"] for tag, a in self.tags if a.get("http-equiv") == "Content-Security-Policy"]
        assert policy is not None
        return policy


def make_run(path: Path, steps: list[int], name: str = "layers.3.w") -> Path:
    """Weights beside their masters and moments, of which a few change from step to step."""
    for step in steps:
        tensors = []
        for seed, role in enumerate(["master", "optimizer.exp_avg", "optimizer.exp_avg_sq"]):
            values = np.frombuffer(weights(name, ELEMENTS, seed).data, np.uint32).copy()
            if role.endswith("_sq"):
                values &= np.uint32(0x7FFFFFFF)
            changes = np.random.default_rng(1000 * step + seed)
            values[changes.integers(0, ELEMENTS, ELEMENTS // 4)] ^= changes.integers(1, 64, ELEMENTS // 4, np.uint32)
            tensors.append(Tensor(f"{role}.{name}", "F32", (64, 64), values.tobytes()))
            if role == "master":
                half = (values >> np.uint32(16)).astype(np.uint16)
                tensors.append(Tensor(f"model.{name}", "BF16", (64, 64), half.tobytes()))
        tensors.append(Tensor("step", "I64", (), np.int64(step).tobytes()))
        run("add", path, "--step", step, write(path.with_name("state.safetensors"), tensors))
    return path


def page_of(path: Path, **options: Any) -> Page:
    output = path.with_name(f"{path.name}-page.html")
    write_report(path, output, overwrite=True, **options)
    return Page(output.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def some_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("report") / "run", [10, 20, 30])


@pytest.fixture(scope="module")
def data(some_run: Path) -> RunData:
    return gather(some_run, steps=8)


@pytest.fixture(scope="module")
def page(some_run: Path) -> Page:
    return page_of(some_run)


def traces(figure: Any, *choice: int) -> list[dict[str, Any]]:
    variants = figure["variants"] if isinstance(figure, dict) else figure.variants
    return list(variants[",".join(map(str, choice))]["data"])


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
    assert not re.search(r"https?://", style + page.texts["script"][0] + page.texts["script"][2])
    assert not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|importScripts|import)\s*\(", page.texts["script"][2])


def test_the_policy_lets_no_request_leave_and_only_its_own_scripts_run(page: Page) -> None:
    rules = dict(rule.strip().split(" ", 1) for rule in page.policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data: blob:"
    assert set(rules) == {"default-src", "script-src", "style-src", "img-src", "base-uri", "form-action"}
    scripts = page.texts["script"]
    assert len(scripts) == 3
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts[1:]]
    assert rules["script-src"].split() == [f"'sha256-{each}'" for each in hashes]
    assert "plotly.js" in scripts[1][:400]


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


def test_every_figure_is_one_that_plotly_takes(data: RunData) -> None:
    graph_objects = pytest.importorskip("plotly.graph_objects")

    def plain(value: Any) -> Any:
        if isinstance(value, str) and value.startswith("@"):
            return "Blues" if value in {"@sequential", "@diverging"} else "#123456"
        if isinstance(value, list):
            return [plain(each) for each in value]
        return {name: plain(each) for name, each in value.items()} if isinstance(value, dict) else value

    style = report_page._text("report.css")
    names = set()
    for _, _, figures in report_page.sections(data):
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
    raw = path.with_name(f"{path.name}-page.html").read_text(encoding="utf-8")
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
    assert "no checkpoint" in capfd.readouterr().err
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


# ---- loss


def lossy(data: RunData) -> RunData:
    """The same run as if its last step had gone through quantizers, as `inspect --json` says it then."""
    snapshot = json.loads(json.dumps(data.snapshots[30]))
    for tensor in snapshot["tensors"]:
        common = {"elements": ELEMENTS, "changed": ELEMENTS, "max_absolute": 0.5, "mean_square": 4e-12}
        if tensor["role"] == "exp_avg_sq":
            rule = {"name": "mantissa_bits", "amount": 3.0, "bound": 0.0625, "bound_of": "relative"}
            tensor["quantizer"] = {**common, **rule, "max_relative": 0.06, "mean_relative": 0.0225}
        if tensor["role"] == "exp_avg":
            rule = {"name": "update_step", "amount": 0.02, "bound": 0.01, "bound_of": "of the update"}
            update = {"elements": ELEMENTS, "largest": 0.009, "mean": 0.0025, "mean_of_updates": 0.5}
            tensor["quantizer"] = {**common, **rule, "max_relative": 2.0, "mean_relative": 0.05, "update": update}
    snapshot["policy"] = "bounded"
    snapshots = {**data.snapshots, 30: snapshot}
    return dataclasses.replace(data, snapshots=snapshots, lossy=(30, snapshot))


def test_loss_is_said_with_its_bound_and_what_was_reached(data: RunData) -> None:
    page = Page(report_page.render(lossy(data)))
    assert "lossy, within bounds" in page.texts["span"]
    assert "lossless, every bit" not in page.texts["span"]
    assert {"policy lossless, for balanced", "policy bounded, for balanced"} <= set(page.texts["span"])
    cells = page.texts["td"]
    assert cells[:8] == ["first moments", "", "1", "1 % of the update", "0.9 %", "5 %", "4.0·10⁻¹²", "0.5 %"]
    assert cells[8:16] == ["second moments", "", "1", "6.2 % relative", "6 %", "2.2 %", "4.0·10⁻¹²", "–"]
    assert page.texts["code"] == ["update_step 0.02", "mantissa_bits 3"]


def test_what_a_run_loses_stands_among_what_could_be_lost(data: RunData) -> None:
    for each, stars in ((data, 0), (lossy(data), 1)):
        figure = report_figures.rate_figure(each)
        assert figure is not None
        choice = figure.controls[0]["options"].index("second moments")
        found = [trace for trace in traces(figure, choice, 0) if trace["name"] == "this run"]
        assert len(found) == stars
        for trace in found:
            tensor = next(t for t in each.snapshots[30]["tensors"] if t["role"] == "exp_avg_sq")
            assert trace["x"] == [8 * tensor["stored_bytes"] / ELEMENTS]
            assert trace["y"] == [0.0225]
        assert figure.controls[1]["options"][3:] == ["update error"] * stars
    assert figure is not None
    choice = figure.controls[0]["options"].index("first moments")
    (updates,) = traces(figure, choice, 3)
    assert updates["y"] == [0.005]
    assert traces(figure, 0, 3) == []


ADAM = ("--betas", "0.9,0.95", "--eps", "1e-8")


@pytest.fixture(scope="module")
def bounded_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two checkpoints of a matrix and its moments, stored within bounds."""
    path = tmp_path_factory.mktemp("bounded") / "run"
    random = np.random.default_rng(5)
    scales = np.exp(random.normal(-9, 1, ELEMENTS))
    for step in (10, 20):
        master = random.normal(0, 0.02, ELEMENTS).astype(np.float32)
        moment = (random.normal(0, 0.4, ELEMENTS) * scales).astype(np.float32)
        half = ((master.view(np.uint32).astype(np.uint64) + 0x8000) >> 16).astype(np.uint16)
        tensors = [Tensor("model.w", "BF16", (64, 64), half.tobytes())]
        for role, values in (("master", master), ("exp_avg", moment), ("exp_avg_sq", (scales**2).astype(np.float32))):
            tensors.append(Tensor(f"{role}.w", "F32", (64, 64), values.tobytes()))
        state = write(path.with_name("state.safetensors"), tensors)
        run("add", path, "--step", step, "--policy", "bounded", *ADAM, "--adam-step", step, state)
    return path


def test_a_bounded_run_is_shown_with_its_bounds_and_what_it_reached(bounded_run: Path) -> None:
    page = page_of(bounded_run)
    assert "lossy, within bounds" in page.texts["span"]
    assert "policy bounded, for balanced" in page.texts["span"]
    assert page.texts["code"] == ["master_bits 8", "update_step 0.02", "mantissa_bits 3"]
    cells = page.texts["td"]
    rows = {cells[i]: cells[i : i + 8] for i in range(0, 24, 8)}
    assert list(rows) == ["masters", "first moments", "second moments"]
    quantizers = {
        tensor["role"]: tensor["quantizer"]
        for tensor in run_json("inspect", f"{bounded_run}@20")["tensors"]
        if tensor.get("quantizer")
    }
    for role, name in (("master", "masters"), ("exp_avg", "first moments"), ("exp_avg_sq", "second moments")):
        quantizer = quantizers[role]
        of_updates = quantizer["bound_of"] == "of the update"
        reached = quantizer["update"]["largest"] if of_updates else quantizer["max_relative"]
        assert 0 < reached <= quantizer["bound"] * (2 if quantizer["past_nearest"] else 1)
        bound, largest, relative, square = rows[name][3:7]
        assert bound == f"{error_text(quantizer['bound'])} {quantizer['bound_of']}"
        assert largest == error_text(reached)
        assert relative == error_text(quantizer["mean_relative"])
        assert square == error_text(quantizer["mean_square"])

    # The numbers of Adam are the file's own: all quantizers are held against what they do to updates.
    figure = page.document["figures"]["rate"]
    choice = figure["controls"][0]["options"].index("first moments")
    by_update = figure["controls"][1]["options"].index("update error")
    names = [trace["name"] for trace in traces(figure, choice, by_update)]
    for name in ("rounded mantissas", "clusters (BitSnap)", "steps of the update", "this run, each step"):
        assert name in names
    (stars,) = [trace for trace in traces(figure, choice, by_update) if trace["name"] == "this run, each step"]
    update = quantizers["exp_avg"]["update"]
    assert math.isclose(stars["y"][-1], update["mean"] / update["mean_of_updates"])


def test_steps_of_the_update_are_drawn_where_adams_numbers_are_said(some_run: Path) -> None:
    data = gather(some_run, steps=1, adam=("0.9,0.95", "1e-8"))
    figure = report_figures.rate_figure(data)
    assert figure is not None
    choice = figure.controls[0]["options"].index("first moments")
    points = next(role for role in data.states[0]["roles"] if role["role"] == "exp_avg")["quantizers"]
    steps = [point for point in points if point["name"] == "update_step"]
    (line,) = [trace for trace in traces(figure, choice, 0) if trace["name"] == "steps of the update"]
    assert line["y"] == [point["mean_relative_error"] for point in steps]
    assert line["text"] == ["0.002", "0.005", "0.01", "0.02", "0.05", "0.1", "0.2"]
    by_update = figure.controls[1]["options"].index("update error")
    (line,) = [trace for trace in traces(figure, choice, by_update) if trace["name"] == "steps of the update"]
    assert line["y"] == [point["update"]["mean"] / point["update"]["mean_of_updates"] for point in steps]
    assert traces(figure, 0, by_update) == []
    with pytest.raises(InvalidArgumentError, match="belong together"):
        write_report(some_run, some_run.with_name("other.html"), eps=1e-8)


def badges_of(page: Page) -> list[str]:
    return [text for text in page.texts["span"] if re.match("lossless, every|lossy, |nothing lost", text)]


def test_one_step_of_many_that_is_lossy_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_run(tmp_path / "run", [10])
    state = path.with_name("state.safetensors")
    run("add", path, "--step", 20, state, "--v-bits", 3)
    make_run(path, [30])
    monkeypatch.setattr("bitsnap.report.report_data.MOST_INSPECTED", 2)
    page = page_of(path, steps=1)
    assert badges_of(page) == ["lossy, within bounds"]
    assert page.texts["code"] == ["mantissa_bits 3"]
    # What was not looked at is not said to be lossless.
    monkeypatch.setattr("bitsnap.report.report_data.MOST_SEARCHED", 2)
    assert badges_of(page_of(path, steps=1)) == ["nothing lost in the 2 of 3 files that were looked at"]


def test_a_shard_that_is_lossy_is_found_beside_another(tmp_path: Path) -> None:
    values = torch.arange(1.0, 4097.0).reshape(64, 64) / 3
    for step, policy in ((1, bitsnap.Policy("lossless")), (2, bitsnap.bounded())):
        for rank in (0, 1):
            rule = policy if rank == 1 else bitsnap.Policy("lossless")
            with bitsnap.Store(tmp_path / "run", shared=True, policy=rule) as store:
                store.save_shard(step, {"exp_avg_sq": {"w": values}}, shard=rank, shards=2, attempt=f"a{step}")
        with bitsnap.Store(tmp_path / "run", shared=True) as store:
            store.commit(step, 2, f"a{step}")
        expected = ["lossless, every bit"] if step == 1 else ["lossy, within bounds"]
        assert badges_of(page_of(tmp_path / "run", shard=0)) == expected


def test_losses_are_means_over_elements() -> None:
    def tensor(elements: int, mean: float) -> dict[str, Any]:
        quantizer = {
            "name": "clusters",
            "amount": 16.0,
            "bound": mean,
            "bound_of": "absolute",
            "elements": elements,
            "max_relative": 9.0,
            "max_absolute": mean / 2,
            "mean_relative": mean,
            "mean_square": mean,
        }
        return {"role": "exp_avg", "stored_bytes": elements, "raw_bytes": 4 * elements, "quantizer": quantizer}

    (line,) = report_figures.losses({"tensors": [tensor(100, 1.0), tensor(300, 2.0)]})
    assert (line["tensors"], line["elements"], line["bound"], line["reached"]) == (2, 400, 2.0, 1.0)
    assert line["mre"] == 1.75
    assert line["rule"] == "clusters 16"
    assert line["update"] is None


# ---- times


def test_stall_and_throughput_are_shown_where_they_are_known(some_run: Path, tmp_path: Path, page: Page) -> None:
    assert "timings" not in page.document["figures"]
    file = tmp_path / "timings.jsonl"
    file.write_text('{"step": 20, "stall_seconds": 0.5, "save_seconds": 2}\n\n{"step": 10, "stall_seconds": 0.25}\n')
    figure = page_of(some_run, timings=file, steps=1).document["figures"]["timings"]
    stall, speed = traces(figure)
    assert (stall["x"], stall["y"]) == (["10", "20"], [0.25, 0.5])
    raw = run_json("du", some_run)["steps"][1]["raw_bytes"]
    assert speed["y"] == [None, raw / 2]


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
    with pytest.raises(InvalidArgumentError, match=r"timings\.jsonl.*(line 2|byte 22 is no UTF-8)"):
        read_timings(file)


# ---- parts


def test_distances_and_changes_are_those_of_analyze(data: RunData) -> None:
    state = data.states[-1]
    figure = report_changes.distance_figure(data)
    assert figure is not None
    weight, *_ = traces(figure, len(data.states) - 2)
    role = next(role for role in state["roles"] if role["role"] == "weight")
    assert weight["y"] == [100 * part["share"] for part in role["change"]["ulp"]]
    layers = report_changes.layers_figure(data)
    assert layers is not None
    (heat,) = traces(layers, 1, 0)
    tensor = next(t for t in state["tensors"] if t["role"] == "master" and t["skipped"] is None)
    assert (heat["x"], heat["y"]) == (["20", "30"], ["layer 3"])
    assert heat["z"][0][1] == tensor["change"]["changed"]
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
