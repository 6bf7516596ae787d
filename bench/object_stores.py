"""Saves to a bucket and loads from it, beside obstore's own puts and gets of the same bytes.

    PYTHONPATH=tests:. python -m bench.object_stores [--states 3] [--rounds 5] [--server seaweedfs] [--link 1]

The state is that of `masters` of bench.gradient_trainings after 20 steps, several times, each time with other values:
bf16 weights, fp32 masters, two moments; steps are 10 apart, so that each is coded against the one before. The server is
SeaweedFS, on this machine and its cores. In each round every way sends or fetches; medians are printed. "of obstore" is
the rate in bytes that went to the bucket, divided by that of obstore for the bytes of bitsnap's file in the same round.
The peak of memory is that of a process that loads alone, beyond the state. `--link GBIT` gives what goes between the
clients and the server that rate, with `tc` of iproute2, as root.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

import bitsnap
from bench.gradient_trainings import KINDS, Training
from bench.measuring import folder_of, median_ratio, parser_of, print_machine, print_table, timed, turn_of
from bitsnap._objects import Client
from python.objects.object_servers import start

PARTS = {"chunk_size": 32 << 20, "max_concurrency": 4}
RANGE_BYTES = 8 << 20

LOADS = """
import sys, bitsnap, torch

def memory(name):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(name))

bitsnap.load(sys.argv[1], keys=[])  # with the client of the bucket
before = memory("VmRSS")
state = bitsnap.load(sys.argv[1])
print(memory("VmHWM") - before - sum(tensor.nbytes for tensor in state.values()))
"""


def states_of(copies: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Two states of a training, 10 steps apart, with `copies` models in each."""
    training = Training(KINDS["masters"])
    found: list[dict[str, Tensor]] = [{}, {}]
    for copy in range(copies):
        for state in found:
            for _ in range(10):
                training.step()
            state.update({f"{copy}.{name}": tensor.clone() for name, tensor in training.tensors().items()})
    return found[0], found[1]


class Ways:
    """What is measured. Each returns the bytes that went to the bucket or came from it."""

    def __init__(self, address: str, folder: Path, copies: int) -> None:
        import obstore
        import obstore.store

        self.obstore: Any = obstore
        self.address, self.folder = address, folder
        bucket = address.removeprefix("s3://").partition("/")[0]
        self.bucket = obstore.store.from_url(
            f"s3://{bucket}", endpoint=os.environ["AWS_ENDPOINT_URL"], client_options={"allow_http": True}
        )
        self.before, self.after = states_of(copies)
        self.raw_bytes = sum(tensor.nbytes for tensor in self.after.values())
        with bitsnap.Store(folder / "run") as store:
            store.save(1, self.before)
            store.save(2, self.after)
        self.files = [path.read_bytes() for path in sorted((folder / "run").rglob("*.bsnap"))]
        self.number = 0

    def _new(self) -> str:
        self.number += 1
        return f"{self.address}/{self.number}"

    def _key(self) -> str:
        return self._new().removeprefix("s3://").partition("/")[2]

    def put(self) -> int:
        """obstore's put of bitsnap's two files, in parts as bitsnap sends them."""
        for data in self.files:
            self.obstore.put(self.bucket, self._key(), data, **PARTS)
        return sum(map(len, self.files))

    def mirror(self) -> int:
        """`bitsnap mirror` of the run, without the start of the program."""
        self._mirror(self._new())
        return sum(map(len, self.files))

    def _mirror(self, target: str) -> None:
        bitsnap._bitsnap.run_command(["bitsnap", "mirror", "--quiet", str(self.folder / "run"), target])

    def save(self) -> int:
        """Store.save() of both states."""
        with bitsnap.Store(self._new()) as store:
            store.save(1, self.before)
            store.save(2, self.after)
        return sum(map(len, self.files))

    def save_one(self) -> int:
        """Store.save() of one state, a keyframe."""
        with bitsnap.Store(self._new()) as store:
            store.save(1, self.before)
        return len(self.files[0])

    def torch_save(self) -> int:
        """torch.save() of both states to memory, and obstore's put."""
        total = 0
        for state in (self.before, self.after):
            buffer = io.BytesIO()
            torch.save(state, buffer)
            self.obstore.put(self.bucket, self._key(), buffer.getvalue(), **PARTS)
            total += buffer.tell()
        return total

    def prepare_reads(self) -> None:
        self.run = self._new()
        self._mirror(self.run)
        self.keys = [self._key() for _ in self.files]
        for key, data in zip(self.keys, self.files, strict=True):
            self.obstore.put(self.bucket, key, data, **PARTS)
        buffer = io.BytesIO()
        torch.save(self.after, buffer)
        self.torch_key, self.torch_bytes = self._key(), buffer.tell()
        self.obstore.put(self.bucket, self.torch_key, buffer.getvalue(), **PARTS)

    def _got(self, key: str, size: int) -> Any:
        starts = list(range(0, size, RANGE_BYTES))
        ends = [min(begin + RANGE_BYTES, size) for begin in starts]
        return self.obstore.get_ranges(self.bucket, key, starts=starts, ends=ends)

    def get(self) -> int:
        """obstore's get of both files, in ranges of 8 MiB, several at once."""
        for key, data in zip(self.keys, self.files, strict=True):
            self._got(key, len(data))
        return sum(map(len, self.files))

    def load(self) -> int:
        """bitsnap.load() of the second state, which needs parts of both files."""
        read, read_bytes = Client.read, [0]

        def counted(client: Client, key: str, version: str, offset: int, out: memoryview) -> None:
            read_bytes.append(len(out))
            read(client, key, version, offset, out)

        Client.read = counted  # type: ignore[method-assign, assignment]
        try:
            bitsnap.load(f"{self.run}@2")
        finally:
            Client.read = read  # type: ignore[method-assign]
        return sum(read_bytes)

    def torch_load(self) -> int:
        """obstore's get of the file of torch.save(), and torch.load()."""
        ranges = self._got(self.torch_key, self.torch_bytes)
        torch.load(io.BytesIO(b"".join(map(bytes, ranges))))
        return self.torch_bytes


