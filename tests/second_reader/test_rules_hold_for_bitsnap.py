"""Asks bitsnap itself about the files that break one rule of the specification each: both readers must agree."""

from __future__ import annotations

from pathlib import Path

import pytest

import bitsnap
from second_reader import rule_cases

FAULTS: dict[str, type[bitsnap.BitsnapError]] = {
    "truncated": bitsnap.TruncatedError,
    "corrupt": bitsnap.CorruptError,
    "unsupported": bitsnap.UnsupportedError,
}


@pytest.mark.parametrize("file", [pytest.param(file, id=name) for name, file in rule_cases.allowed()])
def test_bitsnap_accepts_what_the_specification_allows(file: bytes, tmp_path: Path) -> None:
    path = tmp_path / "case.bsnap"
    path.write_bytes(file)
    bitsnap.verify(path)


@pytest.mark.parametrize(
    ("fault", "file"), [pytest.param(fault, file, id=name) for fault, name, file in rule_cases.rejected()]
)
def test_bitsnap_rejects_what_the_specification_forbids(fault: str, file: bytes, tmp_path: Path) -> None:
    path = tmp_path / "case.bsnap"
    path.write_bytes(file)
    with pytest.raises(bitsnap.BitsnapError) as caught:
        bitsnap.verify(path)
    assert type(caught.value) is FAULTS[fault], caught.value
