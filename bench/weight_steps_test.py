"""Masters that are moved so that their weights change by one ULP, and by no more than that takes."""

from __future__ import annotations

import torch
from torch import Tensor

from bench.weight_steps import beyond_the_middle, move_near_ones, move_one_weight


def floats(*bits: int) -> Tensor:
    return torch.tensor(bits, dtype=torch.int64).to(torch.int32).view(torch.float32)


def bits_of(master: Tensor) -> list[int]:
    return [number & 0xFFFFFFFF for number in master.view(torch.int32).tolist()]


def test_a_master_goes_just_beyond_the_middle() -> None:
    # Both halves above an even number, and above an odd one; the middles; and the same below 0.
    before = (0x3F807000, 0x3F809000, 0x3F817000, 0x3F819000, 0x3F808000, 0x3F818000, 0xBF807000)
    after = [0x3F808001, 0x3F808000, 0x3F818000, 0x3F817FFF, 0x3F808001, 0x3F817FFF, 0xBF808001]
    assert bits_of(beyond_the_middle(floats(*[number - (1 << 32) * (number >> 31) for number in before]))) == after


def test_every_weight_changes_by_one_ulp_and_no_shorter_way_changes_it() -> None:
    master = torch.randn(10_000, generator=torch.Generator().manual_seed(1))
    moved = beyond_the_middle(master)

    def weight(x: Tensor) -> Tensor:
        return x.to(torch.bfloat16).view(torch.int16).to(torch.int32)

    assert ((weight(moved) - weight(master)).abs() == 1).all()
    back = (moved.view(torch.int32) - master.view(torch.int32)).sign()
    one_less = (moved.view(torch.int32) - back).view(torch.float32)
    assert torch.equal(weight(one_less), weight(master))


def test_one_weight_of_a_tensor_is_the_one_with_the_shortest_way() -> None:
    master = floats(0x3F800000, 0x3F807FF0, 0x3F80A000).reshape(1, 3)
    moved = move_one_weight(master)
    assert bits_of(moved.reshape(-1)) == [0x3F800000, 0x3F808001, 0x3F80A000]
    assert bits_of(master.reshape(-1))[1] == 0x3F807FF0


def test_only_masters_near_to_another_weight_move() -> None:
    # 128, 129 and 128 of 2^16 parts away: 2^-9 of an ULP is 128.
    master = floats(0x3F807F81, 0x3F807F80, 0x3F808080)
    assert bits_of(move_near_ones(master, 2**-9)) == [0x3F808001, 0x3F807F80, 0x3F808000]
