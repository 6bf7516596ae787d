"""The rules of python/bitsnap that can be read from its sources: which room imports which, that no modules import each
other in a circle, and that no two classes have the same name.

A room is a module or a package. It imports only itself and the rooms below it, also inside functions and for types.
"""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

# From the bottom up; above all of them is the package itself, whose __init__.py hands names on. A leading underscore
# marks what users do not import.
ROOMS = [
    "errors",
    "_common",
    "_objects",
    "_display",
    "_references",
    "_explained",
    "agents",
    "_run_copies",
    "_tensors",
    "_states",
    "weights",
    "snapshot",
    "state",
    "folder",
    "files",
    "_in_memory",
    "_branches",
    "_store",
    "store",
    "_engine",
    "callbacks",
    "checkpointer",
    "_runs",
    "torch",
    "dcp",
    "megatron",
    "deepspeed",
    "lightning",
    "accelerate",
    "transformers",
    "report",
    "__main__",
]
PACKAGE = "bitsnap"
EXTENSION = f"{PACKAGE}._bitsnap"


def _name_of(path: Path) -> str:
    """Of a module, by its path in the folder of the package."""
    parts = path.with_suffix("").parts
    return ".".join((PACKAGE, *(parts[:-1] if parts[-1] == "__init__" else parts)))


def _imports(tree: ast.Module, modules: set[str]) -> Iterator[tuple[int, str]]:
    """The lines and modules of all imports from the package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == PACKAGE:
                    yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.level > 0:
            yield node.lineno, "." * node.level
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == PACKAGE:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield node.lineno, inner if inner in modules or inner == EXTENSION else node.module


def _room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def _why_not(importer: str, module: str, modules: set[str]) -> str | None:
    """Why a module may not import another one; None if it may."""
    if module.startswith("."):
        return "modules are imported by their whole names"
    if importer == PACKAGE or module == EXTENSION:
        return None
    if module == PACKAGE:
        return "only users import the package itself"
    if module not in modules:
        return "there is no such module"
    above, below = _room_of(importer), _room_of(module)
    if below in ROOMS and ROOMS.index(below) > ROOMS.index(above):
        return f"{above} is below {below}"
    return None


def violations(root: Path) -> list[str]:
    """Of the package in `root`/python/bitsnap. Paths are relative to `root`."""
    folder = root / "python" / PACKAGE
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.py"))}
    names = {path: _name_of(path.relative_to(folder)) for path in trees}
    modules = set(names.values())
    found: list[str] = []
    graph: dict[str, set[str]] = {}
    classes: dict[str, Path] = {}
    for path, tree in trees.items():
        importer, shown = names[path], path.relative_to(root)
        if importer != PACKAGE and _room_of(importer) not in ROOMS:
            found.append(f"{shown}: there is no room {_room_of(importer)}")
            continue
        for line, module in sorted(set(_imports(tree, modules))):
            if reason := _why_not(importer, module, modules):
                found.append(f"{shown}:{line}: imports {module}: {reason}")
            elif module in modules and module != importer:
                graph.setdefault(importer, set()).add(module)
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef):
                continue
            if node.name in classes:
                found.append(f"{shown}:{node.lineno}: {classes[node.name]} has a class {node.name}, too")
            classes.setdefault(node.name, shown)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        circle = error.args[1]
        paths = {name: path.relative_to(root) for path, name in names.items()}
        found.append(f"{paths[circle[0]]}: a circle of imports: {' <- '.join(circle)}")
    return found
