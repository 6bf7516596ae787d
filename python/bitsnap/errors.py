"""The exceptions of bitsnap: one class for each kind of error, told apart by whose fault the error is.

All of them are :class:`BitsnapError`. Where Python has a class of its own for such an error, the class of bitsnap is
one of that kind too, so that ``except FileNotFoundError`` works as it does for any other file. The message says what
was being read or written, where, what was expected and what was found.
"""

from __future__ import annotations

__all__ = [
    "BackgroundSaveWarning",
    "BitsnapError",
    "BusyError",
    "CancelledError",
    "CorruptError",
    "ExistsError",
    "InternalError",
    "InvalidArgumentError",
    "IoError",
    "NotFoundError",
    "ResourceExhaustedError",
    "RestoreWarning",
    "TruncatedError",
    "UnsupportedError",
]


class BitsnapError(Exception):
    """Any error that bitsnap reports.

    Attributes:
        code: what went wrong, for programs: ``"adam_needed"``, or the name of the kind, such as ``"corrupt"``.
        field: the argument, setting or tensor that is wrong; None where the error is about something else.
    """

    code: str = "internal"
    field: str | None = None

    def __str__(self) -> str:
        # KeyError and OSError, which some of the classes below also are, have other ways to show themselves.
        return str(self.args[0]) if self.args else ""


class InvalidArgumentError(BitsnapError, ValueError):
    """The caller's fault: an argument, or a value in a state, that bitsnap cannot take."""


class ExistsError(InvalidArgumentError, FileExistsError):
    """The caller's fault: a file is there already, and ``overwrite=False`` was given."""


class NotFoundError(BitsnapError, FileNotFoundError, KeyError):
    """The caller's or the world's fault: a file, a tensor, a base or a key that is not there."""


class UnsupportedError(BitsnapError):
    """This version's limit: the file is of a newer format, or uses a codec, feature or dtype that is not known here."""


class TruncatedError(BitsnapError):
    """The data's fault: the file ends before it should."""


class CorruptError(BitsnapError):
    """The data's fault: the file contradicts itself or its hashes."""


class IoError(BitsnapError, OSError):
    """The world's fault: the operating system refused or failed."""


class ResourceExhaustedError(BitsnapError, MemoryError):
    """A limit was reached: memory, or a bound on what a file may ask for."""


class BusyError(BitsnapError):
    """Somebody else holds what is needed; try again later."""


class CancelledError(BitsnapError):
    """The caller asked to stop: a progress callback returned ``False``."""


class InternalError(BitsnapError, RuntimeError):
    """bitsnap's fault: a bug. Please report it."""


class BackgroundSaveWarning(UserWarning):
    """A save failed that a training does not wait for, or a function that was to be told of it."""


class RestoreWarning(UserWarning):
    """A state could not be had from where it was looked for first."""


_CLASSES: dict[str, type[BitsnapError]] = {
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


for _code, _class in _CLASSES.items():
    _class.code = _code


def class_of_kind(kind: str) -> type[BitsnapError]:
    """The class for a kind's name as the library writes it (``"corrupt"``)."""
    return _CLASSES[kind]
