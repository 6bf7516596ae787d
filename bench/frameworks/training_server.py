"""Starts trainings of one framework quickly: `python -m bench.frameworks.training_server MODULE`.

The process imports the framework once and forks a process for each training, which takes no import. It reads requests
from standard input and answers on standard output, one line of JSON each:

    {"train": {...}}   starts a training with all its ranks in a process group of its own; answers {"group": ID}
    {"wait": ID}       waits until all processes of the group have ended; answers {"status": of the first one}
    {"ended": ID}      answers {"ended": whether the first process of the group has ended}
    {"load": [...]}    loads each checkpoint with the framework; answers {"failures": {path: error}}

At the end of the input it kills the groups that are left.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bench.frameworks.small_training import Task, start_ranks
from bench.frameworks.training_journal import JournalObserver

PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    # Ranks whose first process was killed become children of this process, so that it can wait for them.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Only answers go to standard output. What frameworks print goes to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    module = importlib.import_module(f"bench.frameworks.{sys.argv[1]}")
    if hasattr(module, "prepare"):
        module.prepare()
    server = Server(module)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        ((name, value),) = json.loads(line).items()
        print(json.dumps(getattr(server, name)(value)), file=answers, flush=True)
    server.kill_all()


class Server:
    def __init__(self, module: Any) -> None:
        self._module = module
        self._groups: set[int] = set()
        self._statuses: dict[int, int] = {}  # of first processes that have ended

    def train(self, arguments: dict[str, Any]) -> dict[str, Any]:
        resume = arguments["resume"]
        task = Task(
            folder=Path(arguments["folder"]),
            resume=Path(resume) if resume else None,
            losses=Path(arguments["losses"]),
            last=arguments["last"],
            save_every=arguments["save_every"],
            observer=JournalObserver(Path(arguments["journal"]), arguments["pace_s"]),
        )
        group = _fork(lambda: self._train(task, arguments["ranks"]))
        self._groups.add(group)
        return {"group": group}

    def wait(self, group: int) -> dict[str, Any]:
        with contextlib.suppress(ChildProcessError):
            while True:
                process, status = os.waitpid(-group, 0)
                if process == group:
                    self._statuses[group] = os.waitstatus_to_exitcode(status)
        self._groups.discard(group)
        return {"status": self._statuses.get(group)}

    def ended(self, group: int) -> dict[str, Any]:
        if group not in self._statuses:
            process, status = os.waitpid(group, os.WNOHANG)
            if process == group:
                self._statuses[group] = os.waitstatus_to_exitcode(status)
        return {"ended": group in self._statuses}

    def load(self, paths: list[str]) -> dict[str, Any]:
        reading, writing = os.pipe()

        def load_all() -> None:
            failures = {}
            for path in paths:
                try:
                    self._module.load_all(Path(path))
                except Exception as error:  # whatever the framework raises
                    failures[path] = f"{type(error).__name__}: {error}"
            with os.fdopen(writing, "w") as out:
                json.dump({"failures": failures}, out)

        group = _fork(load_all)
        os.close(writing)
        with os.fdopen(reading) as answer:
            text = answer.read()
        status = self.wait(group)["status"]
        loaded: dict[str, Any] = json.loads(text) if text else {"failures": dict.fromkeys(paths, f"status {status}")}
        return loaded

    def kill_all(self) -> None:
        for group in list(self._groups):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
            self.wait(group)

    def _train(self, task: Task, ranks: int) -> None:
        if ranks > 1:
            start_ranks(self._module.train, task, ranks, "fork")
        else:
            self._module.train(task)


def _fork(work: Callable[[], None]) -> int:
    """Does the work in a new process, which leads a new process group. Returns its id."""
    process = os.fork()
    if process == 0:
        status = 1
        try:
            os.setpgid(0, 0)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            work()
            status = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    with contextlib.suppress(PermissionError, ProcessLookupError):
        os.setpgid(process, process)
    return process


if __name__ == "__main__":
    main()
