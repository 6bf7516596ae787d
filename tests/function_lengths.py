"""Finds the functions of a C++ or Python source and their numbers of lines.

Python is parsed. C++ is read by its braces, without the preprocessor: enough for sources that clang-format formats.
Lambdas and local classes count as part of the function around them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

# Comments, raw strings, strings and characters (not the digit separators of numbers): braces in them mean nothing.
IGNORED = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^()\\ ]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"' r"|(?<![0-9a-zA-Z_])'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
KEYWORDS = "namespace|class|struct|union|enum|extern"
SCOPE = re.compile(rf"^\s*(?:template\s*<.*>\s*)?(?:inline\s+)?(?:{KEYWORDS})\b", re.DOTALL)


class Function(NamedTuple):
    name: str
    line: int
    lines: int


def python_functions(text: str) -> Iterator[Function]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            yield Function(node.name, node.lineno, node.end_lineno - node.lineno + 1)


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def _opens_scope(head: str) -> bool:
    """Whether the brace after `head` opens a namespace or a class, rather than a function or an initializer."""
    return bool(SCOPE.match(head)) and "(" not in re.sub(r"alignas\([^)]*\)|__attribute__\(\(.*?\)\)", "", head)


def cpp_functions(text: str) -> Iterator[Function]:
    text = DIRECTIVE.sub(_blank, IGNORED.sub(_blank, text))
    head = 0  # start of the current declaration
    depth = 0  # open braces in the current function or initializer
    begin = 0
    for match in re.finditer(r"[{};]", text):
        if depth > 0:
            depth += {"{": 1, "}": -1}.get(match[0], 0)
            if depth > 0:
                continue
            declaration = text[head:begin]
            name = re.search(r"([\w:~]+|operator[^\w\s]+)\s*\(", declaration)
            if name and not re.search(r"=\s*$", declaration):
                first = head + len(declaration) - len(declaration.lstrip())
                line = text.count("\n", 0, first) + 1
                yield Function(name[1], line, text.count("\n", first, match.end()) + 1)
        elif match[0] == "{" and not _opens_scope(text[head : match.start()]):
            begin = match.start()
            depth = 1
            continue
        head = match.end()
