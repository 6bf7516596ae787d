"""Runs PyTorch's own tests of torch.distributed.checkpoint (DCP) with the storage of bitsnap.dcp, on the CPU with gloo.

    PYTHONPATH=python python scripts/run_torch_dcp_tests.py DIR [--only test_tp] [--keep LOGS]

DIR holds the files of `test/distributed/checkpoint` of PyTorch's source repository, of the tag of the installed torch.
They are not part of this repository: fetch them first. The tests need the package `expecttest`. With the files of
another tag, more cases fail with stock and are left out.

Each case runs twice, each time in a process of its own with a time limit: with DCP's FileSystemWriter and
FileSystemReader ("stock"), and with bitsnap's classes under these names, also in the processes that the test starts. A
case is left out, with the reason, if it is skipped or fails with stock, or never makes a writer or reader of files.
Most cases ask for GPUs, though nothing in them needs one: the script runs copies of the files that name the CPU.

Exits with 1 if a case passes with stock and fails with bitsnap.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from upstream_tests import File, Outcome, arguments, compare, keep_log, report

# Set in the process of a case. A process that a case spawns, such as that of an asynchronous save, imports this file as
# its main module, and so gets the same storage.
STORAGE = "BITSNAP_TORCH_DCP_STORAGE"  # "stock" or "ours"
TOUCHED = "BITSNAP_TORCH_DCP_TOUCHED"  # the file that exists once the case has made a writer or reader

# A file with none of these words cannot save to files.
_FILE_STORAGE = re.compile(r"FileSystem(Writer|Reader)|checkpoint_id|storage_(writer|reader)|to_torch_save|_to_dcp")

# What makes a test run on the CPU, in this order.
_FOR_THE_CPU = [
    (re.compile(r"^[ \t]*@(skip_if_lt_x_gpu|requires_nccl)\(.*\)\n", re.MULTILINE), ""),
    (re.compile(r"with_comms\(init_rpc=False\)"), 'with_comms(init_rpc=False, backend="gloo")'),
    (re.compile(r"\.cuda\((?:[^()]|\(\))*\)"), ".cpu()"),
    (re.compile(r'f?"cpu:gloo,[^"]*"'), '"gloo"'),
    (re.compile(r'f?"cuda(?::(?:\d+|\{[^}]*\}))?"'), '"cpu"'),
    (re.compile(r"(rank:(?:\d+|\{[^}]*\}))/cuda:(?:\d+|\{[^}]*\})"), r"\1/cpu"),
    (re.compile(r"device=dist\.get_rank\(\)"), 'device="cpu"'),
    (re.compile(r"device=self\.rank\b"), 'device="cpu"'),
    (re.compile(r"\.to\(self\.rank\)"), '.to("cpu")'),
    (re.compile(r'f"cpu:\{self\.rank\}"'), '"cpu"'),
    (re.compile(r"torch\.(cuda|accelerator)\.device_count\(\)"), "4"),
    (re.compile(r"torch\.cuda\.set_device\(.*\)"), "pass"),
]


def use_fsdp_on_the_cpu() -> None:
    """Lets FullyShardedDataParallel compute on the CPU if it is not told where, and its tests run with gloo."""
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.testing._internal.common_fsdp import FSDPTest

    init = FullyShardedDataParallel.__init__

    @functools.wraps(init)
    def on_the_cpu(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("device_id", torch.device("cpu"))
        init(self, *args, **kwargs)

    def run(cls: Any, /, rank: int, test_name: str, file_name: str, pipe: Any, **kwargs: Any) -> None:
        test = cls(test_name)
        test.rank, test.file_name = rank, file_name
        torch.distributed.init_process_group(
            "gloo", init_method=test.init_method, world_size=test.world_size, rank=rank
        )
        test.run_test(test_name, pipe)
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()

    FullyShardedDataParallel.__init__ = on_the_cpu  # type: ignore[method-assign]
    FSDPTest._run = classmethod(run)  # type: ignore[method-assign, assignment]


def note_use(cls: type[Any]) -> None:
    """Notes when an object of this class is made, or of a class that a test derives from it."""
    init = cls.__init__

    @functools.wraps(init)
    def noting(self: Any, *args: Any, **kwargs: Any) -> None:
        if type(self) is cls or not type(self).__module__.startswith("torch."):
            Path(os.environ[TOUCHED]).touch()
        init(self, *args, **kwargs)

    cls.__init__ = noting


def adapted_classes() -> tuple[type[Any], type[Any]]:
    """bitsnap's writer and reader with the arguments and attributes of DCP's.

    A directory of DCP holds one checkpoint, which the next save replaces, and may hold other files. So the checkpoint
    becomes step 0 of a store below the directory. The arguments that say how files are written are ignored.
    """
    from torch.distributed.checkpoint.staging import BlockingAsyncStager

    from bitsnap.dcp import StorageReader, StorageWriter

    def step_of(path: Any) -> Any:
        return path if path is None or "://" in os.fspath(path) else Path(path) / "store" / "step-0"

    class FileSystemWriter(StorageWriter, BlockingAsyncStager):
        def __init__(
            self,
            path: Any,
            *args: Any,
            cache_staged_state_dict: bool = False,
            overwrite: bool = True,
            **kwargs: Any,
        ) -> None:
            StorageWriter.__init__(self, step_of(path), overwrite=overwrite, allow_pickle=True)
            BlockingAsyncStager.__init__(self, cache_staged_state_dict=cache_staged_state_dict)

        def reset(self, checkpoint_id: Any = None) -> None:
            super().reset(step_of(checkpoint_id))

        @property
        def save_id(self) -> str | None:
            meta = self.storage_meta()
            return None if meta is None else meta.save_id

    class FileSystemReader(StorageReader):
        def __init__(self, path: Any, *args: Any, **kwargs: Any) -> None:
            super().__init__(step_of(path), allow_pickle=True)
            self.path = path

        def reset(self, checkpoint_id: Any = None) -> None:
            super().reset(step_of(checkpoint_id))
            self.path = checkpoint_id or self.path

        def read_metadata(self, *args: Any, **kwargs: Any) -> Any:
            metadata = super().read_metadata(*args, **kwargs)
            assert metadata.storage_meta is not None
            metadata.storage_meta.checkpoint_id = self.path
            return metadata

        @classmethod
        def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
            return super().validate_checkpoint_id(step_of(checkpoint_id))

        @property
        def load_id(self) -> str:
            return self._load_id

    for cls in (FileSystemWriter, FileSystemReader):
        cls.__module__, cls.__qualname__ = __name__, cls.__name__  # found here by pickle
        globals()[cls.__name__] = cls
    return FileSystemWriter, FileSystemReader


def use_storage(storage: str) -> None:
    """Puts the writer and reader of this run into torch's modules, before the test is imported."""
    package = "torch.distributed.checkpoint"
    checkpoint: Any = importlib.import_module(package)
    for name in ("_fsspec_filesystem", "hf_storage", "format_utils", "_storage_utils"):
        importlib.import_module(f"{package}.{name}")  # which derives from stock, or uses it
    use_fsdp_on_the_cpu()
    stock = (checkpoint.FileSystemWriter, checkpoint.FileSystemReader)
    used: tuple[Any, ...] = adapted_classes() if storage == "ours" else stock
    for old, new in zip(stock, used, strict=True):
        note_use(new)
        name = str(new.__name__)
        for module in [sys.modules[key] for key in sorted(sys.modules) if key.startswith(package)]:
            if getattr(module, name, None) is old:
                setattr(module, name, new)


