"""The page: one HTML file that loads nothing.

The content security policy of the page allows only its own scripts, by their hashes, and no requests (a page that is
served: to its server only). A name from a file therefore stays text, even if an escape were missing.
"""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from importlib import resources
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

from bitsnap import errors
from bitsnap._common import PathLike, given_home, local_path
from bitsnap.errors import ExistsError, InvalidArgumentError, NotFoundError, printable
from bitsnap.report import report_branches, report_changes, report_figures, report_plotly, report_tensors, report_values
from bitsnap.report.report_data import (
    RunData,
    count_text,
    error_text,
    finite,
    gather,
    ratio_text,
    role_text,
    share_text,
    size_text,
)
from bitsnap.report.report_figures import Figure

# How the data of a page is written.
_JSON: dict[str, Any] = {"ensure_ascii": False, "separators": (",", ":"), "allow_nan": False}
_FILES = resources.files("bitsnap.report")
# Heading, anchor, figures.
_SECTIONS: list[tuple[str, str, list[Callable[[RunData], Figure | None]]]] = [
    (
        "What it costs",
        "costs",
        [
            report_figures.bytes_figure,
            report_figures.ratio_figure,
            report_values.timing_figure,
            report_values.metrics_figure,
            report_branches.branches_figure,
        ],
    ),
    (
        "How it changes",
        "changes",
        [
            report_changes.layers_figure,
            report_changes.distance_figure,
            report_changes.planes_figure,
            report_changes.bits_figure,
        ],
    ),
    ("What could be made of it", "possible", [report_changes.coders_figure, report_figures.rate_figure]),
    ("What was chosen", "choices", [report_figures.codec_figure]),
]


def check_packages() -> None:
    for name, package in (("plotly", "plotly"), ("jinja2", "Jinja2")):
        if importlib.util.find_spec(name) is None:
            raise NotFoundError(
                f"a report needs the package {package}, which is not installed: pip install 'bitsnap[report]'"
            )


def sections(data: RunData) -> list[tuple[str, str, list[Figure]]]:
    """The sections of the page: heading, anchor, figures. A section without figures is left out."""
    found = []
    for title, anchor, functions in _SECTIONS:
        figures = [figure for function in functions if (figure := function(data))]
        # Two narrow figures stand side by side; a single one is made wide.
        for _, alike in groupby(figures, key=lambda figure: figure.wide):
            row = list(alike)
            row[-1].wide |= len(row) % 2 == 1
        if figures:
            found.append((title, anchor, figures))
    return found


def _summary(data: RunData) -> dict[str, Any]:
    """The numbers of the head of the page, which the template formats."""
    snapshots = [data.snapshots[step] for step in sorted(data.snapshots)]
    policies = [each["policy"] + (f", for {each['objective']}" if each["objective"] else "") for each in snapshots]
    lossy_step, lossy = data.lossy or (None, {"tensors": [], "total": {"raw_bytes": 0}})
    quantized = sum(tensor["raw_bytes"] for tensor in report_figures.lossy_tensors(lossy))
    return {
        "raw": sum(checkpoint["raw_bytes"] for checkpoint in data.checkpoints),
        "held": data.sizes["stored_bytes"],
        "damaged": len(data.sizes["steps"]) - len(data.checkpoints),
        "needed": sum(each["bytes"] for each in data.sizes["needed"]),
        "policies": list(dict.fromkeys(policies)),
        "losses": report_figures.losses(lossy),
        "lossy_step": lossy_step,
        "lossy_share": quantized / (lossy["total"]["raw_bytes"] or 1),
    }


def script_in_html(text: str) -> str:
    """A trusted script for a script element."""
    return text.replace("\r\n", "\n").replace("</script", "<\\/script").replace("<!--", "<\\!--")


class Live(Protocol):
    """What a page that is served shows beside the data of the run."""

    @property
    def version(self) -> str: ...

    @property
    def notice(self) -> str: ...


