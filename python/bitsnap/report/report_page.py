"""The page: one HTML file that loads nothing.

Its content security policy allows only the two scripts of the page, by their hashes, and no requests. A name from a
file therefore stays text, even if an escape were missing.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import importlib.util
import json
import os
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

from bitsnap.errors import ExistsError, InvalidArgumentError, NotFoundError
from bitsnap.report import report_changes, report_figures, report_loss
from bitsnap.report.report_data import RunData
from bitsnap.report.report_figures import Figure
from bitsnap.report.report_text import (
    count_text,
    error_text,
    printable,
    ratio_text,
    role_text,
    share_text,
    size_text,
)

_FILES = resources.files("bitsnap.report")


def check_packages() -> None:
    for name, package in (("plotly", "plotly"), ("jinja2", "Jinja2")):
        if importlib.util.find_spec(name) is None:
            raise NotFoundError(
                f"a report needs the package {package}, which is not installed: pip install 'bitsnap[report]'"
            )


def sections(data: RunData) -> list[tuple[str, str, list[Figure]]]:
    """The sections of the page: heading, anchor, figures. A section without figures is left out."""
    raw = {checkpoint["step"]: checkpoint["raw_bytes"] for checkpoint in data.checkpoints}
    found: list[tuple[str, str, list[Figure | None]]] = [
        (
            "What it costs",
            "costs",
            [
                report_figures.bytes_figure(data),
                report_figures.ratio_figure(data),
                report_figures.timing_figure(data.timings, raw),
            ],
        ),
        (
            "How it changes",
            "changes",
            [
                report_changes.layers_figure(data),
                report_changes.distance_figure(data),
                report_changes.planes_figure(data),
                report_changes.bits_figure(data),
            ],
        ),
        (
            "What could be made of it",
            "possible",
            [report_changes.coders_figure(data), report_loss.rate_figure(data)],
        ),
        ("What was chosen", "choices", [report_figures.codec_figure(data)]),
    ]
    kept = [(title, anchor, [figure for figure in figures if figure]) for title, anchor, figures in found]
    for _, _, figures in kept:
        _widen(figures)
    return [(title, anchor, figures) for title, anchor, figures in kept if figures]


def _widen(figures: list[Figure]) -> None:
    """Two narrow figures stand side by side; a single one is made wide."""
    alone: Figure | None = None
    for figure in figures:
        if alone is not None and figure.wide:
            alone.wide = True
        alone = None if figure.wide or alone is not None else figure
    if alone is not None:
        alone.wide = True


def summary(data: RunData) -> dict[str, Any]:
    """The head of the page."""
    checkpoints = data.checkpoints
    raw = sum(checkpoint["raw_bytes"] for checkpoint in checkpoints)
    stored = sum(checkpoint["stored_bytes"] for checkpoint in checkpoints)
    newest = checkpoints[-1]
    snapshots = [data.snapshots[step] for step in sorted(data.snapshots)]
    policies = list(dict.fromkeys(_policy(snapshot) for snapshot in snapshots))
    lossy_step, lossy = data.lossy or (None, None)
    losses = [] if lossy is None else report_loss.losses(lossy)
    damaged = len(data.sizes["steps"]) - len(checkpoints)
    needed = sum(each["bytes"] for each in data.sizes["needed"])
    steps = f"{count_text(checkpoints[0]['step'])} to {count_text(newest['step'])}"
    tiles = [
        ("ratio", ratio_text(raw / stored if stored else None), "smaller than raw, over the whole run"),
        ("raw", size_text(raw), f"{size_text(newest['raw_bytes'])} in the newest"),
        ("stored", size_text(stored), f"{size_text(newest['stored_bytes'])} in the newest"),
        (
            "checkpoints",
            count_text(len(checkpoints)),
            f"steps {steps}" if len(checkpoints) > 1 else f"step {count_text(newest['step'])}",
        ),
    ]
    notes = []
    if damaged:
        notes.append(f"{count_text(damaged)} damaged checkpoints are left out; `bitsnap verify` says what is wrong")
    if needed:
        notes.append(f"{size_text(needed)} more belong to pruned checkpoints that others need")
    return {
        "tiles": tiles,
        "policies": [printable(policy) for policy in policies],
        "lossy": bool(losses),
        "lossless": data.is_lossless,
        "searched": f"{count_text(data.searched)} of {count_text(data.files)}",
        "lossy_step": lossy_step,
        "losses": [
            {
                "role": role_text(line["role"]),
                "rule": printable(line["rule"]),
                "tensors": count_text(line["tensors"]),
                "bound": "–" if line["bound"] is None else f"{error_text(line['bound'])} {line['unit']}",
                "reached": "–" if line["reached"] is None else error_text(line["reached"]),
                "mre": error_text(line["mre"]),
                "mse": error_text(line["mse"]),
                "update_error": "–" if line["update"] is None else error_text(line["update"]),
            }
            for line in losses
        ],
        "lossy_share": share_text(_lossy_share(lossy)) if lossy is not None else "",
        "studied": [state["step"] for state in data.states],
        "notes": notes,
    }


def _policy(snapshot: dict[str, Any]) -> str:
    objective = snapshot["objective"]
    return f"{snapshot['policy']}, for {objective}" if objective else str(snapshot["policy"])


def _lossy_share(snapshot: dict[str, Any]) -> float:
    lossy = sum(tensor["raw_bytes"] for tensor in report_loss.lossy_tensors(snapshot))
    whole = snapshot["total"]["raw_bytes"]
    return lossy / whole if whole else 0.0


def json_in_html(document: Any) -> str:
    """JSON for a script element, which it neither ends nor turns into a comment."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def script_in_html(text: str) -> str:
    """A trusted script for a script element."""
    return text.replace("\r\n", "\n").replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def render(data: RunData, title: str | None = None) -> str:
    """The whole page."""
    check_packages()
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    parts = sections(data)
    figures = {figure.name: figure.document() for _, _, some in parts for figure in some}
    scripts = [script_in_html(_plotly()), script_in_html(_text("report.js"))]
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    name = Path(data.run).absolute().name
    return environment.from_string(_text("report.html.j2")).render(
        title=printable(title if title is not None else name),
        run=printable(data.run),
        version=data.version,
        summary=summary(data),
        sections=parts,
        style=Markup(_text("report.css")),
        scripts=[Markup(script) for script in scripts],
        hashes=" ".join(f"'{_hash(script)}'" for script in scripts),
        data=Markup(json_in_html({"figures": figures, "reasons": report_figures.reasons(data)})),
    )


def _plotly() -> str:
    """As plotly.offline.get_plotlyjs(), without importing the whole package."""
    return (resources.files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")


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
    try:
        _write_and_rename(path, text)
    except OSError as error:  # which names the temporary file
        raise type(error)(error.errno, error.strerror, str(path)) from None


def _write_and_rename(path: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:64]}.", suffix=".tmp", dir=path.absolute().parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(file.fileno(), 0o666 & ~mask)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
