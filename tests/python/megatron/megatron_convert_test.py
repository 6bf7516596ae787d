"""Conversion between the folders of torch_dist and runs, with what a GPT of Megatron-core on two ranks saves."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, MetadataIndex

import bitsnap
import bitsnap.megatron
from bitsnap.megatron._torch_dist import StoredBox, StoredTensor, TorchDistFolder, write_torch_dist
from cli.command_line import run
from python.megatron.megatron_test import needs_megatron
from python.processes import run_script

_SCENARIO = "python.megatron.megatron_convert_scenario"
_RUN = f"import warnings; warnings.simplefilter('ignore'); from {_SCENARIO} import main; main()"
AT_FIRST = (torch.Size([0, 0]), torch.Size([3, 2]))  # as many elements, and the same offset
KINDS = ("fully_reshardable", "dp_reshardable")


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder of megatron_convert_scenario.py, and what it found."""
    path = tmp_path_factory.mktemp("convert")
    run_script(_RUN, path, timeout=290)
    found: dict[str, Any] = {}
    for line in (path / "facts").read_text().splitlines():
        found |= json.loads(line)
    return path, found


@pytest.mark.slow
@needs_megatron
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("origin", ["run", "again", "back"])
def test_what_was_converted_loads_as_what_stock_saved(
    converted: tuple[Path, dict[str, Any]], kind: str, origin: str
) -> None:
    assert converted[1][f"same {kind} {origin}"]
    assert converted[1][f"values {kind} {origin}"]


@pytest.mark.slow
@needs_megatron
@pytest.mark.parametrize("kind", KINDS)
def test_a_directory_keeps_its_iterations_in_one_run_and_its_tracker(
    converted: tuple[Path, dict[str, Any]], kind: str
) -> None:
    path, found = converted
    names = ["bitsnap", "iter_0000001", "iter_0000002", "iter_0000003", "latest_checkpointed_iteration.txt"]
    assert sorted(each.name for each in (path / "run" / kind).iterdir()) == names
    first, second, *_ = found[f"stored {kind}"]
    assert second < 0.65 * first


@pytest.mark.slow
@needs_megatron
@pytest.mark.parametrize("kind", KINDS)
def test_the_tensors_and_parts_in_folders_are_the_same_after_there_and_back(
    converted: tuple[Path, dict[str, Any]], kind: str
) -> None:
    path = converted[0]
    stock, again = (path / origin / kind / "iter_0000002" for origin in ("stock", "again"))
    before, after = (TorchDistFolder(folder, True) for folder in (stock, again))
    assert sorted(before.object_keys) == sorted(after.object_keys)
    tensors = dict(after.tensors())
    assert len(tensors) > 10
    for key, tensor in before.tensors():
        assert tensors[key]._replace(parts=[]) == tensor._replace(parts=[])
        assert sorted(tensors[key].parts) == sorted(tensor.parts)
        for part in tensor.parts:
            same_bits = (each.part(key, tensor, part).reshape(-1).view(torch.uint8) for each in (before, after))
            assert torch.equal(*same_bits)


@pytest.mark.slow
@needs_megatron
@pytest.mark.parametrize("kind", KINDS)
def test_ingest_gives_the_folders_of_torch_dist_back_byte_for_byte(
    converted: tuple[Path, dict[str, Any]], kind: str, tmp_path: Path
) -> None:
    stock = converted[0] / "stock" / kind
    run("ingest", tmp_path / "run", stock)
    assert bitsnap.Store(tmp_path / "run", read_only=True).steps() == [1, 2]
    for iteration in (1, 2):
        run("extract", f"{tmp_path}/run@{iteration}", "-o", tmp_path / str(iteration))
        folder = stock / f"iter_{iteration:07d}"
        names = sorted(each.name for each in folder.iterdir())
        assert sorted(each.name for each in (tmp_path / str(iteration)).iterdir()) == names
        for name in names:
            assert (tmp_path / str(iteration) / name).read_bytes() == (folder / name).read_bytes()


