"""Runs Megatron-core's own tests of dist_checkpointing with bitsnap.megatron in use, on the CPU with gloo.

    PYTHONPATH=python python scripts/run_megatron_tests.py DIR [--only test_serialization] [--case load] [--keep D]

DIR is the source repository of Megatron-LM, of the tag of the installed megatron-core. It is not part of this
repository: fetch it first. Only its folder `tests` is used, and the installed megatron-core is tested.

Each case runs twice, each time in eight new processes, with a time limit: as it is ("stock"), and after
bitsnap.megatron.use() ("ours"). A case is left out, with the reason, if it is skipped or fails with stock, or never
saves or loads with the strategies of torch_dist; so are cases that test what bitsnap does otherwise, which this file
lists. The cases ask for GPUs and nccl, and get stand-ins for what the CPU lacks. What needs `megatron.training`, which
is in no package, is skipped.

Exits with 1 if a case passes with stock and fails with bitsnap.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import gc
import importlib
import importlib.abc
import importlib.machinery
import io
import json
import multiprocessing
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from upstream_tests import File, Outcome, arguments, compare, keep_log, report

RANKS = 8
_GRACE = 5.0  # seconds for the other ranks to fail, too
FOLDER = Path("tests") / "unit_tests" / "dist_checkpointing"

# What makes a test run on the CPU, in this order.
_FOR_THE_CPU = [
    (re.compile(r"torch\.cuda\.device_count\(\)"), str(RANKS)),
    (re.compile(r"backend='nccl'"), "backend='gloo'"),
    (re.compile(r"""(["'])cuda\1"""), r"'cpu'"),
    (re.compile(r"torch\.cuda\.memory_allocated\(\)"), "0"),
]

# Cases that test how torch_dist stores, not what: patterns of their names, and what bitsnap does instead.
_DIFFERENT = {
    "test_async_save.py::TestAsyncSave::test_errors_are_reported": "it makes torch_dist's own writer fail",
    "test_torch_dist.py::TestCachedMetadata": "it reads .metadata, which the folder of bitsnap does not have",
    "test_fully_parallel.py::TestCrossRanksReads": "it takes ranks from the names of .distcp files",
    "test_torch_dist.py::TestCPUTensors": "it looks at the sizes of .distcp files, which are not there",
}

_CONFTEST = """
import os
import pytest
from tests.unit_tests.dist_checkpointing import TempNamedDir
from tests.unit_tests.test_utilities import Utils


@pytest.fixture(scope="session")
def tmp_path_dist_ckpt(tmp_path_factory):
    from pathlib import Path
    folder = Path.cwd() / "tmp_dist_ckpt"
    folder.mkdir(exist_ok=True)
    yield folder
"""


