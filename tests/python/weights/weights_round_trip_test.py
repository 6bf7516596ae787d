"""Patches made of weights of torch and numpy, and applied in place, bit for bit."""

from __future__ import annotations

import copy
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import bitsnap
from bitsnap import weights as weights_module
from bitsnap._tensors.arrays import named_source_of
from python.same_bits import bits, random_bits
from python.weights.moving_weights import DTYPES, all_bits, all_dtypes, changed, copy_of, updated, versions


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def assert_makes(old: Any, new: Any, patch: bytes) -> None:
    """Applies to `old`, which then has the bits of `new`."""
    assert all_bits(old) != all_bits(new)
    bitsnap.apply_patch(old, patch)
    assert all_bits(old) == all_bits(new)


def test_tensors_of_all_dtypes_are_changed_where_they_are(rng: np.random.Generator) -> None:
    old = all_dtypes(rng)
    new = updated(rng, old)
    places = {name: tensor.data_ptr() for name, tensor in old.items()}
    assert_makes(old, new, bitsnap.make_patch(new, old))
    assert {name: tensor.data_ptr() for name, tensor in old.items()} == places


@pytest.mark.parametrize("shape", [(), (1,), (0,), (0, 3), (3, 0), (1, 1, 1), (65537,), (300, 500)])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_tensors_of_any_shape_and_share_of_changes(
    rng: np.random.Generator, shape: tuple[int, ...], share: float
) -> None:
    old = {str(dtype): random_bits(rng, dtype, shape) for dtype in DTYPES}
    new = {name: changed(rng, each, share) if each.numel() > 0 else each.clone() for name, each in old.items()}
    bitsnap.apply_patch(old, bitsnap.make_patch(new, old))
    assert all_bits(old) == all_bits(new)


@pytest.mark.parametrize("dtype", [torch.complex32, torch.complex128, torch.float4_e2m1fn_x2])
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_dtypes_whose_elements_are_bytes(rng: np.random.Generator, dtype: torch.dtype) -> None:
    raw = [torch.from_numpy(rng.integers(0, 256, 640, np.uint8)) for _ in range(2)]
    old, new = ({"w": each.view(dtype)} for each in raw)
    staged = bitsnap.Patch(bitsnap.make_patch(new, old)).stage(old)
    engine = raw[0].numpy().copy()
    places, values = staged.changes("w")
    engine[places] = values
    assert engine.tolist() == raw[1].tolist()
    staged.apply()
    assert torch.equal(raw[0], raw[1])


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_that_are_not_contiguous(rng: np.random.Generator, dtype: torch.dtype) -> None:
    old = random_bits(rng, dtype, (60, 90, 2))
    new = changed(rng, old, 0.1)
    whole = old.clone()
    assert_makes(
        {"w": old[:, ::3, 1]}, {"w": new[:, ::3, 1]}, bitsnap.make_patch({"w": new[:, ::3, 1]}, {"w": old[:, ::3, 1]})
    )
    outside = [(slice(None), slice(1, None, 3)), (slice(None), slice(2, None, 3)), (slice(None), slice(None), 0)]
    assert all(bits(old[part].contiguous()) == bits(whole[part].contiguous()) for part in outside)
    turned = {"w": new.permute(2, 0, 1)}
    assert_makes({"w": whole.permute(2, 0, 1)}, turned, bitsnap.make_patch(turned, {"w": whole.permute(2, 0, 1)}))


def test_views_that_conjugate(rng: np.random.Generator) -> None:
    old = random_bits(rng, torch.complex64, (500,))
    new = {"w": changed(rng, old.conj().resolve_conj())}
    assert_makes({"w": old.conj()}, new, bitsnap.make_patch(new, {"w": old.conj()}))


