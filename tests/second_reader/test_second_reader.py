"""Holds the second reader to the rules of the specification, to the golden files, and to what bitsnap itself writes."""

from __future__ import annotations

import pytest

from second_reader import rule_cases
from second_reader.bsnap_reader import Snapshot
from second_reader.reader_errors import Corrupt, ReaderError, Truncated, Unsupported

FAULTS: dict[str, type[ReaderError]] = {"truncated": Truncated, "corrupt": Corrupt, "unsupported": Unsupported}


def read_all(file: bytes) -> Snapshot:
    snapshot = Snapshot(file)
    snapshot.verify()
    snapshot.read_state()
    return snapshot


@pytest.mark.parametrize(
    ("name", "file"), rule_cases.allowed(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_accepts_what_the_specification_allows(name: str, file: bytes) -> None:
    read_all(file)


@pytest.mark.parametrize(
    ("fault", "name", "file"), rule_cases.rejected(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_rejects_what_the_specification_forbids(fault: str, name: str, file: bytes) -> None:
    with pytest.raises(ReaderError) as caught:
        read_all(file)
    assert type(caught.value) is FAULTS[fault], caught.value
