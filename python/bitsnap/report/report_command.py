"""The command line of `bitsnap report`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitsnap import errors
from bitsnap._common import given_home, local_path
from bitsnap.errors import printable
from bitsnap.report.report_data import CommandFailed
from bitsnap.report.report_page import adam_of, write_report
from bitsnap.report.report_serve import serve

_FIRST_KIND = 11  # of the command's exit statuses
_MOST_STEPS = 1000


def _count(text: str) -> int:
    number = int(text)
    if not 1 <= number <= _MOST_STEPS:
        raise argparse.ArgumentTypeError(f"{text}: a number from 1 to {_MOST_STEPS}")
    return number


def _port(text: str) -> int:
    number = int(text)
    if not 0 < number < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text}: a number from 1 to 65535")
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
    parser.add_argument("--against", metavar="RUN2", help="another run, to show both side by side")
    parser.add_argument(
        "--serve", action="store_true", help="serve the page on 127.0.0.1, and show new checkpoints while it is open"
    )
    parser.add_argument("--port", type=_port, metavar="N", help="the port of --serve; by default, one that is free")
    parser.add_argument("-o", "--output", metavar="PAGE.html", help="the page; by default, RUN-report.html")
    parser.add_argument(
        "--steps", type=_count, default=8, metavar="N", help="study N checkpoints, spread over the run (8)"
    )
    parser.add_argument("--title", metavar="T", help="title of the page; by default, the name of the run")
    parser.add_argument(
        "--timings",
        metavar="FILE",
        help="costs of saves, as callbacks.JsonLines writes them; by default, RUN/timings.jsonl",
    )
    parser.add_argument("--shard", type=int, metavar="K", help="study this shard alone, if checkpoints have several")
    parser.add_argument(
        "--betas", type=_betas, metavar="B1,B2", help="of Adam, with --eps: study the effect of quantizers on updates"
    )
    parser.add_argument("--eps", type=float, metavar="E", help="epsilon of Adam")
    parser.add_argument("-f", "--force", action="store_true", dest="overwrite", help="replace the page if it exists")
    parser.add_argument("-q", "--quiet", action="store_true", help="print only errors")
    return parser


def _serve(run: str, against: str | None, timings: str | None, **options: Any) -> int:
    adam = adam_of(options.pop("betas"), options.pop("eps"))
    other = given_home(against) if against else None
    times = Path(local_path(timings)) if timings else None
    return serve(given_home(run), against=other, timings=times, adam=adam, **options)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = vars(parser.parse_args(arguments))
    quiet, is_served, port = (options.pop(name) for name in ("quiet", "serve", "port"))
    if is_served and (options["output"] or options["overwrite"]):
        parser.error("--serve writes no page: leave out -o and -f")
    if port and not is_served:
        parser.error("--port belongs to --serve")
    try:
        if is_served:
            del options["output"], options["overwrite"]
            return _serve(**options, port=port or 0)
        options["output"] = options["output"] or f"{Path(options['run']).absolute().name}-report.html"
        write_report(**options)
    except CommandFailed as failed:
        return failed.status
    except (errors.BitsnapError, OSError) as error:
        print(f"bitsnap: error: {printable(str(error))}", file=sys.stderr)
        return _FIRST_KIND + list(errors.KINDS).index(getattr(error, "code", "io"))
    if not quiet:
        print(printable(str(options["output"])), file=sys.stderr)
    return 0
