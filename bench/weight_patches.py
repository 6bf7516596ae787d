"""Patches between consecutive bf16 weights: sizes beside other ways to send the changes, speeds, and what models take.

    PYTHONPATH=tests:. .venv/bin/python -m bench.weight_patches WEIGHTS              # bits a change
    PYTHONPATH=tests:. .venv/bin/python -m bench.weight_patches WEIGHTS --speed      # beside a copy of the weights
    PYTHONPATH=tests:. .venv/bin/python -m bench.weight_patches --table              # sizes and times of large models

WEIGHTS is a folder with files NAME-N.safetensors, such as bench/weight_versions.py writes; N and N + 1 are a pair. Each
way is decoded, and its result compared bit for bit. Sizes include everything that a receiver with the older weights
needs. The other ways, except `trl`, take all tensors as one run of elements, and have no names, headers and hashes,
which favours them. Prints Markdown.
"""

from __future__ import annotations

import argparse
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
import zstandard
from numpy.typing import NDArray
from safetensors.torch import load, load_file, save

import bitsnap
from bench.measuring import median_ratio, print_machine, print_table, timed

Weights = Mapping[str, torch.Tensor]
Elements = NDArray[np.uint16]
Integers = NDArray[Any]


class Pair(NamedTuple):
    name: str
    old: dict[str, torch.Tensor]
    new: dict[str, torch.Tensor]


def pairs_of(folder: Path) -> list[tuple[str, Path, Path]]:
    """Pairs of files of consecutive numbers, by name."""
    found: dict[tuple[str, int], Path] = {}
    for path in folder.glob("*-*.safetensors"):
        match = re.fullmatch(r"(.+)-(\d+)\.safetensors", path.name)
        if match is not None:
            found[match[1], int(match[2])] = path
    return [
        (f"{name} {number} to {number + 1}", found[name, number], found[name, number + 1])
        for name, number in sorted(found)
        if (name, number + 1) in found
    ]


def read_pair(name: str, old: Path, new: Path) -> Pair:
    pair = Pair(name, load_file(old), load_file(new))
    for path, weights in ((old, pair.old), (new, pair.new)):
        wrong = [each for each, tensor in weights.items() if tensor.dtype != torch.bfloat16]
        if wrong:
            raise SystemExit(f"{path}: tensor {wrong[0]!r} is {weights[wrong[0]].dtype}, expected torch.bfloat16")
    return pair


def flat(weights: Weights) -> Elements:
    """The elements of all tensors, ascending by name."""
    parts = [weights[name].contiguous().view(torch.int16).numpy().reshape(-1) for name in sorted(weights)]
    return np.concatenate(parts).view(np.uint16)


def like(weights: Weights, elements: Elements) -> dict[str, torch.Tensor]:
    """The inverse of flat(), with the names and shapes of `weights`."""
    found: dict[str, torch.Tensor] = {}
    at = 0
    for name in sorted(weights):
        shape, count = weights[name].shape, weights[name].numel()
        part = elements[at : at + count].view(np.int16)
        found[name] = torch.from_numpy(part.copy()).view(torch.bfloat16).reshape(shape)
        at += count
    return found


def is_same(a: Weights, b: Weights) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name].view(torch.int16), b[name].view(torch.int16)) for name in a)


# --- ways to send what changed


class Way(ABC):
    name: str

    @abstractmethod
    def encode(self, new: Weights, old: Weights) -> list[bytes]:
        """What is sent, in parts whose sizes the transport knows."""

    @abstractmethod
    def decode(self, parts: Sequence[bytes], old: Weights) -> Weights:
        """The newer weights."""


class Bitsnap(Way):
    name = "bitsnap"

    def encode(self, new: Weights, old: Weights) -> list[bytes]:
        return [bitsnap.make_patch(new, old)]

    def decode(self, parts: Sequence[bytes], old: Weights) -> Weights:
        engine = {name: tensor.clone() for name, tensor in old.items()}
        bitsnap.apply_patch(engine, parts[0])
        return engine


class Listed(Way):
    """Ways that list places and values of the elements that changed."""

    @abstractmethod
    def pack(self, gaps: Integers, values: Elements) -> list[bytes]:
        """`gaps`: the unchanged elements before each one that changed."""

    @abstractmethod
    def unpack(self, parts: Sequence[bytes]) -> tuple[Integers, Elements]: ...

    def encode(self, new: Weights, old: Weights) -> list[bytes]:
        elements = flat(new)
        places = np.flatnonzero(elements != flat(old))
        return self.pack(np.diff(places, prepend=-1) - 1, elements[places])

    def decode(self, parts: Sequence[bytes], old: Weights) -> Weights:
        gaps, values = self.unpack(parts)
        elements = flat(old)
        elements[np.cumsum(gaps + 1) - 1] = values
        return like(old, elements)


