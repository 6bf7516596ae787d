from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from python.objects.object_servers import seaweedfs, use_server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("obstore")
    with seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as address:
        use_server(address)
        yield address


@pytest.fixture
def run(server: str) -> str:
    """The address of a run that does not exist."""
    return f"s3://bucket/trainings/{secrets.token_hex(4)}"
