"""The command line of `bitsnap report`, and the same as a function."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bitsnap import errors
from bitsnap._arguments import PathLike, local_path
from bitsnap.errors import printable
from bitsnap.report.report_data import CommandFailed, gather
from bitsnap.report.report_page import check_packages, check_target, render, write_whole

_FIRST_KIND = 11  # of the command's exit statuses
_MOST_STEPS = 1000


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
    overwrite: bool = False,
) -> None:
    """Writes a page about the run. The file appears completely or not at all.

    Args:
        run: the directory of the run.
        output: the file to write.
        steps: the number of checkpoints, spread over the run, that are decoded and studied. Sizes are shown of all.
        title: the title of the page; None for the name of the run.
        timings: a file with the costs of saves, such as that of callbacks.JsonLines.
        shard: the shard to study, from 0, if checkpoints have several.
        betas, eps: of Adam, for the effect of quantizers on its updates. Runs with quantized first moments have them.
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
    if (betas is None) != (eps is None):
        raise errors.InvalidArgumentError("betas and eps belong together, and one of them is missing")
    adam = None if betas is None or eps is None else (f"{betas[0]},{betas[1]}", str(eps))
    times = None if timings is None else Path(local_path(timings))
    data = gather(Path(local_path(run)), steps=steps, shard=shard, timings=times, adam=adam)
    write_whole(target, render(data, title))


def _count(text: str) -> int:
    number = int(text)
    if not 1 <= number <= _MOST_STEPS:
        raise argparse.ArgumentTypeError(f"{text}: a number from 1 to {_MOST_STEPS}")
    return number


def _betas(text: str) -> tuple[float, float]:
    first, _, second = text.partition(",")
    return float(first), float(second)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bitsnap report",
        description="Writes a page of plots about a run: sizes, changes, codecs, and the loss of lossy tensors. One "
        "HTML file that needs no network.",
    )
    parser.add_argument("run", metavar="RUN", help="the directory of the run")
    parser.add_argument("-o", "--output", metavar="PAGE.html", help="the page; by default, RUN-report.html")
    parser.add_argument(
        "--steps", type=_count, default=8, metavar="N", help="study N checkpoints, spread over the run (8)"
    )
    parser.add_argument("--title", metavar="T", help="title of the page; by default, the name of the run")
    parser.add_argument("--timings", metavar="FILE", help="costs of saves, as callbacks.JsonLines writes them")
    parser.add_argument("--shard", type=int, metavar="K", help="the shard to study, if checkpoints have several")
    parser.add_argument(
        "--betas", type=_betas, metavar="B1,B2", help="of Adam, with --eps: study the effect of quantizers on updates"
    )
    parser.add_argument("--eps", type=float, metavar="E", help="epsilon of Adam")
    parser.add_argument("-f", "--force", action="store_true", dest="overwrite", help="replace the page if it exists")
    parser.add_argument("-q", "--quiet", action="store_true", help="print only errors")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = vars(_parser().parse_args(arguments))
    quiet = options.pop("quiet")
    options["output"] = options["output"] or f"{Path(options['run']).absolute().name}-report.html"
    try:
        write_report(**options)
    except CommandFailed as failed:
        return failed.status
    except (errors.BitsnapError, OSError) as error:
        print(f"bitsnap: error: {printable(str(error))}", file=sys.stderr)
        return _FIRST_KIND + list(errors.KINDS).index(getattr(error, "code", "io"))
    if not quiet:
        print(printable(str(options["output"])), file=sys.stderr)
    return 0
