"""Calls every public function of bitsnap that takes a path with another value of it, in a process of its own.

    python -m python.arguments.path_arguments FOLDER VALUE MODULE...

prints a JSON object with the outcome for each parameter, such as "Store.add_folder(path)": an exception, or what was
returned. The parameters are found by their annotations, so that those of new functions are found, too. A parameter that
is needed besides has its value in ARGUMENTS.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch

import bitsnap

# The other arguments of a call, by their names; another path is "new".
PATHS = {"checkpoint_id": "run/step-1", "run": "run", "source": "state.bsnap"}
ARGUMENTS: dict[str, Any] = {
    "checkpoint": {"global_step": 1},
    "data": bitsnap.dumps({}),
    "file": "",
    "framework": "np",
    "repo_id": "name",
    "model": torch.nn.Linear(1, 1),
    "state": {"a": np.arange(8)},
    "state_dict": {},
    "step": 1,
    "tag": "global_step1",
    "tensors": {"a": np.arange(8)},
}


class Parameter(NamedTuple):
    """A path that a function takes, or a method of `owner`."""

    label: str
    owner: type | None
    function: Callable[..., Any]
    name: str


def parameters(module: ModuleType) -> Iterator[Parameter]:
    exported = set(re.findall(r"\b(\w+) as \1\b", inspect.getsource(module)))
    for name, value in sorted(vars(module).items()):
        is_public = name in exported or getattr(value, "__module__", "") == module.__name__
        if name.startswith("_") or not is_public:
            continue
        if inspect.isfunction(value):
            yield from (Parameter(f"{name}({each})", None, value, each) for each in _paths_of(value))
        elif inspect.isclass(value):
            for method, function in inspect.getmembers(value, callable):
                if method == "__init__" or not method.startswith("_"):
                    for each in _paths_of(function):
                        yield Parameter(f"{name}.{method}({each})", value, function, each)


def _paths_of(function: Callable[..., Any]) -> list[str]:
    if not str(getattr(function, "__module__", "")).startswith("bitsnap") or not hasattr(function, "__code__"):
        function = getattr(function, "__func__", function)
        if not inspect.isfunction(function) or not function.__module__.startswith("bitsnap"):
            return []
    annotations = {name: str(each.annotation) for name, each in inspect.signature(function).parameters.items()}
    return [name for name, text in annotations.items() if "PathLike" in text or "Bases" in text]


def outcome(parameter: Parameter, value: Any) -> str:
    """What a call with the value raises, or else returns."""
    given: dict[str, Any] = {}
    for name, each in inspect.signature(parameter.function).parameters.items():
        is_needed = each.default is each.empty and each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
        if name == parameter.name:
            given[name] = value
        elif is_needed and name != "self":
            is_path = name in _paths_of(parameter.function)
            given[name] = PATHS.get(name, "new") if is_path else ARGUMENTS[name]
    if parameter.name == "bases" and "base" in inspect.signature(parameter.function).parameters:
        given["base"] = "state.bsnap"
    try:
        return f"returned {_call(parameter, given)!r}"
    except BaseException as error:  # one of DCP is no Exception
        return f"{type(error).__name__}: {error}"


def _call(parameter: Parameter, given: dict[str, Any]) -> Any:
    owner, function = parameter.owner, parameter.function
    if owner is None or inspect.ismethod(function) or "self" not in inspect.signature(function).parameters:
        return function(**given)
    if function.__name__ == "__init__":
        made = owner(**given)
        if isinstance(made, bitsnap.AgentOptions):
            return bitsnap.Checkpointer("run-of-agent", agent=made)
    else:
        return function(_instance(owner), **given)
    return made


def _instance(owner: type) -> Any:
    if issubclass(owner, bitsnap.Store):
        return bitsnap.Store("run")
    if issubclass(owner, bitsnap.Folder):
        return bitsnap.open_folder("folder.bsnap")
    if issubclass(owner, bitsnap.FolderFile):
        return bitsnap.open_folder("folder.bsnap")[""]
    if owner.__init__ is not object.__init__ and "path" in inspect.signature(owner).parameters:
        return owner()  # of DCP
    if owner.__name__ == "CheckpointIO":
        return owner()
    made = owner.__new__(owner)  # what needs processes or an agent
    vars(made).update(_folder=None, _pending=None)
    return made


def main(folder: str, value: str, *modules: str) -> None:
    os.chdir(folder)
    with bitsnap.Store("run") as store:
        Path("file").write_bytes(b"1234")
        store.add_folder(1, "file")
    bitsnap.save("state.bsnap", ARGUMENTS["state"])
    bitsnap.save_folder("file", "folder.bsnap")
    before = set(Path().iterdir())
    found = {}
    for name in modules:
        for parameter in parameters(importlib.import_module(name)):
            found[f"{name}.{parameter.label}"] = outcome(parameter, value)
    print(json.dumps({"outcomes": found, "made": sorted(map(str, set(Path().iterdir()) - before))}))


if __name__ == "__main__":
    main(*sys.argv[1:])
