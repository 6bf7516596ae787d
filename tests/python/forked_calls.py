"""Calls functions of a module in forked processes, so that a framework that is slow to import is imported once.

`python -m python.forked_calls MODULE` imports the module and then forks a process for each call. It reads calls from
standard input and answers on standard output, a line of JSON each. What frameworks print goes to standard error.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import torch

_TESTS = Path(__file__).resolve().parents[1]


class Calls:
    def __init__(self, process: subprocess.Popen[str], log: TextIO) -> None:
        self._process, self._log = process, log

    def status(self, function: str, **arguments: Any) -> tuple[int, Any]:
        """Calls a function. Its exit status, which is negative if a signal ended it, and what it returned."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([function, arguments]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            self._log.seek(0)
            raise AssertionError(f"the server has died: {self._log.read()[-4000:]}")
        status, result = json.loads(answer)
        return status, result

    def __call__(self, function: str, **arguments: Any) -> Any:
        """What a function returns; fails with its traceback."""
        status, result = self.status(function, **arguments)
        assert status == 0, f"{function}({arguments}): status {status}: {result}"
        return result


@contextlib.contextmanager
def calls_of(module: str) -> Iterator[Calls]:
    paths = [str(_TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1"}
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(
            [sys.executable, "-m", "python.forked_calls", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
        ) as process,
    ):
        try:
            yield Calls(process, log)
        finally:
            process.kill()


def on_ranks(meeting: str, work: Callable[[], Any]) -> list[int]:
    """Forks two ranks of torch.distributed, which write what `work` returned to files. Their exit statuses."""
    ranks = []
    for rank in range(2):
        process = os.fork()
        if process == 0:
            status = 1
            try:
                os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
                torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
                Path(f"{meeting}-{rank}.json").write_text(json.dumps(work()))
                if torch.distributed.is_initialized():  # the training may have left it
                    torch.distributed.barrier()
                status = 0
            except BaseException:
                traceback.print_exc()
            os._exit(status)
        ranks.append(process)
    return [os.waitstatus_to_exitcode(os.waitpid(each, 0)[1]) for each in ranks]


def _call(module: Any, function: str, arguments: dict[str, Any]) -> tuple[int, Any]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status, result = 1, None
        try:
            os.close(reading)
            result = getattr(module, function)(**arguments)
            status = 0
        except BaseException:
            result = traceback.format_exc()
        finally:
            with os.fdopen(writing, "w") as out:
                json.dump(result, out)
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), json.loads(text) if text else None


def _serve(name: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    module = importlib.import_module(name)
    importlib.import_module("torch._dynamo")  # which the first optimizer of a process imports, in seconds
    gc.freeze()  # a collection in a fork would copy all of this process
    for line in sys.stdin:
        function, arguments = json.loads(line)
        print(json.dumps(_call(module, function, arguments)), file=answers, flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1])
