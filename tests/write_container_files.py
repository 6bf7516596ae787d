"""Writes the files of interop/*/fixtures with pickle and torch.

The files are golden: they are written once, with the torch version that they name, and read for ever. Run this script
only to add a file. It leaves files that exist alone, and needs torch and numpy.

    python tests/write_container_files.py [NAME...]     writes the missing files, or only those whose path contains NAME
"""

from __future__ import annotations

import collections
import io
import os
import pickle
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

INTEROP = Path(__file__).resolve().parent.parent / "interop"

# Takes the path of a file below interop/ and the function that makes it.
Write = Callable[[str, Callable[[], bytes]], None]


class Thing:
    """An object whose state is a dict."""

    def __init__(self) -> None:
        self.size = 3


class Pair(tuple[int, ...]):
    """An object whose class gets arguments."""

    def __getnewargs__(self) -> tuple[object, ...]:
        return (tuple(self),)


Thing.__module__ = Pair.__module__ = "fixture"


def values() -> dict[str, object]:
    shared = ["a", 1.5]
    ordered = collections.OrderedDict([("x", 1), ("y", None)])
    circle: list[object] = []
    circle.append(circle)
    return {
        "numbers": [0, 255, 65535, -1, 2**31, -(2**63), True, False],
        "magic": 0x1950A86A20F9469CFC6C,
        "texts": ["", "plain", "x" * 300],
        "shared": (shared, shared),
        "ordered": ordered,
        "circle": circle,
        "tuples": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
        "thing": Thing(),
    }


def write_pickles(write: Write) -> None:
    module = type(sys)("fixture")
    module.Thing, module.Pair = Thing, Pair  # type: ignore[attr-defined]
    sys.modules["fixture"] = module
    for protocol in range(6):
        write(f"pickle/fixtures/values_{protocol}.pkl", partial(pickle.dumps, values(), protocol=protocol))
    for protocol in (2, 4, 5):
        extra = {
            "set": {1},
            "frozen": frozenset([2]),
            "bytes": b"abc",
            "array": bytearray(b"xyz"),
            "pair": Pair((1, 2)),
        }
        write(f"pickle/fixtures/extra_{protocol}.pkl", partial(pickle.dumps, extra, protocol=protocol))


# The tensors of a file by name, as torch has them.
Named = dict[str, "torch.Tensor"]


def listing(named: Named) -> bytes:
    """A line for each tensor that is not empty: name, dtype, shape, CRC-32 of its elements in row-major order."""
    names = {
        "float32": "F32", "float64": "F64", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
        "int16": "I16", "int8": "I8", "uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64", "bool": "BOOL",
        "complex64": "C64", "complex128": "C128", "complex32": "C32", "float8_e4m3fn": "F8_E4M3",
        "float8_e5m2": "F8_E5M2", "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ",
        "float8_e8m0fnu": "F8_E8M0", "qint8": "QINT8", "quint8": "QUINT8", "qint32": "QINT32",
    }  # fmt: skip
    lines = []
    for name, tensor in named.items():
        tensor = tensor.detach()
        if tensor.numel() == 0:
            continue
        copy = tensor.clone(memory_format=torch.contiguous_format)
        data = bytes(copy.untyped_storage())
        assert len(data) == tensor.numel() * tensor.element_size(), name
        shape = "x".join(map(str, tensor.shape)) or "scalar"
        lines.append(f"{name}\t{names[str(tensor.dtype).removeprefix('torch.')]}\t{shape}\t{zlib.crc32(data):08x}\n")
    return "".join(lines).encode()


def flatten(value: object, name: str = "") -> Named:
    """Names as in the specification, for dicts, lists, tuples and strided tensors."""
    if isinstance(value, torch.Tensor):
        return {name or "tensor": value}
    items: dict[object, object] = {}
    if isinstance(value, dict):
        items = value
    elif isinstance(value, (list, tuple)):
        items = dict(enumerate(value))
    found: Named = {}
    for key, item in items.items():
        found.update(flatten(item, f"{name}.{key}" if name else str(key)))
    return found


def small_model() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(
        collections.OrderedDict(
            embed=torch.nn.Embedding(12, 8),
            norm=torch.nn.LayerNorm(8),
            up=torch.nn.Linear(8, 6),
            bn=torch.nn.BatchNorm1d(6),
        )
    )


