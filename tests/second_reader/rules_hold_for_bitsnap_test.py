"""Reads the files that each break one rule of the specification with bitsnap: both readers must agree."""

from __future__ import annotations

from pathlib import Path

import pytest

import bitsnap
from second_reader import factored_split_cases, ordinal_delta_cases, rule_cases
from second_reader.bsnap_reader import open_file
from second_reader.factored_split_cases import FactoredCase
from second_reader.ordinal_delta_cases import Case
from second_reader.reader_errors import ReaderError

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


def write_files(case: Case, folder: Path) -> Path:
    """The snapshot that holds the payload of the case, next to its base."""
    path = folder / "case.bsnap"
    base, file = case.files("base.bsnap")
    (folder / "base.bsnap").write_bytes(base)
    path.write_bytes(file)
    return path


@pytest.mark.parametrize("case", ordinal_delta_cases.ALLOWED.values(), ids=ordinal_delta_cases.ALLOWED)
def test_bitsnap_accepts_what_the_specification_of_ordinal_delta_allows(case: Case, tmp_path: Path) -> None:
    path = write_files(case, tmp_path)
    open_file(path).verify()
    bitsnap.verify(path)


@pytest.mark.parametrize(
    ("fault", "case"), [pytest.param(fault, case, id=name) for fault, name, case in ordinal_delta_cases.rejected()]
)
def test_bitsnap_rejects_what_the_specification_of_ordinal_delta_forbids(
    fault: str, case: Case, tmp_path: Path
) -> None:
    path = write_files(case, tmp_path)
    with pytest.raises(ReaderError):
        open_file(path).verify()
    with pytest.raises(bitsnap.BitsnapError) as caught:
        bitsnap.verify(path)
    assert type(caught.value) is FAULTS[fault], caught.value
    # The codec itself is to reject it: what a reader that does not look decodes is mostly not what the hash is of.
    assert "hash" not in str(caught.value)


@pytest.mark.parametrize(
    "case", factored_split_cases.FACTORED_ALLOWED.values(), ids=factored_split_cases.FACTORED_ALLOWED
)
def test_bitsnap_accepts_what_the_specification_of_factored_split_allows(case: FactoredCase, tmp_path: Path) -> None:
    path = tmp_path / "case.bsnap"
    path.write_bytes(case.file())
    open_file(path).verify()
    bitsnap.verify(path)


@pytest.mark.parametrize(
    ("fault", "case"),
    [pytest.param(fault, case, id=name) for fault, name, case in factored_split_cases.rejected_factored()],
)
def test_bitsnap_rejects_what_the_specification_of_factored_split_forbids(
    fault: str, case: FactoredCase, tmp_path: Path
) -> None:
    path = tmp_path / "case.bsnap"
    path.write_bytes(case.file())
    with pytest.raises(ReaderError):
        open_file(path).verify()
    with pytest.raises(bitsnap.BitsnapError) as caught:
        bitsnap.verify(path)
    assert type(caught.value) is FAULTS[fault], caught.value
    assert "hash" not in str(caught.value)
