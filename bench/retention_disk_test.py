"""The program itself, on the shortest run."""

from __future__ import annotations

from bench.retention_disk import disk_of


def test_a_run_holds_less_than_raw() -> None:
    disk = disk_of(keep_last=2, every=1, is_same_data=True, saves=4)
    assert 0.2 < disk.mean <= disk.most < 1
    assert disk.most < disk.peak < 1.5
    assert 0.2 < disk.written < 1.5
