from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from python.objects.object_proxy import Proxy
from python.objects.object_servers import NAMES, start

ALL = [pytest.param(name, marks=[pytest.mark.slow] if name != "seaweedfs" else []) for name in NAMES]


@pytest.fixture(scope="session", params=ALL)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    pytest.importorskip("obstore")
    with start(request.param, tmp_path_factory.mktemp(request.param)) as server:
        proxy = Proxy(server)
        yield proxy
        proxy.close()


@pytest.fixture
def proxy(server: Proxy) -> Iterator[Proxy]:
    """What is before the server; without faults, and with no requests counted."""
    server.reset()
    yield server
    server.reset()


@pytest.fixture
def run(server: Proxy) -> str:
    """The address of a run that does not exist."""
    return f"{server.bucket}/trainings/{secrets.token_hex(4)}"