def dcp_ways(ways: Ways) -> dict[str, Callable[[], int]]:
    """s3torchconnector's writer and reader for DCP, if it is installed."""
    try:
        connector: Any = importlib.import_module("s3torchconnector")
        files: Any = importlib.import_module("s3torchconnector.dcp")
    except ImportError:
        return {}
    dcp: Any = importlib.import_module("torch.distributed.checkpoint")
    region, config = "us-east-1", connector.S3ClientConfig(force_path_style=True)
    client = importlib.import_module("s3torchconnector._s3client").S3Client
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    kept = ways._new()

    def with_endpoint(of_dcp: Any) -> Any:
        """Which has no argument for one."""
        of_dcp.fs = files.S3FileSystem(region, s3_client=client(region, endpoint=endpoint, s3client_config=config))
        return of_dcp

    def write(address: str, state: dict[str, Tensor]) -> None:
        writer = files.S3StorageWriter(region=region, path=address, s3client_config=config)
        dcp.save(state, storage_writer=with_endpoint(writer), no_dist=True)

    def saves() -> int:
        write(ways._new(), ways.before)
        write(ways._new(), ways.after)
        return 2 * ways.raw_bytes

    def loads() -> int:
        state = {name: torch.empty_like(tensor) for name, tensor in ways.after.items()}
        reader = files.S3StorageReader(region=region, path=kept, s3client_config=config)
        dcp.load(state, storage_reader=with_endpoint(reader), no_dist=True)
        return ways.raw_bytes

    write(kept, ways.after)
    return {"s3torchconnector, DCP save": saves, "s3torchconnector, DCP load": loads}


def measure(ways: dict[str, tuple[Callable[[], int], int]], rounds: int, first: str) -> None:
    """Prints a table. `ways`: with the bytes of the states; `first`: the name of obstore's own."""
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    sent: dict[str, int] = {}
    for number in range(rounds):
        for name in turn_of(list(ways), number):
            taken, sent[name] = timed(ways[name][0])
            seconds[name].append(taken)
    rows = []
    for name, (_, raw) in ways.items():
        share = median_ratio(seconds[first], seconds[name]) * sent[name] / sent[first]
        rows.append(
            [
                name,
                f"{sent[name] / 1e6:.1f}",
                f"{median(seconds[name]):.2f}",
                f"{share:.2f}",
                f"{median_ratio(seconds['torch'], seconds[name]) * raw / ways['torch'][1]:.2f}" if raw else "",
            ]
        )
    print_table(["way", "MB", "s", "of obstore", "states of torch's"], rows)


def compare(ways: Ways, rounds: int) -> None:
    raw = ways.raw_bytes
    sizes = ", ".join(f"{len(data) / 1e6:.1f}" for data in ways.files)
    print(f"A state has {raw / 1e6:.1f} MB, the two files {sizes} MB.\n")
    dcp = dcp_ways(ways)
    save = {"obstore put": (ways.put, 0), "mirror": (ways.mirror, 2 * raw), "Store.save": (ways.save, 2 * raw)}
    save |= {"Store.save, one": (ways.save_one, raw), "torch": (ways.torch_save, 2 * raw)}
    save |= {name: (way, 2 * raw) for name, way in dcp.items() if "save" in name}
    measure(save, rounds, "obstore put")
    ways.prepare_reads()
    load = {"obstore get": (ways.get, 0), "bitsnap.load": (ways.load, raw), "torch": (ways.torch_load, raw)}
    load |= {name: (way, raw) for name, way in dcp.items() if "load" in name}
    measure(load, rounds, "obstore get")
    loading = [sys.executable, "-c", LOADS, f"{ways.run}@2"]
    peak = subprocess.run(loading, capture_output=True, text=True, check=True)
    print(f"Peak of memory beyond the state while loading: {int(peak.stdout) / 1e6:.0f} MB.")


@contextlib.contextmanager
def link_of(gbit: float | None, address: str) -> Iterator[None]:
    """What goes to the server and comes from it has a link of this rate. What its own parts send has none."""
    if gbit is None:
        yield
        return
    interface, port = ["dev", "lo"], address.rpartition(":")[2]
    subprocess.run(["tc", "qdisc", "add", *interface, "root", "handle", "1:", "htb"], check=True)
    try:
        rate = ["htb", "rate", f"{gbit * 1000:.0f}mbit", "quantum", "65536"]
        subprocess.run(["tc", "class", "add", *interface, "parent", "1:", "classid", "1:2", *rate], check=True)
        for side in ("sport", "dport"):
            match = ["protocol", "ip", "u32", "match", "ip", side, port, "0xffff", "flowid", "1:2"]
            subprocess.run(["tc", "filter", "add", *interface, "parent", "1:", *match], check=True)
        yield
    finally:
        subprocess.run(["tc", "qdisc", "del", *interface, "root"], check=True)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--states", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--server", default="seaweedfs")
    parser.add_argument("--link", type=float, help="Gbit/s between the clients and the server")
    options = parser.parse_args()
    print_machine()
    os.environ["SEAWEEDFS_VOLUMES"] = "300"  # of 64 MB
    with folder_of(options) as folder:
        (folder / "server").mkdir()
        with start(options.server, folder / "server") as server, link_of(options.link, server.address):
            server.use(server.address)
            compare(Ways(f"{server.bucket}/bench", folder, options.states), options.rounds)


if __name__ == "__main__":
    main()
