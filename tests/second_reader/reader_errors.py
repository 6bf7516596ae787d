"""What the second reader raises, by whose fault it is, and the one helper that raises it."""

from __future__ import annotations


class ReaderError(Exception):
    """Any reason for which a file is not read."""


class Truncated(ReaderError):  # noqa: N818 - named as the specification names it
    """The file, or a payload in it, ends too early."""


class Corrupt(ReaderError):  # noqa: N818
    """The file breaks a rule of the specification."""


class Unsupported(ReaderError):  # noqa: N818
    """The file asks for a newer reader."""


class LimitReached(ReaderError):  # noqa: N818
    """The file asks for more memory than this reader grants. Says nothing against the file."""


class BaseMissing(ReaderError):  # noqa: N818
    """A base that a chunk needs was not found. Says nothing against the file."""


class Missing(ReaderError):  # noqa: N818
    """A file that a store must have is not there."""


def require(condition: bool, message: str) -> None:
    """The rule that `message` states broken, unless `condition`."""
    if not condition:
        raise Corrupt(message)
