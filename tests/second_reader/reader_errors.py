"""The errors of the second reader, by whose fault they are, and the helper that raises them."""

from __future__ import annotations


class ReaderError(Exception):
    """Any reason for which a file is not read."""


class Truncated(ReaderError):  # noqa: N818 - named as the specification names it
    """The file, or a payload in it, ends too early."""


class Corrupt(ReaderError):  # noqa: N818
    """The file breaks a rule of the specification."""


class Unsupported(ReaderError):  # noqa: N818
    """The file needs a newer reader."""


class LimitReached(ReaderError):  # noqa: N818
    """The file needs more memory than this reader grants. The file may be valid."""


class BaseMissing(ReaderError):  # noqa: N818
    """A base that a chunk needs was not found. The file may be valid."""


class Missing(ReaderError):  # noqa: N818
    """A file that a store must have does not exist."""


def require(condition: bool, message: str) -> None:
    """Raises Corrupt with `message` unless `condition` holds."""
    if not condition:
        raise Corrupt(message)
