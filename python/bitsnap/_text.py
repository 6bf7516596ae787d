"""Text from files and paths, made harmless for people and their terminals."""

from __future__ import annotations

import unicodedata


def printable(text: str, kept: str = "") -> str:
    """The text with escapes for control characters except `kept`, and for characters that reorder or hide text."""
    return "".join(
        c if c in kept or unicodedata.category(c) not in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"} else ascii(c)[1:-1]
        for c in text
    )