def test_parameters_that_require_grad_stay_so_and_autograd_hears_of_the_change() -> None:
    model = torch.nn.Linear(30, 40)
    other = copy.deepcopy(model)
    with torch.no_grad():
        model.weight[3, 5] += 1
    patch = bitsnap.make_patch(dict(model.named_parameters()), dict(other.named_parameters()))
    version = other.weight._version
    loss = (other.weight**2).sum()
    bitsnap.apply_patch(dict(other.named_parameters()), patch)
    assert all_bits(other) == all_bits(model)
    assert other.weight.requires_grad
    assert other.weight.is_leaf
    assert other.weight._version > version
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()  # type: ignore[no-untyped-call]


def test_tensors_of_inference_mode(rng: np.random.Generator) -> None:
    with torch.inference_mode():
        old = {"plain": torch.zeros(500), "columns": torch.zeros(500, 2)[:, 0]}
    new = {name: torch.from_numpy(rng.random(500, np.float32)) for name in old}
    assert_makes(old, new, bitsnap.make_patch(new, old))


def test_modules_are_given_directly_with_their_buffers() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.BatchNorm1d(30))
    other = copy.deepcopy(model)
    model(torch.randn(9, 20)).square().sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    patch = bitsnap.make_patch(model, other.state_dict())
    assert "1.num_batches_tracked" in bitsnap.Patch(patch).tensors
    assert_makes(other, model, patch)


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(100, 64)
        self.head = torch.nn.Linear(64, 100, bias=False)
        self.head.weight = self.embed.weight


def changed_embedding(model: Tied) -> Tied:
    new = copy.deepcopy(model)
    with torch.no_grad():
        new.embed.weight[::3, ::2] += 1
    return new


@pytest.mark.parametrize("base", ["with ties", "copied tensor by tensor"])
def test_tied_weights_are_stored_once(base: str) -> None:
    model = Tied()
    new = changed_embedding(model)
    old = model if base == "with ties" else copy_of(model.state_dict())
    patch = bitsnap.make_patch(new, old)
    alone = bitsnap.make_patch({"embed.weight": new.embed.weight}, {"embed.weight": model.embed.weight})
    assert len(patch) < 1.1 * len(alone) + 50
    assert list(bitsnap.Patch(patch).tensors) == ["embed.weight", "head.weight"]
    untied = copy_of(model.state_dict())
    assert_makes(untied, new, patch)
    one_name = {"head.weight": model.head.weight.detach().clone()}
    staged = bitsnap.Patch(patch).stage(one_name)
    assert staged.changes("embed.weight")[1].dtype == np.uint32  # by the name that is absent here
    staged.apply()
    assert torch.equal(one_name["head.weight"], new.head.weight)
    assert_makes(model, new, patch)
    assert model.head.weight is model.embed.weight


def test_tied_weights_that_are_not_contiguous_are_stored_once(rng: np.random.Generator) -> None:
    old, new = (random_bits(rng, torch.bfloat16, (300, 200)) for _ in range(2))
    patch = bitsnap.make_patch({"a": new.t(), "b": new.t()}, {"a": old.t(), "b": old.t()})
    assert len(patch) < 1.1 * len(bitsnap.make_patch({"a": new.t()}, {"a": old.t()}))
    assert_makes({"a": old.t(), "b": old.t()}, {"a": new.t(), "b": new.t()}, patch)


def test_weights_that_are_tied_here_alone_are_refused_as_the_patch_changes_them_apart() -> None:
    model = Tied()
    base = copy_of(model.state_dict())
    new = {name: tensor + number for number, (name, tensor) in enumerate(base.items(), 1)}
    before = all_bits(model)
    with pytest.raises(
        bitsnap.InvalidArgumentError, match=r"'embed\.weight' and tensor 'head\.weight' are the same memory"
    ):
        bitsnap.apply_patch(model, bitsnap.make_patch(new, base))
    assert all_bits(model) == before