def training() -> dict[str, object]:
    model = small_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    for _ in range(2):
        model(torch.arange(6)).square().sum().backward()
        optimizer.step()
        scheduler.step()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "rng": torch.random.get_rng_state()[:64].clone(),
        "epoch": 3,
        "history": [torch.tensor(1.5), {"loss": torch.tensor([2.0, 3.0])}],
    }


def tied() -> dict[str, object]:
    weight = torch.nn.Parameter(torch.randn(6, 4))
    return {"embed": weight, "head": weight, "same": weight.data, "flat": weight.data.view(24)}


def views() -> dict[str, object]:
    split, gaps, columns, overlap, base = (torch.arange(48.0) + i for i in range(5))
    return {
        "split": {"a": split[:16].view(4, 4), "b": split[16:40], "c": split[40:]},
        "gaps": {"a": gaps[4:8], "b": gaps[20:30], "tied": gaps[20:30]},
        "column": columns.view(6, 8)[:, 2],
        "overlap": {"a": overlap[:30], "b": overlap[20:]},
        "base": {"part": base[3:9], "whole": base, "matrix": base.view(6, 8).t()},
        "transposed": torch.randn(3, 5).t(),
        "expanded": torch.randn(3, 1).expand(3, 4),
    }


def kinds() -> dict[str, object]:
    numbers = torch.arange(6.0)
    kinds = [
        "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32",
        "uint64", "bool", "complex64", "complex128", "complex32", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
        "float8_e5m2fnuz",
    ]  # fmt: skip
    found: dict[str, object] = {kind: numbers.to(getattr(torch, kind)) for kind in kinds}
    found["scalar"] = torch.tensor(7)
    found["empty"] = torch.zeros(0, 3)
    found["key\u00e9"] = torch.ones(2)
    found[5] = torch.ones(3)  # type: ignore[index]
    found["parameter"] = torch.nn.Parameter(torch.ones(3))
    return found


def special() -> tuple[dict[str, object], Named]:
    coordinates = torch.eye(3).to_sparse()
    rows = torch.eye(3).to_sparse_csr()
    nested = torch.nested.nested_tensor([torch.ones(2), torch.zeros(3)])
    quantized = torch.quantize_per_tensor(torch.randn(5), 0.1, 3, torch.quint8)
    scales = torch.tensor([0.1, 0.2], dtype=torch.double)
    channels = torch.quantize_per_channel(torch.randn(2, 3), scales, torch.tensor([0, 1]), 0, torch.qint8)
    values: dict[str, object] = {
        "coo": coordinates,
        "csr": rows,
        "nested": nested,
        "q": quantized,
        "qc": channels,
    }
    named = {
        "coo.indices": coordinates.indices(),
        "coo.values": coordinates.values(),
        "csr.compressed_indices": rows.crow_indices(),
        "csr.plain_indices": rows.col_indices(),
        "csr.values": rows.values(),
        "nested.buffer": nested.values(),
        "q": quantized.int_repr(),
        "qc": channels.int_repr(),
        "qc.scales": channels.q_per_channel_scales(),
        "qc.zero_points": channels.q_per_channel_zero_points(),
    }
    return values, named


def saved(value: object, new: bool = True) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream, _use_new_zipfile_serialization=new)
    return stream.getvalue()


def aligned(value: object, alignment: int) -> bytes:
    from torch.utils.serialization import config

    before = config.save.storage_alignment
    config.save.storage_alignment = alignment
    try:
        return saved(value)
    finally:
        config.save.storage_alignment = before


def big_endian() -> bytes:
    """What torch writes on a big-endian machine: the elements swapped, and another byte order."""
    value = {"a": torch.arange(4, dtype=torch.int32), "b": torch.arange(3, dtype=torch.uint8)}
    source = zipfile.ZipFile(io.BytesIO(saved(value)))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in source.namelist():
            data = source.read(name)
            if name.endswith("byteorder"):
                data = b"big"
            if name.endswith("data/0"):
                data = b"".join(data[i : i + 4][::-1] for i in range(0, len(data), 4))
            archive.writestr(zipfile.ZipInfo(name), data)
    return stream.getvalue()


def scripted() -> bytes:
    stream = io.BytesIO()
    torch.jit.save(torch.jit.script(small_model().eval()), stream)
    return stream.getvalue()


def frozen() -> bytes:
    stream = io.BytesIO()
    model = torch.nn.Sequential(torch.nn.Linear(3, 2)).eval()
    torch.jit.save(torch.jit.freeze(torch.jit.script(model)), stream)
    return stream.getvalue()


