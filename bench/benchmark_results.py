"""The results of one run of the benchmark: plain values that are pooled here and stored as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

# The roles of a checkpointed state: 14 bytes per parameter.
STATE_ROLES = ("weight", "master", "exp_avg", "exp_avg_sq")
CEILING = "memcpy-nt"


@dataclass(frozen=True)
class Measurement:
    """One method on one role of one state, alone or against the state `distance` steps earlier."""

    run: str
    phase: str
    step: int
    distance: int  # 0: alone
    role: str
    method: str
    kind: str
    is_slow: bool
    threads: int
    role_bytes: int  # of the whole role in the state
    raw_bytes: int  # of the sample
    encoded_bytes: int
    encode_s: float
    decode_s: float
    runs: int  # number of runs behind the medians


@dataclass(frozen=True)
class BoundMeasurement:
    run: str
    phase: str
    step: int
    distance: int
    role: str
    unchanged: float
    ratio: float
    ratio_by_exponent: float


@dataclass
class Results:
    machine: dict[str, str] = field(default_factory=dict)
    date: str = ""
    command: str = ""
    sizes: str = ""
    corpus: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    measurements: list[Measurement] = field(default_factory=list)
    bounds: list[BoundMeasurement] = field(default_factory=list)

    def threads(self) -> list[int]:
        return sorted({one.threads for one in self.measurements})

    def write_json(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        partial.replace(path)


def read_json(path: Path) -> Results:
    found = json.loads(path.read_text(encoding="utf-8"))
    found["measurements"] = [Measurement(**one) for one in found["measurements"]]
    found["bounds"] = [BoundMeasurement(**one) for one in found["bounds"]]
    return Results(**found)


@dataclass(frozen=True)
class Pooled:
    """Measurements of one method for one number of threads, weighted by the bytes of their roles; speeds in GB/s."""

    ratio: float
    encode_gbps: float
    decode_gbps: float
    is_slow: bool
    kind: str


def pool(measurements: Iterable[Measurement]) -> Pooled:
    raw = encoded = encode_s = decode_s = 0.0
    is_slow = False
    kind = ""
    for one in measurements:
        share = one.role_bytes / one.raw_bytes
        raw += one.role_bytes
        encoded += share * one.encoded_bytes
        encode_s += share * one.encode_s
        decode_s += share * one.decode_s
        is_slow = is_slow or one.is_slow
        kind = one.kind
    if raw == 0:
        raise ValueError("there are no measurements to pool")
    # The encoded size can be 0 if nothing changed.
    return Pooled(raw / max(encoded, 1.0), raw / encode_s / 1e9, raw / decode_s / 1e9, is_slow, kind)


def pool_methods(
    measurements: Iterable[Measurement], *, roles: tuple[str, ...], distance: int, runs: tuple[str, ...], threads: int
) -> dict[str, Pooled]:
    """Pools the methods that measured every role of every state; the others would be pooled over fewer bytes.

    Returns nothing if no method measured one of the roles: a whole state has all of them.
    """
    by_method: dict[str, list[Measurement]] = {}
    places: set[tuple[str, int, str]] = set()
    for one in measurements:
        if one.role in roles and one.distance == distance and one.run in runs and one.threads == threads:
            by_method.setdefault(one.method, []).append(one)
            places.add((one.run, one.step, one.role))
    if {role for _, _, role in places} != set(roles):
        return {}
    return {method: pool(found) for method, found in by_method.items() if len(found) == len(places)}