def test_arrays_of_numpy(rng: np.random.Generator) -> None:
    old: dict[str, Any] = {
        "bf16": rng.standard_normal((30, 40)).astype(ml_dtypes.bfloat16),
        "f8": rng.standard_normal((30, 40)).astype(ml_dtypes.float8_e4m3fn),
        "f64": rng.standard_normal((30, 40)),
        "big-endian": rng.integers(0, 1 << 32, (30, 40), np.uint32).view(np.float32).astype(">f4"),
        "big-endian scalar": np.array(1.5, ">f8"),
        "columns": np.asfortranarray(rng.standard_normal((30, 40))),
        "backwards": rng.integers(0, 9, 50)[::-1],
        "flags": rng.integers(0, 2, 50).astype(bool),
        "0-dim": np.array(3, np.int16),
        "empty": np.zeros((0, 4), np.float32),
    }
    new = {name: value.copy() for name, value in old.items()}
    for name, value in new.items():
        if value.size > 0:
            value.view(f"u{value.itemsize}")[...] ^= 1
        assert value.dtype == old[name].dtype
    patch = bitsnap.make_patch(new, old)
    assert bitsnap.Patch(patch).tensors["bf16"] == ("BF16", (30, 40))
    assert_makes(old, new, patch)
    assert old["big-endian"].dtype == ">f4"
    assert old["columns"].flags.f_contiguous


def test_torch_and_numpy_make_the_same_patch(rng: np.random.Generator) -> None:
    old = random_bits(rng, torch.float32, (40, 50))
    new = changed(rng, old)
    patch = bitsnap.make_patch({"w": new}, {"w": old})
    assert bitsnap.make_patch({"w": new.numpy().astype(">f4")}, {"w": old.numpy()}) == patch
    array = old.numpy().copy()
    assert_makes({"w": array}, {"w": new}, patch)


def test_arrays_that_are_read_only_make_patches_and_are_staged(rng: np.random.Generator) -> None:
    old, new = (rng.integers(0, 9, 500) for _ in range(2))
    old.flags.writeable = new.flags.writeable = False
    staged = bitsnap.Patch(bitsnap.make_patch({"w": new}, {"w": old})).stage({"w": old})
    places, values = staged.changes("w")
    engine = old.copy()
    engine[places] = values.view(np.int64)
    assert engine.tolist() == new.tolist()


@pytest.mark.parametrize(
    ("cannot", "message"),
    [
        (np.broadcast_to(np.float32(0), (6,)), "weights['z'] is an array that is not writeable"),
        (torch.zeros(1).expand(6), "weights['z'] cannot be written in place: some of its elements are the same memory"),
        (torch.zeros(7).as_strided((2, 3), (1, 1)), "several of its elements may be the same memory"),
        (np.float32(0), "weights['z'] is a scalar of numpy, which cannot be written in place: pass an array"),
    ],
    ids=["read-only", "expanded", "overlapping", "scalar"],
)
def test_what_cannot_be_written_is_refused_before_anything_changes(cannot: Any, message: str) -> None:
    weights: dict[str, Any] = {"a": torch.zeros(8), "columns": torch.zeros(8, 2)[:, 0], "z": cannot}
    new = {"a": torch.ones(8), "columns": torch.ones(8), "z": torch.ones(tuple(cannot.shape))}
    patch = bitsnap.make_patch(new, weights)
    before = all_bits(weights)
    with pytest.raises(bitsnap.InvalidArgumentError) as caught:
        bitsnap.apply_patch(weights, patch)
    assert message in str(caught.value)
    assert all_bits(weights) == before
    unchanged = bitsnap.make_patch({**weights, "a": new["a"]}, weights)  # which leaves it alone
    bitsnap.apply_patch(weights, unchanged)
    assert torch.equal(weights["a"], new["a"])


