"""Replays the corpus through the planner, and holds its choices against fixed ones and against hindsight.

    cmake --preset bench && cmake --build build/bench --target bitsnap_bench
    .venv/bin/python -m bench.plan_replay [--corpus FOLDER] [--pairs REGEX]

Every chunk of every state, alone and against the one 1, 10 or 50 steps before, is encoded in every way that there is;
what the planner chooses by its samples is then compared, in bytes and in modelled time, with each codec forced for
everything, and with the best way of each chunk. Tensors of less than 4 KiB are left out, and what a file adds to its
payloads. Prints Markdown for docs/measurements.md.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open

from bench.corpus_runs import DEFAULT_FOLDER, DISTANCES, Pair, all_pairs, state_path
from bench.native_library import Bytes
from bench.replay_library import Goal, Replay, ReplayLibrary, Stream, Table
from bench.results_tables import align

STORES = (200_000_000, 2_000_000_000, 20_000_000_000)
RATIO = Goal("ratio")
TIMED = tuple(Goal("balanced", store) for store in STORES)
# What is forced for everything, and the ways in which that codec may be used: the best of them, which is more than a
# forced codec has, as it goes by samples.
FIXED: dict[str, tuple[str, ...]] = {
    "raw": (),
    "zstd": ("zstd",),
    "byte_group": ("byte_group",),
    "byte_group on base": ("byte_group", "byte_group+base"),
    "bitmask on base": ("bitmask+base",),
    "float_split": ("float_split",),
    "factored_split": ("factored_split",),
    "ordinal_delta on base": ("ordinal_delta+base",),
    "optimizer_step": ("optimizer_step+step",),
}
_ON_BASE = ("+base", "+step")
_LEAST_BYTES = 4096
_NONE = np.iinfo(np.int64).max
_ROLES = {"model": "weight", "master": "master", "exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"}
_DTYPES = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32"}


def read_tensors(path: Path) -> dict[str, tuple[str, list[int], Bytes]]:
    """dtype, shape and bytes of each tensor of at least 4 KiB."""
    found = {}
    with safe_open(str(path), framework="pt") as file:
        for name in file.keys():  # noqa: SIM118 (it is no dict)
            tensor = file.get_tensor(name)
            if tensor.nbytes >= _LEAST_BYTES:
                bare: Bytes = tensor.reshape(-1).view(torch.uint8).numpy()
                found[name] = (_DTYPES[tensor.dtype], list(tensor.shape), bare)
    return found


def streams_of(
    tensors: dict[str, tuple[str, list[int], Bytes]], base: dict[str, tuple[str, list[int], Bytes]]
) -> Iterator[Stream]:
    """A weight has its master for a peer, masters and second moments what tells a step, as a save would find."""
    for name, (dtype, shape, data) in tensors.items():
        prefix, rest = name.split(".", 1)
        step: dict[str, Bytes] = {}
        before, moment, square = (
            of.get(f"{role}.{rest}") for of, role in ((base, "exp_avg"), (tensors, "exp_avg"), (tensors, "exp_avg_sq"))
        )
        if name in base and before and moment and square:
            if prefix == "master":
                step = {"moment": moment[2], "square": square[2]}
            elif prefix == "exp_avg_sq":
                step = {"base_moment": before[2], "moment": moment[2]}
        peer = tensors.get(f"master.{rest}") if prefix == "model" else None
        yield Stream(
            name=name,
            dtype=dtype,
            role=_ROLES[prefix],
            data=data,
            base=base[name][2] if name in base else None,
            peer=None if peer is None else peer[2],
            row_elements=shape[-1] if len(shape) > 1 else 0,
            step=step,
        )


def costs_of_fixed(table: Table, ways: Sequence[str], allowed: Sequence[str]) -> Table:
    """Of each chunk; raw where none of the ways can express it."""
    raw: Table = table[ways.index("raw")]
    if not allowed:
        return raw.copy()
    best = _least(table[[ways.index(way) for way in allowed]])
    costs: Table = np.where(best == _NONE, raw, best)
    return costs


def _least(table: Table) -> Table:
    least: Table = np.where(table < 0, _NONE, table).min(axis=0)
    return least


def close_to_best(table: Table, chosen: Table, chunk_bytes: Table, raw: Table) -> int:
    """Bytes of the chunks whose cost is within 1 % of the best way's, or a ten-thousandth of raw's."""
    best = _least(table)
    own = table[chosen, np.arange(chosen.size)]
    near = own <= np.maximum(best * 1.01, best + raw / 10_000)
    return int(chunk_bytes[near].sum())


@dataclass
class Scene:
    """Sums over a state, or over several. Costs are in bytes for the ratio and in picoseconds for the others."""

    raw_bytes: int = 0
    chosen: dict[Goal, int] = field(default_factory=dict)
    fixed: dict[tuple[Goal, str], int] = field(default_factory=dict)
    near_best: dict[Goal, int] = field(default_factory=dict)
    bytes_of: dict[Goal, int] = field(default_factory=dict)  # what is stored
    times_ns: dict[Goal, Table] = field(default_factory=dict)  # of hashing, choosing and encoding

    def add(self, other: Scene) -> None:
        self.raw_bytes += other.raw_bytes
        for goal, times in other.times_ns.items():
            self.times_ns[goal] = self.times_ns.get(goal, np.zeros(3, np.int64)) + times
        for own, more in (
            (self.chosen, other.chosen),
            (self.near_best, other.near_best),
            (self.bytes_of, other.bytes_of),
        ):
            for goal, cost in more.items():
                own[goal] = own.get(goal, 0) + cost
        for key, cost in other.fixed.items():
            self.fixed[key] = self.fixed.get(key, 0) + cost

    def best_fixed(self, goal: Goal) -> tuple[str, int]:
        return min(((name, cost) for (of, name), cost in self.fixed.items() if of == goal), key=lambda each: each[1])

    def over_best_fixed(self, goal: Goal) -> float:
        """How much more than the best fixed codec; below 0 is less."""
        return self.chosen[goal] / self.best_fixed(goal)[1] - 1


def replay_state(library: ReplayLibrary, streams: Iterable[Stream]) -> Scene:
    scene = Scene()
    raw = library.ways.index("raw")
    with ExitStack() as stack:
        precedents = {goal: stack.enter_context(library.precedents()) for goal in (RATIO, *TIMED)}
        for stream in streams:
            with library.replay(stream) as replay:
                scene.add(_replay_stream(replay, stream, library.ways, raw, precedents))
    return scene


def _replay_stream(
    replay: Replay, stream: Stream, ways: Sequence[str], raw: int, precedents: Mapping[Goal, int]
) -> Scene:
    sizes = stream.chunk_bytes()
    scene = Scene(raw_bytes=int(sizes.sum()))
    numbers = np.arange(sizes.size)
    for goal, precedent in precedents.items():
        table = replay.payloads if goal == RATIO else replay.modelled(goal)
        chosen = replay.chosen(goal, precedent)
        one = Scene(
            chosen={goal: int(table[chosen, numbers].sum())},
            near_best={goal: close_to_best(table, chosen, sizes, table[raw])},
            bytes_of={goal: int(replay.payloads[chosen, numbers].sum())},
            times_ns={goal: replay.times_ns},
        )
        for name, allowed in FIXED.items():
            usable = [way for way in allowed if stream.base is not None or not way.endswith(_ON_BASE)]
            one.fixed[goal, name] = int(costs_of_fixed(table, ways, usable).sum())
        scene.add(one)
    return scene


Scenes = dict[tuple[str, int], Scene]  # phase, and steps to the base; 0: alone


def replay_corpus(library: ReplayLibrary, folder: Path, pairs: Sequence[Pair]) -> Scenes:
    scenes: Scenes = {}
    for pair in pairs:
        tensors = read_tensors(state_path(folder, pair.run, pair.step))
        base = read_tensors(state_path(folder, pair.run, pair.base_step))
        phase = f"{pair.run}/{pair.phase}"
        for distance, beside in ((0, {}), (pair.distance, base)):
            if distance == 0 and pair.distance != DISTANCES[0]:
                continue  # what is coded alone is each phase's state but once
            scene = replay_state(library, streams_of(tensors, beside))
            scenes.setdefault((phase, distance), Scene()).add(scene)
        print(pair.name, file=sys.stderr, flush=True)
    return scenes


def total_of(scenes: Scenes, phase: str = "") -> Scene:
    total = Scene()
    for (own, _), scene in scenes.items():
        if phase in ("", own):
            total.add(scene)
    return total


def render(scenes: Scenes) -> str:
    phases = list(dict.fromkeys(phase for phase, _ in scenes))
    total = total_of(scenes)
    parts = []
    for goal, unit in ((RATIO, "MB"), *((goal, "ms") for goal in TIMED)):
        scale = 1e6 if goal == RATIO else 1e9
        title = "ratio" if goal == RATIO else f"balanced, {goal.store / 1e9:g} GB/s"
        rows = [["", *phases, "all"]]
        sums = [total_of(scenes, phase) for phase in phases] + [total]
        rows.append([f"**{title}**", *(f"{each.chosen[goal] / scale:.1f}" for each in sums)])
        rows += [[name, *(f"{each.fixed[goal, name] / scale:.1f}" for each in sums)] for name in FIXED]
        rows.append(["over the best of these", *(f"{100 * each.over_best_fixed(goal):+.2f} %" for each in sums)])
        parts.append(f"{title}, {unit}:\n\n" + "\n".join(align(rows[0], rows[1:])))
    rows = [["goal", "within 1 % of the best way", "stored", "against `ratio`", "choosing", "worst phase and distance"]]
    for goal in (RATIO, *TIMED):
        worst = max(scenes, key=lambda key: scenes[key].over_best_fixed(goal))
        rows.append(
            [
                "ratio" if goal == RATIO else f"balanced, {goal.store / 1e9:g} GB/s",
                f"{100 * total.near_best[goal] / total.raw_bytes:.2f} %",
                f"{total.bytes_of[goal] / 1e6:.1f} MB",
                f"{100 * (total.bytes_of[goal] / total.bytes_of[RATIO] - 1):+.2f} %",
                f"{100 * total.times_ns[goal][1] / total.times_ns[goal].sum():.1f} %",
                f"{worst[0]}, {worst[1] or 'alone'}: {100 * scenes[worst].over_best_fixed(goal):+.2f} %",
            ]
        )
    parts.append("\n".join(align(rows[0], rows[1:])))
    return "\n\n".join(parts)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=DEFAULT_FOLDER)
    parser.add_argument("--pairs", default="", help="those whose names this regular expression finds")
    options = parser.parse_args(arguments)
    pairs = [pair for pair in all_pairs() if re.search(options.pairs, pair.name)]
    if not pairs:
        print(f"--pairs {options.pairs}: finds none", file=sys.stderr)
        return 2
    print(f"```\n{shlex.join(['python', '-m', 'bench.plan_replay', *arguments])}\n```\n")
    print(render(replay_corpus(ReplayLibrary(), options.corpus, pairs)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