class IndexAndValue(Listed):
    name = "index 32 + value 16"

    def pack(self, gaps: Integers, values: Elements) -> list[bytes]:
        return [(np.cumsum(gaps + 1) - 1).astype("<u4", casting="unsafe").tobytes(), values.tobytes()]

    def unpack(self, parts: Sequence[bytes]) -> tuple[Integers, Elements]:
        places = np.frombuffer(parts[0], "<u4").astype(np.int64)
        return np.diff(places, prepend=-1) - 1, np.frombuffer(parts[1], np.uint16)


def escape(gaps: Integers, dtype: str) -> Integers:
    """Gaps in a narrow type, whose largest number moves on by itself and is no change."""
    most = int(np.iinfo(dtype).max)
    lengths = gaps // most + 1
    tokens = np.full(int(lengths.sum()), most, dtype)
    tokens[np.cumsum(lengths) - 1] = gaps % most
    return tokens


def unescape(tokens: Integers) -> Integers:
    is_change = tokens != np.iinfo(tokens.dtype).max
    ends = np.cumsum(tokens, dtype=np.int64)[is_change]
    return np.diff(ends, prepend=0)


class GapAndValue(Listed):
    name = "gap 16 + value 16"

    def pack(self, gaps: Integers, values: Elements) -> list[bytes]:
        return [escape(gaps, "<u2").tobytes(), values.tobytes()]

    def unpack(self, parts: Sequence[bytes]) -> tuple[Integers, Elements]:
        return unescape(np.frombuffer(parts[0], "<u2")), np.frombuffer(parts[1], np.uint16)


def zstd(data: bytes, level: int) -> bytes:
    return zstandard.ZstdCompressor(level=level).compress(data)


