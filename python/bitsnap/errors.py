"""The exceptions of bitsnap: one class for each kind of error, defined by whose fault the error is.

All of them derive from :class:`BitsnapError`, and from the class that Python has for such errors, so that ``except
FileNotFoundError`` works as for any other file. The message says what was read or written, where, what was expected and
what was found.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping


def printable(text: str, kept: str = "") -> str:
    """The text with escapes for control characters except `kept`, and for characters that reorder or hide text."""
    return "".join(
        c if c in kept or unicodedata.category(c) not in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"} else ascii(c)[1:-1]
        for c in text
    )


class BitsnapError(Exception):
    """Any error that bitsnap reports.

    Attributes:
        code: for programs: ``"adam_needed"``; ``"not_storable"`` if a value of a state cannot be stored;
            ``"no_space"`` or ``"read_only"`` if the disk is full or mounted read-only; or the name of the kind, such
            as ``"corrupt"``.
        field: the argument, setting or tensor that is wrong; None if the error is about something else.
    """

    code: str = "internal"
    field: str | None = None

    def __str__(self) -> str:
        # KeyError and OSError, from which some classes below derive, format their arguments in other ways. Paths and
        # names in the message may come from anywhere.
        return printable(str(self.args[0]), kept="\n") if self.args else ""


class InvalidArgumentError(BitsnapError, ValueError):
    """The caller: bitsnap cannot accept an argument, or store a value of a state."""


class ExistsError(InvalidArgumentError, FileExistsError):
    """The caller: the file exists, and ``overwrite`` is False."""


class NotFoundError(BitsnapError, FileNotFoundError, KeyError):
    """The caller or the system: a file, tensor, base or key does not exist."""


class UnsupportedError(BitsnapError):
    """This version: the file has a newer format, or an unknown codec, feature or dtype."""


class TruncatedError(BitsnapError):
    """The data: the file ends too early."""


class CorruptError(BitsnapError):
    """The data: the file contradicts itself or its hashes."""


class IoError(BitsnapError, OSError):
    """The system: an operation of the operating system failed."""


class ResourceExhaustedError(BitsnapError, MemoryError):
    """A limit was reached: memory, or a bound on what a file may need."""


class BusyError(BitsnapError):
    """Another process or thread holds what this call needs; try again later."""


class CancelledError(BitsnapError):
    """The caller: a progress callback returned False."""


class InternalError(BitsnapError, RuntimeError):
    """bitsnap: a bug; please report it."""


class BackgroundSaveWarning(UserWarning):
    """A save of a Checkpointer, its `on_progress` or a done callback failed; or not all ranks saved a step, so it was
    skipped."""


class MemoryWarning(UserWarning):
    """A Checkpointer has less or slower memory than it was asked to use, and continues with that."""


class PlainBytesWarning(UserWarning):
    """Files look like those of a known format, but their tensors were not found: plain bytes take more space."""


class DamageWarning(UserWarning):
    """A load or an extraction with ``partial=True`` has left out what is damaged.

    Attributes:
        damaged: the errors, by the names of tensors, places of the state or paths of files.
    """

    def __init__(self, message: str, damaged: Mapping[str, BitsnapError]) -> None:
        super().__init__(printable(message, kept="\n"))
        self.damaged = dict(damaged)

    def __reduce__(self) -> tuple[type[DamageWarning], tuple[str, dict[str, BitsnapError]]]:
        return DamageWarning, (str(self), self.damaged)


class RestoreWarning(UserWarning):
    """A state is restored from another source than the first choice, or is not the one that the training had; or a
    training that did not restore saves to a run that has checkpoints."""


class RetentionWarning(UserWarning):
    """Old checkpoints stay in a run, because something beside it cannot be read and may refer to them."""


# By the names of the kinds, in the order of the command's exit codes. The extension raises these.
KINDS: dict[str, type[BitsnapError]] = {
    "invalid_argument": InvalidArgumentError,
    "not_found": NotFoundError,
    "unsupported": UnsupportedError,
    "truncated": TruncatedError,
    "corrupt": CorruptError,
    "io": IoError,
    "resource_exhausted": ResourceExhaustedError,
    "busy": BusyError,
    "cancelled": CancelledError,
    "internal": InternalError,
}
for _code, _class in KINDS.items():
    _class.code = _code