@pytest.mark.parametrize("share", [0.001, 0.02, 0.6])
def test_changes_are_what_numpy_finds(rng: np.random.Generator, share: float) -> None:
    old = all_dtypes(rng)
    new = {name: changed(rng, each, share) for name, each in old.items()} | {"frozen": torch.ones(5)}
    old["frozen"] = torch.ones(5)
    before = all_bits(old)
    staged = bitsnap.Patch(bitsnap.make_patch(new, old)).stage(old)
    count = 0
    for name in (name for name in old if name != "frozen"):
        kind = f"<u{old[name].element_size()}"
        own, other = (np.frombuffer(bits(each[name]), kind) for each in (old, new))
        places, values = staged.changes(name)
        assert places.dtype == np.uint64
        assert values.dtype == kind
        assert np.array_equal(places, np.flatnonzero(own != other))
        assert np.array_equal(values, other[own != other])
        count += places.size
    assert staged.changed_elements == count
    assert repr(staged) == f"StagedPatch({count} elements)"
    assert all_bits(old) == before  # staging writes nothing
    for absent in ("frozen", "no such"):
        with pytest.raises(bitsnap.NotFoundError, match=f"no tensor '{absent}'"):
            staged.changes(absent)


def test_a_staged_change_of_two_bytes_takes_six() -> None:
    old, new = versions(2)
    halves = [{name: each[name] for name in ("embed", "head")} for each in (new, old)]
    staged = bitsnap.Patch(bitsnap.make_patch(*halves)).stage(old)
    assert staged.changed_elements == sum(
        int((new[name].view(torch.int16) != old[name].view(torch.int16)).sum()) for name in halves[0]
    )
    assert staged.memory_bytes == 6 * staged.changed_elements


def test_weights_may_have_more_tensors_than_the_patch(rng: np.random.Generator) -> None:
    old, new = versions(2)
    patch = bitsnap.make_patch(new, old)
    assert set(bitsnap.Patch(patch).tensors) == set(old) - {"frozen"}
    more = {**old, "more": torch.ones(3)}
    bitsnap.apply_patch(more, patch)
    assert all_bits(more) == all_bits({**new, "more": torch.ones(3)})
    del old["frozen"]


def test_a_sharded_tensor_stands_for_the_part_of_this_rank(rng: np.random.Generator) -> None:
    class Sharded:
        def __init__(self, part: torch.Tensor) -> None:
            self.part = part

        def to_local(self) -> torch.Tensor:
            return self.part

    old = random_bits(rng, torch.bfloat16, (20, 30))
    new = changed(rng, old)
    patch = bitsnap.make_patch({"w": Sharded(new)}, {"w": old})
    assert patch == bitsnap.make_patch({"w": new}, {"w": old})
    bitsnap.apply_patch({"w": Sharded(old)}, patch)
    assert bits(old) == bits(new)


@pytest.mark.parametrize("on_gpu", [False, True])
def test_tensors_of_a_device_are_copied_and_only_changes_are_written_back(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, on_gpu: bool
) -> None:
    # Memory of the CPU that is treated as that of a device.
    monkeypatch.setattr(
        weights_module, "named_source_of", lambda *given: named_source_of(*given)._replace(data=lambda: (None, 0))
    )
    monkeypatch.setattr(weights_module, "is_on_gpu", lambda tensor: on_gpu)
    old = all_dtypes(rng) | {"0-dim": torch.tensor(3.0), "columns": torch.ones(30, 2)[:, 0]}
    new = updated(rng, old)
    with torch.inference_mode():
        old["of inference"] = torch.zeros(50)
    new["of inference"] = torch.ones(50)
    parameter = torch.nn.Parameter(torch.zeros(9))
    staged = bitsnap.Patch(bitsnap.make_patch(new | {"p": parameter + 1}, old | {"p": parameter})).stage(
        old | {"p": parameter}
    )
    unnoticed = old["torch.float32"]
    place = int(np.setdiff1d(np.arange(unnoticed.numel()), staged.changes("torch.float32")[0])[0])
    unnoticed.view(-1)[place] = new["torch.float32"].view(-1)[place] = 7.0  # and no copy of it is written back
    staged.apply()
    assert all_bits(old) == all_bits(new)
    assert parameter.tolist() == [1.0] * 9
