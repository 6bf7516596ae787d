"""Runs for tests of the report, and its page taken apart into elements and figures."""

from __future__ import annotations

import base64
import gzip
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

from bitsnap.report.report_page import write_report
from cli.command_line import run
from cli.tensor_file import Tensor, weights, write

ELEMENTS = 4096


class Page(HTMLParser):
    """The elements of a page, and what stands in its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: str | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = tag
        self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = None

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            self.texts[self._open][-1] += data

    @property
    def document(self) -> Any:
        """The data of the page, which is compressed in a whole one."""
        (kind,) = [attributes["type"] for tag, attributes in self.tags if attributes.get("id") == "data"]
        text = self.texts["script"][0]
        return json.loads(text if kind == "application/json" else gzip.decompress(base64.b64decode(text)))

    @property
    def policy(self) -> str:
        (policy,) = [a["content"] for tag, a in self.tags if a.get("http-equiv") == "Content-Security-Policy"]
        assert policy is not None
        return policy


def make_run(path: Path, steps: list[int], name: str = "layers.3.w") -> Path:
    """Weights beside their masters and moments, of which a few change from step to step."""
    for step in steps:
        tensors = []
        for seed, role in enumerate(["master", "optimizer.exp_avg", "optimizer.exp_avg_sq"]):
            values = np.frombuffer(weights(name, ELEMENTS, seed).data, np.uint32).copy()
            if role.endswith("_sq"):
                values &= np.uint32(0x7FFFFFFF)
            changes = np.random.default_rng(1000 * step + seed)
            values[changes.integers(0, ELEMENTS, ELEMENTS // 4)] ^= changes.integers(1, 64, ELEMENTS // 4, np.uint32)
            tensors.append(Tensor(f"{role}.{name}", "F32", (64, 64), values.tobytes()))
            if role == "master":
                half = (values >> np.uint32(16)).astype(np.uint16)
                tensors.append(Tensor(f"model.{name}", "BF16", (64, 64), half.tobytes()))
        tensors.append(Tensor("step", "I64", (), np.int64(step).tobytes()))
        run("add", path, "--step", step, write(path.with_name("state.safetensors"), tensors))
    return path


def page_of(path: Path, **options: Any) -> Page:
    output = path.with_name(f"{path.name}-page.html")
    write_report(path, output, overwrite=True, **options)
    return Page(output.read_text(encoding="utf-8"))


def traces(figure: Any, *choice: int) -> list[dict[str, Any]]:
    variants = figure["variants"] if isinstance(figure, dict) else figure.variants
    return list(variants[",".join(map(str, choice))]["data"])