def suite_of(file: Path) -> Iterator[unittest.TestCase]:
    """The cases of a file of tests."""
    sys.path.insert(0, str(file.parent))
    pending: list[Any] = [unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(file.stem))]
    while pending:
        test = pending.pop(0)
        if isinstance(test, unittest.TestCase):
            yield test
        else:
            pending[:0] = list(test)


def name_of(test: unittest.TestCase) -> str:
    return ".".join(test.id().split(".")[-2:])


def list_cases(file: Path, into: Path) -> None:
    into.write_text(json.dumps([name_of(test) for test in suite_of(file)]))


def run_case(file: Path, case: str, into: Path) -> None:
    """Runs one case in this process, and writes its outcome."""
    test = next(test for test in suite_of(file) if name_of(test) == case)
    result = unittest.TextTestRunner(stream=sys.stderr, verbosity=2).run(unittest.TestSuite([test]))
    if result.failures or result.errors:
        outcome = Outcome("failed")  # the output says why
    elif result.skipped:
        outcome = Outcome("skipped", result.skipped[0][1])
    else:
        outcome = Outcome("passed")
    into.write_text(json.dumps(outcome))


def reason_of(log: str) -> str:
    """The line that says most: the first error that is not about errors of other processes."""
    errors = [line.strip() for line in log.splitlines() if re.match(r"\s*[\w.]*(Error|Exception)\b.*:", line)]
    about_others = re.compile(
        r"RuntimeError: (Process|Exception in worker)|.*CheckpointException: .*ranks:|.*Scalars are not"
    )
    own = [line for line in errors if not about_others.match(line)]
    return (own or errors or ["no error was printed"])[0][:200]


