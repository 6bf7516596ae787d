"""Errors: one class per kind, damage is found, files are replaced whole or not at all."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

import bitsnap
from python.same_bits import assert_same, random_bits

KINDS = {
    "invalid_argument": (bitsnap.InvalidArgumentError, ValueError),
    "not_found": (bitsnap.NotFoundError, FileNotFoundError),
    "unsupported": (bitsnap.UnsupportedError, Exception),
    "truncated": (bitsnap.TruncatedError, Exception),
    "corrupt": (bitsnap.CorruptError, Exception),
    "io": (bitsnap.IoError, OSError),
    "resource_exhausted": (bitsnap.ResourceExhaustedError, MemoryError),
    "busy": (bitsnap.BusyError, Exception),
    "cancelled": (bitsnap.CancelledError, Exception),
    "internal": (bitsnap.InternalError, RuntimeError),
}


def small_state() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {
        "w": random_bits(rng, torch.bfloat16, (40, 30)),
        "optimizer": [{"exp_avg": random_bits(rng, torch.float32, (40, 30))}],
        "step": torch.tensor(3.0),
        "text": "hello",
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    bitsnap.save(tmp_path / "a.bsnap", small_state())
    return tmp_path / "a.bsnap"


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("run@", bitsnap.InvalidArgumentError, "expected a step or a label after the @, as in .*run@1000"),
        ("run@" + "1" * 26, bitsnap.NotFoundError, "there is no such step; a step has at most 20 digits"),
        ("run@" + "1" * 5000, bitsnap.NotFoundError, "there is no such step"),
        ("run@-" + "1" * 5000, bitsnap.NotFoundError, "the run has 1 checkpoints"),
        ("run@²", bitsnap.NotFoundError, "no checkpoint has the label '²'"),
        ("run@-²", bitsnap.NotFoundError, "no checkpoint has the label '-²'"),
        ("run:lr9", bitsnap.NotFoundError, "run: has no branch 'lr9'"),
        ("rnu@3", bitsnap.NotFoundError, "no store found: the path does not exist; did you mean '.*/run'?"),
        ("rnu:lr9", bitsnap.NotFoundError, "no store found: the path does not exist; did you mean '.*/run'?"),
        ("run", bitsnap.InvalidArgumentError, "'.*run@latest' names its newest checkpoint"),
        (
            "folder",
            bitsnap.InvalidArgumentError,
            "folder: is a directory, not a snapshot, and no run; `bitsnap inspect`",
        ),
    ],
)
def test_names_of_checkpoints_that_are_not_there(
    tmp_path: Path, name: str, error: type[Exception], message: str
) -> None:
    with bitsnap.Store(tmp_path / "run") as store:
        store.save(3, {"w": torch.ones(2)})
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.iterdir())
    with pytest.raises(error, match=message):
        bitsnap.load(f"{tmp_path}/{name}")
    assert sorted(tmp_path.iterdir()) == before


def test_a_step_beside_the_path_is_no_argument(path: Path) -> None:
    with pytest.raises(TypeError, match=r"the path, got also 40; a checkpoint of a run has a path like 'run@1000'"):
        bitsnap.load(path, 40)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["a.pt", "a.pth", "a.ckpt", "a.safetensors", "a.npz"])
def test_a_snapshot_with_the_name_of_another_format_is_a_warning(tmp_path: Path, name: str) -> None:
    message = rf"{name}: becomes a snapshot.*Name it \*\.bsnap"
    with pytest.warns(UserWarning, match=message) as caught:
        bitsnap.save(tmp_path / name, {"w": torch.ones(2)})
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match=message) as caught:
        bitsnap.save_file({"w": torch.ones(2)}, tmp_path / name, overwrite=True)
    assert caught[0].filename == __file__


def test_what_is_no_path_to_write_to_is_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"path must be the path .*got dict with 'w'; are the arguments swapped\?"):
        bitsnap.save({"w": torch.ones(2)}, tmp_path / "a.bsnap")  # type: ignore[arg-type]
    with pytest.raises(bitsnap.InvalidArgumentError, match="is a directory, expected the path of a file to write"):
        bitsnap.save(tmp_path, {"w": torch.ones(2)}, overwrite=True)


def test_a_state_that_does_not_fit_is_told_in_a_few_lines(tmp_path: Path) -> None:
    bitsnap.save(tmp_path / "a.bsnap", {f"w{i}": torch.ones(2) for i in range(100)})
    with pytest.raises(bitsnap.InvalidArgumentError) as caught:
        bitsnap.load(tmp_path / "a.bsnap", into={f"w{i}": torch.ones(3) for i in range(100)})
    lines = str(caught.value).splitlines()
    assert lines[0] == "100 tensors of `into` do not fit:"
    assert lines[1] == "  into['w0'] is F32 [3], but the snapshot holds F32 [2]"
    assert lines[5:] == ["  and 96 more"]
    with pytest.raises(bitsnap.InvalidArgumentError) as caught:
        bitsnap.load(tmp_path / "a.bsnap", into={f"v{i}": torch.ones(2) for i in range(100)})
    assert str(caught.value).splitlines()[1].endswith("state['v3'] and 96 more")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_class_that_is_documented_and_pickles(kind: str) -> None:
    expected, builtin = KINDS[kind]
    assert expected.code == kind
    assert issubclass(expected, bitsnap.BitsnapError)
    assert issubclass(expected, builtin)
    assert expected.__doc__
    error = pickle.loads(pickle.dumps(expected("what 'x' was")))
    assert type(error) is expected
    assert str(error) == "what 'x' was"


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    for read in (bitsnap.load, bitsnap.load_file, bitsnap.verify, bitsnap.inspect, bitsnap.snapshot_id):
        with pytest.raises(FileNotFoundError, match=r"none\.bsnap") as caught:
            read(tmp_path / "none.bsnap")
        assert type(caught.value) is bitsnap.NotFoundError


def test_a_base_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "bases").mkdir()
    state = {"w": torch.randn(100, 100)}
    bitsnap.save(tmp_path / "bases" / "1.bsnap", state)
    bitsnap.save(tmp_path / "2.bsnap", state, base=tmp_path / "bases" / "1.bsnap")
    with pytest.raises(bitsnap.NotFoundError, match=bitsnap.snapshot_id(tmp_path / "bases" / "1.bsnap")):
        bitsnap.load(tmp_path / "2.bsnap")
    for bases in (tmp_path / "bases", [tmp_path / "bases" / "1.bsnap"], [str(tmp_path / "bases")]):
        assert_same(bitsnap.load(tmp_path / "2.bsnap", bases=bases), state)
        assert_same(bitsnap.load(bitsnap.Snapshot(tmp_path / "2.bsnap", bases=bases)), state)
    with bitsnap.safe_open(tmp_path / "2.bsnap", "pt", bases=tmp_path / "bases") as opened:
        assert_same(opened.get_tensor("w"), state["w"])
    assert bitsnap.inspect(tmp_path / "2.bsnap").bases[0].name == "1.bsnap"


def test_a_flipped_byte_anywhere_in_a_file_is_an_error(tmp_path: Path, path: Path) -> None:
    good = path.read_bytes()
    damaged = tmp_path / "b.bsnap"
    for place in range(0, len(good), 5):
        data = bytearray(good)
        data[place] ^= 0x41
        damaged.write_bytes(data)
        with pytest.raises((bitsnap.CorruptError, bitsnap.UnsupportedError, bitsnap.TruncatedError)):
            bitsnap.verify(damaged)


def test_a_truncation_anywhere_in_a_file_is_an_error(tmp_path: Path, path: Path) -> None:
    good = path.read_bytes()
    damaged = tmp_path / "b.bsnap"
    for size in range(0, len(good), 5):
        damaged.write_bytes(good[:size])
        with pytest.raises((bitsnap.TruncatedError, bitsnap.CorruptError)):
            bitsnap.load(damaged)


def test_a_damaged_chunk_is_named_and_never_given_out(tmp_path: Path) -> None:
    state = {"w": random_bits(np.random.default_rng(2), torch.float32, (1 << 19,))}
    bitsnap.save(tmp_path / "a.bsnap", state, settings="raw")
    data = bytearray((tmp_path / "a.bsnap").read_bytes())
    data[64 + (1 << 20) + 5] ^= 1
    (tmp_path / "a.bsnap").write_bytes(data)
    for read in (bitsnap.load, bitsnap.load_file, bitsnap.verify):
        with pytest.raises(bitsnap.CorruptError, match=r"a\.bsnap.*(\n.*)?tensor 'w', chunk 1"):
            read(tmp_path / "a.bsnap")


def test_a_newer_format_is_called_unsupported(tmp_path: Path, path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[8] = 200
    path.write_bytes(data)
    with pytest.raises(bitsnap.UnsupportedError, match="200"):
        bitsnap.load(path)


def test_saving_replaces_a_file_whole_and_leaves_nothing_beside_it(tmp_path: Path, path: Path) -> None:
    before = path.stat().st_ino
    bitsnap.save(path, {"new": torch.ones(5)}, overwrite=True)
    assert path.stat().st_ino != before
    assert list(bitsnap.load(path)) == ["new"]
    assert os.listdir(tmp_path) == ["a.bsnap"]  # noqa: PTH208


def test_a_failed_save_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path, path: Path) -> None:
    before = path.read_bytes()
    for bad in (len, torch.empty(1, device="meta")):
        with pytest.raises(bitsnap.InvalidArgumentError):
            bitsnap.save(path, {"w": torch.ones(5), "bad": bad})
    large = {"w": torch.randn(3 << 20)}
    with pytest.raises(bitsnap.CancelledError):
        bitsnap.save(path, large, overwrite=True, progress=lambda done, total: False)
    with pytest.raises(ZeroDivisionError):
        bitsnap.save(path, large, overwrite=True, progress=lambda done, total: 1 / 0)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.bsnap"]  # noqa: PTH208


def test_overwriting_can_be_refused(path: Path) -> None:
    before = path.read_bytes()
    safetensors.torch.save_file({"w": torch.ones(3)}, path.with_suffix(".safetensors"))
    for write in (
        lambda: bitsnap.save(path, {}, overwrite=False),
        lambda: bitsnap.save_file({}, path, overwrite=False),
        lambda: bitsnap.compress(path.with_suffix(".safetensors"), path, overwrite=False),
        lambda: bitsnap.decompress(path, path, overwrite=False),
    ):
        with pytest.raises(FileExistsError, match=r"a\.bsnap.*exists") as caught:
            write()
        assert type(caught.value) is bitsnap.ExistsError
        assert isinstance(caught.value, bitsnap.InvalidArgumentError)
        error = pickle.loads(pickle.dumps(caught.value))
        assert type(error) is bitsnap.ExistsError
        assert str(error) == str(caught.value)
    assert path.read_bytes() == before
    bitsnap.save(path.with_name("b.bsnap"), {}, overwrite=False)


def test_a_file_cannot_be_its_own_base(tmp_path: Path, path: Path) -> None:
    before = path.read_bytes()
    (tmp_path / "link").symlink_to(tmp_path)
    for base in (path, tmp_path / "link" / "a.bsnap", bitsnap.Snapshot(path)):
        with pytest.raises(bitsnap.InvalidArgumentError, match="its own base"):
            bitsnap.save(path, small_state(), base=base, overwrite=True)
    assert path.read_bytes() == before


def test_a_file_that_its_base_is_coded_against_is_not_replaced(tmp_path: Path, path: Path) -> None:
    state = small_state()
    state["w"] = torch.randn(300, 400)
    bitsnap.save(path, state, overwrite=True)
    before = path.read_bytes()
    bitsnap.save(tmp_path / "b.bsnap", state, base=path)
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"a\.bsnap: .*b\.bsnap is read from it"):
        bitsnap.save(path, state, base=tmp_path / "b.bsnap", overwrite=True)
    assert path.read_bytes() == before


def test_a_folder_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="none"):
        bitsnap.save(tmp_path / "none" / "a.bsnap", {})


def test_file_names_may_be_any_bytes(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.bsnap")
    bitsnap.save(path, {"a": 1})
    assert bitsnap.load(path) == {"a": 1}
    assert bitsnap.Snapshot(path).path == Path(path)
    with pytest.raises(bitsnap.NotFoundError):
        bitsnap.load(path + "x")
    with pytest.raises(bitsnap.InvalidArgumentError, match="null character"):
        bitsnap.load("a\0b")


def test_metadata_is_kept_and_checked(tmp_path: Path) -> None:
    bitsnap.save_file({}, tmp_path / "a.bsnap", {"b": "2", "ä": "\N{SNOWMAN}"})
    assert bitsnap.Snapshot(tmp_path / "a.bsnap").metadata == {"b": "2", "ä": "\N{SNOWMAN}"}
    with pytest.raises(bitsnap.InvalidArgumentError, match="metadata must map str to str"):
        bitsnap.save_file({}, tmp_path / "a.bsnap", {"b": 2})  # type: ignore[dict-item]


def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"settings must be .* one of lossless, .* got 'best'"):
        bitsnap.save(tmp_path / "a.bsnap", {}, settings="best")
    with pytest.raises(
        bitsnap.InvalidArgumentError, match=r"objective must be one of ratio, balanced, speed, got 'best'"
    ):
        bitsnap.Settings(objective="best")  # type: ignore[arg-type]
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"codec must be one of raw, .* got 'gzip'"):
        bitsnap.Settings(codec="gzip")
    with pytest.raises(
        bitsnap.InvalidArgumentError, match="store_speed must be 0 or 1000000 to 1000000000000, got 999999"
    ):
        bitsnap.Settings(store_speed=999_999)
    with pytest.raises(bitsnap.InvalidArgumentError, match="names of tensors must be str, got 3"):
        bitsnap.save_file({3: torch.ones(1)}, tmp_path / "a.bsnap")  # type: ignore[dict-item]
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"tensors\['a'\] is of type float"):
        bitsnap.save_file({"a": 3.0}, tmp_path / "a.bsnap")  # type: ignore[dict-item]


def test_progress_ends_with_everything_done(tmp_path: Path) -> None:
    state = {"w": torch.randn(1 << 20), "v": torch.randn(1000, 500).t()}
    size = sum(tensor.nbytes for tensor in state.values())
    seen: list[tuple[int, int]] = []

    def report(done: int, total: int) -> None:
        seen.append((done, total))

    bitsnap.save(tmp_path / "a.bsnap", state, progress=report)
    assert seen[-1] == (size, size)
    seen.clear()
    bitsnap.load(tmp_path / "a.bsnap", progress=report)
    assert seen[-1] == (size, size)
    assert all(done <= size == total for done, total in seen)


def test_inspect_says_what_a_file_holds(tmp_path: Path) -> None:
    state = small_state()
    state["large"] = torch.randn(600, 1000).bfloat16()
    summary = bitsnap.save(tmp_path / "1.bsnap", state, metadata={"k": "v"})
    bitsnap.save(tmp_path / "2.bsnap", state, base=tmp_path / "1.bsnap", metadata={"k": "v"})
    found = bitsnap.inspect(tmp_path / "1.bsnap")
    assert found.id == summary.id == bitsnap.Snapshot(tmp_path / "1.bsnap").id
    assert found.file_bytes == summary.stored_bytes == (tmp_path / "1.bsnap").stat().st_size
    assert found.raw_bytes == summary.raw_bytes == 40 * 30 * 6 + 4 + 600 * 1000 * 2
    assert found.metadata == {"k": "v"}
    assert (found.policy, found.objective) == ("lossless", "balanced")
    assert bitsnap.inspect(tmp_path / "2.bsnap").objective == "balanced"
    bitsnap.save(
        tmp_path / "3.bsnap", state, settings=bitsnap.Settings(objective="ratio", store_speed=10**9, codec="byte_group")
    )
    forced = bitsnap.inspect(tmp_path / "3.bsnap")
    assert forced.objective == "ratio"
    assert forced.tensors[-1].reason == "byte_group 3/3; byte_group is forced"
    large = found.tensors[-1]
    assert (large.name, large.dtype, large.shape, large.role) == ("large", "BF16", (600, 1000), "weight")
    assert sum(large.codecs.values()) == 3
    assert large.ratio is not None
    assert large.ratio > 1
    delta = bitsnap.inspect(tmp_path / "2.bsnap")
    assert [(base.id, base.name) for base in delta.bases] == [(found.id, "1.bsnap")]
    assert delta.tensors[-1].codecs == {"same": 3}
    assert delta.tensors[-1].chunks_with_base == 3
    assert delta.id == found.id


def test_loading_works_where_torch_is_not_installed(tmp_path: Path) -> None:
    state = {"a": torch.arange(6).reshape(2, 3), "n": np.ones(3), "s": np.float64(2.5), "b": torch.ones(2).bfloat16()}
    bitsnap.save(tmp_path / "a.bsnap", state)
    script = """