class NotInstalled(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the packages that Megatron-LM has in its repository only: whatever calls their functions is skipped."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if not re.match(r"megatron\.(training|legacy|post_training)(\.|$)", name):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = types.ModuleType(spec.name)

        def attribute(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return lambda *args, **kwargs: pytest.skip(f"needs {spec.name}, which is in no package")

        module.__getattr__ = attribute  # type: ignore[method-assign]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


class Recorder:
    """A plugin of pytest: the cases that it finds, and the outcome of the one that it runs."""

    def __init__(self, answer: Path | None = None) -> None:
        self._answer = answer
        self.cases: list[str] = []
        self.outcome = Outcome("failed", "it did not run")

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        self.cases = [item.nodeid for item in items]

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            text = crash.message if crash is not None else str(report.longrepr)
            self.outcome = Outcome("failed", text.partition("\n")[0][:200])
            if self._answer is not None:  # now: the end of the case may wait for ranks that failed elsewhere
                self._answer.write_text(json.dumps(self.outcome))
        elif report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.outcome = Outcome("skipped", reason.removeprefix("Skipped: ")[:200])
        elif report.when == "call":
            self.outcome = Outcome("passed")


def run_pytest(recorder: Recorder, *arguments: str) -> None:
    options = ["-q", "-s", "-p", "no:cacheprovider", "-W", "ignore", "-c", os.devnull, "--rootdir", str(Path.cwd())]
    pytest.main([*options, *arguments], plugins=[recorder])


def run_rank(case: str, rank: int, port: int, storage: str, folder: Path) -> None:
    """Runs a case as one rank, and writes its outcome."""
    os.environ.update(
        LOCAL_RANK=str(rank), RANK=str(rank), WORLD_SIZE=str(RANKS), MASTER_ADDR="localhost", MASTER_PORT=str(port)
    )
    utils = importlib.import_module("tests.unit_tests.test_utilities").Utils
    utils.rank, utils.world_size = rank, RANKS  # read from the environment when it was imported
    if storage == "ours":
        importlib.import_module("bitsnap.megatron").use()
    note_use(folder / "touched")
    share_groups()
    answer = folder / f"answer-{rank}"
    recorder = Recorder(answer)
    run_pytest(recorder, case)
    answer.write_text(json.dumps(recorder.outcome))


def share_groups() -> None:
    """Makes one group of gloo for all groups of Megatron with the same ranks, because each has a thread that polls."""
    import torch.distributed as dist

    make, made = dist.new_group, dict[tuple[int, ...], Any]()

    def new_group(ranks: Sequence[int] | None = None, *args: Any, **kwargs: Any) -> Any:
        key = tuple(range(RANKS) if ranks is None else ranks)
        if key not in made:
            made[key] = make(list(key), backend="gloo")
        return made[key]

    dist.new_group = new_group


def note_use(touched: Path) -> None:
    """Makes a file once a strategy of torch_dist saves or loads."""

    def noting(method: Any) -> Any:
        def called(self: Any, *args: Any, **kwargs: Any) -> Any:
            touched.touch()
            return method(self, *args, **kwargs)

        return functools.wraps(method)(called)

    core = importlib.import_module("bitsnap.megatron._versions").core()
    for owner, names in (
        (core.save_strategy, ("save", "async_save")),
        (core.load_strategy, ("load", "load_tensors_metadata", "load_sharded_metadata")),
    ):
        for name in names:
            setattr(owner, name, noting(getattr(owner, name)))


class Runs:
    """Runs cases, one after the other. Owns the folder, in which the copies of the tests are."""

    def __init__(self, folder: Path, timeout: float, keep: Path | None) -> None:
        self.folder = folder
        self.timeout = timeout
        self.keep = keep

    def cases(self, file: Path) -> list[str]:
        """The cases of a file. Imports it in this process, so that its many ranks need not do it."""
        recorder, printed = Recorder(), io.StringIO()
        with contextlib.redirect_stdout(printed):
            run_pytest(recorder, "--collect-only", str(file))
        if not recorder.cases:
            errors = re.findall(r"^E +(.*Error.*)$", printed.getvalue(), re.MULTILINE)
            raise RuntimeError(errors[0] if errors else "there are none")
        gc.freeze()
        return recorder.cases

    def outcomes(self, file: Path, pattern: str) -> Iterator[tuple[str, Outcome]]:
        for case in fnmatch.filter(self.cases(file), f"*{pattern}*"):
            yield case.partition("::")[2], self._outcome(case)

    def _outcome(self, case: str) -> Outcome:
        for pattern, reason in _DIFFERENT.items():
            if fnmatch.fnmatch(case, f"*{pattern}*"):
                return Outcome("left out", f"bitsnap differs: {reason}")
        used = (self.folder / "touched").exists
        return compare(functools.partial(self._run, case), used, "does not use the strategies of torch_dist")

    def _run(self, case: str, storage: str) -> Outcome:
        for old in (*self.folder.glob("answer-*"), self.folder / "touched"):
            old.unlink(missing_ok=True)
        shutil.rmtree(self.folder / "tmp_dist_ckpt", ignore_errors=True)
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        ranks = [
            self._start(lambda rank=rank: run_rank(case, rank, port, storage, self.folder)) for rank in range(RANKS)
        ]
        name = re.sub(r"[^\w.-]+", "_", case.removeprefix(f"{FOLDER}/"))
        log = self._wait(ranks, f"{name}.{storage}")
        answers = [self.folder / f"answer-{rank}" for rank in range(RANKS)]
        found = [Outcome(*json.loads(each.read_text())) for each in answers if each.exists()]
        failed = [each for each in found if each.word == "failed"]
        if failed:
            # The others lose their connection to the one that failed.
            own = [each for each in failed if not re.search(r"gloo|Connection|Broken pipe", each.reason)]
            return (own or failed)[0]
        if len(found) < RANKS:
            return Outcome("failed", f"{RANKS - len(found)} ranks did not end: {log[-150:]!r}")
        words = {each.word for each in found}
        return found[0] if len(words) == 1 else Outcome("passed" if "passed" in words else "skipped")

    def _start(self, work: Any) -> Any:
        child = multiprocessing.get_context("fork").Process(target=in_a_child, args=(self.folder, work))
        child.start()
        return child

    def _wait(self, children: Sequence[Any], name: str) -> str:
        """Waits for all, or kills all that they have started; what they printed."""
        end = time.monotonic() + self.timeout
        try:
            while time.monotonic() < end and any(child.is_alive() for child in children):
                time.sleep(0.2)
                if any('"failed"' in each.read_text() for each in self.folder.glob("answer-*")):
                    end = min(end, time.monotonic() + _GRACE)
        finally:
            for child in children:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.join()
        logs = [self.folder / f"log-{child.pid}" for child in children]
        text = "".join(log.read_text(errors="replace") for log in logs if log.exists())
        for log in logs:
            log.unlink(missing_ok=True)
        keep_log(self.keep, name, text)
        return text


def in_a_child(folder: Path, work: Any) -> None:
    """Does the work as the first process of a group, with its output in a file."""
    os.setsid()
    descriptor = os.open(folder / f"log-{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    import torch

    torch.set_num_threads(1)
    torch.cuda.device_count = lambda: RANKS
    mode: Any = importlib.import_module("python.megatron.megatron_gpt")._OnCpu()
    mode.__enter__()  # until the process ends
    work()
    sys.stdout.flush()
    os._exit(0)  # threads of gloo may still wait


def copy_for_the_cpu(source: Path, into: Path) -> list[Path]:
    """Copies the tests, with what asks for GPUs taken out, and without the fixture that downloads data."""
    for file in (*(source / FOLDER).rglob("*.py"), source / "tests/unit_tests/test_utilities.py"):
        text = file.read_text()
        for pattern, replacement in _FOR_THE_CPU:
            text = pattern.sub(replacement, text)
        copy = into / file.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text)
    for package in (into / "tests", into / "tests/unit_tests"):
        (package / "__init__.py").touch()
    (into / "tests/unit_tests/conftest.py").write_text(_CONFTEST)
    return sorted(path.relative_to(into) for path in (into / FOLDER).rglob("test_*.py"))


def main() -> int:
    parser = arguments(__doc__ or "", "the source repository of Megatron-LM")
    parser.add_argument("--case", default="", help="run only the cases whose names contain this pattern")
    options = parser.parse_args()
    if not (options.dir / FOLDER).is_dir():
        parser.error(f"{options.dir} has no {FOLDER}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # which ends the ranks
    os.environ.update(CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")
    with tempfile.TemporaryDirectory(prefix="megatron-") as folder:
        os.chdir(folder)
        sys.path[:0] = [folder, str(Path(__file__).resolve().parents[1] / "tests")]
        sys.meta_path.append(NotInstalled())
        for name in ("python.megatron.megatron_gpt", "bitsnap.megatron"):  # the slow imports, once
            importlib.import_module(name)
        runs = Runs(Path(folder), options.timeout, options.keep)
        copies = copy_for_the_cpu(options.dir, runs.folder)
        files = [File(str(file.relative_to(FOLDER)), runs.outcomes(file, options.case)) for file in copies]
        return 0 if report(files, options.only) else 1


if __name__ == "__main__":
    sys.exit(main())
