from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from python.forked_calls import Calls, calls_of
from python.objects.lost_machines import end_copies
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


@pytest.fixture(scope="module")
def call(server: Proxy, request: pytest.FixtureRequest) -> Iterator[Calls]:
    """As the fixture of this name for all tests. The process finds the server by its environment."""
    with calls_of(request.module.TRAININGS) as calls:
        yield calls


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[None]:
    """The processes that copy runs in the folder of the test end with it."""
    yield
    end_copies(tmp_path)
