"""The stub of the extension names what the extension has, no more and no less."""

from __future__ import annotations

import ast
from pathlib import Path

from bitsnap import _bitsnap


def members(body: list[ast.stmt]) -> set[str]:
    names = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return {name for name in names if not name.startswith("__")}


def public(names: list[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def test_the_stub_and_the_extension_name_the_same_things() -> None:
    stub = ast.parse(Path(str(_bitsnap.__file__)).with_name("_bitsnap.pyi").read_text())
    assert members(stub.body) == public(dir(_bitsnap))
    for node in stub.body:
        if isinstance(node, ast.ClassDef):
            assert members(node.body) == public(dir(getattr(_bitsnap, node.name))), node.name