import sys
sys.modules["torch"] = None
import numpy as np, bitsnap
loaded = bitsnap.load(sys.argv[1])
assert type(loaded["a"]) is np.ndarray and loaded["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
assert type(loaded["s"]) is np.float64 and loaded["b"].dtype.name == "bfloat16"
bitsnap.save(sys.argv[1] + "2", loaded)
assert bitsnap.load(sys.argv[1] + "2")["a"].tolist() == loaded["a"].tolist()
assert bitsnap.load_file(sys.argv[1], framework="np")["n"].tolist() == [1, 1, 1]
try:
    bitsnap.load_file(sys.argv[1])
except ImportError as error:
    assert "needs the package torch" in str(error)
else:
    raise AssertionError
assert not [name for name in sys.modules if name.startswith("torch.")]
"""
    subprocess.run([sys.executable, "-c", script, tmp_path / "a.bsnap"], check=True)


def test_importing_the_package_imports_neither_torch_nor_ml_dtypes() -> None:
    script = "import sys, bitsnap; assert not {'torch', 'ml_dtypes', 'safetensors'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_an_array_that_numpy_has_no_dtype_for_names_the_package_that_has(tmp_path: Path) -> None:
    bitsnap.save_file({"a": torch.ones(2).bfloat16(), "b": torch.ones(2)}, tmp_path / "a.bsnap")
    script = """
import sys
sys.modules["torch"] = sys.modules["ml_dtypes"] = None
import bitsnap
opened = bitsnap.safe_open(sys.argv[1], "np")
assert opened.get_tensor("b").tolist() == [1, 1]
try:
    opened.get_tensor("a")
except ImportError as error:
    assert "tensor 'a'" in str(error) and "BF16" in str(error) and "ml_dtypes" in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", script, tmp_path / "a.bsnap"], check=True)


def test_a_ring_of_files_never_replaces_what_its_chain_needs(tmp_path: Path) -> None:
    tensor = torch.randn(30_000)
    for step in range(4):
        base = tmp_path / f"{step - 1}.bsnap" if step else None
        bitsnap.save(tmp_path / f"{step}.bsnap", {"w": tensor}, base=base)
        tensor = tensor * (1 + 1e-4 * torch.randn(30_000))
    with pytest.raises(bitsnap.InvalidArgumentError, match="is read from it"):
        bitsnap.save(tmp_path / "0.bsnap", {"w": tensor}, base=tmp_path / "3.bsnap", overwrite=True)
    for step in range(4):
        bitsnap.load(tmp_path / f"{step}.bsnap")


def test_a_source_is_not_replaced_by_what_is_made_of_it(tmp_path: Path) -> None:
    source, stored = tmp_path / "a.safetensors", tmp_path / "a.bsnap"
    safetensors.torch.save_file({"w": torch.randn(3000)}, source)
    with pytest.raises(bitsnap.InvalidArgumentError):
        bitsnap.compress(source, source, overwrite=True)
    bitsnap.compress(source, stored)
    with pytest.raises(bitsnap.InvalidArgumentError, match="is read from it"):
        bitsnap.decompress(stored, stored, overwrite=True)
    assert bitsnap.load_file(stored).keys() == {"w"}


@pytest.mark.filterwarnings("ignore:.*becomes a snapshot:UserWarning")
def test_a_base_of_any_extension_is_found_by_its_name(tmp_path: Path) -> None:
    tensor = torch.randn(30_000)
    bitsnap.save(tmp_path / "a.ckpt", {"w": tensor})
    bitsnap.save(tmp_path / "b.ckpt", {"w": tensor * 1.0001}, base=tmp_path / "a.ckpt")
    assert torch.equal(bitsnap.load(tmp_path / "b.ckpt")["w"], tensor * 1.0001)


def test_metadata_keeps_nul_and_refuses_lone_surrogates(tmp_path: Path) -> None:
    path = tmp_path / "a.bsnap"
    metadata = {"a\0b": "1", "a": "2\0"}
    bitsnap.save(path, {}, metadata=metadata)
    assert bitsnap.Snapshot(path).metadata == metadata
    for broken in ({"\ud800": "1"}, {"a": "\ud800"}):
        with pytest.raises(bitsnap.InvalidArgumentError, match="metadata"):
            bitsnap.save(path, {}, metadata=broken)
    with pytest.raises(bitsnap.InvalidArgumentError, match="name"):
        bitsnap.save_file({"\ud800": torch.zeros(1)}, path)


def test_targets_whose_elements_share_memory_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a.bsnap"
    bitsnap.save(path, {"a": torch.ones(3), "b": torch.arange(9.0).reshape(3, 3)})
    first = torch.zeros(3)
    for target in (torch.zeros(5).as_strided((3, 3), (1, 1)), torch.zeros(3).expand(3, 3)):
        with pytest.raises(bitsnap.InvalidArgumentError, match="same memory"):
            bitsnap.load(path, into={"a": first, "b": target})
        assert not first.any()


def test_a_mode_without_memory_is_refused(tmp_path: Path) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    path = tmp_path / "a.bsnap"
    bitsnap.save(path, {"w": torch.randn(3000)})
    with FakeTensorMode(), pytest.raises(bitsnap.UnsupportedError, match="memory"):
        bitsnap.load(path)


def test_memory_that_a_parameter_gives_up_stays_until_it_is_read(tmp_path: Path) -> None:
    parameter = torch.nn.Parameter(torch.randn(3_000_000))
    before = parameter.detach().clone()

    def swap(_done: int, _total: int) -> bool:
        parameter.data = torch.zeros(1)
        return True

    bitsnap.save(tmp_path / "a.bsnap", {"p": parameter}, progress=swap, threads=1)
    assert torch.equal(bitsnap.load(tmp_path / "a.bsnap")["p"], before)


def test_errors_show_no_character_that_disturbs_a_terminal(tmp_path: Path) -> None:
    evil = "a\x1b[2J\u009b\u202e\u2066\u200b\ufeff"
    shown = r"a\x1b[2J\x9b\u202e\u2066\u200b\ufeff"
    path = tmp_path / evil
    for call in (
        lambda: bitsnap.load(path),
        lambda: bitsnap.Store(path / "run"),
        lambda: bitsnap.Store(path, create=False),
        lambda: bitsnap.save_file({evil: 1}, path),  # type: ignore[dict-item]
    ):
        with pytest.raises((bitsnap.BitsnapError, TypeError)) as caught:
            call()
        assert str(caught.value).isprintable()
        assert shown in str(caught.value)
    raised = bitsnap.CorruptError(f"{path}: two places\n  {evil}")
    assert str(raised) == f"{tmp_path}/{shown}: two places\n  {shown}"
    with bitsnap.Store(tmp_path / "run") as store:
        store.save(1, {evil: torch.zeros(2000)})
        with pytest.raises(bitsnap.BitsnapError) as caught:
            store.load(keys=[evil + "x"])
        assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", ["zip.pt", "old.pt", "a.npz", "a.npy", "a.safetensors"])
def test_a_file_of_another_format_is_named_with_what_reads_it(tmp_path: Path, name: str) -> None:
    path, tensor = tmp_path / name, torch.arange(4.0)
    if name.endswith(".pt"):
        torch.save({"a": tensor}, path, _use_new_zipfile_serialization=name == "zip.pt")
    elif name.endswith(".npz"):
        np.savez(path, a=tensor.numpy())
    elif name.endswith(".npy"):
        np.save(path, tensor.numpy())
    else:
        safetensors.torch.save_file({"a": tensor}, path)
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"not a snapshot; .* reads it, and `bitsnap convert"):
        bitsnap.load(path)
    path.write_bytes(bytes(100))
    with pytest.raises(bitsnap.CorruptError):
        bitsnap.load(path)
