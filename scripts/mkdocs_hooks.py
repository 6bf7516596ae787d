"""Lets MkDocs show the Markdown of docs/ as a code host shows it; mkdocs.yml names this file as a hook.

The pages are written for both. What differs:
- A link to a file outside docs/, such as ../../examples/torch/train.py, has no page in the site: it becomes the name of
  the file as code. A link to a file that does not exist is a warning, which ends a strict build.
- Python-Markdown asks for an indent of four spaces in lists, and for an empty line before a list.
- An entry FOLDER/*.md of `nav` stands for the pages of the folder that no other entry names.

FencedExamples is an extension of Griffe, which reads the docstrings: the code below "Example:" becomes a block of code.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import griffe

log = logging.getLogger("mkdocs.hooks.bitsnap")

_LINK = re.compile(r"\[((?:[^\[\]`]|`[^`]*`)*)\]\(([^()\s]+)\)")
_FENCE = re.compile(r"(`{3,}|~{3,})")
_ITEM = re.compile(r"([-*+]|\d+[.)])( +)(?=\S)")
_EXAMPLE = re.compile(r"^Example:\n((?:(?: {4}.*)?\n)*(?: {4}.*))", re.MULTILINE)


class FencedExamples(griffe.Extension):
    """Makes the code below "Example:" in a docstring a block of code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(r"Examples:\n    ```python\n\1\n    ```", obj.docstring.value)


def on_config(config: Any) -> Any:
    """Replaces the entries FOLDER/*.md of the navigation."""
    docs = Path(config["docs_dir"])
    named: set[str] = set()

    def collect(entries: Any) -> None:
        for entry in entries:
            for value in entry.values() if isinstance(entry, dict) else [entry]:
                collect(value) if isinstance(value, list) else named.add(value)

    def expand(entries: Any) -> list[Any]:
        result: list[Any] = []
        for entry in entries:
            if isinstance(entry, str) and entry.endswith("/*.md"):
                found = (path.relative_to(docs).as_posix() for path in sorted(docs.glob(entry)))
                result += [path for path in found if path not in named]
            elif isinstance(entry, dict):
                result.append(
                    {key: expand(value) if isinstance(value, list) else value for key, value in entry.items()}
                )
            else:
                result.append(entry)
        return result

    collect(config["nav"])
    config["nav"] = expand(config["nav"])
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """The text of a page as Python-Markdown wants it."""
    docs = Path(config["docs_dir"])
    source = docs / page.file.src_uri

    def link(found: re.Match[str]) -> str:
        text, target = found.groups()
        path = target.partition("#")[0]
        if not path or re.match(r"[a-z]+:", path):
            return found[0]
        place = (source.parent / path).resolve()
        if place.is_relative_to(docs):
            return found[0]  # MkDocs checks it
        if not place.exists():
            log.warning("%s: a link leads to %s, which does not exist", page.file.src_uri, target)
        name = place.relative_to(docs.parent).as_posix() if place.is_relative_to(docs.parent) else path
        plain = text.strip("`")
        return f"`{name}`" if plain == name or name.endswith("/" + plain) else f"{text} (`{name}`)"

    return _indented("".join(lines if is_code else _LINK.sub(link, lines) for is_code, lines in _fenced(markdown)))


def _fenced(markdown: str) -> list[tuple[bool, str]]:
    """The text in turns of prose and of fenced blocks."""
    parts: list[tuple[bool, str]] = []
    fence = ""
    for line in markdown.splitlines(keepends=True):
        mark = _FENCE.match(line.lstrip())
        opens = not fence and mark is not None
        closes = bool(fence) and line.strip() == fence
        if opens and mark is not None:
            fence = mark[1]
        parts.append((bool(fence), line))
        if closes:
            fence = ""
    joined: list[tuple[bool, str]] = []
    for is_code, line in parts:
        if joined and joined[-1][0] == is_code:
            joined[-1] = (is_code, joined[-1][1] + line)
        else:
            joined.append((is_code, line))
    return joined


def _indented(markdown: str) -> str:
    """Lists with four spaces for each level, and an empty line before each list that follows a paragraph."""
    result: list[str] = []
    columns: list[int] = []  # where the text of each open item begins
    fence = ""
    is_loose = False  # whether the last item has an empty line
    for line in markdown.splitlines():
        text = line.lstrip(" ")
        indent = len(line) - len(text)
        if not text:
            result.append("")
            is_loose = True
            continue
        if not fence:
            before = result[-1] if result else ""
            item = _ITEM.match(text)
            if item and before and not columns and item[1][0].isdigit() and item[1][:-1] != "1":
                item = None  # a number at the beginning of a line of a paragraph
            lazy = bool(before) and not item and bool(columns) and not _FENCE.match(text) and indent >= columns[0] - 1
            while columns and indent < columns[-1] and not lazy:
                columns.pop()
            if item and indent - (columns[-1] if columns else 0) < 4:
                follows_paragraph = not _ITEM.match(before.lstrip()) and not before.startswith("    ")
                if before and not columns and (is_loose or follows_paragraph):
                    result.append("")
                is_loose = False
                result.append("    " * len(columns) + text)
                columns.append(indent + len(item[1]) + len(item[2]))
                continue
        start = min(columns[-1] if columns else 0, indent)
        result.append("    " * len(columns) + line[start:])
        mark = _FENCE.match(text)
        if fence:
            fence = "" if text.rstrip() == fence else fence
        elif mark:
            fence = mark[1]
    return "\n".join(result) + "\n"