def unzstd(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(data)


class GapsZstd(Listed):
    """As slime's `deltas_zstd`: gaps of 1, 2 or 4 bytes, and values, each a stream of zstd at level 1. Here, the bytes
    254 and 255 say that the gap is the next of those of 2 and of 4 bytes, which are streams of their own.
    """

    name = "gaps 1, 2, 4 B + zstd-1"

    def pack(self, gaps: Integers, values: Elements) -> list[bytes]:
        first = np.where(gaps < 254, gaps, np.where(gaps < 1 << 16, 254, 255)).astype(np.uint8)
        streams = (first, gaps[first == 254].astype("<u2"), gaps[first == 255].astype("<u4"), values)
        return [zstd(stream.tobytes(), 1) if stream.size > 0 else b"" for stream in streams]

    def unpack(self, parts: Sequence[bytes]) -> tuple[Integers, Elements]:
        kinds = ("u1", "<u2", "<u4", "<u2")
        first, twos, fours, values = (
            np.frombuffer(unzstd(part) if part else b"", kind) for part, kind in zip(parts, kinds, strict=True)
        )
        gaps = first.astype(np.int64)
        gaps[first == 254] = twos
        gaps[first == 255] = fours
        return gaps, values


class Pulse(Listed):
    """PULSE's format, rebuilt from the description in its paper, not from its program: ascending places as differences
    in the smallest unsigned type, with escapes for larger ones, then the values in bf16, and all of it through zstd at
    level 1. The type is here the one that takes the fewest bytes before zstd; a byte in front says which.
    """

    name = "PULSE (rebuilt)"

    def pack(self, gaps: Integers, values: Elements) -> list[bytes]:
        tokens = min((escape(gaps, f"<u{size}") for size in (1, 2, 4)), key=lambda tried: tried.nbytes)
        return [
            zstd(bytes([tokens.itemsize]) + tokens.tobytes() + values.tobytes(), 1),
            len(values).to_bytes(4, "little"),
        ]

    def unpack(self, parts: Sequence[bytes]) -> tuple[Integers, Elements]:
        raw, count = unzstd(parts[0]), int.from_bytes(parts[1], "little")
        split = len(raw) - 2 * count
        return unescape(np.frombuffer(raw[1:split], f"<u{raw[0]}")), np.frombuffer(raw[split:], "<u2")


class XorZstd(Way):
    def __init__(self, level: int) -> None:
        self._level = level
        self.name = f"XOR + zstd-{level}"

    def encode(self, new: Weights, old: Weights) -> list[bytes]:
        return [zstd((flat(new) ^ flat(old)).tobytes(), self._level)]

    def decode(self, parts: Sequence[bytes], old: Weights) -> Weights:
        return like(old, flat(old) ^ np.frombuffer(unzstd(parts[0]), np.uint16))


class TrlLike(Way):
    """As TRL sends sparse weights: a file of safetensors with int32 indices and bf16 values for each changed tensor."""

    name = "TRL-like safetensors"

    def encode(self, new: Weights, old: Weights) -> list[bytes]:
        tensors: dict[str, torch.Tensor] = {}
        for name, tensor in new.items():
            own, other = tensor.view(torch.int16).flatten(), old[name].view(torch.int16).flatten()
            places = (own != other).nonzero(as_tuple=True)[0]
            if places.numel() > 0:
                tensors[f"{name}.indices"] = places.to(torch.int32)
                tensors[f"{name}.values"] = tensor.flatten()[places]
        return [save(tensors)]

    def decode(self, parts: Sequence[bytes], old: Weights) -> Weights:
        sent = load(parts[0])
        found = {name: tensor.clone() for name, tensor in old.items()}
        for name, tensor in found.items():
            if f"{name}.indices" in sent:
                bits = tensor.view(torch.int16).view(-1)
                bits[sent[f"{name}.indices"].long()] = sent[f"{name}.values"].view(torch.int16)
        return found


WAYS: list[Way] = [
    Bitsnap(),
    IndexAndValue(),
    GapAndValue(),
    GapsZstd(),
    XorZstd(1),
    XorZstd(3),
    Pulse(),
    TrlLike(),
]


def sizes_of(pair: Pair) -> dict[str, int]:
    """Bytes by way. Each is decoded, and compared."""
    sizes = {}
    for way in WAYS:
        parts = way.encode(pair.new, pair.old)
        sizes[way.name] = sum(len(part) for part in parts)
        if not is_same(way.decode(parts, pair.old), pair.new):
            raise AssertionError(f"{pair.name}: {way.name} does not give back the weights")
    return sizes


def print_sizes(pairs: Iterator[Pair]) -> None:
    rows = []
    for pair in pairs:
        elements = flat(pair.new)
        changed = int(np.count_nonzero(elements != flat(pair.old)))
        bits = [f"{8 * size / changed:.2f}" if changed > 0 else "-" for size in sizes_of(pair).values()]
        rows.append([pair.name, f"{100 * changed / elements.size:.3f} %", *bits])
    print("Bits a change, everything included:\n")
    print_table(["weights", "changed", *(way.name for way in WAYS)], rows)


# --- speed


def repeated(weights: Weights, times: int) -> dict[str, torch.Tensor]:
    """The weights several times, each in memory of its own."""
    return {f"{i}.{name}": tensor.clone() for i in range(times) for name, tensor in weights.items()}


def copy_all(to: Weights, weights: Weights) -> None:
    """One thread's copy of all bytes."""
    for name, tensor in weights.items():
        np.copyto(to[name].view(torch.int16).numpy(), tensor.view(torch.int16).numpy())


def measure(pair: Pair, repeat: int, rounds: int) -> list[str]:
    """A row: what one thread takes, as multiples of a copy in the same round."""
    old, new = repeated(pair.old, repeat), repeated(pair.new, repeat)
    engine = repeated(pair.old, repeat)
    size = sum(tensor.nbytes for tensor in old.values())
    copies: list[float] = []
    taken: dict[str, list[float]] = {"make": [], "stage": [], "apply": []}
    for number in range(rounds + 1):
        times = [timed(lambda: copy_all(engine, old))[0]]
        seconds, made = timed(lambda: bitsnap.make_patch(new, old, threads=1))
        times.append(seconds)
        patch = bitsnap.Patch(made)
        seconds, staged = timed(lambda: patch.stage(engine, threads=1))  # noqa: B023 (called at once)
        times += [seconds, timed(lambda: staged.apply(threads=1))[0]]  # noqa: B023 (called at once)
        assert is_same(engine, new)
        if number > 0:  # the first touches the memory
            copies.append(times[0])
            for each, took in zip(taken.values(), times[1:], strict=True):
                each.append(took)
    row = [pair.name, f"{size / 1e6:.0f}", f"{size / 1e9 / median(copies):.1f}"]
    for each in taken.values():
        row += [f"{median(each):.3f}", f"{median_ratio(each, copies):.2f}"]
    return row


def print_speeds(pairs: Iterator[Pair], repeat: int, rounds: int) -> None:
    torch.set_num_threads(1)
    rows = [measure(pair, repeat, rounds) for pair in pairs]
    print(f"One thread; medians of {rounds} rounds; each with its ratio to a copy of all weights in the same round:\n")
    header = ["weights", "MB", "copy GB/s"]
    for name in ("make", "stage", "apply"):
        header += [f"{name} s", "copies"]
    print_table(header, rows)


# --- large models

MODELS = {"8 B": 8e9, "72 B": 72e9, "1 T": 1e12}
SHARES = (0.0005, 0.01, 0.03)
LINKS = (10, 100, 400)  # Gbit/s


def in_seconds(seconds: float) -> str:
    return f"{seconds:.2g}" if seconds < 1 else f"{seconds:.3g}" if seconds < 100 else f"{seconds:.0f}"


def table_of(bits: Sequence[float], rates: Sequence[float], workers: int) -> tuple[list[str], list[list[str]]]:
    """Header and rows. `bits`: a change, by share. `rates`: of making, staging and applying, in GB/s of weights for
    each worker; the workers divide the weights, and the link is one.
    """
    header = ["parameters", "changed", "weights GB", "patch GB", "times smaller"]
    header += [f"{link} Gbit/s: weights s / patch s" for link in LINKS] + ["make s", "stage s", "apply s"]
    rows = []
    for name, parameters in MODELS.items():
        whole = 2 * parameters
        for share, each in zip(SHARES, bits, strict=True):
            patch = parameters * share * each / 8
            row = [name, f"{100 * share:g} %", f"{whole / 1e9:.0f}", f"{patch / 1e9:.3g}", f"{whole / patch:.0f}"]
            row += [f"{in_seconds(whole / link / 1.25e8)} / {in_seconds(patch / link / 1.25e8)}" for link in LINKS]
            rows.append(row + [in_seconds(whole / 1e9 / rate / workers) for rate in rates])
    return header, rows


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path, nargs="?", help="folder with files NAME-N.safetensors in bf16")
    parser.add_argument("--only", default="", help="pairs whose name begins so")
    parser.add_argument("--speed", action="store_true", help="measure the last pair of each name")
    parser.add_argument("--repeat", type=int, default=20, help="with --speed: how often to take the weights (20)")
    parser.add_argument("--rounds", type=int, default=5, help="with --speed: rounds that count (5)")
    parser.add_argument(
        "--table", action="store_true", help="sizes and times of models of 8 B, 72 B and 1 T parameters"
    )
    parser.add_argument("--bits", type=float, nargs=3, default=BITS, help=f"a change, at {SHARES} changed: {BITS}")
    parser.add_argument("--rates", type=float, nargs=3, default=RATES, help=f"make, stage and apply, GB/s: {RATES}")
    parser.add_argument("--workers", type=int, default=8, help="threads that divide the weights among them (8)")
    options = parser.parse_args(arguments)
    if options.weights is None and not options.table:
        parser.error("give the folder of the weights, or --table")
    return options


# Defaults of --bits and --rates: measured with this program on fine-tunings of a GPT of 10.6 M parameters. These take
# 6.2 bits at 2.2 % changed; from there, a bit more for each halving of the share, which is an upper estimate. The rates
# are those of one thread of an AMD EPYC at 2.2 %, where a copy takes 10.5 GB/s.
BITS = (11.7, 7.3, 5.8)
RATES = (1.6, 4.0, 12.8)


def main() -> None:
    options = parse()
    print_machine()
    if options.table:
        print_table(*table_of(options.bits, options.rates, options.workers))
    if options.weights is None:
        return
    found = [each for each in pairs_of(options.weights) if each[0].startswith(options.only)]
    if not found:
        raise SystemExit(f"{options.weights}: there are no files NAME-N.safetensors with consecutive numbers")
    if options.speed:
        last = {name.rsplit(" ", 3)[0]: (name, old, new) for name, old, new in found}
        print_speeds((read_pair(*each) for each in last.values()), options.repeat, options.rounds)
    elif not options.table:
        print_sizes(read_pair(*each) for each in found)


if __name__ == "__main__":
    main()