def write_torch_files(write: Write, folder: str, new: bool = True) -> None:
    for value in (training, tied, views, kinds):
        torch.manual_seed(2)
        made = value()
        write(f"{folder}/{value.__name__}.pt", partial(saved, made, new=new))
        write(f"{folder}/{value.__name__}.txt", partial(listing, flatten(made)))
    torch.manual_seed(3)
    values_, named = special()
    write(f"{folder}/special.pt", lambda: saved(values_, new=new))
    write(f"{folder}/special.txt", lambda: listing(named).replace(b"\tU8", b"\tQUINT8").replace(b"\tI8", b"\tQINT8"))
    model = small_model()
    write(f"{folder}/module.pt", lambda: saved(model, new=new))
    write(f"{folder}/module.txt", lambda: listing(flatten(dict(model.state_dict()))))
    root = torch.arange(5)
    write(f"{folder}/root.pt", lambda: saved(root, new=new))
    write(f"{folder}/root.txt", lambda: listing(flatten(root)))


def write_torch_zips(write: Write) -> None:
    folder = "torch_zip/fixtures"
    write_torch_files(write, folder)
    value = {"a": torch.arange(3), "b": torch.arange(5, dtype=torch.int8), "c": torch.ones(2, 2)}
    for alignment in (1, 512):
        write(f"{folder}/aligned_{alignment}.pt", partial(aligned, value, alignment))
        write(f"{folder}/aligned_{alignment}.txt", lambda: listing(flatten(value)))
    write(f"{folder}/big_endian.pt", big_endian)
    write(f"{folder}/script.pt", scripted)
    write(f"{folder}/frozen.pt", frozen)
    write(f"{folder}/script.txt", lambda: listing(flatten(dict(small_model().state_dict()))))


def save_single(folder: str) -> None:
    import torch.distributed.checkpoint

    state = {
        "model": {
            "w": torch.arange(12.0).view(3, 4),
            "t": torch.arange(6.0).view(2, 3).t(),
            "part": torch.arange(10)[2:5],
        },
        "step": 3,
        "extra": {"list": [torch.ones(2), 5], "set": ({torch.tensor([7.0])},)},
    }
    torch.distributed.checkpoint.state_dict_saver.save(state, checkpoint_id=folder, no_dist=True)


def save_rank(rank: int, ranks: int, folder: str) -> None:
    import torch.distributed
    import torch.distributed.checkpoint
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29557", RANK=str(rank), WORLD_SIZE=str(ranks))
    torch.distributed.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (ranks,))
    state = {
        "rows": distribute_tensor(torch.arange(48.0).view(8, 6), mesh, [Shard(0)]),
        "columns": distribute_tensor(torch.arange(10.0).view(2, 5), mesh, [Shard(1)]),
        "replica": distribute_tensor(torch.arange(4.0), mesh, [Replicate()]),
        "plain": torch.ones(3, dtype=torch.bfloat16),
        "step": 3,
    }
    torch.distributed.checkpoint.state_dict_saver.save(state, checkpoint_id=folder)
    torch.distributed.destroy_process_group()


def save_ranks(folder: str) -> None:
    from torch.multiprocessing.spawn import start_processes

    start_processes(save_rank, (2, folder), nprocs=2, start_method="spawn")  # type: ignore[no-untyped-call]


def write_dcp(write: Write) -> None:
    for name, save in (("single", save_single), ("ranks", save_ranks)):
        if (INTEROP / "dcp/fixtures" / name).exists():
            continue
        before = Path.cwd()
        with tempfile.TemporaryDirectory() as temporary:
            os.chdir(temporary)  # the metadata contains the path
            try:
                save(name)
            finally:
                os.chdir(before)
            for path in sorted((Path(temporary) / name).iterdir()):
                write(f"dcp/fixtures/{name}/{path.name}", path.read_bytes)


def main() -> None:
    wanted = sys.argv[1:]

    def write(name: str, make: Callable[[], bytes]) -> None:
        path = INTEROP / name
        if path.exists() or (wanted and not any(part in name for part in wanted)):
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make())

    write_pickles(write)
    write_dcp(write)
    write_torch_zips(write)
    write_torch_files(write, "torch_legacy/fixtures", new=False)


if __name__ == "__main__":
    main()
