"""Setup of all tests."""

import gc
import signal
import subprocess
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# On a busy machine, an example may take any time.
settings.register_profile("any time", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any time")

# The files that take longest start first, so that no worker ends long after the others. The others follow as collected.
LONGEST = (
    "megatron_test.py",
    "guide_snippets_test.py",
    "megatron_agent_test.py",
    "dcp_failures_test.py",
    "resume_test.py",
    "soak_test.py",
    "store_process_test.py",
    "transformers_test.py",
    "deepspeed_test.py",
    "elastic_test.py",
    "torch_failures_test.py",
    "ordinal_delta_test.py",
    "second_reader_agrees_test.py",
    "megatron_convert_test.py",
    "file_cost_test.py",
    "cli_watch_test.py",
    "fsdp_resume_test.py",
    "checkpointer_processes_test.py",
    "lightning_test.py",
    "accelerate_test.py",
)

# A shell that runs the tests in the background may ignore signals, and children inherit that. They would then ignore
# the signals that tests send to them.
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


def pytest_collection_finish() -> None:
    gc.freeze()  # all modules and tests: later collections of garbage, also those of forks, skip them


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # so that the end of the process finds no leaks


@pytest.fixture(autouse=True, scope="session")
def leave_home_alone() -> Iterator[None]:
    """No copies of what tests read from object stores."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BITSNAP_CACHE_BYTES", "0")
        yield


@pytest.fixture(autouse=True)
def wait_for_processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails a test that started a process and did not wait for its end.

    Python would warn when it collects the Popen, and that may be in a later test, which would be blamed.
    """
    made: list[weakref.ref[subprocess.Popen[Any]]] = []
    start = subprocess.Popen.__init__

    def started(process: subprocess.Popen[Any], *arguments: Any, **options: Any) -> None:
        start(process, *arguments, **options)
        made.append(weakref.ref(process))

    leave = subprocess.Popen.__exit__

    def leave_killed(process: subprocess.Popen[Any], kind: type[BaseException] | None, *error: Any) -> None:
        if kind is not None:
            process.kill()  # or a test that has failed would wait for its end
        leave(process, kind, *error)

    monkeypatch.setattr(subprocess.Popen, "__init__", started)
    monkeypatch.setattr(subprocess.Popen, "__exit__", leave_killed)
    yield
    left = [process for each in made if (process := each()) is not None and process.returncode is None]
    for process in left:
        process.kill()
        process.wait()
    assert not left, f"the test did not wait for {[process.args for process in left]}"
