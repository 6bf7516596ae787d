"""Damaged stores: what verifying finds, what a save and a repair do about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bitsnap
from python.run_states import files_of, filled
from python.same_bits import assert_same


def damage(path: Path, place: int | None = None) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3 if place is None else place] ^= 0x10
    path.write_bytes(data)


def test_damage_is_found_and_named_and_nothing_wrong_is_given_out(tmp_path: Path) -> None:
    states = filled(tmp_path / "run", 4, settings=bitsnap.Settings(max_depth=1))
    file = next((tmp_path / "run" / "checkpoints" / "0000000030").glob("*.bsnap"))
    damage(file)
    with bitsnap.Store(tmp_path / "run", read_only=True) as store:
        found = store.damages()
        assert {each.step for each in found} >= {30}
        first = next(each for each in found if each.step == 30)
        assert first.file == str(file.relative_to(tmp_path / "run"))
        assert "chunk" in first.where
        assert isinstance(first.error, bitsnap.CorruptError)
        assert first.file in str(first)
        with pytest.raises(bitsnap.CorruptError, match=r"damaged in \d+ place") as caught:
            store.verify()
        for each in found[:20]:
            assert str(each) in str(caught.value)
        store.verify(steps=[10, 20])
        with pytest.raises(bitsnap.CorruptError):
            store.verify(steps=[30], decode=False)
        advice = r"`bitsnap verify .*run` lists all damage, and `bitsnap repair .*run` mends .*load\(.*20.* reads the "
        advice += r"checkpoint before; .*load\(.*30.*, partial=True\) reads what is left"
        loads: list[tuple[Callable[[Any], Any], Any]] = [(store.load, 30), (bitsnap.load, f"{store.path}@30")]
        for load, named in loads:
            with pytest.raises(bitsnap.CorruptError, match=f"{file.name}.*{advice}"):
                load(named)
        assert_same(store.load(20), states[1])


def test_a_save_says_why_its_base_could_not_be_used(tmp_path: Path) -> None:
    states = filled(tmp_path / "other", 4)
    filled(tmp_path / "run", 2)
    file = next((tmp_path / "run" / "checkpoints" / "0000000020").glob("*.bsnap"))
    damage(file)
    with bitsnap.Store(tmp_path / "run") as store:
        saved = store.save(30, states[2])
        assert saved.base is None
        assert isinstance(saved.damage, bitsnap.CorruptError)
        assert file.name in str(saved.damage)
        assert store.checkpoint(30).damage is None
        assert_same(store.load(30), states[2])
        assert store.save(40, states[3]).damage is None


def test_a_store_with_damage_is_repaired(tmp_path: Path) -> None:
    states = filled(tmp_path / "run", 4, settings=bitsnap.Settings(max_depth=0))
    checkpoints = tmp_path / "run" / "checkpoints"
    damage(checkpoints / "0000000010" / "commit.json")
    damage(next((checkpoints / "0000000040").glob("*.bsnap")), -60)  # in the index
    with bitsnap.Store(tmp_path / "run", read_only=True) as store:
        broken = store.checkpoints()[0]
        assert broken.step == 10
        assert isinstance(broken.damage, bitsnap.BitsnapError)
        assert {each.step for each in store.damages()} >= {10, 40}
    before = files_of(tmp_path / "run")
    dry = bitsnap.Store.repair(tmp_path / "run", dry_run=True)
    assert files_of(tmp_path / "run") == before
    report = bitsnap.Store.repair(tmp_path / "run")
    assert [each.step for each in report.dropped] == [40]
    assert 40 in [each.step for each in dry.dropped]
    assert report.checkpoints == 3
    assert [each.step for each in report.mended] == [10]
    dropped = report.dropped[0]
    assert (tmp_path / "run" / dropped.moved_to).exists()
    assert dropped.damages
    assert all(isinstance(each.error, bitsnap.CorruptError) for each in dropped.damages)
    with bitsnap.Store(tmp_path / "run") as store:
        store.verify()
        assert store.steps() == [10, 20, 30]
        for step in store.steps():
            assert_same(store.load(step), states[step // 10 - 1])
        store.save(40, states[3])
        assert_same(store.load(), states[3])


def test_an_error_in_removing_old_checkpoints_says_that_the_new_one_is_saved(tmp_path: Path) -> None:
    with bitsnap.Store(tmp_path / "run", keep_last=1, settings=bitsnap.Settings(max_depth=0)) as store:
        store.save(1, {})
        record = tmp_path / "run" / "checkpoints" / "0000000001" / "commit.json"
        record.unlink()
        (record / "in the way").mkdir(parents=True)
        with pytest.raises(bitsnap.BitsnapError, match="step 2 is saved, but pruning failed"):
            store.save(2, {})
        assert store.steps() == [1, 2]