class Runs:
    """Runs the cases of files, each in a process of its own, one after the other. Owns the folder."""

    def __init__(self, folder: Path, timeout: float, keep: Path | None) -> None:
        self.folder = folder
        self.timeout = timeout
        self.keep = keep

    def cases(self, file: Path) -> list[str]:
        answer, log = self._child("stock", functools.partial(list_cases, file), f"{file.stem}.list")
        if answer is None:
            raise RuntimeError(f"{file.name} cannot be imported: {reason_of(log)}")
        return [str(name) for name in answer]

    def outcomes(self, file: Path) -> Iterator[tuple[str, Outcome]]:
        touches = _FILE_STORAGE.search(file.read_text()) is not None
        unused = "does not touch file storage"
        for case in self.cases(file):
            run = functools.partial(self._run, file, case)
            outcome = compare(run, (self.folder / "touched").exists, unused) if touches else Outcome("left out", unused)
            yield case, outcome

    def _run(self, file: Path, case: str, storage: str) -> Outcome:
        answer, log = self._child(storage, functools.partial(run_case, file, case), f"{file.stem}.{case}.{storage}")
        if answer is None:
            return Outcome("failed", log if log.startswith("no end") else f"the process died: {reason_of(log)}")
        outcome = Outcome(*answer)
        return Outcome("failed", reason_of(log)) if outcome.word == "failed" else outcome

    def _child(self, storage: str, work: Callable[[Path], None], name: str) -> tuple[Any, str]:
        """What `work` answers in a process of its own, None if it dies, and what it prints."""
        scratch, answer, touched, log = (self.folder / name for name in ("tmp", "answer", "touched", "log"))
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        for old in (answer, touched):
            old.unlink(missing_ok=True)
        child = multiprocessing.get_context("fork").Process(
            target=in_a_child, args=(storage, scratch, touched, log, lambda: work(answer))
        )
        child.start()
        assert child.pid is not None
        child.join(self.timeout)
        ended = child.exitcode is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # with all that it has started
        child.join()
        text = log.read_text(errors="replace")
        keep_log(self.keep, name, text)
        if not ended:
            return None, f"no end after {self.timeout:g} seconds"
        return (json.loads(answer.read_text()) if answer.exists() else None), text


def in_a_child(storage: str, scratch: Path, touched: Path, log: Path, work: Callable[[], None]) -> None:
    """Does the work as the first process of a group, with its output in a file."""
    os.setsid()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.chdir(scratch)
    os.environ.update({STORAGE: storage, TOUCHED: str(touched), "TMPDIR": str(scratch)})
    tempfile.tempdir = None
    use_storage(storage)
    fork_ranks()
    work()


def load_what_tests_need() -> None:
    """Imports the slow modules once: all processes are forked from this one."""
    os.environ.update(CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")
    for name in (
        "torch.distributed.checkpoint.state_dict",
        "torch.distributed.fsdp",
        "torch.distributed.tensor.parallel",
        "torch.testing._internal.common_fsdp",
        "torch.testing._internal.distributed._shard.sharded_tensor._test_st_common",
        "torch.testing._internal.distributed._tensor.common_dtensor",
        "bitsnap.dcp",
    ):
        importlib.import_module(name)


def fork_ranks() -> None:
    """Lets torch's tests fork the processes of their ranks, which only GPUs forbid: each would import torch."""
    from torch.testing._internal.common_distributed import MultiProcessTestCase

    def fork(self: Any) -> None:
        self._start_processes(multiprocessing.get_context("fork").Process)

    MultiProcessTestCase._spawn_processes = fork  # type: ignore[method-assign]
    multiprocessing.set_start_method("fork", force=True)


def copy_for_the_cpu(source: Path, into: Path, scratch: Path) -> list[Path]:
    """Copies the files of tests, with what asks for GPUs taken out."""
    copies = []
    for file in sorted(source.rglob("test_*.py")):
        text = file.read_text()
        for pattern, replacement in _FOR_THE_CPU:
            text = pattern.sub(replacement, text)
        copy = into / file.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text.replace('"/tmp/', f'"{scratch}/'))
        copies.append(copy)
    return copies


def main() -> int:
    parser = arguments(__doc__ or "", "PyTorch's test/distributed/checkpoint")
    options = parser.parse_args()
    if not options.dir.is_dir():
        parser.error(f"{options.dir} is no directory")
    if not any(options.dir.rglob("test_*.py")):
        parser.error(f"{options.dir} has no files test_*.py")
    load_what_tests_need()
    with tempfile.TemporaryDirectory(prefix="torch-dcp-") as folder:
        runs, tests = Runs(Path(folder), options.timeout, options.keep), Path(folder) / "tests"
        copies = copy_for_the_cpu(options.dir, tests, Path(folder) / "tmp")
        files = [File(str(file.relative_to(tests)), runs.outcomes(file)) for file in copies]
        return 0 if report(files, options.only) else 1


if os.environ.get(STORAGE):
    use_storage(os.environ[STORAGE])
if __name__ == "__main__":
    sys.exit(main())
