"""plotly.js as a page holds it: with the traces that a report draws, and no others.

The package plotly brings all of plotly.js, 4.8 MB, of which three quarters are maps, scenes in three dimensions and
other traces that a report does not draw. Its file is a bundle of modules, each of which is a function with a name:
`var a=W((b,c)=>{...});`. One of them registers the traces. Taking the others off its list, and then leaving out all
modules that nothing refers to any more, makes what plotly calls a partial bundle. A module is kept if its name is
called anywhere in what is kept, so that a guess that is wrong keeps too much. A file of another form is used as it is.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Set
from functools import cache
from importlib import resources
from itertools import pairwise

# The traces of report_figures and the modules that use it. `scatter` is part of the core.
TRACES = frozenset({"scatter", "bar", "heatmap"})

_NAME = r"[A-Za-z_$][\w$]*"
# The function that makes a module: it calls another one the first time, and then returns what that one exported.
_MAKER = re.compile(
    rf"({_NAME})=\((\w),(\w)\)=>\(\)=>[^=]{{0,60}}?\b(\w)\|\|\w\(\(\4=\{{exports:\{{\}}\}}\)\.exports,\4\)"
)
# The same for modules of the newer kind, which have no exports: the function that it calls the first time is forgotten.
_NEWER_MAKER = re.compile(rf"({_NAME})=\((\w),\w(?:,\w)?\)=>\(\)=>[^=]{{0,60}}?[({{ ]\2&&")
_CALL = re.compile(rf"(?<![\w$.])({_NAME})\(\)")
_LIST = re.compile(rf"\.register\(\[((?:{_NAME}\(\),)+{_NAME}\(\))\]\)")
_TRACE = re.compile(r'moduleType:"trace",name:"(\w+)"')
# A module that hands on another one is shorter.
_SHORTEST_MODULE = 300


def partial_bundle(script: str, traces: Set[str] = TRACES) -> str | None:
    """The script with these traces only, or None if it is no bundle of the form that is known."""
    makers = [re.escape(found[1]) for found in (_MAKER.search(script), _NEWER_MAKER.search(script)) if found]
    if len(makers) != 2:
        return None
    begins = rf"(?<=[;\n])var {_NAME}={makers[0]}\(\(?[\w$,]*\)?=>\{{"
    starts = [0, *(found.start() for found in re.finditer(begins, script)), len(script)]
    parts = [script[start:end] for start, end in pairwise(starts)]
    # The first part has the functions that make modules, and the last one the first call.
    if not all(part.endswith("});") for part in parts[1:-1]):
        return None
    declared = re.compile(rf"(?<![\w$.])({_NAME})=(?:{'|'.join(makers)})\(")
    owners = {name: number for number, part in enumerate(parts) for name in declared.findall(part)}
    lists = [(number, found[1]) for number, part in enumerate(parts) for found in _LIST.finditer(part)]
    if len(lists) != 1:
        return None
    ((place, listed),) = lists
    names = _CALL.findall(listed)
    kept = [name for name in names if (_trace_of(name, parts, owners) or "") in traces]
    if len(kept) < len(traces - {"scatter"}):
        return None
    parts[place] = _LIST.sub(lambda _: f".register([{','.join(f'{name}()' for name in kept)}])", parts[place])
    return "".join(parts[number] for number in sorted(_reached(parts, owners)))


def _trace_of(name: str, parts: list[str], owners: dict[str, int], further: int = 2) -> str | None:
    """The trace that the module has or hands on."""
    part = parts[owners[name]] if name in owners else ""
    if found := _TRACE.search(part):
        return found[1]
    others = _CALL.findall(part) if further and len(part) < _SHORTEST_MODULE else []
    return next((trace for other in others if (trace := _trace_of(other, parts, owners, further - 1))), None)


def _reached(parts: list[str], owners: dict[str, int]) -> set[int]:
    """The parts that the first and the last one need."""
    reached: set[int] = set()
    wanted = {0, len(parts) - 1}
    while wanted:
        number = wanted.pop()
        reached.add(number)
        wanted |= {owners[name] for name in _CALL.findall(parts[number]) if name in owners} - reached
    return reached


@cache
def plotly() -> tuple[str, str]:
    """plotly.js, compressed and in base64, and the hash of the script as a content security policy names it.

    Browsers since 2023 can unpack gzip. The partial bundle takes 0.5 MB so, and the whole script 2.0 MB.
    """
    whole = (resources.files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    script = partial_bundle(whole) or whole
    return packed(script), hash_of(script)


def packed(text: str) -> str:
    """As a page holds what its scripts unpack: with gzip, in base64."""
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def hash_of(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
