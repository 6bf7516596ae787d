"""A server of a report as a user starts it, and requests to it."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from cli.command_line import executable
from python.report.report_pages import Page

PATIENCE = 40.0


class Answer:
    """A status, headers and a body."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.text = response.read().decode()

    @property
    def page(self) -> Page:
        return Page(self.text)

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Server:
    """`bitsnap report RUN --serve`, or the same with another program as the command bitsnap. Warnings are errors."""

    def __init__(self, run: Path, *options: object, command: Path | None = None) -> None:
        program = [sys.executable, "-m", "bitsnap.report"] if command else [executable(), "report"]
        own = {"PYTHONWARNINGS": "error", **({"BITSNAP_COMMAND": str(command)} if command else {})}
        self.process = subprocess.Popen(
            [*program, str(run), "--serve", *map(str, options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **own},
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/", self.url)
        assert found, (self.url, self.process.stderr and self.process.stderr.read())
        self.port = int(found[1])

    def get(self, path: str = "/", method: str = "GET", address: str = "127.0.0.1", **headers: str) -> Answer:
        connection = http.client.HTTPConnection(address, self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, headers={name.replace("_", "-"): text for name, text in headers.items()})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def update_until(self, fits: Callable[[Page], bool]) -> Page:
        """The first newer page that fits. A server that answers anything but pages fails the test."""
        version, said = "", ""
        for _ in range(int(PATIENCE / 0.1)):
            answer = self.get(f"/update?version={version}")
            assert answer.status in {200, 204}, answer.status
            if answer.status == 200:
                page = answer.page
                version, said = page.document["version"], notices_of(page)
                if fits(page):
                    return page
            time.sleep(0.1)
        raise AssertionError(f"no page fits; the last one says: {said}")

    def end(self, number: signal.Signals = signal.SIGINT) -> tuple[int, str]:
        """The exit status, and what it said on standard error."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, said

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        """A test that succeeds has a server that said nothing and ends as it should."""
        if self.process.poll() is None:
            ended = self.end()
            if kind is None:
                assert ended == (0, "")


def steps_of(page: Page) -> list[str]:
    """The steps that the page shows the sizes of."""
    figures = page.document["figures"]
    return list(figures["bytes"]["variants"]["0"]["data"][0]["x"]) if figures else []


def notices_of(page: Page) -> str:
    return " ".join(page.texts.get("p", []))