def test_the_command_names_what_it_refuses(tmp_path: Path) -> None:
    checkpoint, other = tmp_path / "iter_0000001", tmp_path / "iter_0000002"
    for folder in (checkpoint, other):
        written(folder, {})
    refused = {
        (checkpoint, other): "iter_0000002 holds a checkpoint already",
        (tmp_path / "nothing", other): "nothing: expected the folder of a checkpoint, which has a metadata.json, or a "
        "directory of such folders",
        (tmp_path, checkpoint): "iter_0000001 must not lie in ",
        (checkpoint, checkpoint / "b"): "b must not lie in ",
    }
    for (source, target), message in refused.items():
        with pytest.raises(SystemExit, match=f"error: .*{message}"):
            bitsnap.megatron.main(["convert", str(source), str(target)])


def written(folder: Path, values: dict[str, Any], common: Any = None) -> Path:
    """A small checkpoint of torch_dist."""
    shape = (4, 3)
    whole = torch.arange(12.0).reshape(shape)
    tensors = {
        "w": StoredTensor(torch.float32, shape, [StoredBox((0, 0), (2, 3)), StoredBox((2, 0), (2, 3))]),
        "empty": StoredTensor(torch.int64, (0, 2), [StoredBox((0, 0), (0, 2))]),
        "scalar": StoredTensor(torch.bfloat16, (), [StoredBox((), ())]),
    }

    def part(key: str, tensor: StoredTensor, part: StoredBox) -> torch.Tensor:
        return whole[part.offset[0] :][: part.shape[0]] if key == "w" else torch.ones(part.shape, dtype=tensor.dtype)

    write_torch_dist(folder, tensors, part, values, common, b'{"sharded_backend": "torch_dist"}')
    return folder


def test_parts_empty_tensors_and_scalars_are_written_and_read(tmp_path: Path) -> None:
    folder = TorchDistFolder(written(tmp_path, {"o/shard_0_1": (1, "a")}, {"iteration": 5}), False)
    tensors = dict(folder.tensors())
    assert tensors["empty"].shape == (0, 2)
    assert folder.part("scalar", tensors["scalar"], StoredBox((), ())).dtype == torch.bfloat16
    assert folder.part("w", tensors["w"], StoredBox((2, 0), (2, 3))).tolist() == [[6, 7, 8], [9, 10, 11]]
    assert folder.object_keys == ["o/shard_0_1"]
    assert folder.object("o/shard_0_1") == (1, "a")
    assert folder.common() == {"iteration": 5}


def test_a_part_without_elements_takes_no_place_of_another(tmp_path: Path) -> None:
    folder = written(tmp_path, {})
    metadata = FileSystemReader(folder).read_metadata()
    stored: Any = metadata.state_dict_metadata["w"]
    stored.chunks.append(ChunkStorageMetadata(torch.Size([0, 0]), torch.Size([0, 3])))
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    tensor = dict(TorchDistFolder(folder, False).tensors())["w"]
    assert tensor.parts == [StoredBox((0, 0), (2, 3)), StoredBox((2, 0), (2, 3))]


def test_the_metadata_of_older_versions_of_megatron_are_read(tmp_path: Path) -> None:
    folder = written(tmp_path, {})
    metadata: Any = FileSystemReader(folder).read_metadata()
    metadata.mcore_data = {"w": {}, "empty": {}, "scalar": {}}
    content = pickle.dumps(metadata, protocol=2)
    (folder / ".metadata").write_bytes(
        content.replace(
            f"{Metadata.__module__}\nMetadata\n".encode(),
            b"megatron.core.dist_checkpointing.strategies.torch\nMCoreMetadata\n",
        )
    )
    assert b"MCoreMetadata" in (folder / ".metadata").read_bytes()
    found = TorchDistFolder(folder, False)
    tensors = dict(found.tensors())
    assert found.part("w", tensors["w"], StoredBox((2, 0), (2, 3))).tolist() == [[6, 7, 8], [9, 10, 11]]


class Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("harm",)


