"""What the replay adds up, against what can be worked out by hand; and the native half, where it is built."""

from __future__ import annotations

import numpy as np
import pytest

from bench.native_library import DEFAULT_LIBRARY
from bench.plan_replay import FIXED, RATIO, TIMED, Scene, close_to_best, costs_of_fixed, render, replay_state, total_of
from bench.replay_library import Goal, ReplayLibrary, Stream

WAYS = ["raw", "zstd", "byte_group", "byte_group+base"]
TABLE = np.array([[100, 100, 100], [90, -1, 70], [80, -1, 200], [-1, -1, 60]])


def test_a_fixed_codec_costs_its_best_way_and_raw_where_it_has_none() -> None:
    assert costs_of_fixed(TABLE, WAYS, ()).tolist() == [100, 100, 100]
    assert costs_of_fixed(TABLE, WAYS, ("zstd",)).tolist() == [90, 100, 70]
    assert costs_of_fixed(TABLE, WAYS, ("byte_group", "byte_group+base")).tolist() == [80, 100, 60]


def test_a_fixed_codec_is_forced_though_it_takes_longer_than_raw() -> None:
    assert costs_of_fixed(TABLE, WAYS, ("byte_group",)).tolist() == [80, 100, 200]
    assert costs_of_fixed(TABLE, WAYS, ("byte_group", "zstd")).tolist() == [80, 100, 70]
    assert costs_of_fixed(np.array([[100], [-1], [200]]), WAYS[:3], ("zstd", "byte_group")).tolist() == [200]


def test_hindsight_counts_the_bytes_of_chunks_that_are_near_their_best() -> None:
    sizes = np.array([1000, 2000, 4000])
    assert close_to_best(TABLE, np.array([2, 0, 3]), sizes, TABLE[0]) == 7000
    assert close_to_best(TABLE, np.array([1, 0, 3]), sizes, TABLE[0]) == 6000
    table = np.array([[10_000, 10_000], [1, 0], [2, 1]])
    assert close_to_best(table, np.array([2, 2]), np.array([1, 2]), table[0]) == 3, "a byte is nothing to a chunk"
    assert close_to_best(np.array([[1000], [505], [511]]), np.array([2]), np.array([5]), np.array([1000])) == 0


def scene(chosen: int, fixed: int) -> Scene:
    goals = (RATIO, *TIMED)
    return Scene(
        raw_bytes=1000,
        chosen=dict.fromkeys(goals, chosen),
        fixed={(goal, name): fixed + number for goal in goals for number, name in enumerate(FIXED)},
        near_best=dict.fromkeys(goals, 990),
        bytes_of=dict.fromkeys(goals, chosen),
        times_ns={goal: np.array([10, 5, 85]) for goal in goals},
    )


def test_scenes_add_up_and_are_held_against_the_best_fixed_codec() -> None:
    scenes = {("a/b", 0): scene(90, 100), ("a/b", 1): scene(60, 50), ("c/d", 0): scene(10, 10)}
    total = total_of(scenes)
    assert total.raw_bytes == 3000
    assert total.best_fixed(RATIO) == ("raw", 160)
    assert total.over_best_fixed(RATIO) == pytest.approx(0)
    assert total_of(scenes, "a/b").over_best_fixed(RATIO) == pytest.approx(0)
    assert scenes["a/b", 1].over_best_fixed(RATIO) == pytest.approx(0.2)
    assert scenes["a/b", 1].raw_bytes == 1000, "adding up changes no part"
    text = render(scenes)
    for word in ("**ratio**", "balanced, 0.2 GB/s", "99.00 %", "5.0 %", "a/b, 1: +20.00 %", "float_split"):
        assert word in text


def stream(base: bool) -> Stream:
    random = np.random.default_rng(1)
    master = random.normal(0, 0.02, (1 << 18) + 1000).astype(np.float32)
    weight = (master.view(np.uint32) >> 16).astype(np.uint16)
    moved = weight.copy()
    moved[::2] ^= 1
    return Stream("w", "BF16", "weight", moved.view(np.uint8), weight.view(np.uint8) if base else None, None, 0)


@pytest.fixture(scope="module")
def library() -> ReplayLibrary:
    try:
        return ReplayLibrary()
    except (OSError, AttributeError) as error:
        pytest.skip(f"{DEFAULT_LIBRARY}: {error}")


def test_the_planner_takes_what_hindsight_does(library: ReplayLibrary) -> None:
    found = replay_state(library, [stream(base=True), stream(base=False)])
    assert found.raw_bytes == 4 * ((1 << 18) + 1000)
    for goal in (RATIO, *TIMED):
        assert found.near_best[goal] >= 0.99 * found.raw_bytes
        assert found.over_best_fixed(goal) <= 0
        assert found.times_ns[goal].min() > 0
    assert found.bytes_of[RATIO] == found.chosen[RATIO] <= found.bytes_of[TIMED[1]] < found.bytes_of[TIMED[2]]


def test_a_way_that_cannot_be_is_told_from_one_that_is_long(library: ReplayLibrary) -> None:
    with library.precedents() as precedents, library.replay(stream(base=False)) as replay:
        assert replay.payloads[library.ways.index("raw")].tolist() == [1 << 19, 2000]
        assert (replay.payloads[library.ways.index("ordinal_delta+base")] == -1).all()
        times = replay.modelled(Goal("balanced"))
        assert ((times < 0) == (replay.payloads < 0)).all()
        forced = replay.chosen(Goal("balanced", codec="zstd"), precedents)
        assert {library.ways[way] for way in forced} == {"zstd"}
        with pytest.raises(RuntimeError, match="'gzip' is not known"):
            replay.chosen(Goal("balanced", codec="gzip"), precedents)