def render(data: RunData, title: str | None = None, live: Live | None = None, with_scripts: bool = True) -> str:
    """The whole page. `with_scripts` False leaves out the scripts, for a page that has them already, and gives the data
    as it is; a whole page has it compressed, because it may be some megabytes of names and numbers."""
    check_packages()
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    parts = sections(data) if data.checkpoints else []
    figures = {figure.name: asdict(figure) for _, _, some in parts for figure in some}
    scripts = [script_in_html(_text(name)) for name in ("report.js", *(["report_live.js"] if live else []))]
    plotly, plotly_hash = report_plotly.plotly() if with_scripts else ("", "")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.policies["json.dumps_kwargs"] = _JSON
    environment.filters |= {
        "count_text": count_text,
        "error_text": error_text,
        "printable": printable,
        "ratio_text": ratio_text,
        "role_text": role_text,
        "share_text": share_text,
        "size_text": size_text,
    }
    document = finite(
        {"version": live.version if live else "", "figures": figures, "reasons": report_tensors.reasons(data)}
    )
    name = data.label + (f" and {data.against.label}" if data.against else "")
    return environment.from_string(_text("report.html.j2")).render(
        title=printable(title if title is not None else name),
        run=data,
        live=live,
        summary=_summary(data),
        sections=parts,
        branches=report_branches.rows(data),
        origin=next((each["origin"] for each in data.branches if each["name"] == data.branch), None),
        differences=report_values.differences(data),
        style=Markup(_text("report.css")),
        plotly=Markup(plotly),
        scripts=[Markup(script) for script in scripts] if with_scripts else [],
        hashes=" ".join(f"'{each}'" for each in [plotly_hash, *map(report_plotly.hash_of, scripts)] if each),
        document=document,
        packed=Markup(report_plotly.packed(json.dumps(document, **_JSON))) if with_scripts else "",
    )


def _text(name: str) -> str:
    return (_FILES / name).read_text(encoding="utf-8")


def check_target(path: Path, overwrite: bool) -> None:
    """Refuses targets before the run is read. Renaming a page over a pipe or a device would remove it."""
    if path.is_dir():
        raise InvalidArgumentError(f"{path}: it is a directory")
    if path.exists() and not path.is_file():
        raise InvalidArgumentError(f"{path}: it is not a regular file")
    if path.exists() and not overwrite:
        raise ExistsError(f"{str(path)!r} exists; overwrite=True or -f replaces it")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise NotFoundError(f"{path}: there is no folder {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def write_whole(path: Path, text: str) -> None:
    """Writes under a temporary name, syncs and renames, so that the page appears completely or not at all."""
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:64]}.", suffix=".tmp", dir=path.absolute().parent)
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(file.fileno(), 0o666 & ~mask)
        Path(temporary).replace(path)
    except BaseException as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):  # which names the temporary file
            raise type(error)(error.errno, error.strerror, str(path)) from None
        raise


def write_report(
    run: PathLike,
    output: PathLike,
    *,
    steps: int = 8,
    title: str | None = None,
    timings: PathLike | None = None,
    shard: int | None = None,
    betas: tuple[float, float] | None = None,
    eps: float | None = None,
    against: PathLike | None = None,
    overwrite: bool = False,
) -> None:
    """Writes a page about the run. The file appears completely or not at all.

    Args:
        run: the directory of the run.
        output: the file to write.
        steps: the number of checkpoints, spread over the run, that are decoded and studied. Sizes are shown of all.
        title: the title of the page; None for the name of the run.
        timings: a file with the costs of saves, such as that of callbacks.JsonLines; None for the file timings.jsonl of
            the run, if it has one.
        shard: study this shard alone, from 0, if checkpoints have several.
        betas, eps: of Adam, for the effect of quantizers on its updates. Runs with quantized first moments have them.
        against: the directory of another run, of which sizes and values are shown beside those of the first one.
        overwrite: replace the file if it exists.

    Raises:
        ExistsError: the file exists and `overwrite` is False.
        InvalidArgumentError: the output is not a regular file.
        NotFoundError: plotly or Jinja2 is not installed, the run has no checkpoint, or the output has no folder.
        UnsupportedError: a path is a URL.
        OSError: the page could not be written.
        CommandFailed: the command bitsnap could not read the run, and printed why.
    """
    check_packages()
    target = Path(local_path(output))
    check_target(target, overwrite)
    adam = adam_of(betas, eps)
    times = None if timings is None else Path(local_path(timings))
    data = gather(given_home(run), steps=steps, shard=shard, timings=times, adam=adam)
    if against is not None:
        data = replace(data, against=gather(given_home(against), steps=0))
    write_whole(target, render(data, title))


def adam_of(betas: tuple[float, float] | None, eps: float | None) -> tuple[str, str] | None:
    if (betas is None) != (eps is None):
        raise errors.InvalidArgumentError("betas and eps belong together, and one of them is missing")
    return None if betas is None or eps is None else (f"{betas[0]},{betas[1]}", str(eps))