def test_nothing_is_unpickled_without_consent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = TorchDistFolder(written(tmp_path / "a", {"o/shard_0_1": Harmful()}, Harmful()), False)
    reads: list[tuple[Callable[[], Any], str]]
    reads = [(lambda: folder.object("o/shard_0_1"), "'o/shard_0_1'"), (folder.common, r"common\.pt")]
    for read, where in reads:
        with pytest.raises(bitsnap.UnsupportedError, match=rf"{where} holds more than .*mkdir.*--allow-pickle"):
            read()
    (tmp_path / "a" / ".metadata").write_bytes(pickle.dumps(Harmful()))
    with pytest.raises(bitsnap.CorruptError, match=r"\.metadata cannot be read: it names posix\.mkdir"):
        TorchDistFolder(tmp_path / "a", False)
    assert not (tmp_path / "harm").exists()


def test_damaged_folders_are_errors_that_name_the_tensor(tmp_path: Path) -> None:
    folder = written(tmp_path / "a", {})
    metadata = FileSystemReader(folder).read_metadata()

    def opened(change: Any) -> TorchDistFolder:
        changed = pickle.loads(pickle.dumps(metadata))
        change(changed)
        (folder / ".metadata").write_bytes(pickle.dumps(changed))
        return TorchDistFolder(folder, False)

    def read(change: Any) -> None:
        found = opened(change)
        tensor = dict(found.tensors())["w"]
        found.part("w", tensor, tensor.parts[1])

    index = MetadataIndex("w", torch.Size([2, 0]))
    described: Any = metadata.state_dict_metadata["w"]
    first = described.chunks[0]
    cases: list[tuple[Any, type[Exception], str]] = [
        (
            lambda it: setattr(it.state_dict_metadata["w"], "chunks", [first, ChunkStorageMetadata(*AT_FIRST)]),
            bitsnap.CorruptError,
            "the parts of tensor 'w' are not",
        ),
        (
            lambda it: setattr(it, "mcore_data", {"w": {"nd_reformulated_orig_global_shape": (12,)}}),
            bitsnap.UnsupportedError,
            "tensor 'w' has a flattened_range",
        ),
        (lambda it: it.state_dict_metadata["w"].chunks.pop(), bitsnap.CorruptError, "the parts of tensor 'w' are not"),
        (lambda it: it.storage_data.pop(index), bitsnap.CorruptError, "'w' has no place in a file"),
        (
            lambda it: setattr(it.storage_data[index], "relative_path", "../x"),
            bitsnap.CorruptError,
            "name of a file in the checkpoint's folder",
        ),
        (lambda it: setattr(it.storage_data[index], "relative_path", "x"), bitsnap.NotFoundError, "'w': there is no"),
        (lambda it: setattr(it.storage_data[index], "length", 1 << 40), bitsnap.TruncatedError, "'w' ends at"),
        (lambda it: setattr(it.storage_data[index], "offset", 7), bitsnap.CorruptError, "'w' cannot be read"),
        (
            lambda it: setattr(it.storage_data[index], "transform_descriptors", ["zstd"]),
            bitsnap.UnsupportedError,
            "zst",
        ),
        (
            lambda it: setattr(it.state_dict_metadata["w"].properties, "dtype", torch.int32),
            bitsnap.CorruptError,
            r"tensor 'w' at \[2, 0\] is torch.float32 .* says torch.int32",
        ),
    ]
    for change, error, message in cases:
        with pytest.raises(error, match=message):
            read(change)
    (folder / ".metadata").write_bytes(pickle.dumps({}))
    with pytest.raises(bitsnap.CorruptError, match="holds a dict"):
        TorchDistFolder(folder, False)
    (folder / ".metadata").unlink()
    with pytest.raises(bitsnap.NotFoundError, match="no checkpoint of torch_dist"):
        TorchDistFolder(folder, False)
    (folder / "metadata.json").write_text('{"sharded_backend": "zarr"}')
    with pytest.raises(bitsnap.UnsupportedError, match="the format is 'zarr', expected 'torch_dist'"):
        TorchDistFolder(folder, False)
