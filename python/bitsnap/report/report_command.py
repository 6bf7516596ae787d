"""The command line of `bitsnap report`, and the same as a function."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bitsnap import errors
from bitsnap._options import PathLike
from bitsnap.report.report_data import CommandFailed, gather
from bitsnap.report.report_page import check_packages, check_target, render, write_whole

_USAGE = 2
_KIND_OFFSET = 10  # of the command's exit statuses
_KINDS = (
    errors.InvalidArgumentError,
    errors.NotFoundError,
    errors.UnsupportedError,
    errors.TruncatedError,
    errors.CorruptError,
    errors.IoError,
    errors.ResourceExhaustedError,
    errors.BusyError,
    errors.CancelledError,
    errors.InternalError,
)
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
    """Writes a page about the run. It appears whole or not at all.

    Args:
        run: the directory of the run.
        output: the file to write; one that exists needs `overwrite`.
        steps: how many checkpoints, spread over the run, are decoded and studied; sizes are shown of all.
        title: of the page; the run's name if it is not given.
        timings: a file of what saving took, one JSON object a line: `step`, and `stall_seconds` or `save_seconds`.
        shard: which shard to study where a checkpoint has several, counted from 0.
        betas, eps: of Adam, for what quantizers would do to its updates. Runs that quantized first moments know them.

    Raises:
        InvalidArgumentError: the output exists, and `overwrite` is not given; or it is no regular file.
        NotFoundError: plotly or Jinja2 is not installed, the run has no checkpoint, or the output has no folder.
        OSError: the page could not be written.
        CommandFailed: the command bitsnap could not read the run; it has said why.
    """
    check_packages()
    target = Path(output)
    check_target(target, overwrite)
    if (betas is None) != (eps is None):
        raise errors.InvalidArgumentError("betas and eps belong together, and one of them is missing")
    adam = None if betas is None or eps is None else (f"{betas[0]},{betas[1]}", str(eps))
    times = None if timings is None else Path(timings)
    data = gather(Path(run), steps=steps, shard=shard, timings=times, adam=adam)
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
        description="Writes a page of plots about a run: sizes, changes, choices, and what was lost if loss was asked "
        "for. One HTML file that needs no network.",
    )
    parser.add_argument("run", metavar="RUN", help="the directory of the run")
    parser.add_argument("-o", "--output", metavar="PAGE.html", help="the page; RUN-report.html if not given")
    parser.add_argument(
        "--steps", type=_count, default=8, metavar="N", help="study so many checkpoints, spread over the run (8)"
    )
    parser.add_argument("--title", metavar="T", help="title of the page; the run's name if not given")
    parser.add_argument(
        "--timings", metavar="FILE", help="what saving took: a JSON object a line, step and stall_seconds, save_seconds"
    )
    parser.add_argument("--shard", type=int, metavar="K", help="the shard to study of those that a checkpoint has")
    parser.add_argument(
        "--betas", type=_betas, metavar="B1,B2", help="of Adam, with --eps: study what quantizers would do to updates"
    )
    parser.add_argument("--eps", type=float, metavar="E", help="epsilon of Adam")
    parser.add_argument("-f", "--force", action="store_true", help="replace the page if it exists")
    parser.add_argument("-q", "--quiet", action="store_true", help="nothing but errors")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    output = options.output or f"{Path(options.run).absolute().name}-report.html"
    try:
        write_report(
            options.run,
            output,
            steps=options.steps,
            title=options.title,
            timings=options.timings,
            shard=options.shard,
            betas=options.betas,
            eps=options.eps,
            overwrite=options.force,
        )
    except CommandFailed as failed:
        return failed.status
    except errors.BitsnapError as error:
        place = next((i for i, kind in enumerate(_KINDS) if isinstance(error, kind)), len(_KINDS) - 1)
        print(f"bitsnap: error: {error}", file=sys.stderr)
        return _KIND_OFFSET + 1 + place
    except OSError as error:
        print(f"bitsnap: error: {error}", file=sys.stderr)
        return _KIND_OFFSET + 1 + _KINDS.index(errors.IoError)
    if not options.quiet:
        print(output, file=sys.stderr)
    return 0
