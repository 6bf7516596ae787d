"""The plotly.js of a page: a bundle of the traces that a report draws, and nothing that is missing in it."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib import resources
from pathlib import Path

import pytest

import bitsnap
from bitsnap.report import report_page
from bitsnap.report.report_data import RunData
from bitsnap.report.report_plotly import TRACES, partial_bundle
from python.report.report_pages import page_of, traces

BUNDLE = """\
/* plotly.js */
var E=(e,t,r)=>()=>{if(r)throw r[0];try{return e&&(t=e(e=0)),t}catch(i){throw r=[i],i}};\
var W=(e,t)=>()=>{try{return t||e((t={exports:{}}).exports,t),t.exports}catch(r){throw t=0,r}};\
var aa=W((x,y)=>{y.exports={moduleType:"trace",name:"bar"}});\
var ab=W((x,y)=>{y.exports=aa()});\
var ba=W((x,y)=>{bb();y.exports={moduleType:"trace",name:"pie"}});\
var bb=W(()=>{"pie only"});\
var ca=W((x,y)=>{cn();y.exports={moduleType:"trace",name:"heatmap"}});\
var da=W(()=>{"before the newer one"});var cn,co=E(()=>{cn=1});\
var db=W(()=>{co();"wanted"});\
var ea=W((x,y)=>{db();y.register([ab(),ba(),ca()]);y.exports=y});\
var fa=W((x,y)=>{y.exports=ea()});return fa();
"""


def plotly_script() -> str:
    return (resources.files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")


def test_modules_that_nothing_refers_to_are_left_out() -> None:
    script = partial_bundle(BUNDLE, {"bar", "heatmap"})
    assert script is not None
    assert ".register([ab(),ca()])" in script
    assert re.findall(r"var (\w\w)=W", script) == ["aa", "ab", "ca", "da", "db", "ea", "fa"]
    assert "pie" not in script


def test_a_script_of_another_form_is_not_touched() -> None:
    assert partial_bundle(BUNDLE, {"bar", "violin"}) is None
    for old, new in (
        ("t||e(", "t??e("),
        ("e&&(", "e!=0&&("),
        (".register([", ".registers(["),
        ('"pie only"});', '"pie only"}));'),
    ):
        assert old in BUNDLE
        assert partial_bundle(BUNDLE.replace(old, new), {"bar", "heatmap"}) is None, old
    assert partial_bundle("") is None


def test_the_script_of_the_package_is_cut_to_a_quarter() -> None:
    whole = plotly_script()
    script = partial_bundle(whole)
    assert script is not None
    assert len(script) < 0.3 * len(whole)
    assert script[:100] == whole[:100]
    assert set(re.findall(r'moduleType:"trace",name:"(\w+)"', script)) >= TRACES


def test_figures_have_no_traces_but_those_of_the_bundle(run_data: RunData) -> None:
    figures = [figure for _, _, some in report_page.sections(run_data) for figure in some]
    kinds = {each["type"] for figure in figures for variant in figure.variants.values() for each in variant["data"]}
    assert kinds == TRACES


def test_a_page_is_small_also_of_many_checkpoints(tmp_path: Path) -> None:
    with bitsnap.Store(tmp_path / "run") as store:
        for step in range(1, 51):
            state = {f"layers.{layer}.w": bytes([step, layer] * 3000) for layer in range(40)}
            store.save(step, state, metrics={"loss": 1 / step})
    page = page_of(tmp_path / "run", steps=8)
    assert len(traces(page.document["figures"]["bytes"], 0)[0]["x"]) == 50
    size = (tmp_path / "run-page.html").stat().st_size
    assert size < 800_000, size


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no browser is installed")
def test_a_browser_draws_every_figure(some_run: Path, tmp_path: Path) -> None:
    page = page_of(some_run)
    browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
    url = some_run.with_name("run-page.html").as_uri()
    done = subprocess.run(
        [*browser, "--virtual-time-budget=20000", "--dump-dom", url], capture_output=True, text=True, check=True
    )
    drawn = done.stdout.count('<div class="plot js-plotly-plot"')
    assert drawn == len(page.document["figures"])
    assert 'class="notice">The plots need' not in done.stdout
