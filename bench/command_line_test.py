"""The options of `python -m bench`, and where results are written."""

from __future__ import annotations

import pytest

from bench.__main__ import choose_methods, choose_pairs, parse
from bench.baselines.reference_baselines import Safetensors
from bench.baselines.xz_baseline import Xz
from bench.corpus_runs import PROJECT, all_pairs


def test_a_full_run_is_written_to_the_docs_and_a_part_is_not() -> None:
    assert parse([]).markdown == PROJECT / "docs" / "benchmarks.md"
    for part in (["--quick"], ["--only", "zstd"], ["--pairs", "beta95"], ["--roles", "weight"]):
        assert parse(part).markdown == PROJECT / "build" / "benchmarks.md"
    assert parse(["--quick", "--markdown", "here.md"]).markdown.name == "here.md"


def test_quick_measures_two_pairs_unless_pairs_are_given() -> None:
    assert [pair.name for pair in choose_pairs("", quick=True)] == ["beta95/end/550-551", "finetune/finetune/50-51"]
    assert choose_pairs("", quick=False) == all_pairs()
    assert {pair.run for pair in choose_pairs("frozen", quick=True)} == {"frozen"}
    assert choose_pairs("nothing", quick=True) == []


def test_methods_are_chosen_by_name_and_the_ceiling_always_is() -> None:
    ceiling = Safetensors()
    ceiling.kind = "ceiling"
    chosen = choose_methods([ceiling, Xz(False, False), Xz(True, False)], "planes")
    assert [method.name for method in chosen] == ["safetensors", "xz-6+planes"]


def test_rounds_and_threads_are_at_least_one() -> None:
    for wrong in (["--rounds", "-1"], ["--threads", "0"]):
        with pytest.raises(SystemExit):
            parse(wrong)
    assert parse(["--threads", "2", "1", "2"]).threads == [1, 2]
