"""Pooling, JSON and tables of results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.benchmark_results import STATE_ROLES, BoundMeasurement, Measurement, Results, pool, pool_methods, read_json
from bench.results_markdown import render
from bench.results_tables import align, ratio_table, speed_table

ONE = Measurement(
    run="beta95",
    phase="end",
    step=551,
    distance=0,
    role="weight",
    method="coder",
    kind="baseline",
    is_slow=False,
    threads=1,
    role_bytes=1000,
    raw_bytes=1000,
    encoded_bytes=500,
    encode_s=1e-6,
    decode_s=1e-6,
    runs=3,
)


def whole_state(method: str, kind: str, ratio: float) -> list[Measurement]:
    return [
        replace(ONE, role=role, method=method, kind=kind, encoded_bytes=round(1000 / ratio)) for role in STATE_ROLES
    ]


def test_pooling_weights_by_the_size_of_the_role_not_of_the_sample() -> None:
    small = replace(ONE, role_bytes=1000, raw_bytes=4000, encoded_bytes=4000, encode_s=4e-6)
    large = replace(ONE, role_bytes=3000, raw_bytes=300, encoded_bytes=100, encode_s=3e-7)
    pooled = pool([small, large])
    assert pooled.ratio == pytest.approx(4000 / (1000 + 1000))
    assert pooled.encode_gbps == pytest.approx(4000 / (1e-6 + 3e-6) / 1e9)


def test_an_empty_payload_has_a_ratio() -> None:
    assert pool([replace(ONE, encoded_bytes=0)]).ratio == 1000


def test_methods_that_lack_a_role_are_not_pooled() -> None:
    everything = whole_state("all", "baseline", 2.0) + whole_state("some", "baseline", 2.0)[:2]
    found = pool_methods(everything, roles=STATE_ROLES, distance=0, runs=("beta95",), threads=1)
    assert set(found) == {"all"}


def test_a_state_that_lacks_a_role_is_not_pooled() -> None:
    found = pool_methods([ONE], roles=STATE_ROLES, distance=0, runs=("beta95",), threads=1)
    assert found == {}


def test_results_survive_json(tmp_path: Path) -> None:
    bound = BoundMeasurement("beta95", "end", 551, 1, "weight", 0.5, 4.0, 5.0)
    results = Results(machine={"processor": "some"}, date="2026-01-01", measurements=[ONE], bounds=[bound])
    results.write_json(tmp_path / "results.json")
    assert read_json(tmp_path / "results.json") == results


def test_the_table_gives_speeds_as_shares_of_memcpy_and_marks_slow_methods() -> None:
    measured = whole_state("memcpy-nt", "ceiling", 1.0)
    measured += [replace(one, encode_s=4e-6, is_slow=True) for one in whole_state("coder", "baseline", 2.0)]
    measured += whole_state("own", "ours", 4.0)
    lines = speed_table(Results(measurements=measured), STATE_ROLES, 0, ("beta95",))
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert [row[0] for row in cells[2:]] == ["memcpy-nt", "**own**", "coder\\*"]
    assert cells[4][1:4] == ["2.0000", "0.25", "0.250"]


def test_the_table_of_a_run_shows_every_state_and_missing_values() -> None:
    later = [replace(one, step=552, distance=1) for one in whole_state("delta", "ours", 8.0)]
    farther = [replace(one, step=561, distance=10, method="other") for one in later]
    results = Results(measurements=whole_state("coder", "baseline", 2.0) + farther + later)
    assert ratio_table(results, STATE_ROLES, "beta95", alone=True)[0].split() == ["|", "method", "|", "end", "|"]
    header, _, *rows = ratio_table(results, STATE_ROLES, "beta95", alone=False)
    assert header.index("end, 1 earlier") < header.index("end, 10 earlier")
    assert [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows] == [
        ["**delta**", "8.0000", "-"],
        ["**other**", "-", "8.0000"],
    ]


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert align(["a", "b"], [["long", "1"], ["x", "22"]]) == [
        "| a    |  b |",
        "|------|---:|",
        "| long |  1 |",
        "| x    | 22 |",
    ]


def test_the_page_names_machine_date_command_and_left_out_methods() -> None:
    results = Results(
        machine={"processor": "some processor"},
        date="2026-01-01",
        command="python -m bench",
        left_out={"zipnn": "no such package"},
        measurements=whole_state("coder", "baseline", 2.0),
    )
    page = render(results)
    for words in ("some processor", "2026-01-01", "python -m bench", "`zipnn`: no such package", "2.0000"):
        assert words in page
